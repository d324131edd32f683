# SPDX-License-Identifier: Apache-2.0
"""The near end of the experiment "latency": python3 clients.py OWN ORIGIN PORT SECONDS DOWNLOADS UPLOADS [BULK-ADDRESS...]

Loads the path with bulk transfers, each from its own address. After WARM_UP, sends the requests of one household from
OWN at the same time. Writes JSON: for each of WHAT the time of every request in ms, LOST_MS if there was no answer, and
the throughput of the transfers in bit/s.
"""

from __future__ import annotations

import asyncio
import json
import pathlib
import socket
import ssl
import struct
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent))

from lab.latency import origin  # noqa: E402

WHAT = ("request", "dns", "ssh", "call")
WARM_UP = 3.0  # s
REQUEST_EVERY, DNS_EVERY, SSH_EVERY, CALL_EVERY = 0.2, 0.1, 0.2, 0.02  # s
LOST_MS = 2000.0  # a request that takes longer, or has no answer, counts as this
RTP = 12 + 160  # bytes of 20 ms of G.711 (RFC 3551)

got = 0  # bytes of the downloads


def download(own: str, host: str) -> None:
    global got
    buffer = bytearray(1 << 18)
    with socket.create_connection((host, origin.SOURCE), source_address=(own, 0)) as s:
        while n := s.recv_into(buffer):
            got += n  # not atomic, but an addition lost between threads would not show


def upload(own: str, host: str) -> None:
    with socket.create_connection((host, origin.SINK), source_address=(own, 0)) as s:
        while True:
            s.sendall(bytes(1 << 18))


class Datagrams(asyncio.DatagramProtocol):
    """Datagrams that carry their time of departure, and the answers to them."""

    def __init__(self) -> None:
        self.sent = 0
        self.answers: list[bytes] = []
        self.came: list[float] = []

    def datagram_received(self, data: bytes, _addr: object) -> None:
        self.answers.append(data)
        self.came.append(time.monotonic())

    def error_received(self, _exc: Exception) -> None:
        pass  # missing answers are counted


async def every(pause: float, until: float, size: int, port: int, own: str, host: str) -> Datagrams:
    transport, protocol = await asyncio.get_running_loop().create_datagram_endpoint(
        Datagrams, local_addr=(own, 0), remote_addr=(host, port))
    due = time.monotonic()
    while due < until:
        transport.sendto(struct.pack("!d", time.monotonic()).ljust(size, b"\0"))
        protocol.sent += 1
        due += pause
        await asyncio.sleep(max(0.0, due - time.monotonic()))
    await asyncio.sleep(LOST_MS / 1e3)
    transport.close()
    return protocol


async def dns(until: float, own: str, host: str) -> list[float]:
    """Round-trip times, ms."""
    d = await every(DNS_EVERY, until, 40, origin.DNS, own, host)
    took = [(came - struct.unpack_from("!d", data)[0]) * 1e3 for came, data in zip(d.came, d.answers)]
    return took + [LOST_MS] * (d.sent - len(took))


async def call(until: float, own: str, host: str) -> list[float]:
    """One-way delays in both directions, ms; both ends have the same clock."""
    d = await every(CALL_EVERY, until, RTP, origin.CALL, own, host)
    took = []
    for came, data in zip(d.came, d.answers):
        left, arrived = struct.unpack_from("!dd", data)
        took += [(arrived - left) * 1e3, (came - arrived) * 1e3]
    return took + [LOST_MS] * (d.sent - len(d.came))


async def requests(until: float, own: str, host: str, port: int) -> list[float]:
    """Times of requests for 1 kB by HTTPS, each on a new connection, from its first packet to the last byte, ms."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    took: list[float] = []

    async def one() -> None:
        start = time.monotonic()
        try:
            async with asyncio.timeout(LOST_MS / 1e3):
                reader, writer = await asyncio.open_connection(host, port, ssl=context, local_addr=(own, 0))
                writer.write(b"GET /small HTTP/1.1\r\nHost: origin\r\nConnection: close\r\n\r\n")
                answer = await reader.read(-1)
                if not answer.startswith(b"HTTP/1.1 200 "):
                    raise ValueError(f"the answer was {answer[:80]!r}")
                took.append((time.monotonic() - start) * 1e3)
                writer.close()
        except (TimeoutError, OSError):
            took.append(LOST_MS)

    due = time.monotonic()
    async with asyncio.TaskGroup() as group:
        while due < until:
            group.create_task(one())
            due += REQUEST_EVERY
            await asyncio.sleep(max(0.0, due - time.monotonic()))
    return took


async def ssh(until: float, own: str, host: str) -> list[float]:
    """Times of keystrokes and their echoes, one at a time on one connection, ms."""
    reader, writer = await asyncio.open_connection(host, origin.ECHO, local_addr=(own, 0))
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    took = []
    while time.monotonic() < until:
        start = time.monotonic()
        writer.write(bytes(36))
        try:
            await asyncio.wait_for(reader.readexactly(36), LOST_MS / 1e3)
        except TimeoutError:
            took.append(LOST_MS)
            break  # the late echo would be taken for the next one
        took.append((time.monotonic() - start) * 1e3)
        await asyncio.sleep(max(0.0, SSH_EVERY - took[-1] / 1e3))
    writer.close()
    return took


def uploaded(own: str, host: str) -> int:
    """The number of bytes that the origin has received."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind((own, 0))
        s.connect((host, origin.COUNT))
        s.settimeout(LOST_MS / 1e3)
        for _ in range(5):
            s.send(b"?")
            try:
                return int(s.recv(64))
            except TimeoutError:
                pass
    raise TimeoutError("the origin does not answer how many bytes it has received")


async def bulk(seconds: float, own: str, host: str) -> float:
    """Throughput of all transfers in bit/s, measured at their receivers."""
    def moved() -> tuple[int, float]:
        return got + uploaded(own, host), time.monotonic()

    before, begun = await asyncio.to_thread(moved)
    await asyncio.sleep(seconds)
    after, ended = await asyncio.to_thread(moved)
    return (after - before) * 8 / (ended - begun)


async def household(own: str, host: str, port: int, seconds: float) -> dict[str, object]:
    until = time.monotonic() + seconds
    *took, bits = await asyncio.gather(
        requests(until, own, host, port), dns(until, own, host), ssh(until, own, host), call(until, own, host),
        bulk(seconds, own, host))
    return {**dict(zip(WHAT, took)), "bits_a_second": bits}


def main() -> None:
    own, host, port, seconds, downloads, uploads, *addresses = sys.argv[1:]
    for i in range(int(downloads) + int(uploads)):
        of = download if i < int(downloads) else upload
        threading.Thread(target=of, args=(addresses[i], host), daemon=True).start()
    if addresses:
        time.sleep(WARM_UP)
    print(json.dumps(asyncio.run(household(own, host, int(port), float(seconds)))))


if __name__ == "__main__":
    main()
