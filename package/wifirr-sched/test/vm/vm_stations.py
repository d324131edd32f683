# SPDX-License-Identifier: Apache-2.0
"""wifirrd on an access point with six stations: who is seen, what goes to whose class."""
import re
import signal

import pytest
from wifi import PATIENCE, WIFIRRD, Bed, Load, guard_of, wait_for, words_of

STATIONS = 6
PING_BYTES = 500
FRAME = PING_BYTES + 8 + 14  # what a class counts of a ping, but for the IP header
IP_HEADER = {4: 20, 6: 40}


@pytest.fixture(scope="module")
def bed():
    b = Bed(STATIONS, weights=False)
    try:
        b.qdisc_before = b.ap("tc", "qdisc", "show", "dev", "wlan0").stdout
        b.join(b.stations)
        b.bridged()
        # auto: this driver has no airtime weights, so htb is what it has to find
        b.wifirrd = b.daemon("--backend", "auto", "--rate", "2000", "--engage", "always").ready()
        yield b
    finally:
        b.remove()


def known(bed):
    return set(bed.wifirrd.clients())


def macs(stations):
    return {s.mac for s in stations}


def wait_known(bed, stations):
    wait_for(lambda: known(bed) == macs(stations), f"{len(stations)} stations known")


def class_bytes(bed):
    """Bytes sent through each class of wlan0, by its minor number."""
    text = bed.ap("tc", "-s", "class", "show", "dev", "wlan0").stdout
    return {int(minor, 16): int(sent) for minor, sent in
            re.findall(r"^class htb 5746:([0-9a-f]+) .*?Sent (\d+) bytes", text, re.M | re.S)}


def elements(bed):
    """(MAC, mark) in our table."""
    text = bed.ap("nft", "list", "map", "netdev", "wifirr_wlan0", "mac", check=False).stdout
    return re.findall(r"([0-9a-f:]{17}) : (0x[0-9a-f]{8})", text)


def sent_to(bed):
    """Bytes that the kernel counted in each station's class, by MAC. A class may come or go between the two looks."""
    sent = class_bytes(bed)
    minors = {mac: int(mark, 16) & 0xffff for mac, mark in elements(bed)}
    return {mac: sent[minor] for mac, minor in minors.items() if minor in sent}


def ping_all(bed, family):
    """3 pings to the first station, 5 to the second, ...: a mixed-up map cannot go unnoticed."""
    counts = [3 + 2 * s.index for s in bed.stations]
    # a client is known before nft, which runs in the background, has its element
    wait_for(lambda: set(sent_to(bed)) == macs(bed.stations), "each station's element and class")
    for wanted in [1] * STATIONS, counts:  # first, neighbours are found
        before = sent_to(bed)
        pings = [bed.server.popen("ping", f"-{family}", "-q", "-i", "0.1", "-W", str(PATIENCE), "-c", str(n), "-s", str(PING_BYTES),
                                  s.ipv4 if family == 4 else s.ipv6, stdout=-1, text=True)
                 for n, s in zip(wanted, bed.stations)]
        received = [int(re.search(r"(\d+) received", p.communicate()[0]).group(1)) for p in pings]
    after = sent_to(bed)
    for s, got, sent in zip(bed.stations, received, counts):
        size = FRAME + IP_HEADER[family]
        counted = after[s.mac] - before[s.mac]
        assert got > 0, f"nothing comes back from {s.name}"
        # a busy machine loses some; some room for neighbour discovery
        assert got * size <= counted < sent * size + 2 * FRAME, f"{s.name}: {got} of {sent} arrived, counted {counted}"


def test_auto_falls_back_to_htb_with_the_reason(bed):
    status = bed.wifirrd.status()
    assert status["backend"] == "htb"
    assert "driver does not support airtime weights" in status["refused"]


def test_airtime_alone_is_refused_and_nothing_changed(bed):
    before = bed.ap("tc", "qdisc", "show", "dev", "wlan0").stdout
    p = bed.ap(WIFIRRD, "--device", "wlan0", "--control", "/run/other.sock", "--backend", "airtime", check=False)
    assert p.returncode == 2
    lines = p.stderr.splitlines()
    assert len(lines) == 1, p.stderr
    assert bed.ap("tc", "qdisc", "show", "dev", "wlan0").stdout == before


def test_every_station_known(bed):
    wait_known(bed, bed.stations)


def test_classes_by_nft_with_fq_codel_leaves(bed):
    assert bed.wifirrd.status()["classifier"] == "nft"
    assert bed.ap("nft", "list", "tables", "netdev").stdout.count("wifirr_wlan0") == 1
    qdiscs = bed.ap("tc", "qdisc", "show", "dev", "wlan0").stdout
    assert len(re.findall("^qdisc fq_codel", qdiscs, re.M)) >= STATIONS, qdiscs


@pytest.mark.parametrize("family", [4, 6])
def test_bridged(bed, family):
    ping_all(bed, family)


def test_broadcast_goes_to_nobodys_class(bed):
    def received():
        text = bed.stations[0]("cat", "/proc/net/netstat").stdout
        names, values = (line.split() for line in re.findall("^IpExt: .*", text, re.M))
        return int(dict(zip(names, values))["InBcastPkts"])

    before, default_before, received_before = class_bytes(bed), class_bytes(bed)[2], received()

    def enough():
        """A busy machine loses some."""
        bed.server("ping", "-b", "-q", "-c", "20", "-i", "0.1", "-s", str(PING_BYTES), "10.9.0.255", check=False)
        bed.server("ping", "-6", "-q", "-c", "20", "-i", "0.1", "-s", str(PING_BYTES), "ff02::1%eth0", check=False)
        return received() - received_before >= 10

    wait_for(enough, "broadcasts received")
    wait_for(lambda: class_bytes(bed)[2] - default_before >= 20 * FRAME, "broadcasts counted in the default class")
    after = class_bytes(bed)
    for minor in after:
        if minor >= 0xa000:
            assert after[minor] - before[minor] < 2 * FRAME, f"class {minor:x} got group-addressed packets"


def test_clients_take_turns(bed):
    with Load(bed, bed.stations, 250):
        wait_for(lambda: bed.wifirrd.status()["throttling"], "throttling")
        wait_for(lambda: len(bed.wifirrd.status()["active"]) == 3, "three active at a time")
        wait_for(lambda: all(c["active_ms"] and c["waiting_ms"] for c in bed.wifirrd.clients().values()),
                 "every client had its turn")
    wait_for(lambda: not bed.wifirrd.status()["throttling"], "nobody throttled without load")


def test_stations_leave_and_join(bed):
    leaving, staying = bed.stations[:3], bed.stations[3:]
    for s in leaving:
        s.leave()
    wait_known(bed, staying)
    assert sum(minor >= 0xa000 for minor in class_bytes(bed)) == len(staying)
    bed.join(leaving)
    wait_known(bed, bed.stations)
    ping_all(bed, 4)


def test_interface_deleted_and_made_again(bed):
    bed.stop_ap()
    bed.ap("iw", "dev", "wlan0", "del")
    wait_for(lambda: not bed.wifirrd.status()["present"], "device noticed to be gone")
    assert bed.wifirrd.clients() == {}
    bed.ap("iw", "phy", "phy0", "interface", "add", "wlan0", "type", "__ap")
    bed.start_ap()
    bed.ap("ip", "link", "set", "wlan0", "master", "br0")
    bed.join(bed.stations)
    wait_known(bed, bed.stations)
    ping_all(bed, 4)


@pytest.mark.parametrize("family", [4, 6])
def test_routed(bed, family):
    if family == 4:
        bed.unbridged()
        bed.routed()
    ping_all(bed, family)


def test_leaves_nothing_behind(bed):
    assert bed.wifirrd.stop() == 0, bed.wifirrd.text()
    assert bed.ap("tc", "qdisc", "show", "dev", "wlan0").stdout == bed.qdisc_before
    wait_for(lambda: "wifirr" not in bed.ap("nft", "list", "tables").stdout, "the table's end")


def test_link_rate_from_stations_under_load(bed):
    """Without --rate. Idle stations stand at 1 Mbit/s, which must not become the link's rate."""
    d = bed.daemon("--engage", "always").ready()
    with Load(bed, bed.stations, 250):
        wait_for(lambda: d.status()["throttling"], "throttling")
        link = bed.ap("tc", "class", "show", "dev", "wlan0", "classid", "5746:1").stdout
    number, unit = re.search(r" rate (\d+)([KMG]?)bit", link).groups()
    assert int(number) * {"": 1, "K": 1e3, "M": 1e6, "G": 1e9}[unit] > 2e6, link
    assert d.stop() == 0


def instead_of_nft(tmp_path, script):
    """The wrapper of a daemon whose nft is this script."""
    nft = tmp_path / "nft"
    nft.write_text(script.format(dir=tmp_path))
    nft.chmod(0o755)
    return ("/usr/bin/env", f"PATH={tmp_path}:/usr/sbin:/usr/bin")


def ended(pid):
    return not any(words_of(pid))


SLOW_AT_THE_END = """\
#!/bin/sh
cat >{dir}/$$
grep -q 'chain egress\\|add element' {dir}/$$ || while [ ! -e {dir}/go ]; do sleep 0.3; done
exec /usr/sbin/nft -f {dir}/$$
"""


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_nft_slower_than_the_end(bed, end, tmp_path):
    """The daemon and its guard end before nft does, and the table goes all the same."""
    d = bed.daemon("--rate", "2000", wrapper=instead_of_nft(tmp_path, SLOW_AT_THE_END)).ready()
    assert d.status()["classifier"] == "nft"
    guards = wait_for(lambda: guard_of(d), "the guard")
    assert d.stop(end) == (0 if end == signal.SIGTERM else -end)
    wait_for(lambda: all(map(ended, guards)), "the guard's end")
    assert "wifirr" in bed.ap("nft", "list", "tables").stdout, "nft was faster than the daemon's end"
    (tmp_path / "go").touch()
    wait_for(lambda: "wifirr" not in bed.ap("nft", "list", "tables").stdout, "the table's end")
    wait_for(lambda: bed.ap("tc", "qdisc", "show", "dev", "wlan0").stdout == bed.qdisc_before, "the device's own qdisc")


SLOW_AT_THE_START = """\
#!/bin/sh
cat >{dir}/script
if grep -q 'chain egress' {dir}/script; then
	echo $$ >{dir}/pid
	mv {dir}/pid {dir}/waiting
	while [ ! -e {dir}/go ]; do sleep 0.1; done
fi
exec /usr/sbin/nft -f {dir}/script
"""


def test_killed_while_nft_makes_the_table(bed, tmp_path):
    """The guard finds no table yet, so nothing may make one after it."""
    d = bed.daemon("--rate", "2000", wrapper=instead_of_nft(tmp_path, SLOW_AT_THE_START))
    waiting = tmp_path / "waiting"
    wait_for(waiting.exists, "nft at it")
    d.stop(signal.SIGKILL)
    wait_for(lambda: bed.ap("tc", "qdisc", "show", "dev", "wlan0").stdout == bed.qdisc_before, "the guard")
    (tmp_path / "go").touch()
    wait_for(lambda: ended(waiting.read_text().strip()), "nft's end")
    assert "wifirr" not in bed.ap("nft", "list", "tables").stdout


SLOW_NFT = """\
#!/bin/sh
cat >{dir}/script
if [ ! -e {dir}/started ]; then
	touch {dir}/started
	sleep 6
fi
if grep -q 'add element' {dir}/script; then
	touch {dir}/waiting
	for _ in $(seq 600); do [ -e {dir}/go ] && break; sleep 0.1; done
	rm {dir}/waiting
fi
exec /usr/sbin/nft -f {dir}/script
"""


def test_nobody_waits_for_nft(bed, tmp_path):
    """Turns go on and questions are answered while it runs, and a start at which it is slow makes no difference."""
    waiting = tmp_path / "waiting"
    bed.stations[0].leave()
    wait_for(lambda: bed.ap("iw", "dev", "wlan0", "station", "dump").stdout.count("Station ") == STATIONS - 1, "the station's end at the access point")
    d = bed.daemon("--rate", "2000", "--engage", "always", "--slot", "600", wrapper=instead_of_nft(tmp_path, SLOW_NFT))
    d.ready()
    wait_for(waiting.exists, "nft at it")
    assert d.status()["classifier"] == "nft" and waiting.exists()
    (tmp_path / "go").touch()
    wait_for(lambda: not waiting.exists(), "nft has gone on")
    wait_for(lambda: len(elements(bed)) == STATIONS - 1, "the clients' elements")
    (tmp_path / "go").unlink()
    with Load(bed, bed.stations[1:], 250):
        wait_for(lambda: d.status()["throttling"], "throttling")
        bed.join(bed.stations[:1])
        wait_for(waiting.exists, "nft at it again")
        before = d.status()["counters"]["turns"]
        wait_for(lambda: d.status()["counters"]["turns"] > before, "another turn")
        assert waiting.exists(), "it has been given up"
        (tmp_path / "go").touch()
        wait_for(lambda: len(elements(bed)) == STATIONS, "the new client's element")
    assert d.status()["counters"]["restarts"] == 0
    assert d.stop() == 0


WITHOUT_EGRESS = """\
#!/bin/sh
exit 1
"""


def test_marks_of_other_programs_are_no_classes(bed, tmp_path):
    """Where the kernel lacks the egress hook. A multi-WAN setup (mwan3) has marks from 0x100 on."""
    d = bed.daemon("--rate", "2000", wrapper=instead_of_nft(tmp_path, WITHOUT_EGRESS)).ready()
    assert d.status()["classifier"] == "u32"
    client = bed.stations[0]
    bed.ap("nft", "add table ip other; add chain ip other c { type filter hook postrouting priority 0; }; add rule ip other c meta mark set 0x100")
    try:
        with Load(bed, [client], 100):
            wait_for(lambda: d.clients()[client.mac]["delivered_bytes"] > 20000, "the client's packets in its class")
    finally:
        bed.ap("nft", "delete", "table", "ip", "other")
    assert d.stop() == 0
