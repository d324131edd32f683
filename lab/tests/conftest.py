# SPDX-License-Identifier: Apache-2.0
"""What all tests of the lab run: the two daemons and the medium."""

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
    """Tests ask whether it works, not how fast: they may share their processors, but for those of that rule."""
    if "cpu_limit" not in request.fixturenames:
        monkeypatch.setattr(measure, "CPU_LIMIT", measure.ANY_CPU)


@pytest.fixture
def cpu_limit() -> float:
    """As it is for measurements."""
    return measure.CPU_LIMIT
