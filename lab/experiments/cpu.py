#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0

"""Processor time

User and system seconds per GB of the process that serves (from `/proc/PID/stat`), medians of 5 interleaved repetitions, with
the least and the most. Static: a file by HTTP/3 to the same client, from Caddy 2.11 (stock quic-go) and from the gateway with
both profiles. Relay: a TCP download through relay and gateway, both together, with the profile of stock quic-go and with
`bquic`. The ratio is to the first of each group.
"""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent))
from lab import command, results, stress  # noqa: E402

RESULTS, QUICK_RESULTS = stress.results("cpu"), stress.results("cpu", quick=True)


def report(rows: list[results.Row]) -> str:
    return results.table(["link", "what", "contender", "CPU-s/GB", "least", "most", "ratio"], [
        [r["link"], r["what"], r["contender"], f"{r['median']:.2f}", f"{r['least']:.2f}", f"{r['most']:.2f}", f"{r['ratio']:.3f}"] for r in rows], texts=3)


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    from bquic import CADDY, build_caddy

    command(lambda: stress.run("cpu", report, [str(CADDY)], [str(CADDY)], needs=build_caddy))
