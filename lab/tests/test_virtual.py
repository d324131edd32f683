# SPDX-License-Identifier: Apache-2.0
"""Experiments in virtual time: their replacements in the sources, and the verdicts from rows."""

from __future__ import annotations

import argparse
import importlib
import json
import pathlib
import sys
from typing import Any

import pytest

from lab import results, virtual
from lab.results import Row

paths: Any = importlib.import_module("paths")
sharing: Any = importlib.import_module("sharing")
rules: Any = importlib.import_module("rules")


def verdict(bquic: list[float]) -> list[str]:
    return [line[-1] for line in paths.verdicts([{"mbps_standard": 10.0, "mbps_bquic": b} for b in bquic])]


def test_paths_are_judged() -> None:
    assert verdict([10.0] * 100) == ["met", "met", "met"]
    assert verdict([10.0] * 99 + [9.4]) == ["met", "met", "MISSED"]
    assert verdict([10.5] * 98 + [9.4] * 2) == ["MISSED", "met", "met"]
    assert verdict([10.5] * 99 + [8.9]) == ["met", "MISSED", "met"]


def test_the_median_of_paths_is_between_the_middle_two() -> None:
    row = json.loads(paths.RESULTS.read_text())[0]
    told = paths.report([{**row, "variant": "", "mbps_standard": 10.0, "mbps_bquic": mbps} for mbps in (9.0, 10.0, 12.0, 13.0)])
    assert next(line.split()[3] for line in told.splitlines() if line.startswith("all ")) == "1.100"


def test_sharing_is_over_one_more_of_their_own() -> None:
    def row(contender: str, mbps: float, others: float) -> Row:
        return {"medium": "wire", "against": "cubic", "others": 2, "rtt_ms": 40, "rtt_others_ms": 40, "contender": contender,
                "mbps": mbps, "mbps_others": others}

    rows = [row("cubic", 6, 12), row("bquic", 9, 9), row("bquic", 7, 11)]
    share, left, jain = sharing.figures(rows, sharing.cells(rows)[0], "bquic")
    assert share == pytest.approx(8 * 3 / 18)
    assert left == pytest.approx(10 / 12)
    assert jain == pytest.approx(13**2 / (2 * (8**2 + 5**2)))
    assert sharing.figures(rows, sharing.cells(rows)[0], "standard") is None


def test_every_rule_is_in_the_sources() -> None:
    virtual.prepare()
    changes = rules.changes()
    assert len({name for name, _ in changes}) == len(changes)
    same, changed = changes[:3], changes[3:]
    assert all(name.startswith("as it is") and not files for name, files in same)
    for name, files in changed:
        assert files, name
        for file, text in files.items():
            assert text != (virtual.SOURCE / file).read_text(), name


@pytest.mark.parametrize("options, left, made", [
    (["--seeds", "7"], [("old", 6, 1.0), ("old", 8, 1.0)], [7]), (["--seeds", "6-8"], [("now", 9, 1.0)], [6, 7, 8]), ([], [("now", 9, 1.0)], [6, 7, 8]),
    (["--seeds", "9", "--restart"], [("old", 6, 1.0), ("old", 7, 1.0), ("old", 8, 1.0)], [9]),
])
def test_rows_of_other_seeds_stay(
        options: list[str], left: list[tuple[str, int, float]], made: list[int], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of one seed cost the rows of all others."""
    path = tmp_path / "rows.json"
    before = [("old", 6), ("old", 7), ("old", 8), ("now", 9)]
    results.write(path, [{"binary": binary, "seed": seed, "variant": "", "value": 1.0} for binary, seed in before])
    monkeypatch.setattr(virtual, "prepare", lambda: None)
    monkeypatch.setattr(virtual, "build", lambda: "now")
    monkeypatch.setattr(virtual, "run", lambda test, env: [{"seed": int(env["SEED"]), "value": 2.0}])
    monkeypatch.setattr(sys, "argv", ["paths", *options])
    assert virtual.main("paths", "", "Test", "SEED", (range(6, 9), range(6, 7)), path, path, lambda rows: "", lambda rows: None) == 0
    there = {(r["binary"], r["seed"], r["value"]) for r in results.read(path)}
    assert there >= {*left, *(("now", seed, 2.0) for seed in made)} and len(there) == 4


@pytest.mark.parametrize("text", ["", "x", "9-6", "6-", "-6", "6-x"])
def test_seeds_that_are_none_are_a_mistake(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        virtual.seed_range(text)
