#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What BQUIC leaves to others at one bottleneck, in virtual time.

One bquic transfer runs beside 1, 2 or 4 with CUBIC, or beside one with stock QUIC (NewReno with a decrease to 0.7). All begin within one
second, and 30 s count after the first five. The RTT is 40 ms, or 120 ms for one side. The CUBIC is quic-go's own, which quic-go contains but does not use. It stands in for TCP's, but
its pacing, HyStart and acknowledgements differ from Linux's. "fairness" shows bquic beside Linux's own CUBIC.

One medium is a wire of 20 Mbit/s with one FIFO of 0.1, 0.5, 1 or 4 bandwidth-delay products, or with CoDel. The other is one hop of 802.11n at
26 Mbit/s, where all flows share one queue, a FIFO or CoDel (today's access points have one for each flow).

- "of its share": 1 if bquic gets as much as the others on average.
- "left": the others' throughput beside bquic, over their throughput beside one more flow of their own kind.
- "Jain": Jain's index of bquic and the mean of the others.
- "own kind" and "stock": the share of one more flow of the others' kind, and of stock QUIC, in bquic's place. With different RTTs, even the first is far from 1.

The targets are a share of 0.8 to 1.25, 0.85 left, and a Jain's index of 0.95. Below the table stands how often bquic meets them, and how often the other
two do: no sender can do much better.

Writes results/sharing.json (a row a run: seed, medium, contender, against, others, rtt_ms, rtt_others_ms,
mbps of the one and mbps_others of the others together). An interrupted run continues where it stopped.
"""

from __future__ import annotations

import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from lab import command, results, virtual  # noqa: E402
from lab.results import Row  # noqa: E402

RESULTS = ROOT / "results/sharing.json"
QUICK_RESULTS = ROOT / "build/lab/sharing.json"
FIGURE = ROOT / "docs/results/sharing.svg"

SEEDS = range(6, 10)  # 1 to 5 are used to choose parameters
LEAST, MOST, LEFT, JAIN = 0.8, 1.25, 0.85, 0.95
SENDERS = ("cubic", "standard", "bquic")


def each(row: Row) -> float:
    return float(row["mbps_others"] / row["others"])


def of_share(row: Row) -> float:
    return float(row["mbps"] * (row["others"] + 1) / (row["mbps"] + row["mbps_others"]))


def jain(row: Row) -> float:
    return float((row["mbps"] + each(row)) ** 2 / (2 * (row["mbps"] ** 2 + each(row) ** 2)))


def cells(rows: list[Row]) -> list[tuple[str, str, int, int, int]]:
    keys = [(r["medium"], r["against"], r["others"], r["rtt_ms"], r["rtt_others_ms"]) for r in rows]
    return list(dict.fromkeys(keys))


def of(rows: list[Row], cell: tuple[str, str, int, int, int], contender: str) -> list[Row]:
    return [r for r in rows if r["contender"] == contender and (r["medium"], r["against"], r["others"], r["rtt_ms"], r["rtt_others_ms"]) == cell]


def figures(rows: list[Row], cell: tuple[str, str, int, int, int], contender: str) -> tuple[float, float, float] | None:
    """Share, what is left, and Jain's index, from means over seeds, because a single run depends much on which flow was first."""
    some, base = of(rows, cell, contender), of(rows, cell, cell[1])
    if not some or not base:
        return None
    mean = {**some[0], "mbps": statistics.fmean(r["mbps"] for r in some), "mbps_others": statistics.fmean(r["mbps_others"] for r in some)}
    return of_share(mean), mean["mbps_others"] / statistics.fmean(r["mbps_others"] for r in base), jain(mean)


def fine(found: tuple[float, float, float] | None) -> bool:
    if not found:
        return False
    share, left, index = found
    return LEAST <= share <= MOST and left >= LEFT and index >= JAIN


def report(rows: list[Row]) -> str:
    lines = []
    met: dict[tuple[str, bool], list[bool]] = {}  # by sender, and whether all RTTs are equal
    for cell in cells(rows):
        medium, against, others, rtt, theirs = cell
        ours, own, stock = (figures(rows, cell, c) for c in ("bquic", against, "standard"))
        if not ours or not own:
            continue
        share, left, index = ours
        for sender, found in (("bquic", ours), ("a further flow of their own kind", own), ("stock QUIC", stock if against != "standard" else own)):
            met.setdefault((sender, rtt == theirs), []).append(fine(found))
        lines.append([medium, f"{others} {against}", f"{rtt}, {theirs}", f"{share:.2f}", f"{left:.2f}", f"{index:.2f}", f"{own[0]:.2f}",
                      f"{stock[0]:.2f}" if stock else "-", str(len(of(rows, cell, "bquic"))), "" if fine(ours) else "MISSED"])
    head = ["medium", "beside", "RTT, theirs", "of its share", "left", "Jain", "own kind", "stock", "runs", ""]
    counts = [f"{sender}, {'equal' if equal else 'different'} RTTs: {sum(cells)} of {len(cells)} cells meet the targets"
              for (sender, equal), cells in met.items()]
    return results.table(head, lines) + "\n\n" + "\n".join(counts)


def draw(rows: list[Row]) -> None:
    shown = cells(rows)
    with results.drawing(FIGURE, (8, 0.17 * len(shown) + 1)) as axes:
        for contender, marker in zip(SENDERS, "x+o"):
            found = [(k, value[0]) for k, cell in enumerate(shown) if (value := figures(rows, cell, contender))]
            axes.plot([share for _, share in found], [k for k, _ in found], marker, label=contender, markersize=4)
        axes.set_yticks(range(len(shown)), [f"{medium}, {others} {against}, {rtt}/{theirs} ms" for medium, against, others, rtt, theirs in shown], fontsize=6)
        axes.invert_yaxis()
        axes.axvspan(LEAST, MOST, color="grey", alpha=0.2)
        axes.set_xlabel("throughput of its equal share", fontsize=8)
        axes.legend(fontsize=7)


def main() -> int:
    return virtual.main("sharing", __doc__ or "", "TestSharing", "BQUIC_SHARING", (SEEDS, SEEDS[:1]), RESULTS, QUICK_RESULTS, report, draw)


if __name__ == "__main__":
    command(main)
