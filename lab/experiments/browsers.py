#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How often real clients acknowledge, with and without being asked for less.

The papers changed both ends. Here the gateway alone is ours: with the profile
bquic it asks for fewer acknowledgements (ACK_FREQUENCY), with standard it does
not. Firefox speaks the extension's first draft, quinn the current one; Chromium
and aioquic do not know it (Chromium acknowledges every 10th packet by itself).

Here: headless Firefox ESR and Chromium, quinn and aioquic download 20 MB from
the gateway by HTTP/3, over "wifi", one hop of 802.11n, and "wired", 50 Mbit/s,
20 ms, 100 packets. Browsers begin with HTTP/2, and Alt-Svc moves them to HTTP/3.
The gateway counts the packets acknowledged per ACK received, over the whole
connection.

Writes results/browsers.json (rows: lab/realtime.py). An interrupted run continues where it stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from lab import command, measure, medium, namespaces, realtime, results  # noqa: E402
from lab.flows.firefox import make_profile  # noqa: E402
from lab.results import Row, median, number  # noqa: E402
from lab.topology import Mesh  # noqa: E402

PEERS = ROOT / "package/bquic-gateway/test/peers"
RESULTS = ROOT / "results/browsers.json"
QUICK_RESULTS = ROOT / "build/lab/browsers.json"

CLIENTS = ("firefox", "chromium", "quinn", "aioquic")
PROFILES = ("standard", "bquic")
MEDIA = ("wifi", "wired")
SIZE = 20_000_000
PORT = 8443
SECONDS = 120  # time for a browser to start, to upgrade and to download
FIGURES = ("data_per_ack", "packets", "acks")

# Loads small objects until they arrive by HTTP/3, then the large one, and reports that.
PAGE = """<!doctype html><title>download</title><script>
(async () => {
    let protocol = ''
    for (let i = 0; i < 200 && protocol != 'h3'; i++) {
        const url = new URL('small?' + i, location).href
        await (await fetch(url, {cache: 'no-store'})).arrayBuffer()
        await new Promise(done => setTimeout(done, 50))
        protocol = performance.getEntriesByName(url)[0].nextHopProtocol
    }
    const reader = (await fetch('data', {cache: 'no-store'})).body.getReader()
    let size = 0
    for (let piece; !(piece = await reader.read()).done;)
        size += piece.value.length
    await fetch('small?done=' + size)
})()
</script>"""

FIREFOX_PREFERENCES: dict[str, object] = {
    "network.dns.forceResolve": Mesh.GATEWAY,
    "network.http.http3.enable": True,
    # Otherwise HTTP/3 accepts only certificate authorities built into Firefox.
    "network.http.http3.disable_when_third_party_roots_found": False,
}


def firefox(directory: pathlib.Path, authority: Any, url: str) -> list[str]:
    profile = directory / "profile"
    make_profile(profile, FIREFOX_PREFERENCES)
    for arguments in (["-N", "--empty-password"], ["-A", "-n", "test", "-t", "C,,", "-i", str(authority.ca)]):
        subprocess.run(["certutil", "-d", f"sql:{profile}", *arguments], check=True, capture_output=True)
    return ["env", f"HOME={directory}", "firefox-esr", "--headless", "--no-remote", "--profile", str(profile), url]


def chromium(directory: pathlib.Path, authority: Any, url: str) -> list[str]:
    from chromium import switches

    return ["/usr/bin/chromium", *switches(directory / "profile", authority, Mesh.GATEWAY), url]


def quinn(_directory: pathlib.Path, authority: Any, url: str) -> list[str]:
    return [str(ROOT / ".cache/quinn-peer/release/quinn-peer"), f"{Mesh.GATEWAY}:{PORT}", str(authority.ca), url]


def aioquic(_directory: pathlib.Path, authority: Any, url: str) -> list[str]:
    return [sys.executable, str(PEERS / "aioquic_client.py"), Mesh.GATEWAY, str(PORT), str(authority.ca),
            url[url.rindex("/"):]]


COMMANDS = {"firefox": firefox, "chromium": chromium, "quinn": quinn, "aioquic": aioquic}


class Bench:
    """A gateway at the far end of the medium, and clients at the near one."""

    def __init__(self, lab: namespaces.Lab, mesh: Mesh) -> None:
        from harness import Authority

        self.lab, self.mesh = lab, mesh
        self.authority = Authority(lab.dir)
        self.root = lab.dir / "site"
        self.root.mkdir()
        (self.root / "data").write_bytes(os.urandom(SIZE))
        (self.root / "small").write_text("small")
        (self.root / "page.html").write_text(PAGE)

    def download(self, client: str, profile: str) -> Row:
        """The gateway's counters for a download over HTTP/3."""
        from harness import Gateway, HOST

        directory = self.lab.dir / f"{client}-{profile}-{time.monotonic_ns()}"
        directory.mkdir()
        browser = client in ("firefox", "chromium")
        log = directory / "access.log"
        options = {"listen": f"{Mesh.GATEWAY}:{PORT}", "mesh": [Mesh.PREFIX], "mesh_profile": profile, "access_log": log}
        with Gateway(directory / "gateway", self.authority, [{"host": ["*"], "root": self.root}], options,
                     ("ip", "netns", "exec", self.mesh.gateway)) as gateway:
            self.mesh.medium.mark()
            url = f"https://{HOST}:{PORT}/{'page.html' if browser else 'data'}"
            process = self.lab.start(self.mesh.phone, *COMMANDS[client](directory, self.authority, url),
                                     log=f"{directory.name}/client.log", pipes=not browser)
            try:
                if browser:
                    done = re.compile(rf'/small\?done={SIZE} HTTP/3')
                    namespaces.wait_until(f"{client}'s download by HTTP/3",
                                          lambda: log.exists() and done.search(log.read_text()), SECONDS)
                else:
                    # quinn's output is the body.
                    with contextlib.suppress(ValueError):
                        process.communicate(timeout=SECONDS)
                    if process.returncode:
                        raise namespaces.Failed(f"{client}: {self.lab.tail(f'{directory.name}/client.log')}")
            finally:
                namespaces.stop(process)
            window = self.mesh.medium.mark()
            stats = max((c["stats"] for c in gateway.status()["connections"]), key=lambda s: s["packets_acked"])
        shutil.rmtree(directory, ignore_errors=True)
        if stats["packets_acked"] * 1452 < SIZE:
            raise namespaces.Failed(f"{client}: {stats['packets_acked']} packets acknowledged are too few for {SIZE} bytes")
        return {"data_per_ack": round(stats["packets_acked"] / stats["acks_received"], 3), "packets": stats["packets_acked"],
                "acks": stats["acks_received"], "rtt_ms": round(stats["min_rtt_ns"] / 1e6, 2), "window": window}


def measured(bench: Bench, client: str, profile: str) -> Row:
    return measure.counted(bench.mesh.medium, lambda: bench.download(client, profile), cpu_limit=measure.ANY_CPU)


def run(args: argparse.Namespace, path: pathlib.Path) -> list[Row]:
    sys.path[:0] = [str(PEERS.parent), str(PEERS)]
    subprocess.run(["cargo", "build", "--quiet", "--release", "--manifest-path", str(PEERS / "quinn/Cargo.toml")],
                   env={**os.environ, "CARGO_TARGET_DIR": str(ROOT / ".cache/quinn-peer")}, check=True)
    campaign = realtime.Campaign("browsers", args, path, FIGURES)
    for repetition in range(1, args.repetitions + 1):
        for name in MEDIA:
            keys: list[Row] = [{"medium": name, "profile": profile, "repetition": repetition} for profile in realtime.in_turn(PROFILES, repetition)]
            wanted = [(key, client) for key in keys for client in campaign.missing(key, CLIENTS)]
            if not wanted:
                continue
            with namespaces.Lab() as lab:
                bench = Bench(lab, Mesh(lab, medium.MEDIA[name], seed=repetition))
                for key, client in wanted:
                    campaign.add(
                        key, client, lambda: measured(bench, client, key["profile"]),
                        f"{repetition}/{args.repetitions} {name}: {{contender}}, {{profile}}: {{acks}} ACKs of {{packets}} packets")
    return campaign.rows


def of(rows: list[Row], name: str, client: str, profile: str) -> list[Row]:
    return [row for row in rows if (row["medium"], row["contender"], row["profile"]) == (name, client, profile)]


def report(rows: list[Row]) -> str:
    lines = []
    for name, client in ((name, client) for name in MEDIA for client in CLIENTS):
        standard, bquic = (of(rows, name, client, profile) for profile in PROFILES)
        if standard and bquic:
            before, after = median(standard, "data_per_ack"), median(bquic, "data_per_ack")
            assert before and after
            lines.append([name, client, number(median(standard, "acks"), ".0f"), number(median(bquic, "acks"), ".0f"),
                          number(before), number(after), number(after / before, ".2f"), f"{len(standard)}, {len(bquic)}"])
    return results.table(
        ["medium", "client", "ACKs, standard", "ACKs, bquic", "packets per ACK, standard", "bquic", "fewer ACKs, times", "runs"], lines,
    ) + "\n\n" + realtime.notes(rows)


def main() -> int:
    return realtime.main("browsers", __doc__ or "", (5, 1), RESULTS, QUICK_RESULTS, run, report, lambda rows: None)


if __name__ == "__main__":
    command(main)
