# SPDX-License-Identifier: Apache-2.0
"""The airtime backend, on mac80211_hwsim told to support airtime weights (fairness/fairness.c)."""
import collections
import os
import signal
import struct
import tempfile
import time

import pytest
from wifi import PATIENCE, WIFIRRD, Bed, Load, kill_both_while, run, wait_for

STATIONS = 4
FULL = 256  # mac80211's own
ACTIVE, NEXT, LOW = 384, 128, 1
IDLE = 24, 72  # waiting without demand, and an upload's turn
RTS = 500
NL80211_CMD_SET_WIPHY, NL80211_CMD_SET_STATION = 2, 18
OPTIONS = "--backend", "airtime", "--engage", "always", "--active", "1", "--rts", str(RTS)

Message = collections.namedtuple("Message", "command flags payload")


@pytest.fixture(scope="module")
def bed():
    b = Bed(STATIONS)
    try:
        b.join(b.stations)
        b.bridged()
        yield b
    finally:
        b.remove()


@pytest.fixture
def daemon(bed):
    d = bed.daemon(*OPTIONS).ready()
    yield d
    d.remove()


def rts(bed):
    return bed.ap("iw", "phy", "phy0", "info").stdout.count(f"RTS threshold: {RTS}\n")


def all_full(bed):
    return list(bed.weights().values()) == [FULL] * STATIONS


def wait_turns(bed):
    def turns():
        weights = list(bed.weights().values())
        # one more while an active one has nothing queued
        return (weights.count(NEXT) == 1 and weights.count(ACTIVE) in (1, 2) and
                weights.count(LOW) == STATIONS - 1 - weights.count(ACTIVE))
    wait_for(turns, "one station at its turn, or two, one the next, the others waiting")


class Capture:
    """nl80211's netlink messages in the access point's namespace, as the kernel's nlmon shows them."""

    def __init__(self, bed):
        self.bed = bed
        self.path = os.path.join(tempfile.mkdtemp(dir=bed.dir), "netlink.pcap")

    def __enter__(self):
        self.bed.ap("ip", "link", "add", "nlmon0", "type", "nlmon")
        self.bed.ap("ip", "link", "set", "nlmon0", "up")
        self.tcpdump = self.bed.ap.popen("tcpdump", "-i", "nlmon0", "-U", "-w", self.path, stderr=-1)
        wait_for(lambda: os.path.exists(self.path), "tcpdump ready")
        self.settle()
        return self

    def settle(self):
        """Until a new message is in the file, and so all before it."""
        size = os.path.getsize(self.path)

        def grown():
            self.bed.ap("iw", "dev", "wlan0", "info")
            return os.path.getsize(self.path) > size + 24
        wait_for(grown, "capture has caught up")

    def __exit__(self, *_):
        self.settle()
        self.tcpdump.terminate()
        self.tcpdump.communicate(timeout=PATIENCE)
        self.bed.ap("ip", "link", "del", "nlmon0")

    def messages(self, family):
        """Requests to set something. A packet: 16 bytes about it, then netlink messages."""
        with open(self.path, "rb") as f:
            data = f.read()
        order = "<" if data[:4] == b"\xd4\xc3\xb2\xa1" else ">"
        at, found = 24, []
        while at + 16 <= len(data):
            length = struct.unpack_from(order + "I", data, at + 8)[0]
            if at + 16 + length > len(data):
                break  # tcpdump is still writing it
            packet, at = data[at + 16:at + 16 + length], at + 16 + length
            offset = 16
            while offset + 20 <= len(packet):
                size, kind, flags = struct.unpack_from("=IHH", packet, offset)
                if size < 16:
                    break
                message, offset = packet[offset:offset + size], offset + (size + 3 & ~3)
                if kind == family and message[16] in (NL80211_CMD_SET_WIPHY, NL80211_CMD_SET_STATION) and flags & 1:
                    found.append(Message(message[16], flags, message[16:]))
        return found


def nl80211_family(bed):
    for line in bed.ap("genl", "ctrl", "get", "name", "nl80211").stdout.splitlines():
        if "ID:" in line:
            return int(line.split("ID:")[1].split()[0], 16)
    raise AssertionError("no nl80211 in genl's list")


def test_messages_are_those_of_iw(bed):
    family = nl80211_family(bed)
    weights = [(s, weight) for s in bed.stations for weight in (LOW, *IDLE, NEXT, ACTIVE, FULL)]
    with Capture(bed) as capture:
        bed.ap("iw", "phy", "phy0", "set", "rts", str(RTS))
        bed.ap("iw", "phy", "phy0", "set", "rts", "off")
        for s, weight in weights:
            bed.ap("iw", "dev", "wlan0", "station", "set", s.mac, "airtime_weight", str(weight))
    theirs = dict(zip([RTS, "off", *weights], capture.messages(family), strict=True))
    assert len(set(theirs.values())) == 2 + len(weights)
    turns = {theirs[RTS]} | {theirs[s, weight] for s in bed.stations for weight in (LOW, NEXT, ACTIVE)}
    given_back = {theirs["off"]} | {theirs[s, FULL] for s in bed.stations}
    daemon = bed.daemon(*OPTIONS).ready()
    with Capture(bed) as capture, Load(bed, bed.stations, 100):
        def enough():
            seen = set(capture.messages(family))
            return turns <= seen or seen - set(theirs.values())
        wait_for(enough, "every client had its turn, was the next and waited")
        assert daemon.stop() == 0
    ours = set(capture.messages(family))
    # a set by itself, so that a failure shows what is in it
    foreign, missing = ours - set(theirs.values()), (turns | given_back) - ours
    assert not foreign
    assert not missing


def test_weights_and_rts_are_given_back(bed, daemon):
    assert daemon.status()["backend"] == "airtime"
    assert all_full(bed) and not rts(bed)
    assert {c["weight"] for c in daemon.clients().values()} == {None}  # of open clients, nobody has set it
    with Load(bed, bed.stations, 100):
        wait_turns(bed)
        wait_for(lambda: rts(bed), "RTS threshold set")
    wait_for(lambda: all_full(bed) and not rts(bed), "weights and RTS as before when there is no load")
    with Load(bed, bed.stations, 100):
        wait_turns(bed)
        assert daemon.stop() == 0
    assert all_full(bed) and not rts(bed)


def test_no_rts_where_nothing_aggregates(bed):
    """802.11g: a frame is an MPDU, and an RTS before each costs more than turns gain."""
    bed.again(ht=False)
    d = bed.daemon(*OPTIONS).ready()
    try:
        with Load(bed, bed.stations, 100), Capture(bed) as capture:
            wait_turns(bed)
            before = d.status()["counters"]["turns"]
            wait_for(lambda: d.status()["counters"]["turns"] > before + STATIONS, "every client had its turn")
            assert not rts(bed)
        assert {message.command for message in capture.messages(nl80211_family(bed))} == {NL80211_CMD_SET_STATION}
    finally:
        d.remove()
        bed.again()


def test_own_weights_of_stations_are_given_back(bed):
    # hostapd with airtime_mode=1 gives 1 to most
    own = {s.mac: weight for s, weight in zip(bed.stations, (1, 1, 100, FULL))}
    for mac, weight in own.items():
        bed.ap("iw", "dev", "wlan0", "station", "set", mac, "airtime_weight", str(weight))
    d = bed.daemon(*OPTIONS).ready()
    with Load(bed, bed.stations, 100):
        wait_turns(bed)
        assert d.stop() == 0
    assert bed.weights() == own
    for mac in own:
        bed.ap("iw", "dev", "wlan0", "station", "set", mac, "airtime_weight", str(FULL))


def test_killed(bed, daemon):
    with Load(bed, bed.stations, 100):
        wait_turns(bed)
        wait_for(lambda: rts(bed), "RTS threshold set")
        daemon.stop(signal.SIGKILL)
        wait_for(lambda: all_full(bed) and not rts(bed), "given back by its guard")


def kill_both_holding(bed, daemon):
    kill_both_while(daemon, lambda: rts(bed) and not all_full(bed), "weights and an RTS threshold set")
    assert rts(bed) and not all_full(bed)


def test_killed_with_its_guard_and_started_again(bed, daemon):
    with Load(bed, bed.stations, 100):
        kill_both_holding(bed, daemon)
    again = bed.daemon(*OPTIONS, "--control", daemon.control)
    again.control = daemon.control
    again.ready()
    wait_for(lambda: all_full(bed) and not rts(bed), "remains of the killed one put right")
    assert again.stop() == 0


def test_restore_gives_weights_and_rts_back(bed, daemon):
    with Load(bed, bed.stations, 100):
        kill_both_holding(bed, daemon)
    bed.ap(WIFIRRD, "restore")
    assert all_full(bed) and not rts(bed)


def test_a_driver_that_does_not_answer_to_a_survey(bed, tmp_path):
    """The kernel would hold the radio's lock: nothing else is asked of it, and the loop goes on."""
    library, stall = tmp_path / "stall.so", tmp_path / "stall"
    run("gcc", "-shared", "-fPIC", "-o", str(library), os.path.join(os.path.dirname(__file__), "stall.c"), "-ldl")
    d = bed.daemon(*OPTIONS, wrapper=("/usr/bin/env", f"LD_PRELOAD={library}", f"STALL={stall}")).ready()
    try:
        with Load(bed, bed.stations, 100):
            wait_turns(bed)
            stall.touch()
            wait_for(lambda: stall_of(d), "the survey under way")
            stall.write_text("")
            for _ in range(30):
                assert d.status()["backend"] == "airtime"
                time.sleep(0.1)
            assert stall.read_text() == ""
            turns = d.status()["counters"]["turns"]
            stall.unlink()
            wait_for(lambda: d.status()["counters"]["turns"] > turns, "turns go on")
        assert d.stop() == 0
        assert all_full(bed)
    finally:
        if stall.exists():
            stall.unlink()
        d.remove()


def stall_of(daemon):
    """Its thread that asks for surveys is in stall.c's loop."""
    tasks = f"/proc/{daemon.process.pid}/task"
    return any("nanosleep" in open(f"{tasks}/{t}/wchan").read() for t in os.listdir(tasks) if t != str(daemon.process.pid))


def test_returning_station_is_scheduled_again(bed, daemon):
    with Load(bed, bed.stations, 100):
        wait_turns(bed)
        bed.stations[0].leave()
        wait_for(lambda: len(bed.weights()) == STATIONS - 1, "station gone")
        bed.join(bed.stations[:1])
        wait_for(lambda: len(bed.weights()) == STATIONS, "station back")
        wait_turns(bed)
        wait_for(lambda: bed.weights()[bed.stations[0].mac] == LOW, "returned station throttled")
    assert daemon.status()["backend"] == "airtime", daemon.text()
    assert daemon.status()["counters"]["restarts"] == 0, daemon.text()


def test_a_device_that_goes_down_is_no_fault(bed, daemon):
    with Load(bed, bed.stations, 100):
        wait_turns(bed)
        bed.ap("ip", "link", "set", "wlan0", "down")
        wait_for(lambda: not daemon.clients(), "all gone")
        assert "weight" not in daemon.text(), daemon.text()
        bed.again()
        wait_turns(bed)
    assert daemon.status()["counters"]["restarts"] == 0, daemon.text()


def test_neighbours_take_no_turns(bed):
    bed.ap("iw", "phy", "phy0", "interface", "add", "mesh0", "type", "mp")
    try:
        for backend in ("auto", "htb", "airtime"):
            p = bed.ap(WIFIRRD, "--device", "mesh0", "--backend", backend, "--rate", "2000", check=False)
            assert p.returncode == 2 and "neighbours" in p.stderr, p.stderr
    finally:
        bed.ap("iw", "dev", "mesh0", "del")


def test_steps_aside_for_another_program(bed):
    d = bed.daemon("--backend", "auto", "--rate", "2000", "--engage", "always", "--active", "1").ready()
    assert d.status()["backend"] == "airtime"

    def other_program():
        bed.ap("iw", "dev", "wlan0", "station", "set", bed.stations[0].mac, "airtime_weight", "77")
        return d.status()["backend"] == "htb"
    with Load(bed, bed.stations, 100):
        wait_turns(bed)
        wait_for(other_program, "fallback to htb")
    assert "another program" in d.status()["refused"]
    assert bed.weights()[bed.stations[0].mac] == 77
    # the operator has switched that off, and "wifi reload" makes the device again
    bed.stop_ap()
    bed.ap("iw", "dev", "wlan0", "del")
    wait_for(lambda: d.status()["present"] is False, "device noticed to be gone")
    bed.ap("iw", "phy", "phy0", "interface", "add", "wlan0", "type", "__ap")
    bed.start_ap()
    wait_for(lambda: d.status()["backend"], "device noticed to be back")
    assert d.status()["backend"] == "airtime", d.status()
    assert d.stop() == 0
