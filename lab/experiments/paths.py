#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random paths in virtual time: BQUIC and stock QUIC, over the same paths with the same loss.

Both ends are the real quic-go; the path is a model (docs/lab.md, "Random paths", describes the
distributions). There are 50 paths per seed; of paths with random loss, reordering, WiFi or a change, the median of ten
runs counts. A transfer takes a few seconds and has at most 6 MB. One seed's paths are also run with ten times as
much data, because a sender's behaviour beyond its start shows only in long transfers. The target is a ratio of
bquic to stock of at least 0.95 on 99 % of the paths and 0.90 on all, and a geometric mean of 1.0.

Writes results/paths.json (a row a path: seed, number, direction, the path's parameters, mbps_standard,
mbps_bquic; loss and reordering as shares) and docs/results/paths.svg. An interrupted run continues where
it stopped.
"""

from __future__ import annotations

import pathlib
import statistics
import sys
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from lab import command, results, virtual  # noqa: E402
from lab.results import Row  # noqa: E402

RESULTS = ROOT / "results/paths.json"
QUICK_RESULTS = ROOT / "build/lab/paths.json"
FIGURE = ROOT / "docs/results/paths.svg"

SEEDS = range(6, 16)  # 1 to 5 are used to choose parameters
LONG = "ten times as long"
LONG_SEEDS = range(6, 7)
VARIANTS = {"": {}, LONG: {"BQUIC_PATHS_LONGER": "10"}}
WANTED, LEAST, GEOMEAN = 0.95, 0.90, 1.0
WORST = 8  # how many of the worst paths are listed

KINDS: dict[str, Callable[[Row], bool]] = {
    "all": lambda r: True,
    "download": lambda r: r["direction"] == "download",
    "upload": lambda r: r["direction"] == "upload",
    "wire, FIFO": lambda r: not r["wifi"] and not r["codel"],
    "wire, CoDel": lambda r: not r["wifi"] and r["codel"],
    "WiFi": lambda r: r["wifi"],
    "no loss": lambda r: not r["loss"],
    "loss, independent": lambda r: r["loss"] and r["loss_burst"] == 1,
    "loss, bursts": lambda r: r["loss"] and r["loss_burst"] > 1,
    "reordering": lambda r: r["reorder"] > 0,
    "change midway": lambda r: r["change_ms"] > 0,
}


def ratio(row: Row) -> float:
    return float(row["mbps_bquic"] / row["mbps_standard"])


def describe(r: Row) -> str:
    parts = [f"{r['seed']}/{r['number']}", r["direction"], f"{r['rate_mbps']:.1f} Mbit/s", f"{r['rtt_ms']:.1f} ms", f"{r['buffer_packets']} packets"]
    parts += ["CoDel"] * r["codel"] + ["WiFi"] * r["wifi"]
    if r["loss"]:
        parts.append(f"loss {100 * r['loss']:.2f} % in {r['loss_burst']:.1f}")
    if r["reorder"]:
        parts.append(f"{100 * r['reorder']:.2f} % late by {r['late_ms']:.1f} ms")
    if r["change_ms"]:
        parts.append(f"after {r['change_ms'] / 1e3:.1f} s {r['rate2_mbps']:.1f} Mbit/s {r['rtt2_ms']:.1f} ms")
    return ", ".join(parts)


def verdicts(rows: list[Row]) -> list[list[str]]:
    found = sorted(map(ratio, rows))
    share = sum(r >= WANTED for r in found) / len(found)
    middle = results.geomean(found)
    return [
        [f"at least {WANTED} on 99 % of paths", f"{100 * share:.1f} %", "met" if share >= 0.99 else "MISSED"],
        [f"at least {LEAST:.2f} on all", f"worst {found[0]:.3f}", "met" if found[0] >= LEAST else "MISSED"],
        [f"geometric mean at least {GEOMEAN}", f"{middle:.3f}", "met" if middle >= GEOMEAN else "MISSED"],
    ]


def report(rows: list[Row]) -> str:
    text = []
    for variant in VARIANTS:
        of = [r for r in rows if r["variant"] == variant]
        if not of:
            continue
        lines = []
        for kind, is_kind in KINDS.items():
            if found := sorted(ratio(r) for r in of if is_kind(r)):
                lines.append([kind, str(len(found)), f"{results.geomean(found):.3f}", f"{statistics.median(found):.3f}", f"{found[0]:.3f}",
                              f"{found[-1]:.2f}", *(str(sum(r < limit for r in found)) for limit in (WANTED, LEAST))])
        seeds = sorted({r["seed"] for r in of})
        title = f"transfers {variant}" if variant else "transfers of 2 to 6 s, 6 MB at most"
        text.append(f"{title}, bquic over stock, seed{f's {seeds[0]} to {seeds[-1]}' if seeds[1:] else f' {seeds[0]}'}")
        text.append(results.table(["paths", "n", "geometric mean", "median", "worst", "best", f"< {WANTED}", f"< {LEAST:.2f}"], lines))
        text.append(results.table(["target", "here", ""], verdicts(of)))
        worst = sorted(of, key=ratio)[:WORST]
        text.append("\n".join(["the worst:", *(f"  {ratio(r):.3f}  {r['mbps_bquic']:.2f} for {r['mbps_standard']:.2f} Mbit/s  {describe(r)}" for r in worst)]))
    return "\n\n".join(text)


def draw(rows: list[Row]) -> None:
    with results.drawing(FIGURE, (7, 3.4)) as axes:
        for variant in VARIANTS:
            if found := sorted(ratio(r) for r in rows if r["variant"] == variant):
                axes.plot(found, [100 * (k + 1) / len(found) for k in range(len(found))], label=f"{len(found)} paths" + (f", {variant}" if variant else ""))
        axes.axvline(1, color="grey", linewidth=0.5)
        axes.axvline(LEAST, color="grey", linewidth=0.5, linestyle="dotted")
        axes.set_xscale("log")
        ticks = [0.5, 0.7, 0.9, 1, 1.5, 2, 3, 5, 8]
        axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
        axes.minorticks_off()
        axes.set_xlabel("bquic over stock QUIC, throughput", fontsize=8)
        axes.set_ylabel("% of paths with no more", fontsize=8)
        axes.legend(fontsize=7)


def main() -> int:
    def variants(seed: int) -> dict[str, dict[str, str]]:
        return {name: more for name, more in VARIANTS.items() if name == "" or seed in LONG_SEEDS}

    return virtual.main("paths", __doc__ or "", "TestPaths", "BQUIC_PATHS", (SEEDS, SEEDS[:1]), RESULTS, QUICK_RESULTS, report, draw, variants)


if __name__ == "__main__":
    command(main)
