#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0

"""A fleet of relays on one gateway

300 relays, each a separate peer with its own token and address, keep 20 connections each open through one gateway with
`memory` 512 (its ceiling is 32 MiB more). Each connection loads 1 KiB to 1 MiB, and then a new one replaces it. Every byte is
compared. One relay tries to open ten times as many connections, of 16 MiB each. (In `make test`, with fewer peers and less memory, that is more
than the gateway allows.) Tunnels that it does not get do not count as errors. No other error is allowed, and Jain's
index of the peers' throughput must be at least 0.9. Then all relays hold 20 connections, and one peer is removed from the configuration: all of
its tunnels must end, and no others.
"""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent))
from lab import command, results, stress  # noqa: E402

RESULTS, QUICK_RESULTS = stress.results("fleet"), stress.results("fleet", quick=True)


def report(rows: list[results.Row]) -> str:
    header = ["peers", "connections", "s", "transfers", "GB", "errors", "RSS MiB", "ceiling", "Jain", "greedy/mean", "revoked after ms", "its left", "others ended"]
    return results.table(header, [
        [str(r["peers"]), str(r["connections"]), f"{r['seconds']:.0f}", str(r["transfers"]), f"{r['bytes'] / 1e9:.1f}", str(r["errors"]),
         f"{r['rss_mib']:.0f}", f"{r['ceiling_mib']:.0f}", f"{r['jain']:.3f}", f"{r['greedy_over_mean']:.2f}", f"{r['revoked_ms']:.0f}",
         str(r["revoked_still_open"]), str(r["others_ended"])] for r in rows], texts=0)


if __name__ == "__main__":
    command(lambda: stress.run("fleet", report, ["300", "20", "10", "512", "5m"], ["30", "10", "300", "224", "10s"]))
