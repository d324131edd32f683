# SPDX-License-Identifier: Apache-2.0
"""Rows of results: their columns, their files, medians."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import pathlib
import random
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

Row = dict[str, Any]
FEWEST_RUNS = 3  # for a target to be met


def read(path: pathlib.Path) -> list[Row]:
    """The rows of a file; none if there is no such file."""
    if not path.exists():
        return []
    rows: list[Row] = json.loads(path.read_text())
    return rows


def write(path: pathlib.Path, rows: list[Row], check: Callable[[Row], None] = lambda row: None) -> None:
    """Replaces the file in one step, unless check() raises for a row."""
    for row in rows:
        check(row)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    os.replace(part, path)


def figures(rows: Iterable[Row], key: str) -> list[float]:
    return [row[key] for row in rows if row.get(key) is not None]


def median(rows: Iterable[Row], key: str) -> float | None:
    values = figures(rows, key)
    return statistics.median(values) if values else None


def geomean(values: Sequence[float]) -> float:
    """The geometric mean of positive values, at least one."""
    return math.exp(statistics.fmean(map(math.log, values)))


def number(value: float | None, form: str = ".1f") -> str:
    return "-" if value is None else format(value, form)


def interval(values: list[float]) -> tuple[float, float, float]:
    """Median and its 95 % interval: percentiles of the medians of 2000 resamples, which are always the same."""
    source = random.Random(1)
    medians = sorted(statistics.median(source.choices(values, k=len(values))) for _ in range(2000))
    return statistics.median(values), medians[50], medians[1949]


def spread(values: list[float], form: str = ".2f") -> str:
    """The median and its interval, which one run does not have."""
    if not values:
        return "-"
    middle, low, high = (format(value, form) for value in interval(values))
    return middle + f" ({low} to {high})" * (len(values) > 1)


def verdict(gain: float, least: float, most: float) -> str:
    """The verdict on a gain (1: none) where the paper's is from least to most. Nine tenths of the paper's gain count as reproduced."""
    if gain > most:
        return "better"
    return "reproduced" if gain - 1 >= 0.9 * (least - 1) else "not reproduced"


def not_run(what: str, figure: str) -> list[str]:
    """A line of the papers' table while no rows of ours can be compared with their FIGURE."""
    return [what, figure, "-", "not run yet"]


def table(header: list[str], lines: list[list[str]], texts: int = 1) -> str:
    """A text table. Columns are as wide as needed; the first ones, as many as TEXTS says, are left-aligned."""
    widths = [max(len(line[i]) for line in [header, *lines]) for i in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(w) if i < texts else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths))).rstrip()
        for line in [header, *lines]
    )


def options(about: str, quick: str) -> argparse.ArgumentParser:
    """The options that most experiments have. QUICK says what the quick set is."""
    p = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--quick", action="store_true", help=f"{quick}, into build/lab/ only")
    p.add_argument("--restart", action="store_true", help="measures again what the results file has")
    p.add_argument("--report", action="store_true", help="only prints the tables and draws the figures of what there is")
    return p


def show(name: str, path: pathlib.Path, rows: list[Row], report: Callable[[list[Row]], str], draw: Callable[[list[Row]], None] | None = None) -> int:
    """How an experiment ends: prints the tables of the rows of PATH, and draws their figure."""
    if not rows:
        sys.exit(f"{name}: no rows in {os.path.relpath(path)}")
    print(report(rows))
    if draw:
        draw(rows)
    return 0


def arms(values: Sequence[tuple[float, float, float]]) -> list[list[float]]:
    """The lengths of error bars below and above a middle, from middles with their bounds (interval())."""
    return [[middle - low for middle, low, _ in values], [high - middle for middle, _, high in values]]


def intervals(axes: Any, points: Sequence[tuple[float, tuple[float, float, float]]], label: str, **style: Any) -> None:
    """Draws points with error bars: each has its place on the x axis, and a middle with its bounds (interval())."""
    values = [value for _, value in points]
    axes.errorbar([x for x, _ in points], [middle for middle, _, _ in values], yerr=arms(values), label=label,
                  **{"fmt": "o", "capsize": 3, **style})


@contextlib.contextmanager
def drawing(path: pathlib.Path, size: tuple[float, float], rows: int = 1, columns: int = 1) -> Iterator[Any]:
    """Axes to draw in. The SVG file is the same for the same rows; SIZE in inches."""
    import matplotlib  # not installed everywhere

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = path.stem
    from matplotlib import pyplot

    drawn, axes = pyplot.subplots(rows, columns, figsize=size)
    try:
        yield axes
        drawn.tight_layout()
        path.parent.mkdir(parents=True, exist_ok=True)
        drawn.savefig(path, metadata={"Date": None})
    finally:
        pyplot.close(drawn)
