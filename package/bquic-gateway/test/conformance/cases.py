# SPDX-License-Identifier: Apache-2.0
"""A table of cases: what a peer does, what the standard asks for, and what the gateway does."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

# Where refusing is all that matters: a status of 4xx, or the stream or connection reset.
REFUSED = "refused"


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    source: str  # RFC and section
    asked: str  # the outcome that the source asks for
    act: Callable[..., Any]  # what the client does; its parameters are the test module's affair
    seen: str = ""  # the gateway's outcome, where it is another one
    harmless: str = ""  # and why nothing is lost by that

    def __post_init__(self) -> None:
        assert bool(self.seen) == bool(self.harmless), self.name

    @property
    def expected(self) -> str:
        return self.seen or self.asked


def table(cases: list[Case]) -> str:
    """The cases in Markdown."""
    def cell(text: str) -> str:
        return text.replace("|", "\\|")

    rows = ["| case | source | asked for | seen |", "|---|---|---|---|"]
    for case in cases:
        seen = f"{case.seen}: {case.harmless}" if case.seen else "the same"
        rows.append(f"| {cell(case.name)} | {case.source} | {cell(case.asked)} | {cell(seen)} |")
    return "\n".join(rows) + "\n"


def name_of(case: object) -> str | None:
    """pytest's ids."""
    return case.name if isinstance(case, Case) else None
