# SPDX-License-Identifier: Apache-2.0
"""Downloads over a mesh: the contenders, one measured run, and the conditions under which it counts."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import hashlib
import json
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from lab import BQUIC, ROOT
from lab.medium import LAG_LIMIT_MS, Medium
from lab.namespaces import Failed, wait_until
from lab.servers import Servers
from lab.topology import Mesh

PROFILES = ("standard", "bquic-2019", "bquic")  # contenders that are `bquic fetch` with that profile at both ends
RUN_SECONDS = 180  # longest download
MOST_RETRIES = 10  # of a run that does not count
# A run counts only if the ends get enough processor time: the share of the time in which one of their processes waited
# for a processor must be below this. With 2 cores to themselves, ends other than browsers have 0.02 to 0.25. A small
# page takes a fifth longer at 0.3 than at 0.15.
CPU_LIMIT = 0.3
ANY_CPU = float("inf")  # for runs that do not measure time

# The UDP payload of iperf and the papers: an IP packet of 1500 bytes.
UDP_PAYLOAD = 1472
IP_PACKET = 1500
# Offered loads of a flood, as multiples of what a chain carries when its hops share one channel. With other networks on the
# channel it carries less, with two channels more. An overloaded chain also carries less, because the first hop takes the
# airtime of the others.
FLOOD_LOADS = (0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.4, 2)
FLOOD_SECONDS = 2.0

# Before a command without a namespace: the kernel ends it with the thread that waits for it.
ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL")


class Disturbed(Failed):
    """A run that failed after others that did not count: so many because the emulator lagged, and because the ends waited for a processor."""

    def __init__(self, why: str, lagged: int = 0, waiting: int = 0) -> None:
        super().__init__(why)
        self.lagged, self.waiting = lagged, waiting


class TooSlow(Disturbed):
    """The emulator or the ends never kept up, on this machine at this time."""


@dataclasses.dataclass
class Download:
    """What both ends report about a transfer; None: unknown."""

    mbps: float
    bytes: int
    seconds: float  # from the first packet of the handshake to the last byte
    handshake_ms: float | None = None
    data_per_ack: float | None = None
    ipt_below_100us: float | None = None
    details: dict[str, Any] = dataclasses.field(default_factory=dict)


def commit() -> str:
    """The commit of the measured tree, with "+" if there are uncommitted changes of more than what measurements write."""
    def git(*command: str) -> str:
        return subprocess.run(["git", "-C", str(ROOT), *command], capture_output=True, text=True).stdout.strip()

    return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "-uno", "--", ".", ":!results", ":!docs", ":!README.md") else "")


def at_once(jobs: int, one: Callable[[Any], None], items: Iterable[Any]) -> None:
    """Calls ONE with each item, in up to JOBS threads. After an exception, which it raises, it begins no further call."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(one, item) for item in items]
        try:
            for future in futures:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def tcp(servers: Servers) -> Download:
    """curl by HTTPS over TCP CUBIC, from the same process that serves HTTP/3."""
    return curl(servers, servers.gateway("standard"))


def tcp_origin(servers: Servers) -> Download:
    """TCP from the origin over the mesh, without a relay."""
    return curl(servers, servers.gateway("standard", "origin"))


def tcp_relay(servers: Servers) -> Download:
    """TCP from the origin, carried over the mesh by relay and gateway."""
    try:
        result = curl(servers, servers.relay("bquic"))
        carried = servers.relay_status()["carried"]
        if carried["total"] == 0 or carried["down_bytes"] < result.bytes:
            raise Failed(f"the relay did not carry the whole transfer: carried {carried}")
        return result
    finally:
        servers.stop_relay()


def curl(servers: Servers, url: str) -> Download:
    """The file by HTTPS over TCP."""
    output = servers.lab.dir / "download"
    answer = json.loads(
        servers.lab.run(
            servers.mesh.phone, "curl", "--silent", "--show-error", "--fail", "--insecure",
            "--output", str(output), "--write-out", "%{json}", url, timeout=RUN_SECONDS,
        )
    )
    _check(servers, output)
    size, seconds = answer["size_download"], answer["time_total"]
    return Download(
        mbps=size * 8 / seconds / 1e6, bytes=size, seconds=seconds, handshake_ms=answer["time_appconnect"] * 1e3
    )


def _check(servers: Servers, output: pathlib.Path) -> None:
    with open(output, "rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != servers.sha256:
            raise Failed(f"{output.stat().st_size} bytes arrived, not the {servers.size} that were served")
    output.unlink()


def _fetch(servers: Servers, url: str, contender: str) -> Download:
    output = servers.lab.dir / "download"
    config, profile = servers.config(contender)
    answer = json.loads(
        servers.lab.run(
            servers.mesh.phone, str(BQUIC), "fetch", "--config", str(config), "--profile", profile, "--insecure",
            "--json", "-o", str(output), url, timeout=RUN_SECONDS,
        )
    )
    _check(servers, output)
    return Download(
        mbps=answer["mbps"], bytes=answer["bytes"], seconds=answer["seconds"], handshake_ms=answer["handshake_ms"],
        data_per_ack=answer["data_per_ack"], details={"client": answer},
    )


def bquic(contender: str) -> Callable[[Servers], Download]:
    def run(servers: Servers) -> Download:
        result = _fetch(servers, servers.gateway(contender), contender)
        # There is no NAT on the way.
        local = result.details["client"]["local_addr"]

        def sender() -> dict[str, Any] | None:
            connections = servers.status(contender)["connections"]
            return next((c for c in connections if c["remote"] == local and c["closed"]), None)

        wait_until("the gateway to see the connection closed", lambda: sender() is not None)
        gateway = sender()
        assert gateway
        result.ipt_below_100us = gateway["ipt_below_100us"]
        result.details["gateway"] = gateway
        return result

    return run


def caddy(binary: pathlib.Path) -> Callable[[Servers], Download]:
    """Caddy's HTTP/3; the client is the stock one."""
    return lambda servers: _fetch(servers, servers.caddy(binary), "standard")


FLOOD = """
import socket, sys, time
host, size, mbps, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
s.connect((host, 9))
packet, gap = bytes(size), (size + 28) * 8 / mbps / 1e6
start, sent = time.monotonic(), 0
while (now := time.monotonic() - start) < seconds:
    while sent * gap < now:
        try: s.send(packet)
        except ConnectionRefusedError: pass
        sent += 1
    time.sleep(0.001)
"""


def udp(servers: Servers) -> Download:
    """The medium's ceiling: the best goodput of floods at several loads."""
    mesh = servers.mesh
    capacity = mesh.kind.capacity_mbps / (mesh.hops if mesh.kind.wireless else 1)
    best = Download(0, 0, FLOOD_SECONDS)
    servers.lab.run(mesh.phone, "nft", "add table inet sink; add chain inet sink in { type filter hook input priority 0; };"
                    " add rule inet sink in udp dport 9 drop")
    for load in FLOOD_LOADS:
        process = servers.lab.start(mesh.gateway, sys.executable, "-c", FLOOD, Mesh.PHONE, str(UDP_PAYLOAD), str(capacity * load),
                                    str(FLOOD_SECONDS + 1), log="flood.log")
        time.sleep(0.8)  # until queues are full
        mesh.medium.mark()
        time.sleep(FLOOD_SECONDS)
        window = mesh.medium.mark()
        process.wait()
        down = window["down"]["delivered_bytes"] * UDP_PAYLOAD / IP_PACKET
        mbps = down * 8 / window["seconds"] / 1e6
        lagged = window["lag_ms"] >= LAG_LIMIT_MS  # might have been the best, so the run does not count
        if lagged or mbps > best.mbps:
            best = Download(mbps, int(down), window["seconds"], details={"window": window, "load": load})
        drained(mesh.medium)
        if lagged:
            break
    servers.lab.run(mesh.phone, "nft", "delete table inet sink")
    return best


def drained(medium: Medium) -> None:
    """Waits until nothing arrives any more: what is still in the queues would slow down the next run."""
    def silent() -> bool:
        medium.mark()
        time.sleep(0.3)
        return bool(medium.mark()["down"]["delivered"] == 0)

    wait_until("the medium's queues to be empty", silent, 60)


def contenders(caddy_binary: pathlib.Path | None = None) -> dict[str, Callable[[Servers], Download]]:
    runs: dict[str, Callable[[Servers], Download]] = {"tcp": tcp}
    runs |= {name: bquic(name) for name in PROFILES}
    runs |= {"tcp-origin": tcp_origin, "tcp-relay": tcp_relay, "udp": udp}
    if caddy_binary:
        runs["caddy-h3"] = caddy(caddy_binary)
    return runs


def kept_up(
    medium: Medium, run: Callable[[], Any], note: Callable[[str], None] = progress, beyond: Medium | None = None,
    cpu_limit: float | None = None,
) -> tuple[Any, dict[str, Any], int]:
    """Repeats the run until the emulator, and BEYOND, kept up, and the ends got enough processor time. Returns the run's
    result, the medium's window of it, and how many runs were discarded before; conditions() reports both. A failed run
    raises Failed, unless the emulator lagged: then it is discarded, too."""
    cpu_limit = CPU_LIMIT if cpu_limit is None else cpu_limit
    lagged = waiting = 0
    while lagged + waiting <= MOST_RETRIES:
        medium.mark()
        if beyond is not None:
            beyond.mark()
        waited, begun = medium.lab.cpu_waited(), time.monotonic()
        result: Any = None
        failure: Failed | None = None
        try:
            result = run()
        except Failed as error:
            failure = error
        pressure = (medium.lab.cpu_waited() - waited) / (time.monotonic() - begun)
        window = medium.mark()
        if beyond is not None:
            window["lag_ms"] = max(window["lag_ms"], beyond.mark()["lag_ms"])
        own = result.details if isinstance(result, Download) else result
        if isinstance(own, dict) and "window" in own:
            marked = own.pop("window")  # by the run itself, so the last mark has only what came after it
            window = marked | {"lag_ms": max(marked["lag_ms"], window["lag_ms"])}
        window["cpu_pressure"], window["retries_cpu"] = pressure, waiting
        if window["lag_ms"] >= LAG_LIMIT_MS:
            lagged += 1
            note(f"  discarded: the emulator lagged by {window['lag_ms']:.1f} ms in the mean{f'; {failure}' if failure else ''}")
        elif failure:
            raise Disturbed(f"{failure} (meanwhile the emulator lagged by {window['lag_ms']:.1f} ms in the mean)", lagged, waiting) from failure
        elif pressure >= cpu_limit:
            waiting += 1
            note(f"  discarded: the ends waited for a processor in {100 * pressure:.0f} % of the time")
        else:
            return result, window, lagged + waiting
    raise TooSlow(f"the emulator lagged by {LAG_LIMIT_MS:g} ms or more in {lagged} runs, and the ends waited for a processor in"
                  f" {100 * cpu_limit:.0f} % of the time or more in {waiting}: the machine is too busy or too slow", lagged, waiting)


def conditions(window: dict[str, Any], discarded: int) -> dict[str, Any]:
    """The columns of a row that tell how its run, and discarded runs before it, were disturbed."""
    return {"lag_ms": round(window["lag_ms"], 4), "cpu_pressure": round(window["cpu_pressure"], 4), "retries": discarded,
            "retries_cpu": window["retries_cpu"]}


def counted(
    medium: Medium, run: Callable[[], dict[str, Any]], beyond: Medium | None = None, cpu_limit: float | None = None,
) -> dict[str, Any]:
    """The figures of a run that counts (kept_up), with its conditions."""
    figures, window, discarded = kept_up(medium, run, beyond=beyond, cpu_limit=cpu_limit)
    return {**figures, **conditions(window, discarded)}


def measure(servers: Servers, contender: str, run: Callable[[Servers], Download]) -> dict[str, Any]:
    """One row of results."""
    mesh = servers.mesh
    result, window, discarded = kept_up(mesh.medium, lambda: run(servers), beyond=mesh.beyond)
    down, up = window["down"], window["up"]
    # Counted on the medium, for contenders whose ends do not report it.
    wire_data_per_ack = down["delivered"] / up["delivered"] if up["delivered"] else None
    wire_ipt = down["sent_close"] / down["sent"] if down["sent"] else None
    is_flood = contender == "udp"
    data_per_ack = result.data_per_ack
    if data_per_ack is None and not is_flood:
        data_per_ack = wire_data_per_ack
    ipt = result.ipt_below_100us
    if ipt is None and not is_flood:
        ipt = wire_ipt
    return {
        "medium": mesh.kind.name,
        "hops": mesh.hops,
        "contender": contender,
        "mbps": round(result.mbps, 3),
        "data_per_ack": _rounded(data_per_ack),
        "ipt_below_100us": _rounded(ipt),
        "ampdu": _rounded(down.get("mpdus_per_ampdu")),
        **conditions(window, discarded),
        "ap": mesh.ap if mesh.kind.wireless else None,
        "bytes": result.bytes,
        "seconds": round(result.seconds, 4),
        "handshake_ms": _rounded(result.handshake_ms),
        "wire": {
            "data_per_ack": _rounded(wire_data_per_ack),
            "ipt_below_100us": _rounded(wire_ipt),
            "busy": _rounded(window.get("busy")),
            "dropped": window["dropped"],
            "marked": window["marked"],
            "retried": down.get("retried"),
            "mpdus": down.get("mpdus"),
        },
        "details": result.details,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
