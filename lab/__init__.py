# SPDX-License-Identifier: Apache-2.0
"""The evidence: real binaries in network namespaces over an emulated medium."""

import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import NoReturn

from lab.namespaces import Failed

ROOT = pathlib.Path(__file__).resolve().parent.parent  # of the repository
BQUIC = ROOT / "build/bquic"


def command(main: Callable[[], int], *expected: type[Exception]) -> NoReturn:
    """Runs main as a command. Its result is the exit code. What can go wrong, and what else is EXPECTED to, is told in a line, without a traceback."""
    told: tuple[type[Exception], ...] = (Failed, subprocess.CalledProcessError, *expected)
    try:
        sys.exit(main())
    except told as error:
        sys.exit(f"{pathlib.Path(sys.argv[0]).stem}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
