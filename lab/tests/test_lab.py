# SPDX-License-Identifier: Apache-2.0
"""The lab measures what it claims to measure, and leaves nothing behind."""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

import pytest

from helpers import load, row
from lab import ROOT, measure, medium, namespaces, report, results
from lab.servers import TUNED, Servers
from lab.topology import Cell, Mesh

BYTES = 2_000_000


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--hops", "6"], "--hops 6"),
        (["--hops", "x"], "--hops x"),
        (["--hops", "1.5"], "--hops 1.5"),
        (["--hops", "1", "--stations", "2"], "one of --hops, --stations, --wired"),
        (["--hops", "1", "--tap", "a"], "--tap is needed 2 times, not 1"),
        (["--wired", "fast"], "--wired fast"),
        (["--hops", "1", "--mcs", "8"], "--mcs 8"),
        (["--hops", "1", "--standard", "11b"], "--standard 11b"),
        (["--hops", "1", "--ap", "lifo"], "--ap lifo"),
        (["--hops", "1", "--loss", "1.1"], "--loss 1.1"),
        (["--speed", "1"], "--speed"),
        (["--hops"], "--hops"),
        (["--hops", "1", "extra"], "extra"),
        ([], "one of --hops, --stations, --wired"),
    ],
)
def test_medium_names_the_bad_flag(flags: list[str], named: str) -> None:
    done = subprocess.run([str(medium.BINARY), *flags], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 2 and named in done.stderr and done.stderr.count("\n") == 1, done


def test_medium_names_the_bad_namespace() -> None:
    done = subprocess.run(
        [str(medium.BINARY), "--hops", "1", "--tap", "no-such-namespace/a", "--tap", "b"],
        capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 1
    assert "no-such-namespace" in done.stderr


BURSTS = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((sys.argv[1], 9))
spacing, packets = float(sys.argv[2]), int(sys.argv[3])
s.setsockopt(17, 103, 1472)  # UDP_SEGMENT: a burst is one call, and leaves at once on a busy machine too
for i in range(int(2 / spacing)):
    try: s.send(bytes(1472 * packets))
    except ConnectionRefusedError: pass
    time.sleep(spacing)
"""


def test_aggregates_grow_with_bursts(lab: namespaces.Lab) -> None:
    mesh = Mesh(lab, medium.WIFI)
    sizes = []
    for packets in (1, 5, 20):  # the same rate, 6 Mbit/s, in ever larger bursts
        def run() -> None:
            lab.run(mesh.gateway, sys.executable, "-c", BURSTS, Mesh.PHONE, str(packets * 0.002), str(packets))

        _, window, _ = measure.kept_up(mesh.medium, run)
        sizes.append(window["down"]["mpdus_per_ampdu"])
        # Directions are distinguished: everything upwards is ICMP.
        assert window["down"]["mpdus"] > window["up"]["mpdus"]
    assert sizes[0] < 1.2 < sizes[1] < sizes[2] and sizes[2] > 5, sizes


@pytest.mark.parametrize(
    ("kind", "hops", "contender"),
    [("wifi", 1, "standard"), ("wifi", 3, "tcp"), ("wired", 1, "bquic"), ("shallow", 1, "bquic-2019"), ("wifi", 1, "tcp-relay")],
)
def test_download(lab: namespaces.Lab, kind: str, hops: int, contender: str) -> None:
    mesh = Mesh(lab, medium.MEDIA[kind], hops)
    servers = Servers(lab, mesh, BYTES)
    row = measure.measure(servers, contender, measure.contenders()[contender])
    assert row["bytes"] == BYTES
    assert row["lag_ms"] < medium.LAG_LIMIT_MS
    assert 0 < row["mbps"] < mesh.kind.capacity_mbps * 1.1 / hops
    assert row["data_per_ack"] > 1
    assert 0 < row["ipt_below_100us"] <= 1
    assert (row["ampdu"] is not None) == mesh.kind.wireless
    # The sender runs CUBIC, whatever the host's default is.
    assert "congctl cubic" in lab.run(mesh.gateway, "ip", "route", "get", Mesh.PHONE) + lab.run(
        mesh.gateway, "ip", "route", "show"
    )


def test_profile_options_reach_both_ends(lab: namespaces.Lab) -> None:
    servers = Servers(lab, Mesh(lab, medium.MEDIA["wired"]), BYTES, ["ack_packets=40", "ack_delay=100", "ack_rtt=smoothed", "ack_rtt_divisor=0"])
    row = measure.measure(servers, "bquic", measure.contenders()["bquic"])
    assert row["details"]["client"]["profile"] == TUNED
    assert row["details"]["gateway"]["profile"] == TUNED


def test_ceiling(lab: namespaces.Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """802.11n MCS7, 20 MHz, guard interval of 800 ns: 65 Mbit/s at the PHY, about 90 % of that above UDP."""
    monkeypatch.setattr(measure, "FLOOD_LOADS", (0.9, 1.4))
    servers = Servers(lab, Mesh(lab, medium.WIFI), 1000)
    row = measure.measure(servers, "udp", measure.udp)
    assert 55 < row["mbps"] < 65
    assert row["ampdu"] > 20


@pytest.mark.parametrize(
    ("hops", "flags", "offered", "least", "most"),
    [
        (1, ("--streams", "2", "--width", "40"), 250, 100, 270),  # 270 Mbit/s at the PHY
        (1, ("--mcs", "0"), 10, 3, 6.5),
        (1, ("--standard", "11g"), 40, 15, 30),
        (3, ("--channels", "2"), 100, 20, 33),  # two of the hops share a channel: above one channel's third
        (5, (), 60, 5, 13),
    ],
)
def test_options_set_the_ceiling(
    lab: namespaces.Lab, monkeypatch: pytest.MonkeyPatch, hops: int, flags: tuple[str, ...], offered: float,
    least: float, most: float
) -> None:
    monkeypatch.setattr(measure, "FLOOD_LOADS", (1.0,))
    servers = Servers(lab, Mesh(lab, medium.Kind("test", flags, offered, wireless=True), hops), 1000)
    row = measure.measure(servers, "udp", measure.udp)
    assert least < row["mbps"] < most


def test_loss_is_repaired_by_retries(lab: namespaces.Lab) -> None:
    mesh = Mesh(lab, medium.Kind("test", ("--loss", "0.1"), 60, wireless=True))
    servers = Servers(lab, mesh, BYTES)
    wire = measure.measure(servers, "standard", measure.contenders()["standard"])["wire"]
    assert 0.04 < wire["retried"] / wire["mpdus"] < 0.3


def test_wired_loss_and_delay(lab: namespaces.Lab) -> None:
    mesh = Mesh(lab, medium.Kind("test", ("--wired", "10Mbps", "--delay", "20", "--loss", "0.2"), 10))
    out = lab.run(mesh.node, "sh", "-c", f"ping -q -c 1000 -i 0.005 -W 1 {Mesh.GATEWAY} || true")
    received = int(out.split(" received")[0].split()[-1])
    # 0.8 * 0.8 of 1,000, and 6 standard deviations.
    assert 640 - 91 < received < 640 + 91
    assert float(out.split("= ")[1].split("/")[0]) >= 40


@pytest.mark.parametrize(("standard", "stations"), [("11g", 5), ("11n", 10)])
def test_cell(lab: namespaces.Lab, standard: str, stations: int) -> None:
    cell = Cell(lab, stations, standard)
    # Stations reach the access point and each other, by their own addresses.
    lab.run(cell.stations[0], "ping", "-c", "1", "-w", "60", cell.address(stations))
    neighbours = lab.run(cell.ap, "ip", "neigh", "show", "dev", Cell.DEVICE)
    for i in range(1, stations + 1):
        assert cell.mac(lab, i) in neighbours
    cell.medium.mark()
    lab.run(cell.ap, sys.executable, "-c", BURSTS, cell.address(1), "0.04", "20")
    window = cell.medium.mark()
    assert window["down"]["delivered_bytes"] > 600_000
    aggregate = window["down"]["mpdus_per_ampdu"]
    assert aggregate > 4 if standard == "11n" else aggregate == 1


class Disturbed:
    """A medium whose runs have these lags and pressures, one after another."""

    def __init__(self, *runs: tuple[float, float]) -> None:
        self.runs = list(runs)
        self.marks = 0
        self.waited, self.asked = 0.0, time.monotonic()
        self.lab = self

    def mark(self) -> dict[str, Any]:
        self.marks += 1
        return {"lag_ms": self.runs.pop(0)[0] if self.marks % 2 == 0 else 0.0}

    def cpu_waited(self) -> float:
        now = time.monotonic()
        self.waited += (now - self.asked) * self.runs[0][1]
        self.asked = now
        return self.waited


def test_a_run_that_was_disturbed_is_repeated(cpu_limit: float) -> None:
    notes: list[str] = []
    medium: Any = Disturbed((5.0, 0.0), (80.0, 0.9), (0.1, 0.9), (4.9, 0.1))
    _, window, discarded = measure.kept_up(medium, lambda: time.sleep(0.02), notes.append)
    row = measure.conditions(window, discarded)
    assert (row["lag_ms"], row["retries"], row["retries_cpu"], len(notes)) == (4.9, 3, 1, 3)
    assert 0 < row["cpu_pressure"] < cpu_limit
    for runs, lagged, waiting in (([(6.0, 0.0)] * 100, 11, 0), ([(0.1, 0.9)] * 100, 0, 11)):
        medium = Disturbed(*runs)
        with pytest.raises(measure.TooSlow) as raised:
            measure.kept_up(medium, lambda: time.sleep(0.02), notes.append)
        assert (raised.value.lagged, raised.value.waiting) == (lagged, waiting)
    medium = Disturbed((0.1, 0.9))
    _, window, discarded = measure.kept_up(medium, lambda: time.sleep(0.02), notes.append, cpu_limit=measure.ANY_CPU)
    assert discarded == 0 and window["cpu_pressure"] >= cpu_limit


def test_a_run_that_marks_the_medium_itself_is_judged_by_its_own_window() -> None:
    """And not only by the time after it, in which queues drain and processes end."""
    windows = [{"lag_ms": 80.0, "busy": 1}, {"lag_ms": 4.0, "busy": 2}]
    notes: list[str] = []
    medium: Any = Disturbed((0.1, 0.0), (0.2, 0.0))
    _, window, discarded = measure.kept_up(medium, lambda: {"window": windows.pop(0)}, notes.append)
    assert (window["lag_ms"], window["busy"], discarded) == (4.0, 2, 1) and "lagged by 80.0 ms" in notes[0]
    # That time counts, too.
    medium = Disturbed((80.0, 0.0), (0.1, 0.0))
    assert measure.kept_up(medium, lambda: {"window": {"lag_ms": 0.3}}, notes.append)[2] == 1


def test_a_failure_counts_where_the_emulator_kept_up() -> None:
    """And the runs that were discarded before it."""
    def fail() -> None:
        raise namespaces.Failed("no answer")

    notes: list[str] = []
    medium: Any = Disturbed((80.0, 0.0), (0.1, 0.0), (0.1, 0.0))
    with pytest.raises(measure.Disturbed, match="no answer .*lagged by 0.1 ms") as raised:
        measure.kept_up(medium, fail, notes.append)
    assert (raised.value.lagged, raised.value.waiting) == (1, 0)
    assert len(notes) == 1 and "lagged by 80.0 ms" in notes[0] and "no answer" in notes[0]


def test_waiting_for_a_processor_is_seen(lab: namespaces.Lab) -> None:
    """The waiting of our own processes counts, even of those that have ended, and not that of others."""
    group = lab._group
    if group is None:
        pytest.skip("no control groups that tell of pressure")
    namespace = lab.namespace("busy")
    # Each has a higher priority than other work on the machine, but not than the others.
    lab.run(namespace, "sh", "-c", f"for i in $(seq {2 * (os.cpu_count() or 1)}); do timeout 1 sh -c 'while :; do :; done' & done; wait")
    assert lab.cpu_waited() > 0.3
    lab.__exit__()
    assert not group.exists()


def test_control_groups_that_nobody_has_mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a chroot, too, only the waiting of our own processes counts, and no mount is left, not even by a killed lab."""
    monkeypatch.setattr(namespaces, "_control_groups", lambda: None)
    if not namespaces.MACHINE_PRESSURE.exists():
        pytest.skip("the kernel does not tell of pressure")
    with namespaces.Lab() as lab:
        group, directory = lab._group, lab.dir
        assert group and directory in group.parents
        namespace = lab.namespace("busy")
        burn = ["timeout", "1", "sh", "-c", "while :; do :; done"]
        others = [subprocess.Popen(burn) for _ in range(2 * (os.cpu_count() or 1))]
        before = lab.cpu_waited()
        for process in others:
            process.wait()
        assert lab.cpu_waited() - before < 0.1  # in our group, there is no process
        lab.run(namespace, "sh", "-c", f"for i in $(seq {len(others)}); do {shlex.join(burn)} & done; wait")
        assert lab.cpu_waited() > 0.3
    assert not directory.exists() and str(directory) not in pathlib.Path("/proc/mounts").read_text()

    process = subprocess.Popen(["true"])
    process.wait()
    killed = pathlib.Path(tempfile.mkdtemp(prefix=f"{namespaces.PREFIX}{process.pid}-"))
    mount = killed / namespaces.CONTROL_GROUPS
    mount.mkdir()
    subprocess.run(["mount", "-t", "cgroup2", "none", mount], check=True)
    (mount / f"{killed.name}-ends").mkdir()
    with namespaces.Lab() as lab:
        assert lab._group and not (lab._group.parent / f"{killed.name}-ends").exists()
    assert not killed.exists() and str(killed) not in pathlib.Path("/proc/mounts").read_text()


def test_lag_is_seen(lab: namespaces.Lab) -> None:
    """An emulator that is delayed reports it: its lag is measured, not assumed."""
    mesh = Mesh(lab, medium.WIFI)
    process = mesh.medium._process
    mesh.medium.mark()
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.5)
    process.send_signal(signal.SIGCONT)
    window = mesh.medium.mark()
    assert window["lag_max_ms"] > 100
    assert window["lag_ms"] >= medium.LAG_LIMIT_MS


def test_rows(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "new" / "rows.json"
    assert results.read(file) == []

    def check(it: results.Row) -> None:
        if not it["mbps"]:
            raise ValueError

    results.write(file, [row(), row(repetition=2)], check)
    assert [r["repetition"] for r in json.loads(file.read_text())] == [1, 2]
    with pytest.raises(ValueError):
        results.write(file, [row(mbps=0)], check)
    assert len(results.read(file)) == 2  # earlier rows are not lost
    assert results.median([row(mbps=1.0), row(mbps=9.0), row(mbps=2.0)], "mbps") == 2.0
    assert results.median([row(data_per_ack=None)], "data_per_ack") is None


def test_targets_are_judged() -> None:
    experiment = importlib.import_module("bquic")

    def rows(bquic: float) -> list[results.Row]:
        def speed(contender: str, mbps: float) -> results.Row:
            return {**row(medium="wifi", hops=3, contender=contender, mbps=mbps), "stats": {}}

        return [speed("standard", 10.0), speed("tcp", 11.0), speed("bquic", bquic)]

    def verdict(bquic: float, target: str) -> str:
        report: str = experiment.report(rows(bquic))
        return next(line for line in report.splitlines() if line.startswith(target)).split("  ")[-1].strip()

    assert verdict(12.0, "wifi, 3 hops: bquic / standard") == "met"
    assert verdict(11.9, "wifi, 3 hops: bquic / standard") == "MISSED"
    assert verdict(10.9, "wifi, 3 hops: bquic / tcp") == "MISSED"
    assert verdict(12.0, "lossy: bquic / standard") == "not measured"


def test_every_experiment_starts_by_its_name() -> None:
    """make bench-NAME and docs/lab.md execute the files directly."""
    for path in (ROOT / "lab/experiments").glob("*.py"):
        assert path.read_text().startswith("#!/usr/bin/env python3\n") and path.stat().st_mode & 0o111, path


def test_every_experiment_is_in_every_list() -> None:
    """scripts/bench runs it, the report shows it, docs/lab.md names it."""
    there = {path.stem for path in (ROOT / "lab/experiments").glob("*.py")}
    made = set(subprocess.run([ROOT / "scripts/bench", "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout.split())
    assert {name.replace("-", "_") for name in made - {"full", "wifirr"}} == there
    assert {name for name, _ in report.EXPERIMENTS} == there
    named = set(re.findall(r"`([a-z-]+)`", (ROOT / "docs/lab.md").read_text()))
    assert not {name.replace("_", "-") for name in there} - named, "docs/lab.md does not name these"


def test_rows_under_load_have_a_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """Those of processor time, load, attacks and the fleet had none; and a run that ends early leaves the rows of the last one."""
    from lab import stress

    program = tmp_path / "stress"
    program.write_text("#!/bin/sh\necho \"[{\\\"part\\\": \\\"$1\\\"}]\" >$4\n")
    program.chmod(0o755)
    monkeypatch.setattr(stress, "BUILD", tmp_path)
    monkeypatch.setattr(stress, "results", lambda part, quick=False: tmp_path / "results" / f"{part}.json")
    monkeypatch.setattr(stress, "commit", lambda: "abc+")
    monkeypatch.setattr(stress, "exit_on_signals", lambda: None)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: None)
    monkeypatch.setattr(stress, "build_go", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["cpu"])
    for text, code in ((program.read_text(), 0), ("#!/bin/sh\nexit 3\n", 3)):
        program.write_text(text)
        assert stress.run("cpu", lambda rows: "", [], []) == code
        assert results.read(tmp_path / "results/cpu.json") == [{"part": "cpu", "commit": "abc+"}]


def test_quick_report_of_an_experiment_without_a_quick_set() -> None:
    class Experiment:
        RESULTS = ROOT / "results/fleet.json"

    assert report.rows_of(Experiment, quick=True)[0] == Experiment.RESULTS


def test_a_quick_report_has_no_figures_of_other_rows(capsys: pytest.CaptureFixture[str]) -> None:
    """Below the tables of somebody's own measurements were the plots of ours."""
    from lab import overview

    fairness = importlib.import_module("fairness")
    quick = ROOT / "build/lab/quick-for-a-test.json"
    results.write(quick, results.read(fairness.RESULTS))
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fairness, "QUICK_RESULTS", quick)
            assert "](results/" not in report.section("fairness", ["fairness"], [], True)
            assert capsys.readouterr().err == "tables of fairness\n"  # all of them take minutes
        assert "](results/fairness.svg)" in report.section("fairness", ["fairness"], [], False)
    finally:
        quick.unlink()
    assert "](results/" in overview.page([]) and "](results/" not in overview.page([], quick.parent)


def test_first_page_needs_no_rows(tmp_path: pathlib.Path) -> None:
    """results.md's first page says only what was measured, and names each figure's experiment."""
    from lab import overview

    assert re.findall(r"^- \*\*(.*?)\*\*", overview.page([], tmp_path), re.M) == ["The papers:"]
    (tmp_path / "fleet.json").write_text(json.dumps(
        [{"peers": 2, "connections": 3, "transfers": 4000, "seconds": 60, "errors": 5, "jain": 0.5}]))
    line = overview.page([], tmp_path).split("\n")[2]
    assert line.startswith("- **A gateway among strangers:** 2 relays with 3 connections each get 4,000 transfers in 1 min with 5 errors")
    assert line.endswith("[fleet](#a-fleet-of-relays-on-one-gateway)")


@pytest.mark.parametrize("option, code", [("--help", 0), ("--frob", 2)])
def test_the_demo_runs_only_if_it_is_asked_to(option: str, code: int) -> None:
    assert subprocess.run([ROOT / "lab/demo", option], capture_output=True, timeout=60).returncode == code


@pytest.mark.parametrize("slow", [[1], [1, 3]])
def test_the_demo_leaves_out_what_the_machine_cannot_carry(
        slow: list[int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    demo = load("lab/demo")

    def one(hops: int, contender: str, _: Any) -> results.Row:
        if hops in slow:
            raise measure.TooSlow("waited")
        return {"hops": hops, "contender": contender, "mbps": 10.0, "lag_ms": 0.1, "bytes": demo.BYTES, "retries": 0,
                "data_per_ack": 2.0, "ipt_below_100us": 0.5, "ampdu": 20.0}

    monkeypatch.setattr(demo.medium, "build", lambda: None)
    monkeypatch.setattr(demo.namespaces, "exit_on_signals", lambda: None)
    monkeypatch.setattr(demo, "Mesh", lambda lab, kind, hops, **_: hops)
    monkeypatch.setattr(demo, "Servers", lambda lab, hops, size: hops)
    monkeypatch.setattr(demo.measure, "measure", one)
    if slow == [1, 3]:
        with pytest.raises(measure.TooSlow):
            demo.main()
        return
    assert demo.main() == 0
    said, meanwhile = capsys.readouterr()
    assert "the tables come at the end" in meanwhile.splitlines()[0]  # before anything has been measured
    assert "1 hop: left out" in said and "10 MB over 3 hops" in said and "10 MB over 1 hop" not in said
    assert "from the gateway: stock QUIC" in said and "15 runs, every byte checked. Discarded, because the machine did not keep up: 0." in said
    assert max(map(len, said.splitlines())) <= 80  # columns of a terminal
