#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""BQUIC against TCP, stock quic-go, the paper's BQUIC and Caddy, on five media.

The paper (BQUIC, WCNC 2019) measured 20 to 31 % more throughput than the QUIC
of Chromium 2018 in an 802.11n mesh. Here all contenders download the same file
over the same emulated media, in turn, and each gets the medium's seeds in the
same order.

Writes results/bquic.json (rows: lab/results.py). An interrupted run continues
where it stopped as long as the measured binary and the options are the same.
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

from lab import measure, medium, namespaces, realtime, results  # noqa: E402
from lab.measure import progress  # noqa: E402
from lab.results import Row, median, number  # noqa: E402
from lab.topology import Mesh  # noqa: E402

RESULTS = ROOT / "results/bquic.json"
UNFINISHED = ROOT / "build/lab/bquic.json"
QUICK_RESULTS = ROOT / "build/lab/bquic-quick.json"

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

BUSY_PRESSURE = 0.5  # share of the time; a run has less on an otherwise idle machine with 2 cores

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


def known(quick: bool) -> Row:
    """What rows of an interrupted run must have in common with new ones."""
    return {"binary": realtime.binary(), "quick": quick}


def same(row: Row, key: Row) -> bool:
    return all(row.get(k) == v for k, v in key.items())


def downloads(args: argparse.Namespace, repetition: int, common: Row, rows: list[Row], path: pathlib.Path) -> None:
    for name, hops, size in MATRIX:
        size = size // 3 if args.quick else size
        keys = {
            contender: {"kind": "download", "medium": name, "hops": hops, "contender": contender,
                        "repetition": repetition, "size": size, **common}
            for contender in args.contenders
        }
        # Each repetition starts with another contender.
        turn = repetition % len(args.contenders)
        missing = [
            c for c in args.contenders[turn:] + args.contenders[:turn] if not any(same(row, keys[c]) for row in rows)
        ]
        if not missing:
            continue
        runs = measure.contenders(build_caddy() if "caddy-h3" in missing else None)
        kind = medium.MEDIA[name]
        # With random loss, each contender gets a new medium, so that all lose the same
        # packets. Otherwise a few early losses would decide the comparison.
        for together in [[c] for c in missing] if "--loss" in kind.flags else [missing]:
            with namespaces.Lab() as lab:
                mesh = Mesh(lab, kind, hops, seed=repetition)
                servers = measure.Servers(lab, mesh, size)
                for contender in together:
                    row = tried(lambda: measure.measure(servers, contender, runs[contender]))
                    row["stats"] = statistics_of(row.pop("details"))
                    rows.append({**keys[contender], **row, "seed": repetition, "commit": measure.commit()})
                    results.write(path, rows, results.check)
                    progress(f"{repetition}/{args.repetitions} {name} {hops} hop{'s' * (hops > 1)} {contender}:"
                             f" {row['mbps']:.1f} Mbit/s, lag {row['lag_ms']:.2f} ms")


def tried(run: Callable[[], Row]) -> Row:
    """Runs once more after a failure, which the row then records."""
    try:
        return {**run(), "failures": 0}
    except measure.TooSlow:
        raise
    except namespaces.Failed as error:
        progress(f"  FAILED, once more: {error}")
        return {**run(), "failures": 1}


def statistics_of(details: Row) -> Row:
    """The counters of both ends, without histograms."""
    kept: Row = {}
    for end in ("client", "gateway"):
        stats = details.get(end, {}).get("stats", {})
        if stats:
            kept[end] = {k: v for k, v in stats.items() if isinstance(v, (int, float))}
    return kept


def report(rows: list[Row]) -> str:
    """Medians with their range, and the targets."""
    rows = [r for r in rows if r["kind"] == "download"]

    def of(name: str, hops: int, contender: str) -> list[Row]:
        return [r for r in rows if (r["medium"], r["hops"], r["contender"]) == (name, hops, contender)]

    lines = []
    for name, hops, _ in MATRIX:
        stock = median(of(name, hops, "standard"), "mbps")
        for contender in CONTENDERS:
            some = of(name, hops, contender)
            if not some:
                continue
            speed = results.figures(some, "mbps")
            middle = median(some, "mbps")
            assert middle is not None
            lines.append([
                f"{name}, {hops} hop{'s' * (hops > 1)}" if medium.MEDIA[name].wireless else name,
                contender, f"{middle:.2f}", f"{min(speed):.2f}-{max(speed):.2f}",
                f"{middle / stock:.3f}" if stock else "-",
                number(median(some, "data_per_ack")), number(median(some, "ipt_below_100us"), ".0%"),
                number(median(some, "ampdu")), str(len(some)), str(sum(r["retries"] for r in some)),
                str(sum(r["failures"] for r in some)),
            ])
    text = results.table(
        ["medium", "contender", "Mbit/s", "range", "/standard", "data/ACK", "<100us", "MPDU/A-MPDU", "runs", "discarded",
         "failed"],
        lines,
    )
    busy = sum(r["cpu_pressure"] > BUSY_PRESSURE for r in rows)
    if busy:
        text += (f"\n\n{busy} of {len(rows)} runs shared the machine with other work (some process waited for a CPU for more"
                 f" than {BUSY_PRESSURE:.0%} of the time): the ends may have been slower than the medium.")
    def ratio(name: str, hops: int, base: str) -> float | None:
        a, b = median(of(name, hops, "bquic"), "mbps"), median(of(name, hops, base), "mbps")
        return a / b if a and b else None

    targets = [
        ("wifi, 3 hops: bquic / standard", ratio("wifi", 3, "standard"), 1.20),
        ("wifi, 3 hops: bquic / tcp", ratio("wifi", 3, "tcp"), 1.0),
        ("wifi, 1 hop: bquic / standard", ratio("wifi", 1, "standard"), 1.03),
        *((f"{name}: bquic / standard", ratio(name, 1, "standard"), 0.98) for name in ("wired", "lossy", "shallow")),
        (f"bquic-2019, RTT 20 ms: data packets per ACK after the first {ACK_AFTER}",
         data_per_ack_later(of("wired", 1, "bquic-2019")), 9.0),
    ]
    text += "\n\n" + results.table(
        ["target", "measured", "goal", ""],
        [[what, number(value, ".3f"), f"{goal:.2f}",
          "not measured" if value is None else "met" if value >= goal else "MISSED"] for what, value, goal in targets],
    )
    return text


def paper(rows: list[Row]) -> list[list[str]]:
    """The thesis's result over a wire, where the gain came from the lack of pacing."""
    what, figure = "BQUIC over QUIC, wire only (thesis)", "+5 %"
    ours, stock = (median([r for r in rows if (r["kind"], r["medium"], r["contender"]) == ("download", "wired", c)], "mbps")
                   for c in ("bquic", "standard"))
    if not ours or not stock:
        return [[what, figure, "-", "not run yet"]]
    return [[what, figure, f"{100 * (ours / stock - 1):+.1f} %", results.verdict(ours / stock, 1.05, 1.05)]]


WHY_NOT = (
    "Where a gain on the wire is not reproduced: `bquic` behaves like stock QUIC there until the path has shown a queue. The "
    "papers' form, which sends fewer ACKs everywhere, is slower with packet loss and with small buffers (`bquic-2019` above)."
)


def data_per_ack_later(rows: list[Row]) -> float | None:
    """Data per ACK without the first ACK_AFTER packets, of which every second one is acknowledged."""
    values = []
    for row in rows:
        client = row["stats"].get("client", {})
        acks = client.get("acks_sent", 0) - ACK_AFTER // 2
        if acks > 0:
            values.append({"value": (client["packets_received"] - ACK_AFTER) / acks})
    return median(values, "value")


def main() -> int:
    parser = results.options(__doc__ or "", "2 repetitions of smaller transfers")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=CONTENDERS)
    args = parser.parse_args()
    if args.repetitions < 1:
        parser.error("--repetitions: must be at least 1")
    if args.report:
        return results.show("bquic", RESULTS, results.read(RESULTS), report)
    if args.quick:
        args.repetitions = 2
    namespaces.exit_on_signals()
    medium.build()
    common = known(args.quick)
    path = QUICK_RESULTS if args.quick else UNFINISHED
    rows = [] if args.restart else [r for r in results.read(path) if same(r, common)]
    if rows:
        progress(f"continuing after {len(rows)} rows of an interrupted run")
    for repetition in range(1, args.repetitions + 1):
        downloads(args, repetition, common, rows, path)
    print(report(rows))
    if not args.quick:
        results.write(RESULTS, rows, results.check)
        UNFINISHED.unlink()
        print(f"\n{len(rows)} rows in {RESULTS.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except namespaces.Failed as error:
        sys.exit(f"bench-bquic: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
