#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a node's clients get of a mesh that another node's downloads fill

Not in the papers. A node is three hops from the gateway, and the origin is 20 ms beyond the gateway. Clients of the node download as fast as they can. So do clients of
another node, which has no relay. (They are in fact clients of the same node, by a port that its relay leaves alone. The mesh sees the same.) Each
download is another client's, or all of the node's are of one client, such as a household's router. One more client of the node requests 1 kB by HTTPS five times a second.

"tcp": the relay is off. "relay-bquic": it is on. "relay-bquic-1": it is on, with one QUIC connection (`option connections '1'`). Queues in the mesh
(mac80211) separate flows, and one connection is one flow there, whatever it carries. The contenders take turns; every repetition is one seed and one medium for all of
them. The table of starved was made when a relay had one connection only.

Writes results/beside.json (rows: lab/realtime.py) and docs/results/beside.svg. An interrupted run continues where it stopped.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from typing import Any
from urllib.parse import urlsplit

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from lab import command, measure, medium, namespaces, realtime, results  # noqa: E402
from lab.latency import origin  # noqa: E402
from lab.results import Row, spread  # noqa: E402
from lab.servers import Servers  # noqa: E402
from lab.topology import Mesh  # noqa: E402

RESULTS = ROOT / "results/beside.json"
QUICK_RESULTS = ROOT / "build/lab/beside.json"
FIGURE = ROOT / "docs/results/beside.svg"

CENTRE: Row = {"hops": 3, "mcs": 7, "beyond_ms": 20}
# Downloads of the node, of how many of its clients, and of the other node.
AXES: list[Row] = [{"own": own, "clients": clients, "others": others} for own, clients, others in (
    (1, 1, 0), (4, 1, 0), (4, 4, 0), (1, 1, 1), (4, 4, 1), (1, 1, 4), (4, 1, 4), (4, 4, 4))]
QUICK_AXES = AXES[-1:]
# Their `connections`; None: no relay.
CONTENDERS: dict[str, str | None] = {"tcp": None, "relay-bquic": "auto", "relay-bquic-1": "1"}
SECONDS, QUICK_SECONDS = 12.0, 6.0
FIRST = 11  # first repetition, and seed; 201 to 254 were used to find out how many connections help
OWN, OTHERS = ([f"10.77.1.{first + i}" for i in range(4)] for first in (3, 20))
FIGURES = ("mbps", "request_ms")


def kind(key: Row) -> medium.Kind:
    return medium.Kind("wifi", ("--mcs", str(key["mcs"]), "--width", "20"), 60, wireless=True)


class Scene:
    """The mesh, its origin, and the clients of both nodes."""

    def __init__(self, lab: namespaces.Lab, key: Row) -> None:
        self.lab, self.own, self.others = lab, [OWN[i % key["clients"]] for i in range(key["own"])], OTHERS[: key["others"]]
        self.mesh = Mesh(lab, kind(key), key["hops"], seed=key["repetition"], beyond_ms=key["beyond_ms"])
        self.servers = Servers(lab, self.mesh, 1000)
        (self.servers.root / "small").write_bytes(bytes(1000))
        for address in {*self.own, *self.others}:
            self.mesh.add_client(lab, address)
        lab.serve("the origin", self.mesh.origin, sys.executable, str(ROOT / "lab/latency/origin.py"), log="origin.log",
                  ready=lambda: f":{origin.CALL}" in lab.run(self.mesh.origin, "ss", "-Hlun"))

    def run(self, contender: str, seconds: float) -> dict[str, Any]:
        """What rivals.py says; raises Failed."""
        port = str(urlsplit(self.servers.site("standard", "origin")).port)
        if (connections := CONTENDERS[contender]) is not None:
            self.servers.relay("bquic", connections=connections, exclude_ports=[origin.OTHERS])
        try:
            said: dict[str, Any] = json.loads(self.lab.run(
                self.mesh.phone, sys.executable, str(ROOT / "lab/latency/rivals.py"), Mesh.PHONE, Mesh.ORIGIN, port, str(seconds),
                *self.own, "--", *self.others, timeout=seconds + 60))
            if connections is not None:
                carried = self.servers.relay_status()["carried"]["total"]
                if carried < len(said["request"]) + len(self.own):
                    raise namespaces.Failed(f"the relay did not carry all connections, only {carried}")
        finally:
            self.servers.stop_relay()
        window = self.mesh.medium.mark()
        measure.drained(self.mesh.medium)
        return {**said, "window": window}

    def row(self, contender: str, seconds: float) -> Row:
        said, window, discarded = measure.kept_up(
            self.mesh.medium, lambda: self.run(contender, seconds), beyond=self.mesh.beyond)
        return {"mbps": round(said["own"] / 1e6, 3), "mbps_others": round(said["others"] / 1e6, 3),
                "request_ms": round(results.interval(said["request"])[0], 2), **measure.conditions(window, discarded)}


def run(args: argparse.Namespace, path: pathlib.Path) -> list[Row]:
    campaign = realtime.Campaign("beside", args, path, FIGURES)
    axes, seconds = (QUICK_AXES, QUICK_SECONDS) if args.quick else (AXES, SECONDS)
    wanted = [{**CENTRE, **axis, "repetition": repetition} for repetition in range(FIRST, FIRST + args.repetitions) for axis in axes]
    for i, key in enumerate(wanted, 1):
        missing = campaign.missing(key, list(CONTENDERS))
        if not missing:
            continue
        with namespaces.Lab() as lab:
            scene = Scene(lab, key)
            for contender in missing:
                campaign.add(key, contender, lambda: scene.row(contender, seconds),
                             f"{i}/{len(wanted)} {describe(key)}: {{contender}} {{mbps}} Mbit/s, others {{mbps_others}}, a request {{request_ms:.0f}} ms")
    return campaign.rows


def describe(key: Row) -> str:
    return f"{key['own']}{' of one client' if key['clients'] < key['own'] else ''} beside {key['others']}"


def of(rows: list[Row], axis: Row, contender: str) -> list[Row]:
    key = {**CENTRE, **axis, "contender": contender}
    return [r for r in rows if all(r[k] == v for k, v in key.items())]


def report(rows: list[Row]) -> str:
    lines = []
    for axis in AXES:
        base = of(rows, axis, "tcp")
        for contender in CONTENDERS:
            if some := of(rows, axis, contender):
                lines.append([
                    describe(axis), contender, spread(results.figures(some, "mbps"), ".1f"), spread(realtime.gains(base, some, "mbps")),
                    spread(results.figures(some, "mbps_others"), ".1f"), spread(results.figures(some, "request_ms"), ".0f"),
                    spread(realtime.gains(base, some, "request_ms")), str(len(some))])
    text = results.table(
        ["downloads", "contender", "Mbit/s", "/tcp", "others' Mbit/s", "request ms", "/tcp", "runs"], lines)
    return text + "\n\n" + realtime.notes(rows)


def draw(rows: list[Row]) -> None:
    with results.drawing(FIGURE, (8, 3), 1, 2) as panels:
        axes = [a for a in AXES if of(rows, a, "tcp")]
        for panel, (figure, title) in zip(panels, (("mbps", "the node's downloads, of those without a relay"),
                                                   ("request_ms", "a request's time, of that without a relay"))):
            for k, contender in enumerate(list(CONTENDERS)[1:]):
                found = [(i, gain) for i, a in enumerate(axes) if (gain := realtime.gains(of(rows, a, "tcp"), of(rows, a, contender), figure))]
                panel.bar([i + 0.3 * (k - 0.5) for i, _ in found], [results.interval(gain)[0] for _, gain in found], 0.28, label=contender)
            panel.axhline(1, color="k", linewidth=0.5)
            panel.set_xticks(range(len(axes)), [describe(a) for a in axes], fontsize=6, rotation=35, ha="right")
            panel.set_title(title, fontsize=8)
        panels[0].legend(fontsize=6)


def main() -> int:
    return realtime.main("beside", __doc__ or "", (10, 2), RESULTS, QUICK_RESULTS, run, report, draw)


if __name__ == "__main__":
    command(main)
