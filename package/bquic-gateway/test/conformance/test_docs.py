# SPDX-License-Identifier: Apache-2.0
"""docs/conformance.md is made of the cases: UPDATE_DOCS=1 writes it."""

import os

import test_http2
import test_http3
import test_quic
import test_requests
from cases import table
from harness import REPOSITORY

DOCUMENT = REPOSITORY / "docs/conformance.md"
BEGIN, END = "<!-- cases: begin -->\n", "<!-- cases: end -->"


def test_document() -> None:
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    cases = {**test_quic.CASES, **test_http3.CASES, **test_http2.CASES, **test_requests.CASES}
    tables = "".join(f"\n## {title}\n\n{table(rows)}" for title, rows in cases.items())
    wanted = before + BEGIN + tables + "\n" + END + after
    if os.environ.get("UPDATE_DOCS"):
        DOCUMENT.write_text(wanted)
    assert DOCUMENT.read_text() == wanted, "UPDATE_DOCS=1 scripts/test-conformance writes it"
