# SPDX-License-Identifier: Apache-2.0
"""What all tests of the lab run: the two daemons and the medium."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from lab import medium  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def binaries() -> None:
    subprocess.run(["make", "-s", "-C", str(ROOT), "build"], check=True)
    medium.build()
