#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long small requests take while a neighbour downloads

Not in the papers. The node is three hops from the gateway, the origin 20 or 45 ms beyond it. A client requests 1 kB by HTTPS five times a
second, each time on a new connection, and a name by DNS ten times a second, types over ssh, and has a G.711 call (delays are one-way, in
both directions), while other clients of the same node download or upload as fast as they can. "tcp": the relay is
off. "relay-bquic": it is on, and carries all TCP; DNS and the call bypass it, as is the default. "relay-bquic-udp": it also carries
these (`udp_port`). The relay has just begun, so all transfers share its first connection; a relay in use gives each client one of its own
("beside", below). A missing answer counts as 2 s. Every repetition is one seed and one medium for all contenders, which take turns.

Writes results/latency.json (rows: lab/realtime.py) and docs/results/latency.svg. An interrupted run continues where it
stopped.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import sys
from typing import Any
from urllib.parse import urlsplit

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from lab import command, measure, medium, namespaces, realtime, results  # noqa: E402
from lab.latency import clients, origin  # noqa: E402
from lab.results import Row, interval, median, number, spread  # noqa: E402
from lab.servers import Servers  # noqa: E402
from lab.topology import Mesh  # noqa: E402

RESULTS = ROOT / "results/latency.json"
QUICK_RESULTS = ROOT / "build/lab/latency.json"
FIGURE = ROOT / "docs/results/latency.svg"

CENTRE: Row = {"hops": 3, "mcs": 7, "beyond_ms": 20, "downloads": 0, "uploads": 0}
AXES: list[Row] = [{}, {"downloads": 1}, {"downloads": 4}, {"uploads": 1}, {"downloads": 1, "uploads": 1},
                   {"downloads": 1, "beyond_ms": 45}]
QUICK_AXES: list[Row] = [{}, {"downloads": 1}]
CONTENDERS = ["tcp", "relay-bquic"]
UDP = "relay-bquic-udp"
SECONDS, QUICK_SECONDS = 12.0, 6.0
FIRST = 18  # first repetition, and seed: smaller ones were used to choose how a window is found, or with earlier senders
CLIENTS = [f"10.77.1.{i}" for i in range(3, 8)]  # clients with bulk transfers; the household is the phone
# What relay-bquic must reach, in ms, by what and by what it is beside.
TARGETS: dict[tuple[str, str], dict[str, float]] = {
    ("request", "1 download, 20 ms"): {"median_ms": 150, "p90_ms": 220},
    ("request", "4 downloads, 20 ms"): {"median_ms": 200}, ("request", "1 upload, 20 ms"): {"median_ms": 200},
    **{("dns", f"{beside}, 20 ms"): {"median_ms": 70} for beside in ("1 download", "4 downloads", "1 upload")},
    **{("call", f"{beside}, 20 ms"): {"p99_ms": 100} for beside in ("1 download", "4 downloads", "1 upload")},
}
LEAST_BULK = 1.05  # of TCP's, beside one download
FIGURES = ("median_ms", "p90_ms", "p99_ms")


def setting(axis: Row) -> Row:
    return {**CENTRE, **axis}


def kind(key: Row) -> medium.Kind:
    return medium.Kind("wifi", ("--mcs", str(key["mcs"]), "--width", "20"), 60, wireless=True)


class Scene:
    """The mesh, its origin, and the clients of a node."""

    def __init__(self, lab: namespaces.Lab, key: Row) -> None:
        self.lab, self.key = lab, key
        self.mesh = Mesh(lab, kind(key), key["hops"], seed=key["repetition"], beyond_ms=key["beyond_ms"])
        self.servers = Servers(lab, self.mesh, 1000)
        (self.servers.root / "small").write_bytes(bytes(1000))
        for address in CLIENTS:
            self.mesh.add_client(lab, address)
        lab.serve("the origin", self.mesh.origin, sys.executable, str(ROOT / "lab/latency/origin.py"), log="origin.log",
                  ready=lambda: f":{origin.CALL}" in lab.run(self.mesh.origin, "ss", "-Hlun"))

    def run(self, contender: str, seconds: float) -> dict[str, Any]:
        """The measurements of a household and its neighbours; raises Failed."""
        port = str(urlsplit(self.servers.site("standard", "origin")).port)
        if contender != "tcp":
            self.servers.relay("bquic", udp_ports=(origin.DNS, origin.CALL) if contender == UDP else ())
        bulk = CLIENTS[: self.key["downloads"] + self.key["uploads"]]
        command = [sys.executable, str(ROOT / "lab/latency/clients.py"), Mesh.PHONE, Mesh.ORIGIN, port, str(seconds),
                   str(self.key["downloads"]), str(self.key["uploads"]), *bulk]
        try:
            said: dict[str, Any] = json.loads(self.lab.run(self.mesh.phone, *command, timeout=seconds + 60))
            if contender != "tcp":
                carried = self.servers.relay_status()["carried"]
                if carried["total"] < len(said["request"]):
                    raise namespaces.Failed(f"the relay did not carry all connections: carried {carried}")
                flows = self.servers.relay_status()["udp"]["total"]
                if (flows > 0) != (contender == UDP):
                    raise namespaces.Failed(f"the relay carried {flows} UDP flows")
        finally:
            self.servers.stop_relay()
        window = self.mesh.medium.mark()
        measure.drained(self.mesh.medium)
        return {**said, "window": window}

    def rows(self, contender: str, seconds: float) -> dict[str, Row]:
        """The rows by kind of request."""
        said, window, discarded = measure.kept_up(
            self.mesh.medium, lambda: self.run(contender, seconds), beyond=self.mesh.beyond)
        bits = said["bits_a_second"]
        return {what: {**figures(said[what]), "bulk_mbps": round(bits / 1e6, 3) if bits else None,
                       **measure.conditions(window, discarded)} for what in clients.WHAT}


def figures(took: list[float]) -> Row:
    cuts = statistics.quantiles(took, n=100, method="inclusive") if len(took) > 1 else 99 * took
    return {"median_ms": round(statistics.median(took), 2), "p90_ms": round(cuts[89], 2), "p99_ms": round(cuts[98], 2),
            "count": len(took), "lost": sum(ms >= clients.LOST_MS for ms in took)}


def run(args: argparse.Namespace, path: pathlib.Path) -> list[Row]:
    campaign = realtime.Campaign("latency", args, path, FIGURES)
    axes, seconds = (QUICK_AXES, QUICK_SECONDS) if args.quick else (AXES, SECONDS)
    wanted = [{**setting(axis), "repetition": repetition} for repetition in range(FIRST, FIRST + args.repetitions) for axis in axes]
    for i, key in enumerate(wanted, 1):
        missing = campaign.missing({**key, "what": clients.WHAT[-1]}, [*CONTENDERS, UDP])
        if not missing:
            continue
        with namespaces.Lab() as lab:
            scene = Scene(lab, key)
            for contender in missing:
                rows: dict[str, Row] = {}

                def one(what: str) -> Row:
                    if not rows:
                        rows.update(scene.rows(contender, seconds))
                    return rows[what]

                for what in clients.WHAT:
                    of = {**key, "what": what}
                    if not campaign.has({**of, "contender": contender}):
                        campaign.add(of, contender, lambda: one(what),
                                     f"{i}/{len(wanted)} {describe(key)}: {{contender}} {what} {{median_ms:.0f}}, {{p99_ms:.0f}} ms,"
                                     " bulk {bulk_mbps} Mbit/s")
    return campaign.rows


def describe(key: Row) -> str:
    load = [f"{key[n]} {n if key[n] > 1 else n[:-1]}" for n in ("downloads", "uploads") if key[n]]
    return f"{' and '.join(load) or 'nothing'}, {key['beyond_ms']} ms"


def of(rows: list[Row], axis: Row, what: str, contender: str) -> list[Row]:
    key = {**setting(axis), "what": what, "contender": contender}
    return [r for r in rows if all(r[k] == v for k, v in key.items())]


def report(rows: list[Row]) -> str:
    lines = []
    for axis in AXES:
        for what in clients.WHAT:
            base = of(rows, axis, what, CONTENDERS[0])
            for contender in [*CONTENDERS, UDP]:
                some = of(rows, axis, what, contender)
                if not some:
                    continue
                target = TARGETS.get((what, describe(setting(axis))), {}) if contender != "tcp" else {}
                lines.append([
                    describe(setting(axis)), what, contender,
                    spread(results.figures(some, "median_ms"), ".0f"),
                    number(median(some, "p90_ms"), ".0f"), number(median(some, "p99_ms"), ".0f"),
                    spread(realtime.gains(base, some, "median_ms")), spread(results.figures(some, "bulk_mbps"), ".1f"),
                    ", ".join(f"{key.removesuffix('_ms')} {most:g}" for key, most in target.items()) or "-",
                    "-" if not target else "met" if all((median(some, key) or 0) <= most for key, most in target.items()) else "MISSED",
                    str(sum(r["lost"] for r in some)), str(len(some))])
    text = results.table(["beside", "what", "contender", "median ms", "90 %", "99 %", "/tcp", "bulk Mbit/s", "at most", "", "lost", "runs"], lines)
    base, relayed = (of(rows, {"downloads": 1}, clients.WHAT[0], c) for c in CONTENDERS)
    if gain := realtime.gains(base, relayed, "bulk_mbps"):
        text += (f"\n\nThe download itself, beside all these, {CENTRE['beyond_ms']} ms, is {spread(gain, '.3f')} times as fast as by tcp;"
                 f" at least {LEAST_BULK}: {'met' if interval(gain)[0] >= LEAST_BULK else 'MISSED'}")
    return text + "\n\n" + realtime.notes([r for r in rows if r["what"] == clients.WHAT[0]])  # a run has a row for each


def draw(rows: list[Row]) -> None:
    with results.drawing(FIGURE, (9, 3.4), 1, len(clients.WHAT)) as panels:
        axes = [a for a in AXES if of(rows, a, clients.WHAT[0], CONTENDERS[0])]
        for panel, what in zip(panels, clients.WHAT):
            for k, contender in enumerate(CONTENDERS):
                found = [(i, some) for i, a in enumerate(axes) if (some := of(rows, a, what, contender))]
                at = [i + 0.3 * (k - 0.5) for i, _ in found]
                panel.bar(at, [median(some, "median_ms") or 0 for _, some in found], 0.28, label=contender)
                panel.plot(at, [median(some, "p90_ms") for _, some in found], "k_", markersize=6)
            panel.set_xticks(range(len(axes)), [describe(setting(a)) for a in axes], fontsize=6, rotation=35, ha="right")
            panel.set_title(f"{what}, ms (bar: median, line: 90 %)", fontsize=8)
        panels[0].legend(fontsize=6)


def main() -> int:
    return realtime.main("latency", __doc__ or "", (10, 2), RESULTS, QUICK_RESULTS, run, report, draw)


if __name__ == "__main__":
    command(main)
