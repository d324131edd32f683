#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What each rule and number of WiFiRR is worth.

The simulation (lab/ns3) runs wifirrd's own files without one rule, or with about half or twice one number. The table compares when the last client
is done: the time with the unchanged files over the time with the changed ones (above 1: sooner), on the same seeds. Nothing was chosen on these seeds.
The first line of each part has the gain of the unchanged files over the access point alone. Rules of trials matter only in long crowds. Some rules
cost nothing when they are removed. These are there for another case, which the column "for" names.

Larger weights for clients that wait were tried, and not adopted. They were meant for a call on a client that downloads over 802.11g, so that the call waits
less. But downloads took longer, and with the largest weight, the call waited no less. On seed 1:

| weight of those that wait | time of the last of 30 clients, of that with weight 1 | 99th percentile of the call's delays |
|---|---|---|
| 1 | 1 | 1.7 s |
| 4 | 1.08 | - |
| 10 | 1.28 | 2.0 s |

Writes results/sensitivity.json (rows: parameter, factor, cell, gain; factor 0 is without the rule). An interrupted run continues where it stopped.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from lab import command, results, simulation  # noqa: E402
from lab.measure import commit, progress  # noqa: E402
from lab.results import Row, read, write  # noqa: E402

RESULTS = ROOT / "results/sensitivity.json"
QUICK_RESULTS = ROOT / "build/lab/sensitivity.json"
VARIANTS = ROOT / "build/lab/variants"

SEEDS, QUICK_SEEDS = (6, 7), (6,)  # neither chosen on nor reported
AS_IS, ALONE = "as it is", "access point alone"

N, G = simulation.SHIPPED["11n"], simulation.SHIPPED["11g"]
# The cells that a group of rules is for.
CELLS: dict[str, dict[str, Row]] = {
    "windows": {
        "802.11n, 30 clients": {**N, "phy": "11n", "file_mb": 2},
        "10 clients": {**N, "phy": "11n", "file_mb": 2, "stations": 10},
    },
    "turns": {
        "802.11g, 30 clients": {**G, "file_mb": 1},
        "10 clients": {**G, "file_mb": 1, "stations": 10},
    },
    "weights": {"802.11g, 30 clients, AQL": {**G, "file_mb": 1, "driver": "aql"}},
    "trials": {"802.11g, 30 clients, htb": {"form": "wifirr-htb", "file_mb": 3}},
}


class Change(NamedTuple):
    group: str
    parameter: str
    factor: float  # 0: without the rule
    file: str
    old: str  # occurs once in the file
    new: str
    case: str = ""  # what else the rule is for


def number(group: str, file: str, name: str, declared: str, *values: str) -> list[Change]:
    """About half and twice a number that is DECLARED with its value at the end."""
    head, value = declared.removesuffix(",").rsplit(" ", 1)
    return [Change(group, name, float(v) / float(value), file, declared, declared.replace(f"{head} {value}", f"{head} {v}")) for v in values]


def define(group: str, file: str, name: str, value: int, *values: str) -> list[Change]:
    return number(group, file, name, f"#define {name} {value}", *values or (str(value // 2), str(2 * value)))


CHANGES = [
    Change("windows", "the optimum for the number of clients", 0, "contention.c", "wanted = optimum(s->contenders, aggregate_us(s));", "wanted = 7;",
           "calls and key presses"),
    Change("windows", "the access point's own window", 0, "contention.c", "c->ap_exponent = ap_exponent(c);\n\tif (sample", "c->ap_exponent = c->config.ap_min;\n\tif (sample",
           "calls and key presses"),
    Change("windows", "a crowd remains one with less", 0, "contention.c", "int least = c->crowd ? CONTENDERS_MIN - 1 : CONTENDERS_MIN;", "int least = CONTENDERS_MIN;",
           "crowds whose size varies"),
    Change("windows", "no turns where windows are used", 0, "contention.c", "c->instead_of_turns = c->config.windows &&", "c->instead_of_turns = false &&"),
    Change("windows", "RTS where collisions are long", 0, "contention.c", "> 2 * 1000 * RTS_US)", "> UINT64_MAX - 1)"),
    *define("windows", "contention.c", "AGGREGATE_MAX_US", 4000),
    *define("windows", "contention.c", "CONTENDERS_MIN", 3, "2", "6"),
    *define("windows", "contention.c", "FAILED_MIN", 50),
    *define("windows", "contention.c", "BUSY", 3, "2", "4"),
    *define("windows", "contention.c", "RTS_US", 100),
    *define("windows", "contention.c", "DOWN_MS", 2000),
    *define("windows", "contention.h", "CONTENTION_CLIENT_BPS", 10000),
    *define("windows", "contention.h", "CONTENTION_TICK_MS", 250),

    Change("turns", "credit for turns that were cut", 0, "rotation.c", "if (turn < slot / 2 + c->owed)", "if (turn < slot / 2)", "equal shares"),
    Change("turns", "one more while one of the K has no queue", 0, "rotation.c", "if (p->config.trickle)\n\t\treturn p->config.active;", "if (true)\n\t\treturn p->config.active;"),
    Change("turns", "the next one is readied", 0, "rotation.c", "|| (!ahead && !config->trickle))", "|| false)"),
    Change("turns", "clients that send much take turns, too", 0, "weights.c", "if (p->client[id].received_bps <= LITTLE_BPS)", "if (true)"),
    Change("turns", "a call has an active client's weight", 0, "weights.c", "if (c->received_bps <= LITTLE_BPS &&", "if (false && c->received_bps <= LITTLE_BPS &&", "calls"),
    Change("turns", "requests after a download do not", 0, "weights.c", "if (c->received_bps <= LITTLE_BPS && c->delivered_bps <= LITTLE_BPS)", "if (true)",
           "browsing"),
    Change("turns", "a client that takes little waits for no turn", 0, "policy.c", "if (p->config.mode != POLICY_BACKLOG ||", "if (true || p->config.mode != POLICY_BACKLOG ||",
           "calls and key presses"),
    Change("weights", "weights without effect are noticed", 0, "effect.c", "return e->waiting_us * 100 / e->waiting_ms >=", "return false && e->waiting_us * 100 / e->waiting_ms >=",
           "drivers that ignore weights"),
    *number("turns", "policy.c", "K", ".active = mode == POLICY_PAPER ? 5 : trickle ? 3 : 1,", "2"),
    *number("turns", "policy.c", "slot_ms", ".slot_ms = mode == POLICY_PAPER ? 1600 : trickle ? 2400 : 4800,", "2400", "9600"),
    *number("turns", "policy.c", "demand_bytes", ".demand_bytes = 3000,", "1500", "6000"),
    *number("turns", "policy.c", "demand_bps", ".demand_bps = 60000,", "30000", "120000"),
    *number("turns", "policy.c", "busy_permille", ".busy_permille = 500,", "250", "700"),
    *number("turns", "policy.c", "engage_delay_ms", ".engage_delay_ms = 1000,", "500", "2000"),
    *number("turns", "policy.c", "tick_ms", ".tick_ms = 300,", "150", "600"),
    *define("turns", "policy.c", "AVERAGE_MS", 500),
    *define("turns", "policy.c", "LONG_AVERAGE_MS", 10000),
    *define("turns", "policy.c", "LIGHT_MS", 1000),
    *define("turns", "policy.c", "LIGHT_ACTIVE_MS", 300),
    *define("turns", "rotation.c", "SETTLE_MS", 500),
    *define("turns", "rotation.c", "SPARE_PARTS", 6),
    *define("turns", "weights.c", "WEIGHT_SOON_PART", 3, "2", "6"),
    *define("turns", "weights.c", "WEIGHT_IDLE_PART", 16),
    *(Change("turns", "WEIGHT_UPLOAD", factor, "weights.c", "((active) * 3 / 16)", new) for factor, new in ((0.5, "((active) * 3 / 32)"), (2, "((active) * 3 / 8)"))),
    *(Change("turns", "WEIGHT_SHARE", factor, "weights.c", "mean /= 2;", new) for factor, new in ((0.5, "mean /= 4;"), (2, "mean /= 1;"))),  # light demand's
    *define("turns", "weights.c", "LITTLE_BPS", 100000),
    *define("turns", "weights.c", "UPLOAD_PARTS", 8),
    *define("turns", "weights.c", "UPLOAD_TAKEN", 3, "2", "6"),
    *define("weights", "effect.c", "OBSERVED_MS", 10000),
    *define("weights", "effect.c", "WAITING_PERCENT", 80, "40", "95"),

    Change("trials", "turns are tried at all", 0, "policy.c", "bool asked = p->config.mode != POLICY_BACKLOG ||", "bool asked = true || p->config.mode != POLICY_BACKLOG ||",
           "cells in which turns harm"),
    *define("trials", "trial.c", "SETTLE_MS", 1000),
    *define("trials", "trial.c", "MEASURE_MS", 2000),
    *define("trials", "trial.c", "LOST_MS", 500),
    *define("trials", "trial.c", "TRYING_MAX_MS", 20000),
    *define("trials", "trial.c", "HOLD_MIN_MS", 30000),
    *define("trials", "trial.c", "GAIN_MIN", 1100, "1050", "1200"),
    *define("trials", "trial.c", "NOISE", 100),
    *define("trials", "trial.c", "CROWD_OFF_MS", 40000),
]


def replaced(change: Change) -> str:
    """The changed file. Raises ValueError if it does not contain the old text exactly once."""
    text = (simulation.POLICY / change.file).read_text()
    if text.count(change.old) != 1:
        raise ValueError(f"{change.file}: contains {change.old!r} {text.count(change.old)} times, not once")
    return text.replace(change.old, change.new)


def build(change: Change, name: str) -> pathlib.Path:
    """The simulation with the changed file. Objects that do not depend on it are those of the unchanged one."""
    out = VARIANTS / name
    shutil.rmtree(out, ignore_errors=True)
    source = out / "src"
    source.mkdir(parents=True)
    for file in (f for name in simulation.DECIDES for f in simulation.POLICY.glob(f"{name}.[ch]")):
        shutil.copy2(file, source)
    for file in simulation.DENSE.parent.glob("*.o"):
        shutil.copy2(file, out)
    (source / change.file).write_text(replaced(change))
    subprocess.run(["make", "-s", "-C", str(simulation.SOURCES), f"out={out}", f"policy={source}", str(out / "dense")], check=True)
    return out / "dense"


def measured(args: argparse.Namespace, path: pathlib.Path) -> list[Row]:
    simulation.build()
    rows = [] if args.restart else [r for r in read(path) if r["digest"] == simulation.digest(r["form"])]
    have = {(r["group"], r["parameter"], r["factor"], r["cell"], r["seed"]) for r in rows}
    times: dict[tuple[str, str, int], float] = {}  # of the last client, with the access point alone

    def one(change: Change, program: pathlib.Path, name: str, seed: int) -> Row:
        cell = CELLS[change.group][name]
        row = simulation.dense({**cell, "seed": seed}, program)
        return {"group": change.group, "parameter": change.parameter, "factor": change.factor, "cell": name, "seed": seed, "form": row["form"],
                "worst_s": row["worst_s"], "gain": times[change.group, name, seed] / row["worst_s"],
                "digest": simulation.digest(row["form"]), "commit": commit()}

    def alone(group: str, name: str, seed: int) -> None:
        off = {"form": "none", "windows": "off", "rts": False, "seed": seed}
        times[group, name, seed] = simulation.dense({**CELLS[group][name], **off})["worst_s"]

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(lambda cell: alone(*cell), [(group, name, seed) for group in CELLS for name in CELLS[group] for seed in args.seeds]))
        changes = [Change(group, AS_IS, 1, "", "", "") for group in CELLS] + CHANGES
        for k, change in enumerate(changes):
            todo = [(name, seed) for seed in args.seeds for name in CELLS[change.group]
                    if (change.group, change.parameter, change.factor, name, seed) not in have]
            if not todo:
                continue
            program = build(change, str(k)) if change.file else simulation.DENSE
            rows += pool.map(lambda run, c=change, p=program: one(c, p, *run), todo)
            write(path, rows)
            shutil.rmtree(VARIANTS / str(k), ignore_errors=True)
            progress(f"sensitivity {k + 1}/{len(changes)}: {change.parameter} x {change.factor:g}")
    return rows


def report(rows: list[Row]) -> str:
    def gains(group: str, parameter: str, factor: float, cell: str) -> dict[int, float]:
        return {r["seed"]: r["gain"] for r in rows if (r["group"], r["parameter"], r["factor"], r["cell"]) == (group, parameter, factor, cell)}

    tables = []
    for group, cells in CELLS.items():
        base = {name: gains(group, AS_IS, 1, name) for name in cells}
        lines = [[f"{AS_IS}, over the {ALONE}", "", *(f"{statistics.median(base[name].values()):.2f}" if base[name] else "-" for name in cells), ""]]
        for change in (c for c in CHANGES if c.group == group):
            line = [change.parameter, f"x {change.factor:.2g}" if change.factor else "without"]
            for name in cells:
                own = gains(group, change.parameter, change.factor, name)
                ratios = [own[seed] / base[name][seed] for seed in own if seed in base[name]]
                line.append(f"{statistics.median(ratios):.2f}" if ratios else "-")
            lines.append([*line, change.case])
        tables.append(results.table([group, "", *cells, "for"], lines))
    return "\n\n".join(tables) + f"\n\nseeds {', '.join(map(str, sorted({r['seed'] for r in rows})))}"


def main() -> int:
    p = results.options(__doc__ or "", "one seed")
    p.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time")
    args = p.parse_args()
    args.seeds = QUICK_SEEDS if args.quick else SEEDS
    path = QUICK_RESULTS if args.quick else RESULTS
    return results.show("sensitivity", path, read(path) if args.report else measured(args, path), report)


if __name__ == "__main__":
    command(main, ValueError)
