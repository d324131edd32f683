#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/results.md from results/*.json: a first page, each experiment's question, tables, figures and command; the figures; and README's tables."""

from __future__ import annotations

import argparse
import importlib
import pathlib
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "lab/experiments")]

from lab import headline, overview, realtime, results, simulation  # noqa: E402
from lab.measure import progress  # noqa: E402

OUTPUT = ROOT / "docs/results.md"

# The module in lab/experiments, and the figures in docs/results. A module has
# - a docstring: a title, what the paper did, what is done here;
# - RESULTS: the file with its rows (and QUICK_RESULTS for --quick);
# - report(rows): its tables as text; WHY_NOT: an explanation of "not reproduced";
# - draw(rows): its figures;
# - paper(rows), if a paper has figures: lines with what was measured, the paper's figure,
#   ours, and a verdict: better, reproduced, not reproduced or "not run yet".
EXPERIMENTS = [
    ("dense_download", [
        "dense-download", "dense-download-ends", "dense-download-11n", "dense-download-stations", "dense-download-paper"]),
    ("interactive", ["interactive"]),
    ("neighbour", ["neighbour"]),
    ("sensitivity", []),
    ("bquic", []),
    ("bquic_mesh", ["bquic-mesh"]),
    ("modquic", ["modquic"]),
    ("page_load", ["page-load"]),
    ("two_paths", ["two-paths"]),
    ("latency", ["latency"]),
    ("beside", ["beside"]),
    ("fairness", ["fairness"]),
    ("paths", ["paths"]),
    ("sharing", ["sharing"]),
    ("rules", []),
    ("both", ["both"]),
    ("why", ["why"]),
    ("classifier", ["classifier"]),
    ("flows", ["flows"]),
    ("sessions", ["sessions"]),
    ("browsers", []),
    ("load", []),
    ("fleet", []),
    ("abuse", []),
    ("soak", []),
    ("cpu", []),
    ("starved", ["starved"]),
    ("router", ["router"]),
]


def rows_of(module: Any, quick: bool) -> tuple[pathlib.Path, list[dict[str, Any]]]:
    path = module.RESULTS
    other = getattr(module, "QUICK_RESULTS", path)  # not all experiments have a quick set
    if quick and other.exists():
        path = other
    return path, results.read(path)


def draw() -> None:
    """Draws all figures: those of rows that were made by hand, or made anew elsewhere, are of these rows, too."""
    for name, figures in EXPERIMENTS:
        module = importlib.import_module(name)
        if figures and (rows := results.read(module.RESULTS)):
            progress(f"figures of {name}")
            module.draw(rows)
    headline.draw()


def command(name: str) -> str:
    return f"make bench-{name.replace('_', '-')}"


def papers(quick: bool) -> dict[str, list[list[str]]]:
    """By experiment, a line for each of the papers' results, with its verdict and the command that makes it."""
    lines = {}
    for name, _ in EXPERIMENTS:
        module = importlib.import_module(name)
        if hasattr(module, "paper"):
            lines[name] = [[*line, f"`{command(name)}`"] for line in module.paper(rows_of(module, quick)[1])]
    return lines


def papers_table(lines: list[list[str]]) -> str:
    table = "| result | paper | here | verdict | command |\n|---|---|---|---|---|\n"
    return "## The papers' results\n\n" + table + "".join(
        f"| {what} | {figure} | {here} | {verdict} | {command} |\n" for what, figure, here, verdict, command in lines)


def section(module_name: str, figures: list[str], lines: list[list[str]], quick: bool) -> str:
    """An experiment's section. LINES are its lines of the papers' table."""
    progress(f"tables of {module_name}")
    module = importlib.import_module(module_name)
    title, about = (module.__doc__ or "").strip().split("\n", 1)
    title = title.removesuffix(".")
    # only those who run it need to know what it writes and how it continues
    about = "\n\n".join(p for p in about.strip().split("\n\n") if not p.startswith("Writes "))
    text = f"## {title}\n\n{about}\n\nMade by `{command(module_name)}`"
    path, rows = rows_of(module, quick)
    if not rows:
        return text + ": **not measured yet**.\n"
    commits = sorted({row["commit"] for row in rows if "commit" in row})
    at = f", at {', '.join(commits)}" if commits else ""
    text += f" ({len(rows)} row{'s' * (len(rows) > 1)} in `{path.relative_to(ROOT)}`{at}).\n\n"
    simulated = [row for row in rows if "digest" in row]
    old = sum(row["digest"] != simulation.digest(row["form"]) for row in simulated)
    if old:
        text += f"**{old} of these runs were made with earlier sources of the simulation or the policy, and are to be repeated.**\n\n"
    carried = sum("carried" in row and row["digest"] == simulation.digest(row["form"]) for row in simulated)
    if carried:
        text += (f"{carried} of these runs are older than the sources. No change since then was meant to affect them. To be sure, some runs of each kind"
                 " were repeated with the new sources: they came out the same to the last digit (`lab/carry.py`).\n\n")
    if without := realtime.rowless(path):
        text += f"**{without}**\n\n"
    text += f"```\n{module.report(rows)}\n```\n"
    if any(line[3] == "not reproduced" for line in lines):
        text += f"\n{module.WHY_NOT}\n"
    for figure in figures if path == module.RESULTS else ():  # which are of these rows
        if (ROOT / f"docs/results/{figure}.svg").exists():
            text += f"\n![{figure}](results/{figure}.svg)\n"
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="of the last --quick runs (build/lab/), where there are any")
    args = parser.parse_args()
    if not args.quick:
        draw()
    of_what = "the last quick runs (`build/lab/`; where there are none, from `results/`)" if args.quick else "`results/`"
    text = f"# Results\n\nGenerated from {of_what} by `lab/report.py`; do not edit. Medians; in brackets is the 95 % bootstrap interval of the median, or,\nwith fewer than six runs, the smallest and the largest run.\n\n"
    of = papers(args.quick)
    lines = [line for some in of.values() for line in some]
    text += overview.page(lines, ROOT / ("build/lab" if args.quick else "results")) + "\n" + papers_table(lines) + "\n"
    text += "\n".join(section(name, figures, of.get(name, []), args.quick) for name, figures in EXPERIMENTS)
    OUTPUT.write_text(text)
    if not args.quick:
        headline.update()
    print(f"{OUTPUT.relative_to(ROOT)}: {len(EXPERIMENTS)} experiments")
    return 0


if __name__ == "__main__":
    sys.exit(main())
