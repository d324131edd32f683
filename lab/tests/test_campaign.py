# SPDX-License-Identifier: Apache-2.0
"""The rows of experiments in real time: their order, what they tell, and how to continue after an interruption."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import pathlib
from typing import Any
from unittest import mock

import pytest

from helpers import row
from lab import measure, namespaces, realtime, results


def campaign(tmp_path: pathlib.Path, restart: bool = False, **more: Any) -> realtime.Campaign:
    return realtime.Campaign("test", argparse.Namespace(quick=False, restart=restart), tmp_path / "rows.json", ("mbps",), **more)


def test_schema() -> None:
    realtime.check(row(), ("mbps",))
    for bad in (row(lag_ms=5.0), row(mbps=0), row(mbps="fast"), row(quick=1), row(retries=None), row(repetition=True),
                {k: v for k, v in row().items() if k != "load"}):
        with pytest.raises(ValueError):
            realtime.check(bad, ("mbps",))


def test_an_interrupted_experiment_goes_on(tmp_path: pathlib.Path) -> None:
    figures = {"mbps": 2.0, "lag_ms": 0.1, "cpu_pressure": 0.0, "retries": 0, "retries_cpu": 0}
    key = {"hops": 1, "repetition": 1}
    first = campaign(tmp_path)
    assert first.missing(key, ["a", "b", "c"]) == ["b", "c", "a"]  # each repetition starts with another one
    first.add(key, "b", lambda: figures, "{contender}")
    again = campaign(tmp_path)
    assert again.missing(key, ["a", "b", "c"]) == ["c", "a"]
    assert again.missing({"hops": 2, "repetition": 1}, ["b"]) == ["b"]
    assert campaign(tmp_path, restart=True).rows == []
    # A row with a lagging emulator, or without a figure, is not stored.
    for bad in ({**figures, "lag_ms": 5.0}, {**figures, "mbps": None}):
        with pytest.raises(ValueError):
            again.add(key, "c", lambda: bad, "")
    assert len(results.read(tmp_path / "rows.json")) == 1


def test_rows_of_other_parts_stay(tmp_path: pathlib.Path) -> None:
    figures = {"mbps": 2.0, "lag_ms": 0.1, "cpu_pressure": 0.0, "retries": 0, "retries_cpu": 0}
    results.write(tmp_path / "rows.json", [row(binary="of old programs"), row(binary="of old programs", beyond_ms=20)])
    for restart in (False, True):
        it = campaign(tmp_path, restart, part=lambda r: bool(r.get("beyond_ms")))
        assert it.rows == []
        it.add({"beyond_ms": 20, "repetition": 1}, "a", lambda: figures, "")
        assert [r["binary"] == "of old programs" for r in results.read(tmp_path / "rows.json")] == [True, False]


def test_a_failure_is_told(tmp_path: pathlib.Path) -> None:
    answers: list[Any] = [namespaces.Failed("stalled"), {"mbps": 2.0, "lag_ms": 0.1, "cpu_pressure": 0.0, "retries": 0, "retries_cpu": 0}]

    def run() -> dict[str, Any]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)

    it = campaign(tmp_path)
    it.add({"repetition": 1}, "a", run, "")
    assert it.rows[0]["failures"] == 1 and "Repeated after a failure: 1 (a 1)." in realtime.notes(it.rows)


def test_failures_that_ended_an_experiment_are_told(tmp_path: pathlib.Path) -> None:
    """Its next start forgot them, so a contender that often failed looked like one that never does."""
    def failing(*errors: namespaces.Failed) -> Any:
        answers: list[Any] = [*errors, {"mbps": 2.0, "lag_ms": 0.1, "cpu_pressure": 0.0, "retries": 1, "retries_cpu": 1}]

        def run() -> dict[str, Any]:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return dict(answer)

        return run

    key, path = {"repetition": 1}, tmp_path / "rows.json"
    with pytest.raises(namespaces.Failed, match="again"):
        campaign(tmp_path).add(key, "a", failing(namespaces.Failed("stalled"), measure.Disturbed("again", 1, 0)), "")
    assert realtime.rowless(path) == "Runs without a row, because they failed each time: 1 (a 1)."
    with pytest.raises(measure.TooSlow):
        campaign(tmp_path).add(key, "a", failing(measure.TooSlow("slow", 2, 9)), "")
    campaign(tmp_path).add(key, "b", failing(), "")
    with pytest.raises(namespaces.Failed):  # ends by itself between the failure and the second try
        campaign(tmp_path).add(key, "c", failing(namespaces.Failed("stalled"), namespaces.Failed("killed")), "")
    campaign(tmp_path).add(key, "a", failing(namespaces.Failed("once more")), "")
    assert [(r["contender"], r["failures"], r["retries"], r["retries_cpu"]) for r in results.read(path)] == [("b", 0, 1, 1), ("a", 3, 13, 10)]
    assert "c 1" in realtime.rowless(path)
    it = campaign(tmp_path)
    with pytest.raises(namespaces.Failed), it.blaming([key], "d"):  # its relay does not start
        raise namespaces.Failed("the relay ended")
    with pytest.raises(namespaces.Failed), it.blaming([key], "d"):
        it.add(key, "d", failing(namespaces.Failed("stalled"), namespaces.Failed("again")), "")
    it.add(key, "d", failing(), "")
    assert results.read(path)[-1]["failures"] == 3
    # Those of other programs say nothing about these.
    results.write(realtime.failed(path), [r | {"binary": "old"} for r in results.read(realtime.failed(path))])
    assert not campaign(tmp_path)._failed and not realtime.rowless(path)


def test_contenders_take_turns(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """Those of fairness did not: a flow beside one more of its own kind was always the last."""
    experiment: Any = importlib.import_module("fairness")
    monkeypatch.setattr(experiment.namespaces, "Lab", contextlib.nullcontext)
    monkeypatch.setattr(experiment, "Mesh", lambda *_, **__: None)
    monkeypatch.setattr(experiment, "Servers", lambda *_: None)
    monkeypatch.setattr(experiment, "measured", lambda *_: {
        "mbps": 1.0, "mbps_others": 1.0, "jain": 1.0, "of_share": 1.0, "lag_ms": 0.1, "cpu_pressure": 0.0, "retries": 0, "retries_cpu": 0})
    rows = experiment.run(argparse.Namespace(quick=False, restart=False, repetitions=2), tmp_path / "rows.json")
    each = len(experiment.PAIRS)
    orders = [[(r["contender"], r["against"], r["others"]) for r in rows[k * each * len(experiment.MEDIA):][:each]] for k in range(2)]
    assert orders[0] != orders[1] and sorted(orders[0]) == sorted(orders[1]) == sorted(experiment.PAIRS)


def test_whose_runs_were_discarded_is_told() -> None:
    """All of one contender: those that waited for a processor may have been its slow ones."""
    told = realtime.notes([row(), row(contender="relay", retries=3, retries_cpu=2), row(contender="relay", retries=2, retries_cpu=2, failures=1)])
    assert "Discarded runs: 1 (relay 1) for a mean lag" in told and "4 (relay 4) because the ends waited" in told and "failure: 1 (relay 1)." in told
    assert "Discarded runs: 0 for" in realtime.notes([row()])


def test_bquic_is_an_experiment_like_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """Fewer contenders or repetitions replaced the rows of all; Caddy was not among the programs whose rows are reused."""
    experiment: Any = importlib.import_module("bquic")
    mesh_seeds: list[int] = []
    monkeypatch.setattr(experiment, "CADDY", tmp_path / "caddy")
    monkeypatch.setattr(experiment, "build_caddy", lambda: experiment.CADDY)
    monkeypatch.setattr(experiment, "Mesh", lambda lab, kind, hops, seed: mesh_seeds.append(seed))
    monkeypatch.setattr(experiment.namespaces, "Lab", contextlib.nullcontext)
    monkeypatch.setattr(experiment, "Servers", lambda lab, mesh, size: size)
    monkeypatch.setattr(experiment.measure, "measure", lambda servers, contender, run: {
        "mbps": 1.0, "seconds": 1.0, "lag_ms": 0.1, "cpu_pressure": 0.0, "retries": 0, "retries_cpu": 0, "data_per_ack": None,
        "ipt_below_100us": None, "ampdu": None, "details": {}})
    results.write(tmp_path / "rows.json", [row(binary="old")])
    args = argparse.Namespace(quick=False, restart=False, repetitions=2)
    experiment.CADDY.write_text("one version")
    there = experiment.run(args, tmp_path / "rows.json")
    media, contenders = len(experiment.MATRIX), len(experiment.CONTENDERS)
    assert len(there) == 2 * media * contenders
    assert len(mesh_seeds) == 2 * (media - 1 + contenders)  # with loss, each has a new medium
    args.repetitions = 1
    assert experiment.run(args, tmp_path / "rows.json") == there == results.read(tmp_path / "rows.json")
    assert "60 runs. " in experiment.report(there)
    experiment.CADDY.write_text("another version")
    assert len(experiment.run(args, tmp_path / "rows.json")) == media * contenders


def test_without_the_relay_is_not_always_first(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """Nor is the same level: whatever changes in the course of a run would look like an effect of the relay."""
    experiment: Any = importlib.import_module("starved")
    done: list[str] = []

    def transfer(*_: Any) -> float:
        done.append("off")
        return 1.0

    def relayed(*_: Any) -> dict[str, Any]:
        done.append("on")
        return {"on": dict.fromkeys(experiment.WHAT, 1.0), "carried": dict.fromkeys(experiment.WHAT, 0)}

    lab = mock.MagicMock()
    lab.cpu_waited.return_value = 0.0
    (tmp_path / "relay").touch()
    for name, stub in {"RELAY": tmp_path / "relay", "cost": lambda: 1e-8, "transfer": transfer, "relayed": relayed,
                       "network": lambda _: contextlib.nullcontext([lab] * 5)}.items():
        monkeypatch.setattr(experiment, name, stub)
    rows = experiment.run(tmp_path / "rows.json", [0.5, 1.0], [10], 2, float("inf"))
    assert [(r["repetition"], r["level"], r["order"][0]) for r in rows] == [(1, 1.0, "on"), (1, 0.5, "on"), (2, 0.5, "off"), (2, 1.0, "off")]
    assert done == 2 * ["on", "off", "off", "off"] + 2 * ["off", "off", "off", "on"]
    del rows[0]["order"]  # older rows have none
    assert " 1 began with on" in experiment.report(rows)
