#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0

"""Half an hour of transfers and reloads

64 clients make TCP connections through relay and gateway, over an emulated hop of 802.11n: most of a few KB, some of half
a MB, some reset or half closed. Both daemons reload their configuration every minute. The slope is that of the straight line
through the resident memory after the first sixth of the time.
"""

from __future__ import annotations

import pathlib
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent))
from lab import command, medium, stress  # noqa: E402

RESULTS, QUICK_RESULTS = stress.results("soak"), stress.results("soak", quick=True)


def report(rows: list[dict[str, Any]]) -> str:
    (r,) = rows
    t = r["traffic"]
    lines = [f"{r['seconds']:.0f} s, {t['transfers']} transfers, {t['bytes'] / 1e6:.0f} MB, {t['errors']} errors, {r['reloads']} reloads"]
    for d in r["daemons"]:
        rss = d["rss_bytes"][len(d["rss_bytes"]) // 6 :]
        lines.append(
            f"{d['name']:<8} RSS {min(rss) / 2**20:.1f} to {max(rss) / 2**20:.1f} MiB, {d['slope_bytes_per_hour'] / 2**20:+.2f} MiB an hour; "
            f"{d['before']['files']} files, {d['before']['goroutines']} goroutines before, {d['after']['files']} and {d['after']['goroutines']} after"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    command(lambda: stress.run("soak", report, ["30m", str(medium.BINARY)], ["3m", str(medium.BINARY)], needs=medium.build))
