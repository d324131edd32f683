# SPDX-License-Identifier: Apache-2.0
"""Runs a part of package/bquic-gateway/src/test/stress and writes its results."""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from lab import ROOT
from lab.measure import commit
from lab.medium import build_go
from lab.namespaces import exit_on_signals, own_group
from lab.results import read, show, write

BUILD = ROOT / "build/test"


def results(part: str, quick: bool = False) -> pathlib.Path:
    return ROOT / ("build/lab" if quick else "results") / f"{part}.json"


def run(
    part: str, report: Callable[[list[dict[str, Any]]], str], full: list[str], quick: list[str], alone: bool = False,
    needs: Callable[[], object] = lambda: None,
) -> int:
    """The command line of a part: runs it with the arguments for a full or a --quick run. ALONE: in a network namespace of its own.
    NEEDS makes what the arguments name."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a short run, into build/lab/ only")
    parser.add_argument("--report", action="store_true", help="only prints the table of what there is")
    args = parser.parse_args()
    output = results(part, args.quick)
    if args.report:
        return show(part, output, read(output), report)
    needs()
    BUILD.mkdir(parents=True, exist_ok=True)
    measured, at = BUILD / f"{part}.json", commit()
    measured.unlink(missing_ok=True)
    subprocess.run([ROOT / "scripts/build-bquic", BUILD / "bquic"], check=True)
    build_go(BUILD / "stress", "./test/stress", "-tags", "abuse")
    command: list[str | pathlib.Path] = [BUILD / "stress", part, BUILD / "bquic", "-o", measured, *(quick if args.quick else full)]
    if alone:
        command = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command]
    exit_on_signals()
    process = subprocess.Popen(own_group(*command), start_new_session=True)
    try:
        return process.wait()
    finally:
        process.terminate()  # its namespaces end with it
        process.wait()
        if rows := read(measured):
            write(output, [{**row, "commit": at} for row in rows])
