# SPDX-License-Identifier: Apache-2.0
"""What the reports conclude from rows."""

from __future__ import annotations

import importlib
import pathlib
from typing import Any

import pytest

from lab import medium, overview, realtime, results, simulation

beside: Any = importlib.import_module("beside")
bquic: Any = importlib.import_module("bquic")
bquic_mesh: Any = importlib.import_module("bquic_mesh")
dense_download: Any = importlib.import_module("dense_download")
fairness: Any = importlib.import_module("fairness")
latency: Any = importlib.import_module("latency")
neighbour: Any = importlib.import_module("neighbour")
sessions: Any = importlib.import_module("sessions")


def test_a_papers_gain_is_reproduced_by_nine_tenths_of_it() -> None:
    for gain, verdict in ((1.26, "not reproduced"), (1.28, "reproduced"), (1.5, "better")):
        rows = [{**simulation.CENTRE, "phy": "11n", "traffic": "browse", "neighbour_share": neighbour.SHARE, "form": form, "worst_s": seconds}
                for form, seconds in (("none", 10 * gain), ("wifirr", 10.0))]
        assert [line[3] for line in neighbour.paper(rows) if "two neighbour APs, HTTP" in line[0]] == [verdict]  # 1.3 in the paper
    for gain, verdict in ((1.5, "not reproduced"), (1.55, "reproduced"), (1.8, "better")):
        rows = [{**simulation.CENTRE, "ap": "fifo512", "traffic": "browse", "upload_kbit": 10, "form": form, "worst_s": seconds, "collided_share": 0}
                for form, seconds in (("none", 10 * gain), ("ap", 10.0))]
        assert dense_download.paper(rows)[0][3] == verdict  # 1.6 in the paper


def test_a_verdict_is_on_all_that_its_line_says() -> None:
    for before, after, verdict in ((0.16, 0.02, "reproduced"), (0.16, 0.08, "not reproduced"), (0.16, None, "not reproduced"), (0.1, 0.02, "not reproduced")):
        rows = [{**simulation.CENTRE, "ap": "fifo512", "traffic": traffic, "upload_kbit": 10, "form": form, "worst_s": 1.0, "collided_share": share}
                for traffic, form, share in (("browse", "none", before), ("spdy", "ap", after)) if share]
        assert dense_download.paper(rows)[-1][3] == verdict
    for alone, verdict in ((4, "reproduced"), (2, "not reproduced")):  # beside two flows of one session
        flows = [[0, 0, session, 0, 0] for session in (*range(alone), 9, 9)]
        assert sessions.paper([{"http": 2, "flows": flows}])[0][3] == verdict


def test_nothing_is_reproduced_that_is_in_no_paper() -> None:
    assert not [line for line in fairness.paper(results.read(fairness.RESULTS)) if line[1] == "-"]


def test_another_machine_is_no_better_result(monkeypatch: pytest.MonkeyPatch) -> None:
    classifier: Any = importlib.import_module("classifier")
    monkeypatch.setattr(classifier, "judged", lambda *_: None)
    for ms, verdict in ((10.0, "reproduced"), (1e4, "not reproduced")):
        assert classifier.paper([{"medium": classifier.SPEED, "contender": "tree", "ms": ms}])[-1][3] == verdict


def test_what_is_left_to_linux_is_on_the_first_page() -> None:
    """Only the shares in virtual time were, where another CUBIC stands in for Linux's."""
    rows = [{"medium": "wired", "contender": who, "against": against, "others": 1, "of_share": share}
            for who, against, share in (("bquic", "tcp", 0.5), ("bquic", "standard", 1.2), ("standard", "tcp", 1.4))]
    assert overview.neighbours(rows, [])[0].startswith(
        "**Other users:** beside Linux's CUBIC and stock QUIC, over WiFi and a wire, `bquic` takes 0.50 to 1.20 of an equal share, and 0.8 to 1.25 in"
        " 1 of 2 mixes (stock QUIC beside CUBIC: 1.40 to 1.40). [fairness]")
    assert not overview.neighbours([], [])


def test_what_another_node_leaves() -> None:
    rows = [{**beside.CENTRE, **beside.AXES[-1], "contender": contender, "repetition": k, "binary": "0", "mbps": mbps, "mbps_others": 8.0,
             "request_ms": 100.0, "lag_ms": 0.1, "cpu_pressure": 0.1, "load": 1.0, "retries": 0, "retries_cpu": 0, "failures": 0}
            for k in range(3) for contender, mbps in zip(beside.CONTENDERS, (8.0, 8.4, 3.2))]
    told, = overview.others(rows)
    assert "are 1.05 " in told and "0.40 " in told, told
    assert not overview.others(rows[:1])
    assert [line.split()[8] for line in beside.report(rows).splitlines()[1:4]] == ["1.00", "1.05", "0.40"]


def test_a_run_that_has_several_rows_counts_once() -> None:
    """latency has a row for each kind of request of a run."""
    rows = [{**latency.CENTRE, "what": what, "contender": contender, "repetition": 11, "median_ms": 1.0, "p90_ms": 1.0, "p99_ms": 1.0, "lost": 0, "lag_ms": 0.1, "binary": "0",
             "cpu_pressure": 0.1, "load": 1.0, "retries": 2, "retries_cpu": 2, "failures": int(what == latency.clients.WHAT[0])}
            for contender in latency.CONTENDERS for what in latency.clients.WHAT]
    told = latency.report(rows)
    assert "\n2 runs. " in told and " 4 (tcp 2, relay-bquic 2) because the ends waited " in told and "Repeated after a failure: 2 (tcp 1, relay-bquic 1)." in told


def legs(**mbps: float) -> list[dict[str, Any]]:
    common = {**bquic_mesh.CENTRE, "kind": "download", "repetition": 6, "binary": "0"}
    settings = [{"size": 10_000_000}, {"size": 10_000_000, "hops": 5, "rtt_ms": 45}, {"size": 1_000_000}, {"size": 10_000_000, "upload": True}]
    return [{**common, **setting, "contender": contender, "mbps": speed / (1 + 2 * ("upload" in setting)), "queue_ms": 100 / speed}
            for setting in settings for contender, speed in mbps.items()]


def test_the_leg_has_targets() -> None:
    """Other sizes and uploads have their own lines, and do not count in the means."""
    rows = legs(tcp=10.0, standard=9.0, bquic=11.1, udp=12.0)
    assert bquic_mesh.leg_gains(rows) == {"centre: 3 hops, MCS7, 20 ms": pytest.approx(1.11), "5 hops, 45 ms to the origin": pytest.approx(1.11)}
    assert [line.split()[-2] for line in bquic_mesh.leg_targets(rows).splitlines()[1:]] == ["met", "MISSED", "met", "met", "MISSED"]
    told = bquic_mesh.report_leg(rows)
    assert "centre, 1 MB" in told
    assert [line.split()[3] for line in told.splitlines() if line.startswith("centre, upload") and " bquic " in line] == ["3.70"]


def test_what_is_left_to_others_has_a_target() -> None:
    """It is compared with what they have beside one more of their own, at the same time."""
    def rows(others: float, binary: str, runs: int) -> list[dict[str, Any]]:
        return [{"medium": "wired", "contender": who, "against": "tcp", "others": 1, "repetition": k, "binary": one, "mbps": 25.0, "mbps_others": left,
                 "of_share": 1.0, "jain": 1.0, "lag_ms": 0.1, "cpu_pressure": 0.1, "load": 1.0, "retries": 0, "retries_cpu": 0, "failures": 0}
                for k in range(runs) for who, left, one in (("tcp", 25.0, binary), ("bquic", others, "0"))]

    def told(others: float, binary: str = "0", runs: int = 3) -> list[str]:
        line = next(line for line in fairness.report(rows(others, binary, runs)).splitlines() if line.startswith("wired ") and " bquic " in line)
        return [word for word in line.split() if word in ("met", "MISSED", "few", "0.80", "0.90")]

    assert told(22.5) == ["0.90", "met"] and told(20.0) == ["0.80", "MISSED"] and told(20.0, "other") == ["met"]
    assert told(22.5, runs=2) == ["0.90", "few"] and told(20.0, runs=2) == ["0.80", "MISSED"]


def test_latency_has_targets() -> None:
    key = {**latency.CENTRE, "downloads": 1, "what": "request", "repetition": 11, "p99_ms": 300.0, "lost": 0, "lag_ms": 0.1, "binary": "0",
           "cpu_pressure": 0.1, "load": 1.0, "retries": 0, "retries_cpu": 0, "failures": 0}
    for median, p90, bulk, request, download in ((140.0, 210.0, 16.0, "met", "met"), (140.0, 230.0, 15.5, "MISSED", "MISSED"), (160.0, 210.0, 16.0, "MISSED", "met")):
        told = latency.report([{**key, "contender": "tcp", "median_ms": 300.0, "p90_ms": 400.0, "bulk_mbps": 15.0},
                               {**key, "contender": "relay-bquic", "median_ms": median, "p90_ms": p90, "bulk_mbps": bulk}])
        assert next(line.split()[-3] for line in told.splitlines() if " relay-bquic " in line) == request
        assert next(line for line in told.splitlines() if line.startswith("The download itself")).endswith(download), told


def test_rows_over_another_medium_are_not_reused(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    before = realtime.binary()
    assert realtime.binary() == before
    monkeypatch.setattr(medium, "BINARY", tmp_path / "medium")
    medium.BINARY.write_text("another one")
    assert realtime.binary() != before
