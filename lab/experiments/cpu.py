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
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent))
from lab import stress  # noqa: E402

RESULTS, QUICK_RESULTS = stress.results("cpu"), stress.results("cpu", quick=True)


def report(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'link':<16} {'what':<30} {'contender':<20} {'CPU-s/GB':>8} {'least':>6} {'most':>6} {'ratio':>6}"]
    for r in rows:
        lines.append(
            f"{r['link']:<16} {r['what']:<30} {r['contender']:<20} {r['median']:>8.2f} {r['least']:>6.2f} {r['most']:>6.2f} {r['ratio']:>6.3f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    from bquic import CADDY, build_caddy

    sys.exit(stress.run("cpu", report, [str(CADDY)], [str(CADDY)], needs=build_caddy))
