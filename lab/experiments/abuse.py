#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0

"""The gateway under attack

Each attack runs in a separate process against a real gateway with 64 MiB of memory (GOMEMLIMIT) on two processors,
over a link without a bottleneck, while a good client downloads at up to 400 Mbit/s, over connections of 256 MiB each. The
ratio is the client's throughput during the attack over that in the seconds before. It must be at least 0.5, over one to five rounds of both,
because victim, attacker and good client share the processors (the attacker has a lower priority than the others, and these have a
higher one than anything else on the machine). For an attack in the good client's name, it must be at least 0.8, and both this client
and another one, which connect anew twice a second, must never fail to do so. RSS, files and goroutines are the largest
values during the attack; at the end, the gateway must be back at its initial state.
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
