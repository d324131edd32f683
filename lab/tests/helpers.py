# SPDX-License-Identifier: Apache-2.0
"""What several tests of the lab use."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import subprocess
from typing import Any

import pytest

from lab import ROOT


def load(path: str) -> Any:
    """Loads a program without a suffix as a module."""
    loader = importlib.machinery.SourceFileLoader("program", str(ROOT / path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("program", loader) or pytest.fail(path))
    loader.exec_module(module)
    return module


def of_session(leader: int) -> list[str]:
    """The processes that a session still has, which its processes keep."""
    return subprocess.run(["ps", "-o", "args=", "-s", str(leader)], capture_output=True, text=True).stdout.splitlines()


def row(**changes: Any) -> dict[str, Any]:
    """A row of an experiment in real time that realtime.check() accepts, but for the CHANGES."""
    return {
        "contender": "tcp", "repetition": 1, "seed": 1, "commit": "0", "binary": "0", "quick": False, "lag_ms": 0.1,
        "cpu_pressure": 0.1, "load": 1.0, "retries": 0, "retries_cpu": 0, "failures": 0, "mbps": 1.0, **changes,
    }
