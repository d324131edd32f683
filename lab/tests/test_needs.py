# SPDX-License-Identifier: Apache-2.0
"""What measurements need is there, on a machine that has nothing yet."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# Programs that experiments run, and Debian's packages of them, beside those of every system.
PROGRAMS = {
    "chromium": "chromium", "curl": "curl", "dropbear": "dropbear-bin", "ethtool": "ethtool", "firefox-esr": "firefox-esr", "git": "git",
    "nft": "nftables", "ping": "iputils-ping", "pip": "python3-pip", "pytest": "python3-pytest", "socat": "socat", "ssh": "openssh-client",
    "sysctl": "procps", "tc": "iproute2", "tcpdump": "tcpdump", "venv": "python3-venv", "wget": "wget",
}


@pytest.mark.parametrize("group, sources", [
    ("demo", ["lab/measure.py", "lab/namespaces.py", "lab/topology.py"]),
    ("bench", ["lab/*.py", "lab/experiments/starved.py", "package/wifirr-sched/test/bench.py", "package/wifirr-sched/test/test_faults.py"]),
    ("browsers", ["lab/flows/*.py", "lab/experiments/browsers.py", "lab/chromium.py"]),
])
def test_what_experiments_run_is_installed(group: str, sources: list[str], tmp_path: pathlib.Path) -> None:
    """On a machine that has nothing yet, install-deps asks for each program's package."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / ".cache/venv").mkdir(parents=True)
    for name in ("install-deps", "tool-path", "requirements.txt"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts")
    shutil.copy(ROOT / "scripts/requirements.txt", tmp_path / ".cache/venv")
    for name, text in (("dpkg-query", "exit 1"), ("apt-get", "exit 0"), ("sudo", 'exec "$@"')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    said = subprocess.run([tmp_path / "scripts/install-deps", group], env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
                          capture_output=True, text=True, check=True).stdout
    asked = set(said.partition("Debian packages:")[2].partition("\n")[0].split())
    text = "".join(path.read_text() for source in sources for path in ROOT.glob(source))
    text += '"venv"' * ("python=yes" in re.search(rf"^\t{group}\).*", (ROOT / "scripts/install-deps").read_text(), re.M)[0])
    wanted = {package for name, package in PROGRAMS.items() if re.search(rf'"{name}"|\b{name} -|^import {name}$', text, re.M)}
    assert len(wanted) > 3 and not sorted(wanted - asked)


@pytest.mark.parametrize("experiment, modules", [("browsers", "aioquic, cryptography"), ("why", "matplotlib, sklearn")])
def test_bench_runs_with_a_python_that_has_what_is_imported(experiment: str, modules: str, tmp_path: pathlib.Path) -> None:
    for directory in ("scripts", "lab/experiments"):
        (tmp_path / directory).mkdir(parents=True)
    for name in ("bench", "tool-path"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts")
    (tmp_path / ".cache").symlink_to(ROOT / ".cache")
    (tmp_path / f"lab/experiments/{experiment}.py").write_text(f"import {modules}\n")
    (tmp_path / "lab/report.py").touch()
    done = subprocess.run([tmp_path / "scripts/bench", experiment], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
