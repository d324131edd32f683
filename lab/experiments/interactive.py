#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a scheduler does to calls, video, key presses and chat beside 30 downloads.

The paper (WiFiRR, TMC 2016, figures 24 to 26): streams of 10 kbit/s keep their
delay of 1 to 9 ms, 1 Mbit/s streams go from 380-430 to 200-240 ms, ssh and chat
stay below 40 and 45 ms. Here, too, five clients have only such a flow;
the 30 beside them download 1 MB each and send up the centre's constant
200 kbit/s. A second run has the flow on five of the 30 ("shared"), where it
waits for a turn together with its client's download. Delay is one-way for streams,
round-trip for exchanges; jitter is the difference between consecutive delays. The seeds
are those on which turns were chosen.

A second part measures traffic that must never wait, with wifirrd's default
settings: a call (G.711, both ways), key presses and DNS beside a crowd of 802.11g or
802.11n on every kind of access point (docs/lab.md, "A crowded cell"), on seeds on which
nothing was chosen.

Writes results/interactive.json (rows: lab/simulation.py) and
docs/results/interactive.svg. An interrupted run continues where it stopped.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from lab import command, results, simulation  # noqa: E402
from lab.results import FEWEST_RUNS, Row, median  # noqa: E402

RESULTS = ROOT / "results/interactive.json"
QUICK_RESULTS = ROOT / "build/lab/interactive.json"
FIGURE = ROOT / "docs/results/interactive.svg"

FLOWS = {"10": "stream, 10 kbit/s", "1000": "stream, 1 Mbit/s", "ssh": "ssh", "chat": "chat"}
CLIENTS = {True: "own", False: "shared"}
FORMS = ["none", "ap", "middlebox", "wifirr", "wifirr-htb"]
FILE_MB = 1

# Traffic that must never wait, beside a crowd; on other access points and paths, only a call.
MUST_NOT_WAIT = {"g711": "call", "ssh": "key presses", "dns": "DNS"}
OTHER_CROWDS: list[Row] = [{"rtt_ms": 50}, {"driver": "tx-only"}, {"driver": "aql"}]
CROWD_MB = {"11g": 1, "11n": 2}
NO_LATER = 1.1


def crowds() -> list[Row]:
    """The cells, without form and seed."""
    cells: list[Row] = [{"interactive": flow} for flow in MUST_NOT_WAIT] + [{"interactive": "g711", **c} for c in OTHER_CROWDS]
    return [{"phy": phy, "file_mb": size, **c, "interactive_alone": alone}
            for c in cells for phy, size in CROWD_MB.items() for alone in CLIENTS]


def wanted_crowds() -> list[Row]:
    """All crowds with the first seed, then with the next, and so on."""
    return [{**c, **form, "seed": seed} for seed in simulation.REPORTED["11g"] for c in crowds() if seed in simulation.REPORTED[c["phy"]]
            for form in ({"form": "none"}, simulation.SHIPPED[c["phy"]])]


def never_later(rows: list[Row]) -> list[list[str]]:
    """The delays in each cell of crowds(), without and with the scheduler, seed by seed."""
    lines = []
    for c in crowds():
        def some(form: Row) -> list[Row]:
            full = {**simulation.CENTRE, **c, **form}
            return [r for r in rows if r["seed"] in simulation.REPORTED[c["phy"]] and all(r[k] == v for k, v in full.items() if k != "seed")]

        base, ours = some({"form": "none"}), some(simulation.SHIPPED[c["phy"]])
        median_later, p99_later = (simulation.pairs(ours, base, f) for f in ("delay_median_ms", "delay_p99_ms"))
        if not p99_later:
            continue
        differs = ", ".join(f"{k}={c[k]}" for k in ("rtt_ms", "driver") if k in c) or "-"
        later = [statistics.median(ratios) for ratios in (median_later, p99_later)]
        lines.append([MUST_NOT_WAIT[c["interactive"]], CLIENTS[c["interactive_alone"]], "802." + c["phy"], differs,
                      *(f"{results.number(median(base, f))}, {results.number(median(ours, f))}" for f in ("delay_median_ms", "delay_p99_ms")),
                      "{:.2f}, {:.2f}".format(*later),
                      "LATER" if max(later) > NO_LATER else "met" if len(p99_later) >= FEWEST_RUNS else "too few runs to say", str(len(p99_later))])
    return lines


def of(rows: list[Row], flow: str, alone: bool, form: str) -> list[Row]:
    """The rows beside the centre's downloads, without those of crowds, which have other seeds."""
    full = {**simulation.CENTRE, "interactive": flow, "interactive_alone": alone, "form": form, "file_mb": FILE_MB}
    return [r for r in rows if r["seed"] not in simulation.REPORTED["11g"] and all(r[k] == v for k, v in full.items() if k != "seed")]


def report(rows: list[Row]) -> str:
    lines = []
    figures = ("delay_median_ms", "delay_p99_ms", "jitter_median_ms", "jitter_p99_ms", "worst_s")
    for alone, clients in CLIENTS.items():
        for flow, what in FLOWS.items():
            for form in FORMS:
                if some := of(rows, flow, alone, form):
                    lines.append([what, clients, form, *(results.number(median(some, f)) for f in figures), str(len(some))])
    text = results.table(["flow", "clients", "form", "delay ms", "p99", "jitter ms", "p99", "worst download s", "runs"], lines)
    if must := never_later(rows):
        text += "\n\n" + results.table(["beside a crowd", "clients", "", "differs in", "delay ms without, with", "p99 without, with",
                                        "with / without: delay, p99", f"at most {NO_LATER}", "runs"], must)
    return text


def paper(rows: list[Row]) -> list[list[str]]:
    """Medians without and with ours, on clients without other traffic, as in the paper. Unchanged: at most a tenth later."""
    lines = []
    for flow, figure, ms in [("10", "1 to 9 ms, unchanged", 9), ("1000", "380-430 ms to 200-240 ms", None),
                             ("ssh", "< 40 ms", 40), ("chat", "< 45 ms", 45)]:
        base, ours = (median(of(rows, flow, True, form), "delay_median_ms")
                      for form in ("none", "wifirr"))
        what = f"interactive beside downloads, {FLOWS[flow]}: median delay without and with WiFiRR"
        if base is None or ours is None:
            lines.append(results.not_run(what, figure))
            continue
        came_out = ours < ms if ms else ours <= base / 1.8
        if flow == "10":
            came_out = came_out and ours <= 1.1 * base
        lines.append([what, figure, f"{base:.0f} ms, {ours:.0f} ms", "reproduced" if came_out else "not reproduced"])
    return lines


WHY_NOT = (
    "A stream of 1 Mbit/s is more than a client's fair share of this channel. So the client has demand and takes turns like a "
    "download, and packets that arrive between two turns wait."
)


def draw(rows: list[Row]) -> None:
    with results.drawing(FIGURE, (9, 3.6), columns=2) as axes:
        for (alone, clients), ax in zip(CLIENTS.items(), axes):
            for k, form in enumerate(FORMS):
                found = []
                for i, flow in enumerate(FLOWS):
                    if some := of(rows, flow, alone, form):
                        middle, late = (median(some, figure) or 0 for figure in ("delay_median_ms", "delay_p99_ms"))
                        found.append((i + 0.12 * (k - (len(FORMS) - 1) / 2), (middle, middle, late)))
                if found:
                    results.intervals(ax, found, form)
            ax.set_xticks(range(len(FLOWS)), list(FLOWS.values()), fontsize=7)
            ax.set_yscale("log")
            ax.set_ylabel("delay, ms (median, p99)", fontsize=8)
            ax.set_title(f"{clients} clients, beside 30 downloads, 802.11g, today's AP", fontsize=8)
        axes[0].legend(fontsize=7)


def measured(args: argparse.Namespace, path: pathlib.Path) -> list[Row]:
    forms = ["none", "wifirr"] if args.quick else FORMS
    clients = [True] if args.quick else list(CLIENTS)
    rows = simulation.run(
        [{"interactive": flow, "interactive_alone": alone, "form": form, "seed": seed, "file_mb": FILE_MB}
         for seed in range(1, args.seeds + 1) for alone in clients for flow in FLOWS for form in forms],
        path, args.jobs, args.restart)
    if not args.quick:
        rows += simulation.run(wanted_crowds(), path, args.jobs, args.restart)
    return rows


def main() -> int:
    return simulation.main("interactive", __doc__ or "", RESULTS, QUICK_RESULTS, measured, report, draw)


if __name__ == "__main__":
    command(main)
