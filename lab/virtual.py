# SPDX-License-Identifier: Apache-2.0
"""Experiments in virtual time: tests of package/bquic-gateway/src/internal/profile that write rows. They are pure
computation: the duration of a run depends on the machine, its results do not."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pathlib
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping

from lab import ROOT
from lab.measure import ENDS_WITH_US, commit, progress
from lab.namespaces import Failed
from lab.results import Row, options, read, show, write

SOURCE = ROOT / "package/bquic-gateway/src"
PROGRAM = ROOT / "build/lab/profile.test"
PACKAGE = "./internal/profile"
NICE = 10


def command(argv: list[str], env: Mapping[str, str], cwd: pathlib.Path) -> None:
    """Runs a command at low priority, on one processor."""
    done = subprocess.run([*ENDS_WITH_US, *argv], cwd=cwd, env={**os.environ, "GOFLAGS": "", "GOMAXPROCS": "1", **env}, capture_output=True,
                          text=True, preexec_fn=lambda: os.setpriority(os.PRIO_PROCESS, 0, NICE))
    if done.returncode != 0:
        raise Failed(f"{' '.join(argv)}: {(done.stdout + done.stderr)[-2000:]}")


def prepare() -> None:
    subprocess.run([SOURCE.parent / "quic-go/prepare"], check=True)


def build(output: pathlib.Path = PROGRAM, replaced: Mapping[str, str] | None = None) -> str:
    """Builds the tests; REPLACED has new contents for files below src/. Returns a hash that identifies the program."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        overlay = {}
        for k, (path, text) in enumerate((replaced or {}).items()):
            file = pathlib.Path(directory) / f"{k}.go"
            file.write_text(text)
            overlay[str(SOURCE / path)] = str(file)
        description = pathlib.Path(directory) / "overlay.json"
        description.write_text(json.dumps({"Replace": overlay}))
        command(["go", "test", "-c", "-overlay", str(description), "-o", str(output), PACKAGE], {}, SOURCE)
    return hashlib.sha256(output.read_bytes()).hexdigest()[:16]


def run(test: str, env: Mapping[str, str], program: pathlib.Path = PROGRAM) -> list[Row]:
    """The rows of one test. Raises Failed."""
    with tempfile.TemporaryDirectory() as directory:
        rows = pathlib.Path(directory) / "rows.json"
        command([str(program), "-test.run", f"^{test}$", "-test.timeout", "24h"], {**env, "BQUIC_ROWS": str(rows)}, SOURCE / PACKAGE)
        found: list[Row] = json.loads(rows.read_text())
        return found


def seed_range(text: str) -> range:
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    seeds = range(int(found[1]), int(found[2] or found[1]) + 1) if found else range(0)
    if not seeds:
        raise argparse.ArgumentTypeError(f"{text!r} is not first-last")
    return seeds


def main(
    name: str, about: str, test: str, variable: str, seeds: tuple[range, range], results: pathlib.Path, quick_results: pathlib.Path,
    report: Callable[[list[Row]], str], draw: Callable[[list[Row]], None],
    variants: Callable[[int], Mapping[str, Mapping[str, str]]] = lambda seed: {"": {}},
) -> int:
    """The command line of experiments that consist of one TEST with VARIABLE=seed. SEEDS: of the full and the quick set.
    VARIANTS: further runs of a seed by name, which is `variant` in their rows, and the extra variables of each."""
    p = options(about, "fewer seeds")
    p.add_argument("--seeds", type=seed_range, metavar="FIRST-LAST",
                   help=f"only these; the rows of others stay ({seeds[0][0]}-{seeds[0][-1]}; quick: {seeds[1][0]}-{seeds[1][-1]})")
    args = p.parse_args()
    chosen = args.seeds or seeds[args.quick]
    path = quick_results if args.quick else results
    rows = read(path)
    if not args.report:
        prepare()
        known = {"binary": build()}
        rows = [r for r in rows if r["seed"] not in chosen or (r["binary"] == known["binary"] and not args.restart)]
        todo = sorted(((seed, variant, more) for seed in chosen for variant, more in variants(seed).items()), key=lambda t: t[1])
        for k, (seed, variant, more) in enumerate(todo):
            if any(r["seed"] == seed and r["variant"] == variant for r in rows):
                continue
            new = run(test, {variable: str(seed), **more})
            rows += [{**row, "variant": variant, "commit": commit(), **known} for row in new]
            write(path, rows)
            progress(f"{name} {k + 1}/{len(todo)}: seed {seed}{', ' + variant if variant else ''}, {len(new)} rows")
    return show(name, path, rows, report, None if args.quick else draw)
