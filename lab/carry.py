#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps rows of earlier sources that a change does not affect.

    lab/carry.py results/dense-download.json [FILE...]

A simulation's figures depend on its sources to the last digit, so its rows are
made anew after any change, which takes hours. If a change is meant only for some
of them, this repeats one of ten rows of each kind, drawn anew for each state of the
sources. Rows of a kind have the same earlier sources, and all parameters the same
but numbers, of which only 0 is a kind of its own (it switches something off).
If all of the repeated rows are unchanged, the others become rows of the current
sources, marked "carried" ("commit" still says when they were made). If one of them
differs, the rows of that kind stay as they are, to be made anew.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import pathlib
import random
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from lab import command, results, simulation  # noqa: E402
from lab.measure import progress  # noqa: E402
from lab.results import Row  # noqa: E402

EVERY = 10


def kind(row: Row) -> tuple[str | bool, ...]:
    """What decides which code a row's run reaches."""
    values = (row[key] for key in simulation.CENTRE if key != "seed")
    return (row["digest"], *(value if isinstance(value, (str, bool)) else value == 0 for value in values))


def differs(row: Row) -> bool:
    again = simulation.dense({key: row[key] for key in simulation.CENTRE})
    different = [key for key in simulation.FIGURES if again[key] != row[key]]
    progress(f"{simulation.describe(row)}: " + (f"{different[0]} was {row[different[0]]}, is {again[different[0]]}"
                                                if different else "as it was"))
    return bool(different)


def carry(path: pathlib.Path, jobs: int) -> dict[tuple[str, str], tuple[int, int]]:
    """Returns for each form and PHY how many old rows stay, and how many were repeated to decide. ValueError: not rows of a simulation."""
    rows = results.read(path)
    if not all(isinstance(row, dict) and {"digest", "form", "stations"} <= row.keys() for row in rows):
        raise ValueError(f"{path}: not the rows of a simulation")
    rows = [{**simulation.CENTRE, **row} for row in rows]  # earlier sources had fewer parameters
    old: dict[tuple[str | bool, ...], list[Row]] = {}
    for row in rows:
        if row["digest"] != simulation.digest(row["form"]):
            old.setdefault(kind(row), []).append(row)
    counts: dict[tuple[str, str], tuple[int, int]] = {}
    for some in old.values():
        form, phy = some[0]["form"], some[0]["phy"]
        sample = random.Random(simulation.digest(form)).sample(some, -(-len(some) // EVERY))
        kept, made = counts.get((form, phy), (0, 0))
        stays = True
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            try:
                for different in pool.map(differs, sample):
                    made += 1
                    if different:
                        stays = False
                        break
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
        counts[form, phy] = (kept + (len(some) if stays else 0), made)
        if stays:
            for row in some:
                row["digest"] = simulation.digest(form)
                row["carried"] = True
            results.write(path, rows, simulation.check)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", metavar="FILE", nargs="+", type=pathlib.Path, help="results of simulations")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time")
    args = parser.parse_args()
    if args.jobs < 1:
        sys.exit("carry: --jobs must be at least 1")
    for path in args.files:
        if not path.is_file():
            sys.exit(f"carry: {path}: no such file")
    simulation.build()
    for path in args.files:
        for (form, phy), (kept, made) in carry(path, args.jobs).items():
            print(f"{path.name}: {form}, {phy}: {kept} rows stay, {made} made again")
    return 0


if __name__ == "__main__":
    command(main, ValueError)
