#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does it still help when two other APs take about 30 % of the channel?

The paper (WiFiRR, TMC 2016, figure 23): 15 laptops of 802.11n gain 1.3x with HTTP
and 1.9x with SPDY beside the neighbours, and 2.4x and 2.7x without.

Here: 15 stations behind today's AP, with 802.11n and 802.11g, with the neighbours and without. "default" is wifirrd as it ships:
larger windows for 802.11n, turns for 802.11g. "turns" are the paper's; 802.11n does not have them by default. With 802.11g, the other APs leave
too little time for all uploads. Half of the clients are then done far sooner with turns. Turns were chosen on the same seeds, but with other crowds.

Writes results/neighbour.json (rows: lab/simulation.py) and
docs/results/neighbour.svg. An interrupted run continues where it stopped.
"""

from __future__ import annotations

import argparse
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from lab import command, results, simulation  # noqa: E402
from lab.results import Row, interval, median, spread  # noqa: E402
from lab.simulation import pairs  # noqa: E402

RESULTS = ROOT / "results/neighbour.json"
QUICK_RESULTS = ROOT / "build/lab/neighbour.json"
FIGURE = ROOT / "docs/results/neighbour.svg"

STATIONS = 15
SHARE = 0.3  # share of the airtime, both neighbours together
CELLS = [(phy, traffic, rate) for phy in ("11n", "11g")
         for traffic, rate in (("browse", 100), ("spdy", 100), ("cbr", 200))]
FORMS: dict[str, dict[str, Row]] = {
    "11n": {"none": {"form": "none"}, "default": {"form": "wifirr", "windows": "auto", "rts": True}, "turns": {"form": "wifirr"}},
    "11g": {"none": {"form": "none"}, "default": {"form": "wifirr"}, "turns by htb": {"form": "wifirr-htb"}},
}
FILE_MB = 3


def of(rows: list[Row], phy: str, traffic: str, share: float, form: str) -> list[Row]:
    key = {"phy": phy, "traffic": traffic, "neighbour_share": share, "windows": "off", "rts": False, **FORMS[phy][form]}
    return [r for r in rows if all(r[k] == v for k, v in key.items())]


def report(rows: list[Row]) -> str:
    lines = []
    for phy, traffic, rate in CELLS:
        for share in (0, SHARE):
            base = of(rows, phy, traffic, share, "none")
            for form in FORMS[phy]:
                some = of(rows, phy, traffic, share, form)
                if not some:
                    continue
                gains = pairs(base, some, "worst_s") if form != "none" else []
                lines.append([
                    f"{phy}, {traffic} {rate} kbit/s", f"{share:.0%}", form, results.number(median(some, "worst_s")),
                    spread(gains),
                    results.number(median(some, "median_s")), results.number(median(some, "upload_delivered_kbit"), ".0f"),
                    results.number(median(some, "collided_share"), ".1%"), str(len(some)),
                ])
    return results.table(["traffic", "neighbours", "form", "worst s", "gain", "median s", "uploads, kbit/s", "collided", "runs"], lines)


def paper(rows: list[Row]) -> list[list[str]]:
    """The gain with 802.11n over browsing (HTTP) without WiFiRR, as in the paper."""
    lines = []
    for share, where in ((0, "15 stations 802.11n alone"), (SHARE, "15 stations 802.11n, two neighbour APs")):
        base = of(rows, "11n", "browse", share, "none")
        for traffic, label, goal in (("browse", "HTTP", 1.3 if share else 2.4), ("spdy", "SPDY (over HTTP without)", 1.9 if share else 2.7)):
            some = of(rows, "11n", traffic, share, "turns")
            gains = pairs(base, some, "worst_s")
            if not gains:
                lines.append(results.not_run(f"{where}, {label}: WiFiRR", f"{goal}x"))
                continue
            lines.append([f"{where}, {label}: WiFiRR", f"{goal}x", spread(gains) + "x",
                          results.verdict(interval(gains)[0], goal, 1.1 * goal)])
    return lines


WHY_NOT = (
    "Where a gain is not reproduced, the base is better here: today's AP keeps a queue for each station and shares the airtime; "
    "the paper's AP had one queue for all."
)


def draw(rows: list[Row]) -> None:
    with results.drawing(FIGURE, (8, 3.6)) as axes:
        ticks = [(phy, traffic, rate, share) for phy, traffic, rate in CELLS for share in (0, SHARE)
                 if of(rows, phy, traffic, share, "none")]
        for form in dict.fromkeys(form for forms in FORMS.values() for form in forms):
            found = [(i + 0.27 * (list(FORMS[phy]).index(form) - 1), of(rows, phy, traffic, share, form))
                     for i, (phy, traffic, _, share) in enumerate(ticks) if form in FORMS[phy]]
            found = [(x, some) for x, some in found if some]
            axes.bar([x for x, _ in found], [median(some, "worst_s") or 0 for _, some in found], 0.25, label=form)
        axes.set_xticks(range(len(ticks)), [f"{phy}\n{traffic} {rate}\n{'with' if share else 'alone'}" for phy, traffic, rate, share in ticks],
                        fontsize=7)
        axes.set_ylabel("worst completion, s", fontsize=8)
        axes.set_title(f"{STATIONS} stations, alone and with two neighbour APs", fontsize=9)
        axes.legend(fontsize=7)


def measured(args: argparse.Namespace, path: pathlib.Path) -> list[Row]:
    cells = [c for c in CELLS if c[1] != "spdy"] if args.quick else CELLS
    return simulation.run(
        [{"stations": STATIONS, "phy": phy, "traffic": traffic, "upload_kbit": rate, "neighbour_share": share,
          "seed": seed, "file_mb": 1 if args.quick else FILE_MB, **own}
         for seed in range(1, args.seeds + 1) for phy, traffic, rate in cells for share in (0, SHARE) for form, own in FORMS[phy].items()
         if not args.quick or form in ("none", "default")],
        path, args.jobs, args.restart)


def main() -> int:
    return simulation.main("neighbour", __doc__ or "", RESULTS, QUICK_RESULTS, measured, report, draw)


if __name__ == "__main__":
    command(main)
