# SPDX-License-Identifier: Apache-2.0
"""Runs a part of package/bquic-gateway/src/test/stress and writes its results."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from lab.namespaces import exit_on_signals, own_group  # noqa: E402

BUILD = ROOT / "build/test"


def results(part: str, quick: bool = False) -> pathlib.Path:
    return ROOT / ("build/lab" if quick else "results") / f"{part}.json"


def run(part: str, full: list[str], quick: list[str], alone: bool = False) -> int:
    """Runs the part with the arguments for a full or a --quick run; alone: in a network namespace of its own."""
    is_quick = "--quick" in sys.argv[1:]
    output = results(part, is_quick)
    output.parent.mkdir(parents=True, exist_ok=True)
    BUILD.mkdir(parents=True, exist_ok=True)
    subprocess.run([ROOT / "scripts/build-bquic", BUILD / "bquic"], check=True)
    subprocess.run(
        ["go", "build", "-tags", "abuse", "-o", BUILD / "stress", "./test/stress"],
        cwd=ROOT / "package/bquic-gateway/src", env={**os.environ, "GOFLAGS": ""}, check=True,
    )
    command = [BUILD / "stress", part, BUILD / "bquic", "-o", output, *(quick if is_quick else full)]
    if alone:
        command = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command]
    exit_on_signals()
    process = subprocess.Popen(own_group(*command), start_new_session=True)
    try:
        return process.wait()
    except KeyboardInterrupt:
        return 130
    finally:
        process.terminate()  # its namespaces end with it
        process.wait()
