# SPDX-License-Identifier: Apache-2.0
"""Programs that all tests of the lab run: the two daemons and the medium."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from lab import measure, medium  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def binaries() -> None:
    subprocess.run(["make", "-s", "-C", str(ROOT), "build"], check=True)
    medium.build()


@pytest.fixture(autouse=True)
def busy_machines(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests check functions, not speed, so processors may be shared. Tests of the limit itself use cpu_limit."""
    if "cpu_limit" not in request.fixturenames:
        monkeypatch.setattr(measure, "CPU_LIMIT", measure.ANY_CPU)


@pytest.fixture
def cpu_limit() -> float:
    """The limit that measurements use."""
    return measure.CPU_LIMIT
