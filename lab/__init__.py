# SPDX-License-Identifier: Apache-2.0
"""The evidence: real binaries in network namespaces over an emulated medium."""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent  # of the repository
BQUIC = ROOT / "build/bquic"
