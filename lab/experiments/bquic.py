#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""BQUIC against TCP, stock quic-go, the paper's BQUIC and Caddy, on five media.

The paper (BQUIC, WCNC 2019) measured 20 to 31 % more throughput than the QUIC
of Chromium 2018 in an 802.11n mesh. Here all contenders download the same file
over the same emulated media, in turn, and each gets the medium's seeds in the
same order.

Writes results/bquic.json (rows: lab/realtime.py). An interrupted run continues where it stopped.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from lab import command, measure, medium, namespaces, realtime, results  # noqa: E402
from lab.measure import progress  # noqa: E402
from lab.results import Row, interval, median, number, spread  # noqa: E402
from lab.servers import Servers  # noqa: E402
from lab.topology import Mesh  # noqa: E402

RESULTS = ROOT / "results/bquic.json"
QUICK_RESULTS = ROOT / "build/lab/bquic.json"

CADDY_VERSION = "v2.11.9"
CADDY = ROOT / f".cache/caddy-{CADDY_VERSION}/caddy"

# Medium, hops, bytes: 10 MB, or less where 1 % loss would make that take minutes.
MATRIX = [
    ("wifi", 1, 10_000_000),
    ("wifi", 3, 10_000_000),
    ("wired", 1, 10_000_000),
    ("lossy", 1, 3_000_000),
    ("shallow", 1, 10_000_000),
]
CONTENDERS = ["tcp", "standard", "bquic-2019", "bquic", "caddy-h3", "udp"]

FIGURES = ("mbps", "seconds", "size")

ACK_AFTER = 100  # bquic-2019 acknowledges every second one of the first ACK_AFTER packets (profile option ack_after)


def build_caddy() -> pathlib.Path:
    if not CADDY.exists():
        progress(f"building Caddy {CADDY_VERSION} in .cache (once; takes a few minutes)")
        done = subprocess.run(
            ["go", "install", f"github.com/caddyserver/caddy/v2/cmd/caddy@{CADDY_VERSION}"],
            env={**os.environ, "GOBIN": str(CADDY.parent), "GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"},
            cwd="/", capture_output=True, text=True,
        )
        if done.returncode != 0:
            raise namespaces.Failed(f"Caddy {CADDY_VERSION} does not build: {done.stderr.strip()[-500:]}")
    return CADDY


def run(args: argparse.Namespace, path: pathlib.Path) -> list[Row]:
    runs = measure.contenders(build_caddy())
    campaign = realtime.Campaign("bquic", args, path, FIGURES, [CADDY])
    for repetition in range(1, args.repetitions + 1):
        for name, hops, size in MATRIX:
            key: Row = {"medium": name, "hops": hops, "size": size // 3 if args.quick else size, "repetition": repetition}
            missing = campaign.missing(key, CONTENDERS)
            kind = medium.MEDIA[name]
            # With random loss, each contender gets a new medium, so that all lose the same
            # packets. Otherwise a few early losses would decide the comparison.
            for together in [[c] for c in missing] if "--loss" in kind.flags else [missing] if missing else []:
                with namespaces.Lab() as lab:
                    servers = Servers(lab, Mesh(lab, kind, hops, seed=repetition), key["size"])
                    for contender in together:
                        campaign.add(key, contender, lambda: download(servers, contender, runs[contender]),
                                     f"{repetition}/{args.repetitions} {name} {hops} hop{'s' * (hops > 1)} {{contender}}: {{mbps:.1f}} Mbit/s")
    return campaign.rows


def download(servers: Servers, contender: str, run: Callable[[Servers], measure.Download]) -> Row:
    row = measure.measure(servers, contender, run)
    row["stats"] = statistics_of(row.pop("details"))
    return row


def statistics_of(details: Row) -> Row:
    """The counters of both ends, without histograms."""
    kept: Row = {}
    for end in ("client", "gateway"):
        stats = details.get(end, {}).get("stats", {})
        if stats:
            kept[end] = {k: v for k, v in stats.items() if isinstance(v, (int, float))}
    return kept


def of(rows: list[Row], name: str, hops: int, contender: str) -> list[Row]:
    return [r for r in rows if (r["medium"], r["hops"], r["contender"]) == (name, hops, contender)]


def gain(rows: list[Row], name: str, hops: int, base: str, contender: str = "bquic") -> list[float]:
    """A contender's throughput over another's, repetition by repetition."""
    return realtime.gains(of(rows, name, hops, base), of(rows, name, hops, contender), "mbps")


def report(rows: list[Row]) -> str:
    """Medians with their intervals, and the targets."""
    lines = []
    for name, hops, _ in MATRIX:
        for contender in CONTENDERS:
            some = of(rows, name, hops, contender)
            if not some:
                continue
            lines.append([
                f"{name}, {hops} hop{'s' * (hops > 1)}" if medium.MEDIA[name].wireless else name,
                contender, spread(results.figures(some, "mbps")), spread(gain(rows, name, hops, "standard", contender), ".3f"),
                number(median(some, "data_per_ack")), number(median(some, "ipt_below_100us"), ".0%"),
                number(median(some, "ampdu")), str(len(some)),
            ])
    text = results.table(["medium", "contender", "Mbit/s", "/standard", "data/ACK", "<100us", "MPDU/A-MPDU", "runs"], lines)
    targets = [
        ("wifi, 3 hops: bquic / standard", gain(rows, "wifi", 3, "standard"), 1.20),
        ("wifi, 3 hops: bquic / tcp", gain(rows, "wifi", 3, "tcp"), 1.0),
        ("wifi, 1 hop: bquic / standard", gain(rows, "wifi", 1, "standard"), 1.03),
        *((f"{name}: bquic / standard", gain(rows, name, 1, "standard"), 0.98) for name in ("wired", "lossy", "shallow")),
        (f"bquic-2019, RTT 20 ms: data packets per ACK after the first {ACK_AFTER}", data_per_ack_later(of(rows, "wired", 1, "bquic-2019")), 9.0),
    ]
    text += "\n\n" + results.table(
        ["target", "measured", "goal", ""],
        [[what, spread(values, ".3f"), f"{goal:.2f}", "not measured" if not values else "met" if interval(values)[0] >= goal else "MISSED"]
         for what, values, goal in targets],
    )
    return text + "\n\n" + realtime.notes(rows)


def paper(rows: list[Row]) -> list[list[str]]:
    """The thesis's result over a wire, where the gain came from the lack of pacing."""
    what, figure = "BQUIC over QUIC, wire only (thesis)", "+5 %"
    values = gain(rows, "wired", 1, "standard")
    if not values:
        return [results.not_run(what, figure)]
    middle, low, high = (100 * (g - 1) for g in interval(values))
    return [[what, figure, f"{middle:+.1f} % ({low:+.1f} to {high:+.1f})", results.verdict(1 + middle / 100, 1.05, 1.05)]]


WHY_NOT = (
    "Where a gain on the wire is not reproduced: `bquic` behaves like stock QUIC there until the path has shown a queue. The "
    "papers' form, which sends fewer ACKs everywhere, is slower with packet loss and with small buffers (`bquic-2019` above)."
)


def data_per_ack_later(rows: list[Row]) -> list[float]:
    """Data per ACK without the first ACK_AFTER packets, of which every second one is acknowledged."""
    values = []
    for row in rows:
        client = row["stats"].get("client", {})
        acks = client.get("acks_sent", 0) - ACK_AFTER // 2
        if acks > 0:
            values.append((client["packets_received"] - ACK_AFTER) / acks)
    return values


def main() -> int:
    return realtime.main("bquic", __doc__ or "", (5, 2), RESULTS, QUICK_RESULTS, run, report, lambda rows: None)


if __name__ == "__main__":
    command(main)
