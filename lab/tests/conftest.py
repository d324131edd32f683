# SPDX-License-Identifier: Apache-2.0
"""What tests of the lab share: the daemons and the medium, built; a lab; paths for imports."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "lab/experiments")]

from lab import measure, medium, namespaces  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def binaries() -> None:
    subprocess.run(["make", "-s", "-C", str(ROOT), "build"], check=True)
    medium.build()


@pytest.fixture
def lab() -> Iterator[namespaces.Lab]:
    with namespaces.Lab() as it:
        yield it


@pytest.fixture(autouse=True)
def busy_machines(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests check functions, not speed, so processors may be shared. Tests of the limit itself use cpu_limit."""
    if "cpu_limit" not in request.fixturenames:
        monkeypatch.setattr(measure, "CPU_LIMIT", measure.ANY_CPU)


@pytest.fixture
def cpu_limit() -> float:
    """The limit that measurements use."""
    return measure.CPU_LIMIT
