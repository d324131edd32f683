#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What each rule and number of the sender `congestion rate` is worth.

In virtual time. Each variant of the sender lacks one rule, or has half or twice one number. It runs on the same paths as the
unchanged sender: once on each random path, on some of them also with transfers five times as long, on legs of 802.11 (10 to
20 MB; two of four without RTT), and on wires that it shares with one CUBIC flow. "as it is" runs three times: its second and third
line show how much chance makes up.

"paths", "long" and "legs" are throughput over that of the unchanged sender, in the geometric mean: on the random paths, in the longer transfers, and on
the legs. "worst" is the worst of the random paths; "< 0.90" and "> 1.11" say how many of them are beyond these ratios. "queue" is the smoothed RTT
minus the least one, plus 1 ms, over the same of the unchanged sender, in the longer transfers and on the legs. "shares" says how far the sender's shares
of the wires are from equal ones, in the geometric mean (1: equal), and "farthest" is the share that is farthest.

These changes were tried, and are not in the sender:

- **ACKs are held back behind shorter queues:** behind less than 8 ms (`minQueueDelay` of 2 and 1 ms), or for up to 8 packets without loss. This saves no
  ACKs over 802.11: the queue there is longer anyway, and one ACK already serves many packets. Beside CUBIC in a short FIFO, the sender takes more.
- **The window grows as CUBIC's does,** by quic-go's own code (RFC 9438), and not by one packet a round. This changes little.
- **The window grows by half a packet a round** instead of one. (9/17 of a packet, with a reduction to 0.7, is as fast as Reno: RFC 9438, section 4.3.) The sender
  leaves more to others on a wire, but gets less in a long FIFO.
- **The same only below the window that last filled a buffer.** It has the same drawback.

| change | where | figure | as it was | with the change |
|---|---|---|---|---|
| ACKs behind shorter queues | 802.11, CoDel's target at 2 and 5 ms, 24 cells | throughput, of the unchanged sender's | 1 | 0.99; worst cell 0.91 to 0.93 |
| | the same | queue | 13 to 117 ms | |
| | the same | packets for each ACK | about 70 | |
| | beside CUBIC, FIFO of 20 packets, seeds 1 and 2 | of its share | 1.31 | 1.41 and 1.58 |
| CUBIC's growth | beside Linux's CUBIC, FIFO of 512 packets, one hop, one run each | of its share | 0.52 | 0.53 |
| | beside two flows of Linux's CUBIC, wire, one run each | of its share | 1.26 | 1.33 |
| half a packet a round | beside 1, 2, 4 flows of Linux's CUBIC, wire, medians of two runs | of its share | 1.53, 1.81, 1.60 | 1.29, 1.36, 1.36 |
| | the same, FIFO of 512 packets | of its share | 0.71, 0.65, 0.47 | 0.52, 0.40, 0.47 |
| the same only below a window that filled a buffer | beside quic-go's CUBIC, FIFO of 0.1 bandwidth-delay products, virtual time, seeds 1 and 2 | of its share | 1.14 to 1.25 | 0.90 to 1.03 |
| | the same beside one flow, FIFO of 4 products | of its share | 0.67 | 0.42 |
| | random paths | throughput, of the unchanged sender's | 1 | 0.98 |

Other rules for losses without a queue were tried, too. Throughput is over stock, on the random paths of seeds 1 to 4. The share is the largest one beside
one CUBIC flow, in FIFOs of 5 to 50 packets, at 10 and 30 Mbit/s, with RTTs of 10 and 40 ms. The last line is the sender as it ships. It puts random losses
to the test because otherwise one of two flows behind a policer may keep most of the rate.

| losses without a queue | throughput | largest share |
|---|---|---|
| all are random (the rule before) | 1.17 | 1.86 |
| the window is reduced by half as much | 1.11 | 1.72 |
| random if the last loss was at most 2 rounds ago, whatever the window | 1.07 | 1.33 |
| the same, 4 rounds | 1.11 | 1.33 |
| the same, 8 rounds | 1.15 | 1.55 |
| the same, 4 rounds, and faster growth at any window | 1.12 | 1.60 |
| the rule now, without the test of random losses | 1.14 | 1.32 |
| the rule now | 1.13 | - |

Writes results/rules.json (rows: change, seed, what, cell, value). An interrupted run continues where it stopped.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import threading

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from lab import command, results, virtual  # noqa: E402
from lab.measure import at_once, commit, progress  # noqa: E402
from lab.results import Row, read, write  # noqa: E402

RESULTS = ROOT / "results/rules.json"
QUICK_RESULTS = ROOT / "build/lab/rules.json"

SEEDS, QUICK_SEEDS = "12-13", "12"  # 1 to 5 are used to choose parameters
AS_IS, AGAIN = "as it is", ("as it is, again", "as it is, a third time")

WINDOW, CLIMB, PATH = (f"quic-go/internal/burst/{name}.go" for name in ("window", "climb", "path"))
SENDER, ESTIMATE = (f"quic-go/internal/congestion/{name}.go" for name in ("burst_sender", "estimate"))

# Name, file, old text, new text.
RULES = [
    ("no climb", WINDOW, "set := w.climb.onRound(r, cwnd, quiet)", "var set protocol.ByteCount\n\tw.climb.enter(climbGrows)"),
    ("climb: every window grows before it is measured", CLIMB, "if large && low(cwnd) >= leastWindow {", "if false && large && low(cwnd) >= leastWindow {"),
    ("climb: no smaller window is tried", CLIMB, "c.enter(climbLow)\n\treturn c.smaller()", "c.enter(climbStays)\n\treturn c.window"),
    ("climb: it is enough to have paid once", CLIMB, "case !c.paid && !clearly:", "case false:"),
    ("climb: what clearly pays is not tried at once", CLIMB, "case clearly:", "case false:"),
    ("climb: begins below the window of slow start", CLIMB, "if c.floor > 0 {", "if false {"),
    ("climb: does not begin anew without a queue", CLIMB, "return c.quiet >= emptyRounds", "return false"),
    ("climb: does not begin anew on another path", WINDOW, "if p.MinRTT() > w.min {", "if false {"),
    ("no faster growth without a queue", WINDOW, "w.quiet >= quietRounds &&", "false &&"),
    ("every loss is one of a full queue", WINDOW, "case rtt > p.MinRTT()+lowQueue(p) ||", "case true ||"),
    ("every loss without a queue is random", WINDOW, "|| w.spared > soon:", "|| soon < 0:"),
    ("no random loss is put to the test", WINDOW, "case w.ignored < w.trust:", "case true:"),
    ("faster growth where a queue was full", WINDOW, "&& cwnd >= w.full", ""),
    ("slow start: a risen RTT says nothing", WINDOW, "if !w.started && w.doubt == 0 &&", "if false && !w.started && w.doubt == 0 &&"),
    ("slow start: a rate that stays says nothing", WINDOW, "} else if w.saturated(r) {", "} else if false && w.saturated(r) {"),
    ("slow start: no alarm was false", WINDOW, "|| follows {", "|| false && follows {"),
    ("slow start: no proof", WINDOW, "case w.flat >= flatRounds:", "case false && w.flat >= flatRounds:"),
    ("slow start: never resumed after a spurious loss", WINDOW, "{ w.started, w.doubt = false, 0 }", "{}"),
    ("path: never another one", PATH, "if p.changed(r) {", "if false && p.changed(r) {"),
    ("path: few rounds before are enough", PATH, "p.mean.rounds < changedRounds", "p.mean.rounds < 1"),
    ("path: rounds may differ by a quarter", PATH, "noiseDeviations * cmp.Or(p.deviation, firstDeviation)", "0.25"),
    ("path: a window grows on another one as on any", WINDOW, "if w.min > 0 {", "if false {"),
    ("path: a queue as the smoothed RTT has it", PATH, "if p.longest > 0 {", "if false {"),
    ("pacing: by the smoothed RTT", ESTIMATE, "if e.path != nil {", "if false {"),
    ("path: what is kept back needs no room", PATH, "slack = min(slack, p.full-rtt)", ""),
    ("no bursts", SENDER, "if s.cfg.BurstPackets <= 0 {", "if s.cfg.BurstPackets < 1<<30 {"),
]
# Name, file, declaration, half, twice.
NUMBERS = [
    ("climbRounds", CLIMB, "climbRounds = 4", "2", "8"),
    ("climbTime", CLIMB, "climbTime   = 1000 * 1000", "500 * 1000", "2000 * 1000"),
    ("climbPause", CLIMB, "climbPause = 8 * climbTime", "4 * climbTime", "16 * climbTime"),
    ("emptyRounds", CLIMB, "emptyRounds = 3", "2", "6"),
    ("climbGain", CLIMB, "climbGain = 16", "8", "32"),
    ("quietRounds", WINDOW, "quietRounds = 8", "4", "16"),
    ("leastTrust", WINDOW, "leastTrust = 8", "4", "16"),
    ("randomPackets", WINDOW, "randomPackets = 7", "4", "14"),
    ("doubtRounds", WINDOW, "doubtRounds  = 12", "6", "24"),
    ("leastWindow", WINDOW, "leastWindow = 64", "32", "128"),
    ("rateRounds", PATH, "rateRounds = 6", "3", "12"),
    ("missingTime", PATH, "missingTime     = 800 * time.Millisecond", "400 * time.Millisecond", "1600 * time.Millisecond"),
    ("missingNoise", PATH, "missingNoise = 4", "2", "8"),
    ("noiseDeviations", PATH, "noiseDeviations = 2", "1", "4"),
    ("firstDeviation", PATH, "firstDeviation = 1. / 4", "1. / 8", "1. / 2"),
    ("largeWindow", CLIMB, "largeWindow = 8", "4", "16"),
    ("lowDelay", WINDOW, "lowDelay   = 4 * time.Millisecond", "2 * time.Millisecond", "8 * time.Millisecond"),
    ("lowPackets", WINDOW, "lowPackets = 3", "1", "6"),
    ("longestQueue", WINDOW, "longestQueue = 100 * time.Millisecond", "50 * time.Millisecond", "200 * time.Millisecond"),
    ("leastQueue", WINDOW, "leastQueue  = 20 * time.Millisecond", "10 * time.Millisecond", "40 * time.Millisecond"),
    ("changedRounds", PATH, "changedRounds   = 3", "2", "6"),
    ("meanTime", PATH, "meanTime = 2 * time.Second", "1 * time.Second", "4 * time.Second"),
]


def changes() -> list[tuple[str, dict[str, str]]]:
    """All variants of the sender: a name and the changed files. Raises ValueError if the source does not contain the text to
    replace exactly once."""
    def replaced(file: str, old: str, new: str) -> dict[str, str]:
        text = (virtual.SOURCE / file).read_text()
        if text.count(old) != 1:
            raise ValueError(f"{file}: contains {old!r} {text.count(old)} times, not once")
        return {file: text.replace(old, new)}

    found: list[tuple[str, dict[str, str]]] = [(name, {}) for name in (AS_IS, *AGAIN)]
    found += [(name, replaced(file, old, new)) for name, file, old, new in RULES]
    for name, file, old, half, twice in NUMBERS:
        declared = old[:old.index("=") + 1]
        found += [(f"{name} = {value}", replaced(file, old, f"{declared} {value}")) for value in (half, twice)]
    return found


def measured(args: argparse.Namespace, path: pathlib.Path) -> list[Row]:
    """The rows of all variants, as many at a time as there are processors."""
    virtual.prepare()
    known = {"binary": virtual.build(), "seeds": args.seeds}
    rows = [] if args.restart else [r for r in read(path) if all(r[k] == v for k, v in known.items())]
    there = {r["change"] for r in rows}
    order = [name for name, _ in changes()]
    lock = threading.Lock()

    def one(change: tuple[str, dict[str, str]]) -> None:
        name, files = change
        program = virtual.PROGRAM.with_name(f"profile-variant-{order.index(name)}.test")
        try:
            virtual.build(program, files)
            new = virtual.run("TestRules", {"BQUIC_RULES": args.seeds}, program)
        finally:
            program.unlink(missing_ok=True)
        with lock:
            rows.extend({**row, "change": name, "commit": commit(), **known} for row in new)
            rows.sort(key=lambda r: order.index(r["change"]))
            write(path, rows)
            there.add(name)
            progress(f"rules {len(there)}/{len(order)}: {name}")

    at_once(len(os.sched_getaffinity(0)), one, [change for change in changes() if change[0] not in there])
    return rows


def report(rows: list[Row]) -> str:
    """A table for each set of seeds that rows are from."""
    return "\n\n".join(f"Seeds {seeds}:\n\n{table([r for r in rows if r['seeds'] == seeds])}" for seeds in dict.fromkeys(r["seeds"] for r in rows))


def table(rows: list[Row]) -> str:
    def values(change: str, what: str) -> dict[tuple[int, str], float]:
        return {(r["seed"], r["cell"]): r["value"] for r in rows if (r["change"], r["what"]) == (change, what)}

    def over(change: str, what: str, plus: float = 0) -> list[float]:
        base = values(AS_IS, what)
        return [(value + plus) / (base[key] + plus) for key, value in values(change, what).items()]

    def mean(ratios: list[float], digits: int = 3) -> str:
        return f"{results.geomean(ratios):.{digits}f}" if ratios else "-"

    lines = []
    for change in dict.fromkeys(r["change"] for r in rows):
        paths, shares = sorted(over(change, "path")), values(change, "share").values()
        lines.append([change, mean(paths), f"{paths[0]:.2f}", str(sum(p < 0.9 for p in paths)), str(sum(p > 1 / 0.9 for p in paths)),
                      mean(over(change, "long path")), mean(over(change, "leg")), mean(over(change, "queue", 1), 2),
                      mean([max(s, 1 / s) for s in shares], 2), f"{max(shares, key=lambda s: max(s, 1 / s)):.2f}"])
    number = {what: len(values(AS_IS, what)) for what in ("path", "long path", "leg", "share")}
    return results.table(["change", "paths", "worst", "< 0.90", "> 1.11", "long", "legs", "queue", "shares", "farthest"], lines) + (
        f"\n\n{number['path']} paths, {number['long path']} longer transfers, {number['leg']} legs, {number['share']} shared wires")


def main() -> int:
    args = results.options(__doc__ or "", f"seeds {QUICK_SEEDS}").parse_args()
    args.seeds = QUICK_SEEDS if args.quick else SEEDS
    path = QUICK_RESULTS if args.quick else RESULTS
    return results.show("rules", path, read(path) if args.report else measured(args, path), report)


if __name__ == "__main__":
    command(main, ValueError)
