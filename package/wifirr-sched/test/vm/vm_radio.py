# SPDX-License-Identifier: Apache-2.0
"""
One wifirrd for a radio: clients of two access points take turns together; a
neighbour in a mesh, one behind WDS and the access point that the node is a client of
are known, take no turns, and have the share of the air that a client has on average.
"""
import os
import re
import subprocess

import pytest
from wifi import HOSTAPD, PATIENCE, WIFIRRD, Bed, Load, kill_both_while, wait_for

FULL, ACTIVE = 256, 384
MEAN = (ACTIVE + ACTIVE // 3) // 3  # of three clients that take turns
OPTIONS = "--backend", "airtime", "--engage", "always", "--active", "1"
MORE = "wds_sta=1", "bss=wlan1", "ssid=guest", "wmm_enabled=1"


@pytest.fixture(scope="module")
def bed():
    b = Bed(6)
    above = None
    try:
        b.stop_ap()
        b.start_ap(True, *MORE)
        home, also_home, guest, repeater, mesh, uplink = b.stations
        b.bridged()
        # wlan0 is an access point before hostapd makes the next one
        wait_for(lambda: "Interface wlan1" in b.ap("iw", "dev").stdout, "the guests' access point")
        b.ap("ip", "link", "set", "wlan1", "master", "br0")
        repeater("iw", "dev", "wlan0", "set", "4addr", "on")
        b.join([home, also_home, repeater])
        b.join([guest], "guest")
        b.ap("iw", "phy", "phy0", "interface", "add", "mesh0", "type", "mp")
        mesh("ip", "link", "set", "wlan0", "down")
        mesh("iw", "dev", "wlan0", "set", "type", "mp")
        for ns, device in ((b.ap, "mesh0"), (mesh, "wlan0")):
            ns("ip", "link", "set", device, "up")
            ns("iw", "dev", device, "mesh", "join", "nodes", "freq", "2412", "HT20", "beacon-interval", "100")
        b.ap("ip", "link", "set", "mesh0", "master", "br0")
        wait_for(lambda: mesh.mac in weights(b), "the mesh")
        wait_for(lambda: repeater.mac in weights(b), "WDS")
        configuration = os.path.join(b.dir, "above.conf")
        with open(configuration, "w") as f:
            f.write(HOSTAPD.replace("ssid=bed", "ssid=above"))
        above = uplink.popen("hostapd", configuration, stdout=subprocess.DEVNULL)
        b.ap("iw", "phy", "phy0", "interface", "add", "sta0", "type", "managed", "addr", "02:00:00:00:aa:00")
        b.ap("ip", "link", "set", "sta0", "up")
        wait_for(lambda: connected(b), "the access point above")
        yield b
    finally:
        if above:
            above.terminate()
            above.wait(timeout=PATIENCE)
        b.remove()


def connected(bed):
    """Asks again and again, as an access point on a busy machine may not have answered in time."""
    bed.ap("iw", "dev", "sta0", "connect", "above", "2412", check=False)
    return bed.ap("iw", "dev", "sta0", "link").stdout.startswith("Connected")


def weights(bed):
    """Of all stations of the radio, by MAC. A VLAN may go between the two looks."""
    found = {}
    for device in re.findall(r"Interface (\S+)", bed.ap("iw", "dev").stdout):
        dump = bed.ap("iw", "dev", device, "station", "dump", check=False).stdout
        found.update((mac, int(weight)) for mac, weight in re.findall(r"^Station (\S+).*?airtime weight: (\d+)", dump, re.M | re.S))
    return found


def test_siblings_take_turns_together_and_neighbours_none(bed):
    home, also_home, guest, repeater, mesh, uplink = bed.stations
    clients, neighbours = {home.mac, also_home.mac, guest.mac}, {repeater.mac, mesh.mac, uplink.mac}
    d = bed.daemon(*OPTIONS).ready()
    try:
        wait_for(lambda: set(d.clients()) == clients | neighbours, f"all known: {d.clients()}")
        assert {mac for mac, c in d.clients().items() if c["neighbour"]} == neighbours
        assert [d.clients()[s.mac]["interface"] for s in (home, guest, mesh, uplink)] == ["wlan0", "wlan1", "mesh0", "sta0"]
        with Load(bed, (home, also_home, guest), 100), Load(bed, (mesh,), 400):
            seen = {mac: set() for mac in clients}
            wait_for(lambda: {m: w for m, w in weights(bed).items() if m in neighbours} ==
                     {repeater.mac: ACTIVE, mesh.mac: MEAN, uplink.mac: ACTIVE}, "the busy neighbour's weight, and the others'")

            def everybody_has_waited_and_been_served():
                now = weights(bed)
                for mac in clients:
                    seen[mac].add(now[mac])
                return all(ACTIVE in s and s - {ACTIVE, FULL} for s in seen.values())
            wait_for(everybody_has_waited_and_been_served, f"turns of all three ({seen})")
        # who goes is not kept, whichever of the devices the kernel tells it of
        repeater.leave()
        wait_for(lambda: set(d.clients()) == (clients | neighbours) - {repeater.mac}, "the repeater gone")
        bed.join([repeater])
        wait_for(lambda: set(d.clients()) == clients | neighbours, "the repeater again")
        assert d.status()["backend"] == "airtime" and d.status()["counters"]["restarts"] == 0, d.text()
        # the radio has its wifirrd
        p = bed.ap(WIFIRRD, "--device", "wlan1", "--control", "/run/other.sock", *OPTIONS, check=False)
        assert p.returncode == 2 and "another wifirrd schedules its radio" in p.stderr, p.stderr
        with Load(bed, (home, also_home, guest), 100):
            kill_both_while(d, lambda: set(weights(bed).values()) != {FULL}, "turns")
        assert set(weights(bed).values()) != {FULL}
        bed.ap(WIFIRRD, "restore")
        assert set(weights(bed).values()) == {FULL}
    finally:
        d.remove()


def test_beside_hostapds_own_weights(bed):
    """Both would set them, and neither's would hold."""
    path = "/var/run/hostapd-phy0.conf"
    try:
        for mode, (code, line) in {1: (0, "airtime weights: yes"), 2: (1, "airtime weights: no: hostapd sets them by itself")}.items():
            with open(path, "w") as f:
                f.write(f"airtime_mode={mode}\ninterface=wlan0\nbss=wlan1\n")
            p = bed.ap(WIFIRRD, "check", "wlan0", check=False)
            assert p.returncode == code and line in p.stdout, p.stdout
        p = bed.ap(WIFIRRD, "--device", "wlan0", "--control", "/run/other.sock", *OPTIONS, check=False)
        assert p.returncode == 2 and "hostapd's airtime_mode" in p.stderr, p.stderr
    finally:
        os.unlink(path)


def test_clients_beside_many_vlans(bed):
    """The kernel lists an access point after all of them."""
    home, *_ = bed.stations
    vlans = [f"vlan{i}" for i in range(33)]
    for vlan in vlans:
        bed.ap("iw", "dev", "wlan0", "interface", "add", vlan, "type", "__ap_vlan")
    d = bed.daemon(*OPTIONS).ready()
    try:
        wait_for(lambda: home.mac in d.clients(), f"the access point's client: {d.clients()}")
        assert d.stop() == 0
    finally:
        d.remove()
        for vlan in vlans:
            bed.ap("iw", "dev", vlan, "del")


def test_a_sibling_that_goes(bed):
    """The rest stays as it was."""
    home, also_home, guest, _, mesh, _ = bed.stations
    d = bed.daemon(*OPTIONS).ready()
    wait_for(lambda: guest.mac in d.clients(), "guest")
    bed.ap("ip", "link", "set", "wlan1", "down")
    wait_for(lambda: guest.mac not in d.clients(), "guests gone")
    assert {home.mac, also_home.mac, mesh.mac} <= set(d.clients())
    assert d.status()["backend"] == "airtime" and d.status()["counters"]["restarts"] == 0, d.text()
    assert d.stop() == 0
