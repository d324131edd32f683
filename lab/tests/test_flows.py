# SPDX-License-Identifier: Apache-2.0
"""Flows are recorded correctly, sessions count as found if they are right, and the relay's tree is made from the data."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import pathlib
import random
import subprocess
import sys
from collections.abc import Iterator

import pytest

from lab import ROOT, flows, namespaces
from lab.flows import applications, dialogues, uploads


@pytest.fixture
def bench() -> Iterator[flows.Bench]:
    flows.build()
    with namespaces.Lab() as lab:
        yield flows.Bench(lab)


def test_an_upload_that_breaks_off_ends() -> None:
    """It took a processor until the lab's end."""
    taker = uploads.Taker.__new__(uploads.Taker)
    taker.rfile = io.BytesIO(b"half")
    with pytest.raises(ConnectionError):
        taker._skip(8)


def test_the_tree_is_made_from_the_rows() -> None:
    """With Debian's Python, which has the library that the tree is made with."""
    done = subprocess.run(["/usr/bin/python3", str(ROOT / "lab/experiments/flows.py"), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_flows_of_applications(bench: flows.Bench) -> None:
    applications.prepare(bench)
    for what, size in (("curl file 1", 100), ("curl uploads 2", 100), ("plain updates", 180_000), ("ssh typing", 1000)):
        row = applications.OTHERS[what](bench, [0], random.Random(1))
        assert row["class"] == ("other" if "ssh" in what else "http2" if what.endswith("2") else "http1")
        for client_bytes, server_bytes, client_packets, server_packets, seconds in row["flows"]:
            assert 0 < client_packets * 20 <= client_bytes and 0 < server_packets <= server_bytes and 0 <= seconds < 60
        assert sum(f[0] + f[1] for f in row["flows"]) > size


def test_dialogues(bench: flows.Bench) -> None:
    """Both ends follow the dialogue, over TLS."""
    applications.prepare(bench)
    for name, make in dialogues.PROTOCOLS.items():
        source = random.Random(7)
        row = applications.OTHERS[name](bench, [0], source)
        said = make(random.Random(_seed(7)))
        (client_bytes, server_bytes, *_), = row["flows"]
        for whose, got in (("c", client_bytes), ("s", server_bytes)):
            content = sum(length for who, length, _ in said if who == whose)
            messages = sum(1 for who, _, _ in said if who == whose)
            assert content < got < content + 22 * (messages + content // (1 << 14)) + 5000


def _seed(of: int) -> int:
    source = random.Random(of)
    source.choice([0])
    return source.randrange(1 << 30)


def test_sessions_count_as_found_if_they_are_right() -> None:
    sessions = importlib.import_module("sessions")
    row = {"flows": [[0, 0, 1, 0, 0], [0, 0, 1, 0, 0.2], [0, 1, 1, 0, 0.3], [1, 0, 1, 0, 3], [2, 0, 2, 0, 8], [2, 0, 3, 0, 12.9]]}
    actual, said, thesis = sessions.sets(row)
    # Flows of the first page load to one server were merged with the second's, and those of the third are separate.
    assert actual == {frozenset(s) for s in ({0, 1}, {2}, {3}, {4, 5})}
    assert actual & said == {frozenset({2})} and len(said) == 4
    assert thesis == {frozenset(s) for s in ({0, 1, 3}, {2}, {4, 5})}


def test_a_run_that_continues_draws_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """It drew again what the first part had drawn, so an application had the same flows more than once."""
    experiment = importlib.import_module("flows")
    monkeypatch.setattr(experiment.namespaces, "Lab", contextlib.nullcontext)
    for module, name in ((experiment.flows, "build"), (experiment.flows, "Bench"), (experiment.applications, "prepare"), (experiment.results, "write")):
        monkeypatch.setattr(module, name, lambda *_: None)
    monkeypatch.setattr(experiment.applications, "OTHERS", {"file": lambda bench, delays, source: {"flows": [source.random()]}})
    monkeypatch.setattr(experiment.applications, "HELD_OUT", {})
    asked = argparse.Namespace(only=["applications"], repetitions=2)
    rows: list[dict[str, object]] = []
    experiment.run(asked, rows)
    continued = rows[:20]
    experiment.run(asked, continued)
    assert continued == rows and len({json.dumps(r["flows"]) for r in rows}) == len(rows) == 2 * experiment.EACH


def test_a_full_disk_costs_no_rows(tmp_path: pathlib.Path) -> None:
    """Nor does the end of the program while it writes them."""
    file = tmp_path / "rows.json"
    program = f"""
import pathlib, resource, signal, sys
sys.path.insert(0, {str(ROOT)!r})
from lab import results
file = pathlib.Path({str(file)!r})
results.write(file, [{{"key": "a"}}])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (8, 8))
results.write(file, [{{"key": "a"}}, {{"key": "b"}}])
"""
    assert subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 1
    assert json.loads(file.read_text()) == [{"key": "a"}]
