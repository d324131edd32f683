#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0

"""The gateway and the relay under load

200 HTTP/3 clients, each with its own connection, request a page of 100 KB 20 times each. Then a relay carries 2,000
TCP connections at once, each of which echoes 36 KB that are compared. No error is allowed. The gateway has 256 MiB
(GOMEMLIMIT; its ceiling is 32 MiB more). The relay's ceiling is 64 KiB per connection plus 32 MiB.
"""

from __future__ import annotations

import pathlib
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent))
from lab import command, stress  # noqa: E402

RESULTS, QUICK_RESULTS = stress.results("load"), stress.results("load", quick=True)


def report(rows: list[dict[str, Any]]) -> str:
    (r,) = rows
    web, relay = r["web"], r["relay"]
    return (
        f"{web['clients']} HTTP/3 clients: {web['requests']} requests in {web['seconds']:.0f} s, {web['errors']} errors; "
        f"gateway's RSS at most {web['gateway_rss_max_bytes'] / 2**20:.1f} MiB\n"
        f"{relay['opened']} relayed connections at once: {relay['errors']} errors, {relay['bytes'] / 1e6:.0f} MB; "
        f"RSS at most {relay['relay_rss_max_bytes'] / 2**20:.1f} MiB (relay), {relay['gateway_rss_max_bytes'] / 2**20:.1f} MiB (gateway)\n"
        f"ceilings: {r['gateway_rss_ceiling_bytes'] / 2**20:.0f} MiB (gateway), {r['relay_rss_ceiling_bytes'] / 2**20:.0f} MiB (relay)"
    )


if __name__ == "__main__":
    command(lambda: stress.run("load", report, ["60s"], ["10s"]))
