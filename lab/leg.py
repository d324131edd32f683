# SPDX-License-Identifier: Apache-2.0
"""What only the mesh leg's experiment measures: two connections, uploads, and the sender's queue."""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from lab import BQUIC, measure, namespaces, traces
from lab.measure import Download
from lab.results import Row
from lab.servers import Servers

PROFILES = ("standard", "bquic-2019", "bquic-thesis", "modquic", "bquic")
SAMPLED = ("tcp", *PROFILES)  # contenders with a window that can be sampled


def two_connections(profile: str) -> Callable[[Servers], Download]:
    """Each connection loads one half. Measured from the start of the first to the end of the last."""

    def run(servers: Servers) -> Download:
        half = servers.root / "half"
        if not half.exists():
            half.write_bytes((servers.root / "data").read_bytes()[: servers.size // 2])
        url = f"{servers.site(profile)}/half"
        config, name = servers.config(profile)
        command = [str(BQUIC), "fetch", "--config", str(config), "--profile", name, "--insecure", "--json", url]
        answers: list[Row] = []
        errors: list[Exception] = []

        def fetch() -> None:
            try:
                answers.append(json.loads(servers.lab.run(servers.mesh.phone, *command, timeout=measure.RUN_SECONDS)))
            except Exception as error:  # in a thread: raised below
                errors.append(error)

        threads = [threading.Thread(target=fetch) for _ in range(2)]
        start = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - start
        if errors:
            raise errors[0]
        size = sum(a["bytes"] for a in answers)
        if size != servers.size // 2 * 2:
            raise namespaces.Failed(f"{size} bytes arrived, not the {servers.size} that were served")
        return Download(
            mbps=size * 8 / seconds / 1e6, bytes=size, seconds=seconds,
            data_per_ack=sum(a["stats"]["packets_received"] for a in answers)
            / max(1, sum(a["stats"]["acks_sent"] for a in answers)))

    return run


def upload(servers: Servers, contender: str) -> Download:
    """The file sent to the gateway, whose server has taken all of it when it answers."""
    file = str(servers.root / "data")
    if contender == "tcp":
        answer = json.loads(servers.lab.run(
            servers.mesh.phone, "curl", "--silent", "--show-error", "--fail", "--insecure", "--upload-file", file,
            "--write-out", "%{json}", servers.gateway("standard"), timeout=measure.RUN_SECONDS))
        size, seconds, handshake = answer["size_upload"], answer["time_total"], answer["time_appconnect"] * 1e3
    else:
        config, profile = servers.config(contender)
        answer = json.loads(servers.lab.run(
            servers.mesh.phone, str(BQUIC), "fetch", "--config", str(config), "--profile", profile, "--insecure", "--json",
            "--upload", file, servers.gateway(contender), timeout=measure.RUN_SECONDS))
        size, seconds, handshake = answer["bytes"], answer["seconds"], answer["handshake_ms"]
    if size != servers.size:
        raise namespaces.Failed(f"{size} bytes were taken, not {servers.size}")
    return Download(mbps=size * 8 / seconds / 1e6, bytes=size, seconds=seconds, handshake_ms=handshake)


def window(servers: Servers, contender: str) -> Callable[[], traces.Sample | None]:
    """Samples the window of a download's sender, of a contender in SAMPLED."""
    if contender == "tcp":
        port = urlsplit(servers.site("standard")).port
        assert port
        return traces.tcp_window(servers.lab, servers.mesh.gateway, port)
    servers.site(contender)
    return traces.quic_window(servers.status_socket(contender))


def mean_queue(samples: list[traces.Sample]) -> float | None:
    """The mean queue in ms, without the first third of the samples; None: unknown."""
    queues = [s.queue_ms for s in samples if s.queue_ms is not None]
    return round(statistics.fmean(queues[len(queues) // 3 :]), 2) if queues else None
