#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0

"""A fleet of relays on one gateway

300 relays, each a separate peer with its own token and address, keep 20 connections each open through one gateway with
`memory` 512 (its ceiling is 32 MiB more). Each connection loads 1 KiB to 1 MiB, and then a new one replaces it. Every byte is
compared. One relay tries to open ten times as many connections, of 16 MiB each (in `make test`, which has fewer peers and less memory, that is more
than the gateway allows). Tunnels that it does not get do not count as errors. No other error is allowed, and Jain's
index of the peers' throughput must be at least 0.9. Then all relays hold 20 connections, and one peer is removed from the configuration: all of
its tunnels must end, and no others.
"""

from __future__ import annotations

import pathlib
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent))
from lab import stress  # noqa: E402

RESULTS, QUICK_RESULTS = stress.results("fleet"), stress.results("fleet", quick=True)


def report(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'peers':>5} {'connections':>11} {'s':>4} {'transfers':>9} {'GB':>6} {'errors':>6} {'RSS MiB':>7} {'ceiling':>7} {'Jain':>5}"
             f" {'greedy/mean':>11} {'revoked after ms':>16} {'its left':>8} {'others ended':>12}"]
    for r in rows:
        lines.append(
            f"{r['peers']:>5} {r['connections']:>11} {r['seconds']:>4.0f} {r['transfers']:>9} {r['bytes'] / 1e9:>6.1f} {r['errors']:>6}"
            f" {r['rss_mib']:>7.0f} {r['ceiling_mib']:>7.0f} {r['jain']:>5.3f} {r['greedy_over_mean']:>11.2f} {r['revoked_ms']:>16.0f}"
            f" {r['revoked_still_open']:>8} {r['others_ended']:>12}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(stress.run("fleet", report, ["300", "20", "10", "512", "5m"], ["30", "10", "300", "224", "10s"]))
