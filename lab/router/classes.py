# SPDX-License-Identifier: Apache-2.0
"""The cost of a flow's class on MIPS: counts each instruction under qemu-user."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
from typing import Any

from lab.router import board, cipher

PACKAGE = cipher.SOURCES.parent / "internal/proof"
CODE = r"proof\.Flow\.Class|proof\.ratio"
FLOWS = 400  # counted flows


def count(processor: str, binary: pathlib.Path) -> dict[str, Any]:
    """Builds the classifier's test for PROCESSOR as BINARY, and returns a row. Raises board.CannotRun and Failed."""
    qemu = cipher.PROCESSORS[processor]
    if not shutil.which(qemu):
        raise board.CannotRun(f"{qemu} is not installed")
    subprocess.run(["go", "test", "-c", "-o", binary.resolve(), "."], cwd=PACKAGE, check=True,
                   env=os.environ | {"GOOS": "linux", "GOARCH": processor, "GOMIPS": "softfloat", "CGO_ENABLED": "0", "GOFLAGS": ""})
    where = cipher.code(binary, CODE)
    few, many = (cipher.instructions([qemu, str(binary.resolve()), "-test.run", "^$", "-test.bench", "Class$", "-test.benchtime", f"{flows}x"], where, PACKAGE)
                 for flows in (2, 2 + FLOWS))
    return {"what": "a flow's class", "direction": "-", "profile": "-", "offload": "-", "processor": processor,
            "instructions_per_flow": round((many - few) / FLOWS)}
