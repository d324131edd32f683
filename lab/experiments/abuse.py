#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0

"""The gateway under attack

Each attack runs against a real gateway with 64 MiB of memory (GOMEMLIMIT), on a machine with two processors. The link has no bottleneck. Meanwhile, a good
client downloads at up to 400 Mbit/s, with a new connection for each 256 MiB.

The ratio is this client's throughput during the attack over its throughput in the seconds before. It must be at least 0.5. Gateway, attacker and
good client share the processors, so an attack with a lower ratio is repeated, up to four times, and all rounds count together. The attacker is a separate process of
lower priority than gateway and good client, and these have a higher priority than anything else on the machine.

Some attacks forge the good client's address. For these, the ratio must be at least 0.8. The good client and another one then connect anew
twice a second, and must never fail.

RSS, files and goroutines are the largest values during the attack. After all attacks, the gateway must be back at about what it had before.
"""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent))
from lab import command, results, stress  # noqa: E402

RESULTS, QUICK_RESULTS = stress.results("abuse"), stress.results("abuse", quick=True)


def report(rows: list[results.Row]) -> str:
    before, after = rows[0]["before_all"], rows[0]["after_all"]
    return results.table(["attack", "what", "done", "unit", "s", "ratio", "errors", "RSS MiB", "files", "goroutines"], [
        [r["attack"], r["doc"], str(r["done"]), r["unit"], f"{r['seconds']:.0f}", f"{r['good_ratio']:.2f}", str(r["good_errors"]),
         f"{r['rss_max_bytes'] / 2**20:.1f}", str(r["files_max"]), str(r["goroutines_max"])] for r in rows], texts=2) + (
        f"\nbefore: {before['files']} files, {before['goroutines']} goroutines; after: {after['files']} files, {after['goroutines']} goroutines")


if __name__ == "__main__":
    command(lambda: stress.run("abuse", report, ["10s"], ["2s"], alone=True))
