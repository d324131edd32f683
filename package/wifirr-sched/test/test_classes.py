# SPDX-License-Identifier: Apache-2.0
"""Which packets go to whose class, with nft or u32, whichever the kernel has."""
import re
import socket
import struct

import pytest

from bed import Bed, mac, wait_for
from test_faults import fdb, neighbour, quiet_wires

SIZE = 200  # of each frame
VOICE = 46, 44
LIKE_VOICE = 0, 12, 14, 40, 42, 45, 47, 62


def ipv4(address, dscp=0):
    return b"\x08\x00" + struct.pack("!BBHHHBBH4s", 0x45, dscp << 2 | 1, SIZE - 14, 0, 0, 64, 17, 0, bytes(4)) + socket.inet_pton(socket.AF_INET, address)


def ipv6(address, dscp=0):
    return b"\x86\xdd" + struct.pack("!IHBB16s", 6 << 28 | dscp << 22 | 1 << 20, SIZE - 54, 17, 64, bytes(16)) + socket.inet_pton(socket.AF_INET6, address)


def send(bed, frames):
    """(destination MAC, the rest of the beginning, how often) of each."""
    with bed.box.enter():
        s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    with s:
        s.bind(("dl0", 0))
        for to, rest, count in frames:
            for _ in range(count):
                s.send((bytes.fromhex(to.replace(":", "")) + bytes(6) + rest).ljust(SIZE, b"\0"))


def delivered(daemon):
    return {client: c["delivered_bytes"] // SIZE for client, c in daemon.clients().items()}


def sorted_by(bed, daemon, addresses):
    """nft runs in the background, so a client may be known before its address."""
    table = bed.box("nft", "list", "table", "netdev", "wifirr_dl0", check=False).stdout
    return daemon.status()["classifier"] == "u32" or len(re.findall(" : 0x", table)) == addresses


def voice(bed):
    return int(re.search(r"class htb 5746:3 .*?Sent (\d+) bytes", bed.box("tc", "-s", "class", "show", "dev", "dl0").stdout, re.S)[1]) // SIZE


@pytest.fixture
def bed():
    with Bed(0) as b:
        quiet_wires(b)
        yield b


@pytest.mark.parametrize("options", [(), ("--exempt-voice",)])
def test_by_mac(bed, options):
    """Two of them end alike, which is what u32 looks at first."""
    clients = "02:00:00:00:00:01", "02:00:00:00:01:01", "02:00:01:00:00:01", "06:00:00:00:00:01", "02:00:00:00:00:02"
    fdb(bed, "add", clients)
    daemon = bed.daemon("--rate", "20000", *options).ready()
    wait_for(lambda: set(delivered(daemon)) == set(clients) and sorted_by(bed, daemon, len(clients)), "the clients")
    send(bed, [(c, ipv4("10.9.0.1"), n) for n, c in enumerate(clients, 1)] + [(c, ipv6("fd09::1"), 10 * n) for n, c in enumerate(clients, 1)] +
         [(c, ipv4("10.9.0.1", VOICE[0]), 100) for c in clients] + [("02:00:00:00:00:03", ipv4("10.9.0.1"), 50), ("01:00:5e:00:00:01", ipv4("224.0.0.1"), 50)])
    each = 0 if options else 100
    wait_for(lambda: delivered(daemon) == {c: 11 * n + each for n, c in enumerate(clients, 1)}, f"each client's packets: {delivered(daemon)}")
    assert voice(bed) == (500 if options else 0)
    assert daemon.stop() == 0


def test_by_address(bed):
    hosts = ("10.9.0.1", "fd09::1", "fd0a::1"), ("10.9.1.1", "fd09::1:1", "fd09:1::1"), ("10.8.0.1",), ("10.9.0.2",), ("fd09::7", "fd0a::7")
    for i, addresses in enumerate(hosts, 1):
        for address in addresses:
            neighbour(bed, "replace", address, i)
    daemon = bed.daemon("--rate", "20000", "--match", "ip", "--exempt-voice").ready()
    wait_for(lambda: len(delivered(daemon)) == len(hosts) and sorted_by(bed, daemon, sum(map(len, hosts))), f"the hosts: {delivered(daemon)}")
    # by the address that each is known by
    wanted = {next(a for a in addresses if a in delivered(daemon)): sum(10 ** n for n in range(len(addresses))) for addresses in hosts}
    wanted["10.9.0.2"] += len(LIKE_VOICE)
    send(bed, [(mac(i), (ipv6 if ":" in a else ipv4)(a), 10 ** n) for i, addresses in enumerate(hosts, 1) for n, a in enumerate(addresses)] +
         [(mac(1), ip(a, dscp), 1000) for ip, a in ((ipv4, "10.9.0.1"), (ipv6, "fd09::1")) for dscp in VOICE] +
         [(mac(4), ipv4("10.9.0.2", dscp), 1) for dscp in LIKE_VOICE] + [(mac(1), ipv4("10.9.0.3"), 50), (mac(1), ipv6("fd09::3"), 50)])
    wait_for(lambda: delivered(daemon) == wanted, f"each host's packets: {delivered(daemon)}")
    assert voice(bed) == 4000
    assert daemon.stop() == 0
