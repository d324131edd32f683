#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether the flows that a browser opens for a page are found as one session.

The thesis (2019, chapter 4, algorithms 1 and 2): flows of one client to one server, by address and name, that start within
5 s of the first are a session. Sessions of two or more flows are parallel, others isolated. A third were parallel, with
three flows on average. Which flows the browsers had really opened for a page was not known there.

Here: Chromium and Firefox load pages of lab/pages.py, by HTTP/1.1 and HTTP/2, with random pauses between them (exponential, 6 s
on average). Half of the next pages are on the same server, the others on any of twelve. As for a user, a browser keeps its cache and its
connections from page to page; a server closes a connection that has been idle for 5, 15 or 60 s. The browser opens one page at a time, so the flows that it opens before the next
page belong to the first one: that is the ground truth. A page that opens no flow does not count.

The relay's own code groups flows by addresses alone. It ends a session earlier if its client has waited for none of its flows for half a
second; this time was chosen on other walks. The last columns have the same flows, grouped by the thesis's rule. A session counts as found if it has all flows of one
page load and no others.

Writes results/sessions.json (a row is a browser's walk: for each flow, its page load, and the session that was
found) and docs/results/sessions.svg.
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import random
import sys
import time
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from lab import command, flows, measure, namespaces, pages, results  # noqa: E402
from lab.flows import applications  # noqa: E402

RESULTS = ROOT / "results/sessions.json"
FIGURE = ROOT / "docs/results/sessions.svg"

BROWSERS = ("chromium", "firefox")
SERVERS = 12
LOADS = 24  # page loads of a walk
PAUSE_SECONDS = 6.0  # between two loads, on average
SAME = 0.5  # share of loads from the same server as the last one
DELAYS_MS = [10, 30, 60, 120]
IDLE_SECONDS = [5, 15, 60]
GAP_SECONDS = 5.0


def walk(bench: flows.Bench, name: str, http2: bool, repetition: int) -> dict[str, Any]:
    source = random.Random(f"walks {name} {http2} {repetition}")
    servers = [bench.record(delay_ms=DELAYS_MS[i % len(DELAYS_MS)], node=i, idle_seconds=IDLE_SECONDS[i % len(IDLE_SECONDS)]) for i in range(SERVERS)]
    server = servers[0]
    browser = applications.Browser(bench, name, http2)
    begun: list[tuple[float, str]] = []
    for _ in range(LOADS):
        server = server if source.random() < SAME else source.choice(servers)
        page = source.choice(list(pages.PAGES))
        begun.append((time.time(), page))
        browser.visit(f"https://{server.address}:{server.port}/pages/{page}/")
        time.sleep(source.expovariate(1 / PAUSE_SECONDS))
    browser.close()
    found = []
    for i, server in enumerate(servers):
        for r in server.end():
            load = sum(at <= r["start"] for at, _ in begun) - 1
            if load >= 0:
                found.append([load, i, r["session"], round(r["start"] - begun[load][0], 3), round(r["start"] - begun[0][0], 3)])
    return {"browser": name, "http": 2 if http2 else 1, "repetition": repetition, "flows": found}


Sets = set[frozenset[int]]


def sets(row: dict[str, Any]) -> tuple[Sets, Sets, Sets]:
    """The flows of each page load, of each session found, and of each by the thesis's rule."""
    actual, said, thesis = collections.defaultdict(set), collections.defaultdict(set), collections.defaultdict(set)
    began: dict[int, float] = {}
    for number, (load, server, session, _, at) in enumerate(row["flows"]):  # of a server in order
        actual[load, server].add(number)
        said[server, session].add(number)
        if at - began.get(server, -GAP_SECONDS - 1) > GAP_SECONDS:
            began[server] = at
        thesis[server, began[server]].add(number)
    return {frozenset(s) for s in actual.values()}, {frozenset(s) for s in said.values()}, {frozenset(s) for s in thesis.values()}


def report(rows: list[dict[str, Any]]) -> str:
    lines = []
    kinds = [(b, v) for b in BROWSERS for v in (1, 2)]
    for kind in [*kinds, None]:
        some = [r for r in rows if kind in (None, (r["browser"], r["http"]))]
        pairs = [sets(r) for r in some]
        actual, number = sum(len(a) for a, *_ in pairs), sum(len(r["flows"]) for r in some)
        if not actual:
            continue
        parallel = sum(len(s) for a, *_ in pairs for s in a if len(s) > 1)
        line = [f"{kind[0]}, HTTP/{kind[1]}" if kind else "all", str(actual), str(number), f"{100 * parallel / number:.0f}"]
        for which in (1, 2):
            right, said = sum(len(p[0] & p[which]) for p in pairs), sum(len(p[which]) for p in pairs)
            line += [f"{100 * right / said:.1f}", f"{100 * right / actual:.1f}"]
        lines.append(line)
    return results.table(["browser", "page loads", "flows", "of these parallel, %", "precision, %", "recall, %", "thesis: precision, %", "recall, %"], lines)


def paper(rows: list[dict[str, Any]]) -> list[list[str]]:
    number = sum(len(r["flows"]) for r in rows)
    if not number:
        return [results.not_run("parallel flows, share of HTTP/2 flows", "33 % to 35 %")]
    some = [sets(r)[1] for r in rows if r["http"] == 2]
    parallel, flows_of = sum(len(s) for found in some for s in found if len(s) > 1), sum(len(s) for found in some for s in found)
    share = parallel / max(flows_of, 1)
    return [["parallel flows, share of HTTP/2 flows", "33 % to 35 %", f"{share:.0%} of {flows_of}, one origin a page",
             "reproduced" if 0.9 * 0.33 <= share <= 1.1 * 0.35 else "not reproduced"]]


WHY_NOT = "Where it is not reproduced: pages here have one origin. Firefox opens one HTTP/2 connection to it; Chromium opens a second one before it knows that the server has HTTP/2."


def draw(rows: list[dict[str, Any]]) -> None:
    with results.drawing(FIGURE, (6, 3.6)) as axes:
        for browser in BROWSERS:
            for version in (1, 2):
                after = sorted(f[3] for r in rows if (r["browser"], r["http"]) == (browser, version) for f in r["flows"])
                axes.plot(after, [(i + 1) / len(after) for i in range(len(after))], label=f"{browser}, HTTP/{version}")
        axes.axvline(GAP_SECONDS, color="gray", linestyle=":")
        axes.set_xlabel("a flow begins after the page's address was entered, s", fontsize=8)
        axes.set_ylabel("share of flows", fontsize=8)
        axes.legend(fontsize=7)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--restart", action="store_true", help="forget what an earlier run has recorded")
    parser.add_argument("--report", action="store_true", help="only prints the table and draws the figure of what there is")
    args = parser.parse_args()
    if args.report:
        return results.show("sessions", RESULTS, results.read(RESULTS), report, draw)
    namespaces.exit_on_signals()
    rows = [] if args.restart else results.read(RESULTS)
    flows.build()
    with namespaces.Lab() as lab:
        bench = flows.Bench(lab, nodes=SERVERS)
        applications.prepare(bench)
        for repetition in range(1, args.repetitions + 1):
            for name in BROWSERS:
                for http2 in (False, True):
                    key = (name, 2 if http2 else 1, repetition)
                    if all((r["browser"], r["http"], r["repetition"]) != key for r in rows):
                        rows.append(walk(bench, name, http2, repetition) | {"commit": measure.commit()})
                        results.write(RESULTS, rows)
                        measure.progress(f"sessions {repetition}: {name}, HTTP/{key[1]}: {len(rows[-1]['flows'])} flows")
    draw(rows)
    print(report(rows))
    return 0


if __name__ == "__main__":
    command(main)
