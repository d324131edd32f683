# SPDX-License-Identifier: Apache-2.0
"""The scenarios counted on the board."""

from __future__ import annotations

import pathlib
import statistics
from typing import Any

from lab.router import board

BYTES = 3_000_000
SCENARIOS = ("relayed", "file", "forward")
HOPS = 2  # in the scenario "forward"


def count(
    bquic: pathlib.Path, scenario: str, direction: str, profile: str, offload: str, size: int = BYTES,
) -> list[dict[str, Any]]:
    """Boots the board, carries SIZE bytes three times, and returns a row with medians for each process. Raises board.CannotRun and Failed."""
    said: dict[str, list[int]] = {}
    with board.run(board.HERE / "cell", [scenario, direction, profile, offload, str(size)], {"bquic": bquic}) as lines:
        for line in lines:
            name, _, value = line.partition(" ")
            if value.isdigit():
                said.setdefault(name, []).append(int(value))
    values = {name: statistics.median(several) for name, several in said.items()}
    cell = {"direction": direction, "profile": profile, "offload": offload}

    def instructions(name: str) -> float:
        return values[name] * 1e3 / board.NS_PER_INSTRUCTION

    def row(what: str, per_byte: float, process: str | None = None, **more: Any) -> dict[str, Any]:
        return {"what": what, **cell, "instructions_per_byte": round(per_byte, 1),
                "rss_kib": values.get(f"{process}-rss"), **more}

    if scenario == "relayed":
        return [row("relay", instructions("relay") / size, "relay", switches=values["relay-switches"]),
                row("gateway relaying", instructions("gateway") / size, "gateway")]
    if scenario == "file":
        return [row(what, (instructions(f"{process}-data") - instructions(f"{process}-byte")) / size, process,
                    handshake_instructions=round(instructions(f"{process}-byte")))
                for what, process in (("gateway serving a file", "gateway"), ("fetch", "fetch"))]
    return [row("forwarding, a hop", (instructions("forwarded") - instructions("direct")) / size / HOPS)]
