# SPDX-License-Identifier: Apache-2.0
"""
A wiphy on two channels, as one with several radios (MT7996): what is on another
channel does not contend with the device's clients.
"""
import re

import pytest
from wifi import WIFIRRD, Bed, wait_for


@pytest.fixture
def bed():
    b = Bed(2, channels=2)
    try:
        yield b
    finally:
        b.remove()


def test_only_what_shares_the_channel_belongs_to_the_radio(bed):
    home, node = bed.stations
    bed.join([home])
    bed.ap("iw", "phy", "phy0", "interface", "add", "mesh0", "type", "mp")
    node("ip", "link", "set", "wlan0", "down")
    node("iw", "dev", "wlan0", "set", "type", "mp")
    for ns, device in ((bed.ap, "mesh0"), (node, "wlan0")):
        ns("ip", "link", "set", device, "up")

    def on(channel):
        for ns, device in ((bed.ap, "mesh0"), (node, "wlan0")):
            ns("iw", "dev", device, "mesh", "join", "nodes", "freq", channel, "HT20", "beacon-interval", "100")
        wait_for(lambda: node.mac in bed.ap("iw", "dev", "mesh0", "station", "dump").stdout, "the mesh")

    def neighbours():
        said = bed.ap(WIFIRRD, "check", "wlan0", check=False).stdout
        return int(re.search(r"interfaces to neighbours: (\d+)", said)[1])

    on("2437")
    assert neighbours() == 0
    d = bed.daemon("--backend", "airtime", "--engage", "always").ready()
    try:
        wait_for(lambda: home.mac in d.clients(), f"the client is known: {d.clients()}")
        assert set(d.clients()) == {home.mac}
        for ns, device in ((bed.ap, "mesh0"), (node, "wlan0")):
            ns("iw", "dev", device, "mesh", "leave")
        on("2412")
        wait_for(lambda: set(d.clients()) == {home.mac, node.mac}, f"the mesh is on the radio's channel: {d.clients()}")
        assert neighbours() == 1
    finally:
        d.remove()
