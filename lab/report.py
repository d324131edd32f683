#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/results.md from results/*.json: for each experiment what it asks, its tables, figures and command."""

from __future__ import annotations

import argparse
import importlib
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "lab/experiments")]

OUTPUT = ROOT / "docs/results.md"

# Module in lab/experiments (its docstring says what the paper did and what is
# done here, its RESULTS where the rows are, its report() makes the tables),
# the command, the figures in docs/results.
EXPERIMENTS = [
    ("dense_download", "make bench-dense-download", [
        "dense-download", "dense-download-ends", "dense-download-11n", "dense-download-stations", "dense-download-paper"]),
    ("interactive", "make bench-interactive", ["interactive"]),
    ("neighbour", "make bench-neighbour", ["neighbour"]),
    ("bquic", "make bench-bquic", []),
    ("bquic_mesh", "make bench-bquic-mesh", ["bquic-mesh"]),
    ("page_load", "make bench-page-load", ["page-load"]),
    ("fairness", "make bench-fairness", ["fairness"]),
]


def section(module_name: str, command: str, figures: list[str], quick: bool) -> str:
    module = importlib.import_module(module_name)
    title, about = (module.__doc__ or "").strip().split("\n", 1)
    # what a run writes and how it goes on is for those who run it
    about = "\n\n".join(p for p in about.strip().split("\n\n") if not p.startswith("Writes "))
    text = f"## {title}\n\n{about}\n\nMade by `{command}`"
    path = module.RESULTS
    if quick and getattr(module, "QUICK_RESULTS", path).exists():
        path = module.QUICK_RESULTS
    if not path.exists():
        return text + ": **not measured yet**.\n"
    rows = json.loads(path.read_text())
    commits = sorted({row["commit"] for row in rows if "commit" in row})
    text += f" ({len(rows)} runs in `{path.relative_to(ROOT)}`, at {', '.join(commits)}).\n\n"
    tables = module.report(rows)
    text += f"```\n{tables}\n```\n"
    if "not reproduced" in tables:
        text += f"\n{module.WHY_NOT}\n"
    for figure in figures:
        if (ROOT / f"docs/results/{figure}.svg").exists():
            text += f"\n![{figure}](results/{figure}.svg)\n"
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="of the last --quick runs (build/lab/), where there are any")
    args = parser.parse_args()
    text = "# Results\n\nGenerated from `results/` by `lab/report.py`; do not edit. Medians, with 95 % intervals in brackets.\n\n"
    text += "\n".join(section(*experiment, args.quick) for experiment in EXPERIMENTS)
    OUTPUT.write_text(text)
    print(f"{OUTPUT.relative_to(ROOT)}: {len(EXPERIMENTS)} experiments")
    return 0


if __name__ == "__main__":
    sys.exit(main())
