# SPDX-License-Identifier: Apache-2.0
"""The evidence: real binaries in network namespaces over an emulated medium."""

import pathlib
import sys
from collections.abc import Callable
from typing import NoReturn

ROOT = pathlib.Path(__file__).resolve().parent.parent  # of the repository
BQUIC = ROOT / "build/bquic"


def command(main: Callable[[], int], *expected: type[Exception]) -> NoReturn:
    """Runs main as a command. Its result is the exit code. What is EXPECTED to go wrong is told in a line, without a traceback."""
    try:
        sys.exit(main())
    except expected as error:
        sys.exit(f"{pathlib.Path(sys.argv[0]).stem}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
