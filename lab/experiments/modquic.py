#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a flow-control window update with every acknowledgement gains: ModQUIC, stock QUIC and TCP.

The paper (ModQUIC, IJIPT 2019): 36 % more throughput than QUIC version 33 on the
loopback device, with packets of 270 bytes; 1 to 4 % more over 10 Mbit/s, 20 ms and
a queue of one bandwidth-delay product (table 6, 0 to 5 % loss).

Here: quic-go, and the same with a window update on every ACK ("modquic", both
ends). "loopback" is client and gateway in one network namespace, 32 MB in packets
of the usual size: the processor is the limit. The wire is table 6's: 10 Mbit/s,
20 ms, 17 packets, loss each way, and 2.7 MB, as much as 10,000 packets of 270 bytes.

Writes results/modquic.json (rows: lab/realtime.py; the loopback has no emulator,
so no lag) and docs/results/modquic.svg. An interrupted run continues where it stopped.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from lab import command, measure, medium, namespaces, realtime, results  # noqa: E402
from lab.results import Row, interval, median, number, spread  # noqa: E402
from lab.servers import Servers  # noqa: E402
from lab.topology import Loopback, Mesh  # noqa: E402

RESULTS = ROOT / "results/modquic.json"
QUICK_RESULTS = ROOT / "build/lab/modquic.json"
FIGURE = ROOT / "docs/results/modquic.svg"

LOOPBACK = "loopback"
LOSSES, QUICK_LOSSES = (0, 1, 2, 3, 4, 5), (0, 5)  # percent
CONTENDERS = ["tcp", "standard", "modquic"]
LOOPBACK_BYTES, WIRE_BYTES = 32_000_000, 2_700_000
FIGURES = ("mbps", "seconds")


def wire(loss: int) -> medium.Kind:
    return medium.Kind("wire", ("--wired", "10Mbps", "--delay", "10", "--queue", "17", "--loss", str(loss / 100)), 10)


def download(servers: Servers, contender: str) -> Row:
    run = measure.tcp if contender == "tcp" else measure.bquic(contender)
    if not isinstance(servers.mesh, Loopback):
        row = measure.measure(servers, contender, run)
        return {key: row[key] for key in ("mbps", "seconds", "lag_ms", "cpu_pressure", "retries", "retries_cpu")}
    waited, begun = servers.lab.cpu_waited(), time.monotonic()
    result = run(servers)
    pressure = (servers.lab.cpu_waited() - waited) / (time.monotonic() - begun)
    return {"mbps": round(result.mbps, 3), "seconds": round(result.seconds, 4), "lag_ms": 0.0,
            "cpu_pressure": round(pressure, 4), "retries": 0, "retries_cpu": 0}


def run(args: argparse.Namespace, path: pathlib.Path) -> list[Row]:
    campaign = realtime.Campaign("modquic", args, path, FIGURES)
    media: list[tuple[str, int]] = [(LOOPBACK, 0), *(("wire", loss) for loss in (QUICK_LOSSES if args.quick else LOSSES))]
    total = args.repetitions * len(media) * len(CONTENDERS)
    done = 0
    for repetition in range(1, args.repetitions + 1):
        for name, loss in media:
            key = {"medium": name, "loss": loss, "repetition": repetition}
            missing = campaign.missing(key, CONTENDERS)
            done += len(CONTENDERS) - len(missing)
            if not missing:
                continue
            with namespaces.Lab() as lab:
                if name == LOOPBACK:
                    servers = Servers(lab, Loopback(lab), LOOPBACK_BYTES)
                else:
                    servers = Servers(lab, Mesh(lab, wire(loss), seed=repetition), WIRE_BYTES)
                for contender in missing:
                    done += 1
                    campaign.add(key, contender, lambda: download(servers, contender),
                                 f"{done}/{total} {name}, {loss} % loss: {{contender}} {{mbps:.1f}} Mbit/s")
    return campaign.rows


def of(rows: list[Row], name: str, loss: int, contender: str) -> list[Row]:
    return [r for r in rows if (r["medium"], r["loss"], r["contender"]) == (name, loss, contender)]


def gain(rows: list[Row], name: str, loss: int, contender: str) -> list[float]:
    """The gain over stock QUIC, repetition by repetition."""
    return realtime.gains(of(rows, name, loss, "standard"), of(rows, name, loss, contender), "mbps")


def media_of(rows: list[Row]) -> list[tuple[str, int]]:
    return sorted({(r["medium"], r["loss"]) for r in rows})


def report(rows: list[Row]) -> str:
    lines = [
        [name if name == LOOPBACK else f"10 Mbit/s, {loss} % loss", contender, number(median(some, "mbps")),
         spread(gain(rows, name, loss, contender), ".3f"), str(len(some))]
        for name, loss in media_of(rows) for contender in CONTENDERS
        if (some := of(rows, name, loss, contender)) and gain(rows, name, loss, contender)
    ]
    return results.table(["medium", "contender", "Mbit/s", "over stock QUIC", "runs"], lines) + "\n\n" + realtime.notes(rows)


def paper(rows: list[Row]) -> list[list[str]]:
    lines = []
    for what, figure, media, least, most in [
        ("ModQUIC over QUIC, throughput, loopback", "+36 %", [(LOOPBACK, 0)], 1.36, 1.36),
        ("ModQUIC over QUIC, 10 Mbit/s, 20 ms, 0 to 5 % loss (table 6)", "+0.3 to +3.7 %",
         [("wire", loss) for loss in LOSSES], 1.003, 1.037),
    ]:
        some = [g for name, loss in media for g in gain(rows, name, loss, "modquic")]
        if not some:
            lines.append(results.not_run(what, figure))
            continue
        middle, low, high = (100 * (g - 1) for g in interval(some))
        lines.append([what, figure, f"{middle:+.1f} % ({low:+.1f} to {high:+.1f})", results.verdict(1 + middle / 100, least, most)])
    return lines


WHY_NOT = (
    "Where it is not reproduced: quic-go's receive windows grow by themselves until they limit nothing, so more"
    " window updates gain nothing and cost a frame each. Today's stock QUIC is not QUIC version 33."
)


def draw(rows: list[Row]) -> None:
    with results.drawing(FIGURE, (6, 3.2)) as axes:
        for k, contender in enumerate(CONTENDERS):
            results.intervals(axes, [(loss + 0.1 * (k - 1), interval(results.figures(some, "mbps")))
                                     for loss in LOSSES if (some := of(rows, "wire", loss, contender))], contender)
        axes.set_xlabel("loss, % (10 Mbit/s, 20 ms)", fontsize=8)
        axes.set_ylabel("Mbit/s", fontsize=8)
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=7)


def main() -> int:
    return realtime.main("modquic", __doc__ or "", (5, 1), RESULTS, QUICK_RESULTS, run, report, draw)


if __name__ == "__main__":
    command(main)
