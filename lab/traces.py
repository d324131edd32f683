# SPDX-License-Identifier: Apache-2.0
"""The course of a transfer: packets at both sides of the medium, and the sender's congestion window."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from lab.namespaces import Failed, Lab, stop, wait_until

CAPTURED_BYTES = 128  # of a packet: its headers, and enough to identify it
NANOSECOND_PCAP = 0xA1B23C4D
SAMPLE_SECONDS = 0.025  # of the congestion window


@dataclasses.dataclass(frozen=True)
class Packet:
    seconds: float  # by this machine's clock, the same for both sides
    down: bool  # from the gateway
    size: int  # IP bytes
    key: bytes  # identifies the packet on both sides


class Capture:
    """tcpdump on a device, for TCP and UDP over IPv4."""

    def __init__(self, lab: Lab, namespace: str, device: str, gateway: str) -> None:
        self._lab, self._gateway = lab, socket.inet_aton(gateway)
        self._name = f"{namespace}-{len(lab.processes)}"
        self.path = lab.dir / f"{self._name}.pcap"
        self._process = lab.start(
            namespace, "tcpdump", "-i", device, "-w", str(self.path), "-s", str(CAPTURED_BYTES), "-B", "16384",
            "--time-stamp-precision=nano", "--immediate-mode", "-U", "-Z", "root", "ip and (tcp or udp)", log=f"{self._name}.log")
        wait_until("tcpdump", lambda: "listening on" in self._log())

    def _log(self) -> str:
        if self._process.poll() is not None:
            raise Failed(f"tcpdump ended: {self._lab.tail(f'{self._name}.log')}")
        return self._lab.tail(f"{self._name}.log", 50)

    def packets(self) -> list[Packet]:
        """Ends the capture when no more packets arrive, and returns them."""
        size = -1
        while size != self.path.stat().st_size:
            size = self.path.stat().st_size
            time.sleep(0.3)
        stop(self._process)
        end = self._lab.tail(f"{self._name}.log", 50)
        if "\n0 packets dropped by kernel" not in end:
            raise Failed(f"tcpdump lost packets: {end}")
        found = list(read_pcap(self.path, self._gateway))
        self.path.unlink()
        return found


def read_pcap(path: pathlib.Path, gateway: bytes) -> Iterator[Packet]:
    data = path.read_bytes()
    if struct.unpack_from("<I", data)[0] != NANOSECOND_PCAP:
        raise Failed(f"{path.name}: not a nanosecond pcap")
    at = 24
    while at + 16 <= len(data):
        seconds, nanoseconds, captured, length = struct.unpack_from("<IIII", data, at)
        frame = data[at + 16 : at + 16 + captured]
        at += 16 + captured
        # The IP identification and everything from the ports on: routers and AQM change neither.
        yield Packet(seconds + nanoseconds / 1e9, frame[26:30] == gateway, length - 14, frame[18:20] + frame[34:])


@dataclasses.dataclass
class Sample:
    seconds: float
    window: int  # bytes
    slow_start: bool
    recovery: bool
    queue_ms: float | None  # smoothed RTT minus the least one; None: unknown


@contextlib.contextmanager
def watched(sample: Callable[[], Sample | None], every: float = SAMPLE_SECONDS) -> Iterator[list[Sample]]:
    """Takes samples until the end of the block."""
    samples: list[Sample] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(every):
            with contextlib.suppress(OSError, Failed, json.JSONDecodeError):
                one = sample()
                if one:
                    samples.append(one)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()


def quic_window(status_socket: pathlib.Path) -> Callable[[], Sample | None]:
    """Samples the only live connection of a gateway. Recovery lasts for a smoothed RTT after a loss."""
    remote, losses, until = "", 0, 0.0

    def sample() -> Sample | None:
        nonlocal remote, losses, until
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(5)
            s.connect(str(status_socket))
            s.shutdown(socket.SHUT_WR)  # the end of the question: otherwise the gateway waits for it
            data = b""
            while piece := s.recv(1 << 16):
                data += piece
        now = time.time()
        live = [c for c in json.loads(data)["connections"] if not c["closed"]]
        if not live or not live[0]["stats"]["packets_sent"]:
            return None
        stats: dict[str, Any] = live[0]["stats"]
        if remote != live[0]["remote"]:
            remote, losses, until = live[0]["remote"], 0, 0.0
        if stats["packets_lost"] > losses:
            losses, until = stats["packets_lost"], now + stats["smoothed_rtt_ns"] / 1e9
        return Sample(now, stats["cwnd_bytes"], stats["slow_start_ns"] == 0, now < until,
                      (stats["smoothed_rtt_ns"] - stats["min_rtt_ns"]) / 1e6)

    return sample


def tcp_window(lab: Lab, namespace: str, port: int) -> Callable[[], Sample | None]:
    """Samples the connection that has sent most from that port, by the kernel's statistics (ss -i)."""

    def sample() -> Sample | None:
        text = lab.run(namespace, "ss", "-Htin", "state", "established", f"sport = :{port}")
        now = time.time()
        best: Sample | None = None
        most = -1
        for line in text.splitlines():
            window = re.search(r"\bcwnd:(\d+)", line)
            sent = re.search(r"\bbytes_sent:(\d+)", line)
            size = re.search(r"\bmss:(\d+)", line)
            if not window or not sent or not size or int(sent[1]) <= most:
                continue
            most = int(sent[1])
            threshold = re.search(r"\bssthresh:(\d+)", line)
            retransmitted = re.search(r"\bretrans:(\d+)/", line)
            smoothed = re.search(r"\brtt:([\d.]+)", line)
            least = re.search(r"\bminrtt:([\d.]+)", line)
            best = Sample(
                now, int(window[1]) * int(size[1]), threshold is None or int(window[1]) < int(threshold[1]),
                bool(retransmitted and int(retransmitted[1])),
                float(smoothed[1]) - float(least[1]) if smoothed and least else None)
        return best

    return sample
