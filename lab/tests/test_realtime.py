# SPDX-License-Identifier: Apache-2.0
"""The experiments in real time: one small run of each kind, and their rows."""

from __future__ import annotations

import dataclasses
import importlib
import pathlib
import shutil
import subprocess
import threading
import time
from typing import Any
from unittest import mock

import pytest

from helpers import load, row
from lab import ROOT, headline, measure, medium, namespaces, overview, pages, realtime, replay, results, simulation, topology, traces
from lab.latency.clients import LOST_MS
from lab.results import Row
from lab.servers import Servers
from lab.topology import Loopback, Mesh


def test_each_repetition_over_two_paths_loses_other_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    """All had those of the medium's seed 1, whatever their rows said."""
    media: list[str] = []
    monkeypatch.setattr(topology, "Medium", lambda lab, flags, taps: media.append(" ".join(flags)))
    topology.TwoPaths(mock.MagicMock(), medium.MEDIA["wired"], medium.MEDIA["lossy"], 12)
    assert len(media) == 2 and all(flags.endswith(" --seed 12") for flags in media)


def test_mesh(lab: namespaces.Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A download with its packets and its window, beside another network, with a wire behind the gateway."""
    experiment = importlib.import_module("bquic_mesh")
    key = {**experiment.CENTRE, "hops": 1, "interference_mbps": 5, "rtt_ms": 40}
    servers = Servers(lab, Mesh(lab, experiment.kind(key), 1), 2_000_000)
    monkeypatch.setattr(experiment, "QUEUE_SECONDS", 0.05)
    assert 0 < experiment.download(servers, "tcp")["queue_ms"] < 500
    row = experiment.traced(servers, "bquic")
    assert 0 < row["queue_ms"] < 500
    assert 1 < row["mbps"] < 60 and row["lag_ms"] < medium.LAG_LIMIT_MS
    assert row["handshake_ms"] >= 40
    assert any(number > 0 for _, number in row["sequence_ms"]) and any(number < 0 for _, number in row["sequence_ms"])
    assert max(window for _, window in row["window_s"]) > 40_000
    # Both halves arrive over separate connections.
    row = experiment.download(servers, "bquic-x2")
    assert 1 < row["mbps"] < 60
    assert len([c for c in servers.status("bquic")["connections"] if c["stats"]["packets_sent"] > 500]) == 3
    # The ceiling is above.
    monkeypatch.setattr(measure, "FLOOD_LOADS", (1,))
    assert row["mbps"] < experiment.download(servers, "udp")["mbps"] < 65


def test_uploads(lab: namespaces.Lab) -> None:
    experiment = importlib.import_module("bquic_mesh")
    servers = Servers(lab, Mesh(lab, medium.WIFI), 1_000_000, uploads=True)
    for contender in experiment.MATRIX_CONTENDERS:
        assert 1 < experiment.upload(servers, contender)["mbps"] < 60


def test_origin_beyond_the_gateway(lab: namespaces.Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The delay is beyond the gateway, not in the leg. Downloads work with the relay and without."""
    experiment = importlib.import_module("bquic_mesh")
    monkeypatch.setattr(experiment, "PAUSE_SECONDS", 0.0)
    place = experiment.beyond(1, 45)
    mesh = Mesh(lab, experiment.kind(place), 1, beyond_ms=45)
    servers = Servers(lab, mesh, 1000)

    def rtt(namespace: str, target: str) -> float:
        return float(lab.run(namespace, "ping", "-q", "-c", "5", "-i", "0.05", target).split("= ")[1].split("/")[0])

    assert rtt(mesh.node, Mesh.GATEWAY) < 45 <= rtt(mesh.gateway, Mesh.ORIGIN)
    rows = []
    for contender in experiment.BEYOND_CONTENDERS:
        figures = experiment.downloads(servers, contender, 200_000, 2)
        assert 0 < figures["mbps"] < 60 and figures["handshake_ms"] >= 45 and figures["downloads"] == 2
        rows.append(row(kind="download", **place, size=500_000, **{**figures, "contender": contender}))
    rows[1]["mbps"] = rows[0]["mbps"] * 1.06
    assert "1.060" in (told := experiment.report(rows)) and " met " in told
    rows[1]["mbps"] = rows[0]["mbps"] * 1.04
    assert "MISSED" in experiment.report(rows)
    assert experiment.of(rows, {"hops": 1}, "tcp") == []  # this key means the origin at the gateway


def test_latency(lab: namespaces.Lab) -> None:
    """A household beside a download, with the relay and without, gets its answers from beyond the gateway."""
    experiment = importlib.import_module("latency")
    key = {**experiment.CENTRE, "hops": 1, "downloads": 1, "uploads": 1, "repetition": 1}
    scene = experiment.Scene(lab, key)
    for contender in [*experiment.CONTENDERS, experiment.UDP]:
        rows = scene.rows(contender, 6)
        least = {"dns": 20, "request": 60, "ssh": 20, "call": 10}
        # Most have an answer. On a busy machine, none may come for seconds.
        assert all(ms <= rows[what]["median_ms"] < experiment.clients.LOST_MS for what, ms in least.items()), rows
        assert rows["call"]["count"] >= 450 and all(1 < row["bulk_mbps"] < 60 for row in rows.values()), rows


def test_beside(lab: namespaces.Lab) -> None:
    """Both nodes' downloads get something, with the relay and without, and requests have answers from beyond the gateway."""
    experiment = importlib.import_module("beside")
    scene = experiment.Scene(lab, {**experiment.CENTRE, "hops": 1, "own": 2, "clients": 2, "others": 1, "repetition": 1})
    for contender in experiment.CONTENDERS:
        figures = scene.row(contender, 4)
        assert 1 < figures["mbps"] < 60 and 1 < figures["mbps_others"] < 60 and 60 <= figures["request_ms"] < LOST_MS, figures


def test_loopback(lab: namespaces.Lab) -> None:
    experiment = importlib.import_module("modquic")
    servers = Servers(lab, Loopback(lab), 2_000_000)
    for contender in experiment.CONTENDERS:
        row = experiment.download(servers, contender)
        assert row["mbps"] > 0 and row["lag_ms"] == 0
    assert all(servers.status(c)["connections"][0]["closed"] for c in ("standard", "modquic"))


def test_strangers_take_airtime(lab: namespaces.Lab) -> None:
    experiment = importlib.import_module("bquic_mesh")
    mesh = Mesh(lab, experiment.kind({**experiment.CENTRE, "hops": 1, "interference_mbps": 10}), 1)
    mesh.medium.mark()
    lab.run(mesh.phone, "sleep", "1")
    window = mesh.medium.mark()
    # 10 Mbit/s in single packets: 0.4 ms each with their ACK.
    assert 0.15 < window["busy"] < 0.5
    assert window["up"]["mpdus"] + window["down"]["mpdus"] < 10  # the other network's frames do not count


def test_both_sides_see_the_same_packets(lab: namespaces.Lab) -> None:
    mesh = Mesh(lab, medium.Kind("test", ("--delay", "30"), 60, wireless=True), 1)
    servers = Servers(lab, mesh, 500_000)
    sent = traces.Capture(lab, mesh.gateway, "mesh", Mesh.GATEWAY)
    received = traces.Capture(lab, mesh.node, "mesh", Mesh.GATEWAY)
    measure.measure(servers, "tcp", measure.tcp)
    out = {p.key: p for p in sent.packets() if p.down}
    arrived = [p for p in received.packets() if p.down]
    assert len(out) > 300 and len({p.key for p in arrived}) == len(arrived)
    assert all(p.key in out for p in arrived)
    assert all(0.03 < p.seconds - out[p.key].seconds < 2 for p in arrived)


@pytest.mark.parametrize(("contender", "against", "others"), [("bquic", "tcp", 2), ("standard", "bquic", 1), ("tcp", "tcp", 1)])
def test_side_by_side(lab: namespaces.Lab, contender: str, against: str, others: int) -> None:
    experiment = importlib.import_module("fairness")
    servers = Servers(lab, Mesh(lab, medium.WIFI), 1000)
    row, window, _ = measure.kept_up(servers.mesh.medium, lambda: experiment.share(servers, contender, against, others, 2))
    assert row["mbps"] > 1 and row["mbps_others"] > 1 and row["mbps"] + row["mbps_others"] < 65
    assert 0 < row["of_share"] < others + 1 and 0.5 <= row["jain"] <= 1
    assert window["seconds"] > 1.5  # of the time that was measured


def test_features_of_a_transfer(lab: namespaces.Lab) -> None:
    experiment = importlib.import_module("why")
    size = 16_000_000  # enough seconds for the samples of the window, on a busy machine, too
    servers = Servers(lab, Mesh(lab, medium.WIFI, 1), size)
    tcp, bquic = (experiment.transfer(servers, contender) for contender in ("tcp", "bquic"))
    for found in (tcp, bquic):
        assert found["packets"] > size / 1500 and 0 < found["delay_mean_ms"] < 1000 and 0 <= found["loss"] < 0.1
        assert abs(found["slow_start"] + found["congestion_avoidance"] + found["recovery"] - 1) < 0.01
    assert bquic["acks_per_packet"] < tcp["acks_per_packet"]


def test_pages_have_their_size(tmp_path: pathlib.Path) -> None:
    for name in pages.PAGES:
        files = list((tmp_path / pages.write(tmp_path, name).strip("/")).iterdir())
        assert (len(files), sum(f.stat().st_size for f in files)) == (pages.objects(name), pages.size(name))


def test_recordings_are_of_these_pages(tmp_path: pathlib.Path) -> None:
    """A changed page must be recorded again."""
    recorded = replay.read()
    assert list(recorded) == list(pages.PAGES)
    for name, objects in recorded.items():
        directory = tmp_path / pages.write(tmp_path, name).strip("/")
        assert {o.file: o.size for o in objects} == {f.name: f.stat().st_size for f in directory.iterdir()}
        assert objects[0].file == "index.html" and objects[0].parent is None
        for o in objects[1:]:
            assert o.parent is not None and o.file in (directory / objects[o.parent].file).read_text(errors="replace")
        late = [o for o in objects if o.parent]
        assert bool(late) == (name in pages.TODAY and name != "text")


def test_requests_are_recorded(tmp_path: pathlib.Path) -> None:
    """What a request waited for, according to the DevTools protocol."""
    record = load("lab/record-pages")
    events: list[dict[str, Any]] = []

    def tell(method: str, number: int, at: float, **params: Any) -> None:
        events.append({"method": f"Network.{method}", "params": {"requestId": str(number), "timestamp": at, **params}})

    def sent(number: int, file: str, at: float, priority: str, held: float = 0.0) -> None:
        tell("requestWillBeSent", number, at, request={"url": f"https://o/p/{file}", "initialPriority": priority})
        tell("responseReceived", number, at + held + 0.02, response={"timing": {"requestTime": at + held, "sendStart": 0.0}})

    def came(number: int, at: float, size: int, ended: bool = False) -> None:
        tell("dataReceived", number, at, dataLength=size)
        if ended:
            tell("loadingFinished", number, at)

    for file, text in {
        "index.html": '<script src="1.js"></script><img src="2.png"><img src="4.png"><link href="5.css">', "1.js": 's.src="3.js";',
        "2.png": '"1.js"', "3.js": "", "5.css": "i.n6{background:url(6.png)}",
    }.items():
        (tmp_path / file).write_text(text)
    sent(0, "", 1.0, "VeryHigh")
    came(0, 1.1, 4000)
    sent(1, "1.js", 1.102, "High")
    sent(2, "2.png", 1.103, "Low", held=0.198)
    came(0, 1.15, 1000, ended=True)
    came(1, 1.3, 700, ended=True)
    sent(3, "3.js", 1.305, "Low")
    sent(4, "4.png", 1.31, "Low")  # behind the script that blocks the parser
    for number, size in ((2, 10), (3, 20), (4, 30)):
        came(number, 1.4, size, ended=True)
    sent(5, "5.css", 1.41, "VeryHigh")
    came(5, 1.5, 40, ended=True)
    sent(6, "6.png", 1.504, "Low")
    came(6, 1.6, 50, ended=True)
    objects = [dataclasses.astuple(o) for o in record.recorded(events, record.parents(tmp_path))]
    assert objects == [
        ("index.html", 5000, None, 0, [], 0.0, 0), ("1.js", 700, 0, 4000, [], 2.0, 1), ("2.png", 10, 0, 5000, [1], 1.0, 3),
        ("3.js", 20, 1, 700, [], 5.0, 3), ("4.png", 30, 0, 5000, [1], 10.0, 3), ("5.css", 40, 0, 5000, [1], 110.0, 0),
        ("6.png", 50, 5, 40, [], 4.0, 3)]


def test_pages_are_replayed(lab: namespaces.Lab) -> None:
    """With both protocols, with the relay and without, beside a neighbour; the origin is beyond the gateway."""
    experiment = importlib.import_module("page_load")
    replay.build()
    scene = experiment.Scene(lab, experiment.SCENES["20 ms beyond, beside a download"][0], 1)
    rows = []
    for contender in experiment.RELAY_CONTENDERS:
        with scene.of(contender):
            for loader, connections in (("h1", range(2, 7)), ("h2", range(1, 2))):
                figures = scene.load(loader, "login")
                assert figures["ms"] > 60 and figures["tcp_connections"] in connections and 1 < figures["bulk_mbps"] < 60
                rows.append(row(medium="mesh", **scene.setting, loader=loader, page="login", connections=1, **figures | {"contender": contender}))
    assert len(experiment.share_of_all(rows, "20 ms beyond, beside a download", "h2")) == 1
    assert "20 ms beyond, beside a download" in experiment.report(rows) and "Lossy" not in experiment.report(rows)


def test_runs_of_other_programs_are_no_pair() -> None:
    """They were at another time. ModQUIC's gain was over runs of stock QUIC that had been made anew since, on a quiet machine."""
    mesh = importlib.import_module("bquic_mesh")
    page = importlib.import_module("page_load")

    def legs(binary: str) -> list[Row]:
        return [row(kind="download", **mesh.CENTRE, contender=contender, binary=one, mbps=mbps, retries=0)
                for contender, one, mbps in (("standard", "new", 10.0), ("modquic", binary, 11.0), ("udp", "old", 20.0))]

    def modquic(rows: list[Row]) -> tuple[str, str]:
        told = next(line for line in mesh.report_leg(rows).splitlines() if " modquic " in line)
        return " ".join(told.split()[8:11]), next(line[3] for line in mesh.paper(rows) if line[0].startswith("ModQUIC"))

    assert modquic(legs("new")) == ("- 1.100 0.550", "better")
    assert modquic(legs("old")) == ("- - 0.550", "not run yet")
    assert "of 2 builds" in realtime.notes(legs("old")) and "build" not in realtime.notes(legs("new")[:2])
    loads = [row(medium="mesh", **page.SCENES["20 ms beyond"][0], loader="h2", page="google", ms=100.0, contender=contender, binary=contender)
             for contender in page.RELAY_CONTENDERS]
    assert not page.share_of_all(loads, "20 ms beyond", "h2")
    paths = importlib.import_module("two_paths")
    turns = [row(scene=scene, loader="h1", page=name, ms=ms, contender="relay-2", binary=binary) for scene, binary, name, ms in (
        ("free", "old", "google", 100.0), ("free", "old", "reddit", 400.0), ("congested", "old", "google", 100.0),  # interrupted
        ("free", "new", "google", 100.0), ("free", "new", "reddit", 100.0), ("congested", "new", "google", 200.0), ("congested", "new", "reddit", 200.0))]
    assert paths.slowdowns(turns, "relay-2", "h1") == pytest.approx([2.0])
    assert not paths.slowdowns([r for r in turns if (r["scene"] == "free") == (r["binary"] == "old")], "relay-2", "h1")
    assert not headline.compared("", "", loads[:1], loads[1:], "ms")


def test_documents_are_those_of_the_rows(tmp_path: pathlib.Path) -> None:
    """results.md, all its figures and README's tables: three figures were of rows that had been replaced since."""
    for name in ("lab", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("results", "package"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "README.md", tmp_path)
    # Debian's Python, whose libraries draw and learn; of the copy's modules, nothing is of another place.
    subprocess.run(["/usr/bin/python3", tmp_path / "lab/report.py"], check=True, stdout=subprocess.DEVNULL)
    made = ["README.md", "docs/results.md", *(f"docs/results/{path.name}" for path in (ROOT / "docs/results").iterdir())]
    assert len(made) > 20
    assert not [name for name in made if (tmp_path / name).read_bytes() != (ROOT / name).read_bytes()], "run lab/report.py with Debian's Python"


def test_headline(tmp_path: pathlib.Path) -> None:
    """A line for each activity with results, off against on, by pairs of repetitions."""
    assert headline.lines(20, tmp_path) == headline.slow_node(tmp_path) == headline.crowded(tmp_path) == []
    mesh = importlib.import_module("bquic_mesh")
    page = importlib.import_module("page_load")
    rows = [row(kind="download", **mesh.beyond(3, 20), size=2_000_000, mbps=mbps, contender=contender, repetition=n)
            for n, off, on in ((1, 10.0, 20.0), (2, 12.0, 20.0), (3, 10.0, 25.0)) for contender, mbps in (("tcp", off), ("relay-bquic", on))]
    results.write(tmp_path / "bquic-mesh.json", [*rows, row(kind="download", **mesh.beyond(3, 20), size=2_000_000, repetition=4)])
    results.write(tmp_path / "page-load.json", [
        row(medium="mesh", **page.SCENES["20 ms beyond"][0], loader="h2", page=name, ms=ms, contender=contender)
        for name, off, on in (("google", 100.0, 50.0), ("news", 100.0, 200.0), ("login", 100.0, 10.0))
        for contender, ms in (("tcp", off), ("relay-bquic", on))])
    told = headline.table("", headline.lines(20, tmp_path)).splitlines()[2:]
    assert told == ["| 3 web pages, HTTP/2 | 100 ms | **46 ms** | 0.46 |",
                    "| a download of 2 MB | 10.0 Mbit/s | **20.0 Mbit/s** | 0.50 (0.40 to 0.60) |"]
    crowd: Row = {**simulation.CENTRE, **headline.CROWD, "stations": 50}
    results.write(tmp_path / "dense-download.json", [
        {**crowd, **form, "seed": seed, "worst_s": seconds} for form, seconds in (({"form": "none"}, 30.0), (simulation.SHIPPED["11n"], 15.0))
        for seed in (1, 16, 18)])  # 1 was chosen on, 16 was looked at for 802.11n
    assert [(line.what, line.share) for line in headline.crowded(tmp_path)] == [("50 clients: time until the last one finishes", [0.5])]
    results.write(tmp_path / "interactive.json", [
        {**crowd, **form, "stations": 30, "interactive": "g711", "interactive_alone": True, "seed": 18, "delay_p99_ms": ms}
        for form, ms in (({"form": "none"}, 190.0), (simulation.SHIPPED["11n"], 150.0))])
    results.write(tmp_path / "dense-download.json", results.read(tmp_path / "dense-download.json") + [
        {**crowd, **form, "stations": 3, "seed": 18, "worst_s": seconds} for form, seconds in (({"form": "none"}, 0.58), (simulation.SHIPPED["11n"], 0.52))])
    # With one digit, the times of the shortest crowd were 0.6 and 0.5 s.
    assert [line.split(" | ")[1:3] for line in headline.table("", headline.crowded(tmp_path)).splitlines()[2:]] == [
        ["30.0 s", "**15.0 s**"], ["0.58 s", "**0.52 s**"], ["190 ms", "**150 ms**"]]
    assert [line.partition("802.11n: ")[2].partition(". ")[0] for line in overview.crowd(tmp_path)] == [
        "0.50 with 50 clients; 0.90 with 3 clients"]


def test_the_worst_case_is_of_those_that_were_measured(tmp_path: pathlib.Path) -> None:
    results.write(tmp_path / "starved.json", [
        {"leg": leg, "level": level, "repetition": 1, "off": {"bulk": 4.0}, "on": {"bulk": on}} for leg, level, on in ((10, 0.25, 4.0), (20, 3.0, 5.0), (20, 2.0, 8.0))])
    (line,) = headline.slow_node(tmp_path)  # the level 2.0 was chosen on
    assert "20 Mbit/s" in line.what and line.what.endswith("(worst of 2 cases)") and line.share == [1.25]


def test_chromium_loads_a_page(lab: namespaces.Lab) -> None:
    """By HTTP/3 from two addresses, and by TCP through the relay."""
    experiment = importlib.import_module("page_load")
    servers = Servers(lab, Mesh(lab, medium.WIFI, 1), 1000)
    lab.run(servers.mesh.gateway, "ip", "addr", "add", f"{experiment.SECOND_ADDRESS}/32", "dev", "mesh")
    for contender, connections in (("h3-bquic", 2), ("relay-bquic", 1)):
        with experiment.browser(servers, contender) as (chromium, url):
            row = experiment.load(servers, chromium, contender, url, "twitter", connections)
        assert row["objects"] == 16 and 20 < row["ms"] < 60_000
    # Each address had a connection, for the first page and the second.
    assert len([c for c in servers.status("bquic")["connections"] if c["stats"]["packets_sent"] > 20]) >= 3


def test_flows_of_a_page(lab: namespaces.Lab) -> None:
    """Several flows with HTTP/1.1, one with HTTP/2; together they carry the page."""
    experiment = importlib.import_module("classifier")
    servers = Servers(lab, Mesh(lab, medium.WIFI, 1), 1000)
    url = servers.site("standard")
    for contender, connections in (("http1", range(2, 7)), ("http2", range(1, 2))):
        chromium = experiment.Chromium(lab, servers.mesh.phone, servers.spki("standard"), [], http2=contender == "http2")
        row = experiment.load(servers, chromium, url, "twitter", contender)
        chromium.close()
        flows = [experiment.Flow(*f) for f in row["flows"]]
        assert len(flows) in connections
        assert pages.size("twitter") < sum(f.server_bytes for f in flows) < 1.5 * pages.size("twitter")
        assert all(0 < f.seconds < 60 and f.client_packets * 40 <= f.client_bytes for f in flows)


def test_ctrl_c_waits_for_no_download(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten stations: three minutes, in which nothing happened."""
    experiment = importlib.import_module("both")
    enough = threading.Event()
    ended: list[bool] = []

    def fetch(*_: Any) -> Row:
        ended.append(enough.wait(20))
        return {"seconds": 1.0}

    network = mock.MagicMock(fetch=fetch)
    monkeypatch.setattr(experiment.time, "sleep", mock.Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        experiment.run_once(network, "none")
    enough.set()
    assert False not in ended  # no download had its 20 s


def test_both_packages_in_a_cell(lab: namespaces.Lab) -> None:
    experiment = importlib.import_module("both")
    network = experiment.Network(lab, 1, 2_000_000, 100)
    row = experiment.measured(network, "both")
    assert 0 < row["median_s"] <= row["worst_s"] < 60 and row["pages"] > 0
    assert 50 < row["delivered_kbit"] < 110
    assert "wifirr" not in lab.run(network.cell.ap, "tc", "qdisc", "show", "dev", "wlan") + lab.run(network.cell.ap, "nft", "list", "tables")


def test_a_flood_in_which_the_emulator_lagged_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was not the best one then, and the ceiling was that of the others: too low."""
    def flood(lag: float, mbit: float) -> list[Row]:
        """What the medium says before a flood, after it, and twice until its queues are empty."""
        nothing = {"down": {"delivered": 0, "delivered_bytes": 0}, "seconds": 1.0, "lag_ms": 0.0}
        return [nothing, {**nothing, "down": {"delivered_bytes": mbit * 125_000}, "lag_ms": lag}, nothing, nothing]

    servers = mock.MagicMock()
    servers.mesh.kind.wireless, servers.mesh.kind.capacity_mbps = False, 10
    servers.mesh.medium.mark.side_effect = [*flood(0.1, 5.0), *flood(80.0, 4.0), *flood(0.1, 3.0)]
    monkeypatch.setattr(measure, "FLOOD_LOADS", (1, 2, 3))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    assert measure.udp(servers).details["window"]["lag_ms"] == 80.0


def test_one_answer_is_enough_for_figures() -> None:
    """Whose first key press was lost has no second one."""
    assert importlib.import_module("latency").figures([2000.0]) == {"median_ms": 2000.0, "p90_ms": 2000.0, "p99_ms": 2000.0, "count": 1, "lost": 1}


def test_a_program_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(realtime, "BQUIC", ROOT / "build/none")
    with pytest.raises(namespaces.Failed, match="build/none is missing: make build"):
        realtime.binary()


def test_what_is_built_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The demo was silent for the first minute."""
    (tmp_path / "lab/wifi").mkdir(parents=True)
    (tmp_path / "lab/wifi/Makefile").write_text("made:\n\ttouch made\n")
    monkeypatch.setattr(medium, "ROOT", tmp_path)
    medium.build()
    assert capsys.readouterr().err == "building the emulator of the medium (once)\n" and (tmp_path / "lab/wifi/made").exists()
    medium.build()
    assert capsys.readouterr().err == ""
    (tmp_path / "lab/wifi/Makefile").write_text("again:\n\techo no compiler >&2; false\n")
    with pytest.raises(namespaces.Failed, match="no compiler"):
        medium.build()
