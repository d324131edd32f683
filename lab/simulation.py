# SPDX-License-Identifier: Apache-2.0
"""Runs of the simulation in lab/ns3: one row each, stored so that an interrupted experiment can continue."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from lab import ROOT, medium
from lab.measure import ENDS_WITH_US, at_once, commit, progress
from lab.namespaces import Failed
from lab.results import Row, options, read, show, write

SOURCES = ROOT / "lab/ns3"
POLICY = ROOT / "package/wifirr-sched/src"
DENSE = ROOT / "build/lab/dense"
BIANCHI = ROOT / "build/lab/bianchi"

# The parameters of a run. The defaults are the centre of all experiments.
CENTRE: Row = {
    "ap": "mac80211", "form": "none", "rts": False, "upload_goes_on": True, "traffic": "cbr", "upload_kbit": 200,
    "stations": 30, "phy": "11g", "rate_control": "minstrel", "seed": 1, "file_mb": 5, "active": 0, "slot_ms": 0,
    "trickle_kbit": 0, "interactive": "none", "interactive_alone": False, "neighbour_share": 0,
    "driver": "ath9k", "rtt_ms": 2, "sibling": "none", "windows": "off", "distance": "near", "streams": 1,
}
# The daemon's files that make decisions, compiled into the simulation unchanged.
DECIDES = ("policy", "rotation", "weights", "trial", "effect", "contention")
# Forms that do not use the daemon's files, if windows are not used.
WITHOUT_POLICY = ("none", "middlebox", "wifox")
# wifirrd's default configuration: windows and RTS where clients aggregate.
SHIPPED: dict[str, Row] = {"11g": {"form": "wifirr"}, **dict.fromkeys(("11n", "11ac"), {"form": "wifirr", "windows": "auto", "rts": True})}
# The results of a run; all are numbers.
FIGURES = (
    "worst_s", "median_s", "best_s", "unfinished", "upload_delivered_kbit", "collided_share", "busy_share", "timeouts",
    "frames_per_s", "download_rtt_mean_ms", "download_rtt_p95_ms", "upload_rtt_p95_ms", "waiting_upload_rtt_p95_ms",
    "delay_median_ms", "delay_p99_ms", "jitter_median_ms", "jitter_p99_ms", "engagements", "own_worst_s", "sibling_worst_s",
    "sibling_median_s", "window_exponent", "simulated_s",
)


def build() -> None:
    medium.make("lab/ns3", "the simulation")


# A comment, or a literal, which may hold what looks like one.
COMMENT = re.compile(r"""//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')""", re.DOTALL)


def code(text: str) -> str:
    """A C or C++ source without its comments and layout, which decide nothing."""
    return " ".join(COMMENT.sub(lambda match: match.group(1) or " ", text).split())


# Seeds of reports on crowded cells, by PHY; 1 to 5 are used to choose, and 16 and 17 were looked at for 802.11n's windows (docs/lab.md).
REPORTED = {"11g": range(16, 23), "11n": range(18, 23), "11ac": range(18, 23)}


def digest(form: str) -> str:
    """A hash of all sources that affect a form's figures: rows of other sources are not reused."""
    policy = [] if form in WITHOUT_POLICY else [path for name in DECIDES for path in POLICY.glob(f"{name}.[ch]")]
    sha = hashlib.sha256()
    for path in sorted([*SOURCES.glob("*.cc"), *SOURCES.glob("*.h"), *policy]):
        sha.update(f"{path.name}\0{code(path.read_text())}".encode())
    return sha.hexdigest()[:16]


def check(row: Row) -> None:
    """Raises ValueError for a row that readers of the file could not use."""
    for key, default in CENTRE.items():
        value = row.get(key)
        number = isinstance(default, int) and not isinstance(default, bool)
        fits = isinstance(value, (int, float)) and not isinstance(value, bool) if number else type(value) is type(default)
        if not fits:
            raise ValueError(f"{key} is {value!r}: {row}")
    for key in FIGURES:
        if isinstance(row.get(key), bool) or not isinstance(row.get(key), (int, float)):
            raise ValueError(f"{key} is no number: {row}")
    if not 0 < row["best_s"] <= row["median_s"] <= row["worst_s"]:
        raise ValueError(f"completion times out of order: {row}")


def arguments(cell: Row) -> list[str]:
    # the rate of traffic "none" does not matter, but it must be positive
    cell = {**cell, "upload_kbit": cell["upload_kbit"] or 1}
    return [f"--{key.replace('_', '-')}={json.dumps(value) if isinstance(value, bool) else value}" for key, value in cell.items()]


def dense(wanted: Row, program: pathlib.Path = DENSE) -> Row:
    """One run; wanted holds the differences to CENTRE."""
    flags = arguments({**CENTRE, **wanted})
    done = subprocess.run([*ENDS_WITH_US, str(program), *flags], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"dense {' '.join(flags)}: {done.stderr.strip() or done.returncode}")
    row: Row = json.loads(done.stdout)
    check(row)
    return row


def parameters(row: Row) -> tuple[Any, ...]:
    return tuple(row[key] for key in CENTRE)


def run(wanted: Iterable[Row], path: pathlib.Path, jobs: int, restart: bool = False) -> list[Row]:
    """Makes the wanted rows that are missing in path, or all of them, and keeps all other rows of these sources. Returns the wanted ones."""
    cells: dict[tuple[Any, ...], Row] = {}
    for cell in wanted:
        full = {**CENTRE, **cell}
        if full["traffic"] == "none":
            full["upload_kbit"] = 0
        cells[parameters(full)] = full
    rows = [row for row in read(path) if row["digest"] == digest(row["form"]) and not (restart and parameters(row) in cells)]
    have = {parameters(row) for row in rows}
    todo = [full for key, full in cells.items() if key not in have]
    lock = threading.Lock()
    now = commit()
    done = len(cells) - len(todo)

    def one(cell: Row) -> None:
        nonlocal done
        row = {**dense(cell), "digest": digest(cell["form"]), "commit": now}
        with lock:
            rows.append(row)
            write(path, rows, check)
            done += 1
            progress(f"{done}/{len(cells)} {describe(row)}: worst {row['worst_s']:.1f} s")

    if done and todo:
        progress(f"{done} of {len(cells)} runs are there already")
    at_once(jobs, one, todo)
    by_parameters = {parameters(row): row for row in rows}
    return [by_parameters[key] for key in cells]


def describe(row: Row) -> str:
    """The differences to the centre."""
    words = [f"{row['form']}{' with RTS' if row['rts'] else ''}"]
    words += [f"{key}={row[key]}" for key in CENTRE if key not in ("form", "rts") and row[key] != CENTRE[key]]
    return ", ".join(words)


def pairs(base: Iterable[Row], other: Iterable[Row], key: str) -> list[float]:
    """base / other of a figure, seed by seed: above 1 is a gain where less is better."""
    first = {row["seed"]: row[key] for row in base}
    return [first[row["seed"]] / row[key] for row in other if row["seed"] in first and row[key] > 0]


def main(
    name: str, about: str, results: pathlib.Path, quick_results: pathlib.Path,
    measured: Callable[[argparse.Namespace, pathlib.Path], list[Row]], report: Callable[[list[Row]], str],
    draw: Callable[[list[Row]], None], quick_seeds: int = 1,
) -> int:
    """The command line of all simulated experiments. QUICK_SEEDS: at most so many in the quick set."""
    p = options(about, "fewer cells, smaller files, fewer seeds")
    p.add_argument("--seeds", type=int, default=5, help="runs of each cell (5)")
    p.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time")
    args = p.parse_args()
    if args.seeds < 1 or args.jobs < 1:
        sys.exit(f"{name}: --seeds and --jobs must be at least 1")
    path = results
    if args.quick:
        path, args.seeds = quick_results, min(args.seeds, quick_seeds)
    if not args.report:
        build()
    return show(name, path, read(path) if args.report else measured(args, path), report, None if args.quick else draw)
