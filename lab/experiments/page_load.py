#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much sooner web pages are there: Chromium over the mesh, by HTTP/3 and through the relay.

The paper (BQUIC, WCNC 2019, figure 2 and table II): 11 cloned pages over 5 hops
load in 5 % (small pages) to 25 % (large ones) less time. Thesis 2019, chapter 5
(H2-Parallel): with 2 % loss, two connections instead of one load pages in 53 %
less time (7 Mbit/s, 50 ms, 45 kB of buffer).

Here: pages with the number of objects and the size that table II gives, of
random content, loaded by headless Chromium with an empty cache and no
connection from before: navigation start to load event. "mesh": 3 hops, 802.11n
MCS7, 20 ms behind the gateway. "h3-*" is Chromium's HTTP/3 to the gateway with
that profile (Chromium decides itself when to acknowledge), "relay-*" Chromium's
TCP, carried by the relay with that profile, "tcp" Chromium's TCP to the
gateway. "lossy": 7 Mbit/s, 50 ms, 30 packets, 2 % loss each way, with one
connection, and with every second object from a second address.

Writes results/page-load.json (rows: lab/realtime.py) and
docs/results/page-load.svg. An interrupted run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from lab import measure, medium, namespaces, pages, realtime, results  # noqa: E402
from lab.chromium import Chromium  # noqa: E402
from lab.measure import Servers  # noqa: E402
from lab.results import Row, median  # noqa: E402
from lab.simulation import interval  # noqa: E402
from lab.topology import Mesh  # noqa: E402

RESULTS = ROOT / "results/page-load.json"
QUICK_RESULTS = ROOT / "build/lab/page-load.json"
FIGURE = ROOT / "docs/results/page-load.svg"

MEDIA = {
    "mesh": (medium.Kind("mesh", ("--mcs", "7", "--width", "20", "--delay", "10"), 60, wireless=True), 3),
    "lossy": (medium.Kind("lossy", ("--wired", "7Mbps", "--delay", "25", "--queue", "30", "--loss", "0.02"), 7), 1),
}
CONTENDERS = {
    "mesh": ["tcp", "h3-standard", "h3-bquic", "relay-standard", "relay-bquic"],
    "lossy": ["tcp", "h3-standard", "h3-bquic"],
}
QUICK_PAGES = {"mesh": ["google", "reddit", "instagram"], "lossy": ["reddit"]}
SECOND_ADDRESS = "10.77.2.3"  # of the gateway
FIGURES = ("ms", "objects", "size")


def origin(servers: Servers, contender: str) -> str:
    """Where a contender's pages are: https://host:port."""
    way, _, profile = contender.partition("-")
    if way == "relay":
        return servers.relay(profile).removesuffix("/data")
    return servers.gateway(profile or "standard").removesuffix("/data")


@contextlib.contextmanager
def browser(servers: Servers, contender: str) -> Iterator[tuple[Chromium, str]]:
    """A Chromium that loads as the contender does, after a first page; and the origin of its pages."""
    url = origin(servers, contender)
    by_quic = contender.startswith("h3-")
    host, _, port = url.removeprefix("https://").partition(":")
    pin = str(servers.status("standard" if contender == "tcp" else contender.partition("-")[2])["pin"])
    chromium = Chromium(servers.lab, servers.mesh.phone, pin.removeprefix("sha256/"),
                        [f"{host}:{port}", f"{SECOND_ADDRESS}:{port}"] if by_quic else [])
    try:
        load(servers, chromium, contender, url, "google", 1)
        yield chromium, url
    finally:
        chromium.close()
        servers.stop_relay()


def load(servers: Servers, chromium: Chromium, contender: str, url: str, page: str, connections: int) -> Row:
    second = url.replace(Mesh.GATEWAY, SECOND_ADDRESS) if connections == 2 else None
    path = pages.write(servers.root, page, second)
    before = servers.relay_status()["carried"]["total"] if contender.startswith("relay-") else 0
    result, window, discarded = measure.kept_up(
        servers.mesh.medium, lambda: chromium.load(f"{url}{path}", pages.objects(page)))
    expected = {"h3"} if contender.startswith("h3-") else {"h2"}
    if result.protocols != expected:
        raise namespaces.Failed(f"{contender}: {page} came by {sorted(result.protocols)}")
    if contender.startswith("relay-") and servers.relay_status()["carried"]["total"] == before:
        raise namespaces.Failed("the relay let the page go past it")
    return {
        "ms": round(result.ms, 2), "objects": result.objects, "size": pages.size(page), **measure.conditions(window, discarded),
        "ampdu": round(window["down"]["mpdus_per_ampdu"], 3) if "mpdus_per_ampdu" in window["down"] else None,
    }


def run(args: argparse.Namespace, path: pathlib.Path) -> list[Row]:
    campaign = realtime.Campaign("page-load", args, path, FIGURES)
    chosen = QUICK_PAGES if args.quick else {name: list(pages.PAGES) for name in MEDIA}
    total = args.repetitions * sum(len(chosen[n]) * len(CONTENDERS[n]) * (2 if n == "lossy" else 1) for n in MEDIA)
    for repetition in range(1, args.repetitions + 1):
        for name, (kind, hops) in MEDIA.items():
            keys: list[Row] = [{"medium": name, "page": page, "connections": connections, "repetition": repetition}
                    for page in chosen[name] for connections in ([1, 2] if name == "lossy" else [1])]
            turn = repetition % len(CONTENDERS[name])
            order = CONTENDERS[name][turn:] + CONTENDERS[name][:turn]
            missing = {c: todo for c in order if (todo := [k for k in keys if campaign.missing(k, [c])])}
            if not missing:
                continue
            with namespaces.Lab() as lab:
                servers = Servers(lab, Mesh(lab, kind, hops, seed=repetition), 1000)
                lab.run(servers.mesh.gateway, "ip", "addr", "add", f"{SECOND_ADDRESS}/32", "dev", "mesh")
                for contender, todo in missing.items():
                    with browser(servers, contender) as (chromium, url):
                        for key in todo:
                            campaign.add(
                                key, contender,
                                lambda: load(servers, chromium, contender, url, key["page"], key["connections"]),
                                f"{len(campaign.rows) + 1}/{total} {name} {{contender}} {{page}} (connections: {{connections}}): {{ms:.0f}} ms")
    return campaign.rows


def of(rows: list[Row], name: str, page: str, contender: str, connections: int = 1) -> list[Row]:
    return [r for r in rows if (r["medium"], r["page"], r["contender"], r["connections"]) == (name, page, contender, connections)]


# What is compared with what: by how much less time pages take.
REDUCTIONS = [("h3-bquic", "h3-standard"), ("relay-bquic", "relay-standard"), ("relay-bquic", "tcp")]


def reduction(base: list[Row], other: list[Row], whole: list[Row]) -> list[float]:
    """Of the load time, repetition by repetition."""
    return [1 - g for g in realtime.gains(whole, lambda r: r in base, lambda r: r in other, "ms")]


def percent(values: list[float]) -> str:
    return "{:+.0%} ({:+.0%} to {:+.0%})".format(*(-v for v in interval(values))) if values else "-"


def report(rows: list[Row]) -> str:
    lines = []
    for page in pages.PAGES:
        some = {c: of(rows, "mesh", page, c) for c in CONTENDERS["mesh"]}
        if any(some.values()):
            lines.append([
                page, str(pages.objects(page)), f"{pages.size(page) / 1000:.0f}",
                *(results.number(median(some[c], "ms"), ".0f") for c in CONTENDERS["mesh"]),
                *(percent(reduction(some[base], some[other], rows)) for other, base in REDUCTIONS),
                str(max(len(s) for s in some.values()))])
    text = "Mesh: medians in ms; change with 95 % interval\n\n" + results.table(
        ["page", "objects", "kB", *CONTENDERS["mesh"], *(f"{other}/{base}" for other, base in REDUCTIONS), "loads"], lines)
    lines = []
    for page in pages.PAGES:
        for contender in CONTENDERS["lossy"]:
            one, two = (of(rows, "lossy", page, contender, n) for n in (1, 2))
            if one and two:
                lines.append([page, contender, results.number(median(one, "ms"), ".0f"), results.number(median(two, "ms"), ".0f"),
                              percent(reduction(one, two, rows)), str(len(one))])
    text += "\n\nLossy: 1 and 2 connections\n\n" + results.table(
        ["page", "contender", "1: ms", "2: ms", "change", "loads"], lines)
    return text + "\n\n" + realtime.notes(rows)


def paper(rows: list[Row]) -> list[list[str]]:
    what = ["page load time, 11 pages, smallest and largest: BQUIC over QUIC", "H2-Parallel, 2 connections over 1, 2 % loss, median of all pages"]
    figures = ["-5 % (small), -25 % (large)", "-53 %"]
    ends = [reduction(of(rows, "mesh", p, "h3-standard"), of(rows, "mesh", p, "h3-bquic"), rows)
            for p in (min(pages.PAGES, key=pages.size), max(pages.PAGES, key=pages.size))]
    halves = [reduction(of(rows, "lossy", p, "tcp", 1), of(rows, "lossy", p, "tcp", 2), rows) for p in pages.PAGES]
    lines = []
    if all(ends):
        small, large = (interval(e)[0] for e in ends)
        lines.append([what[0], figures[0], f"{-small:+.0%}, {-large:+.0%}",
                      "reproduced" if small >= 0.9 * 0.05 and large >= 0.9 * 0.25 else "not reproduced"])
    else:
        lines.append([what[0], figures[0], "-", "not run yet"])
    if all(halves):
        of_all = interval([interval(h)[0] for h in halves])[0]
        lines.append([what[1], figures[1], f"{-of_all:+.0%}", "reproduced" if of_all >= 0.9 * 0.53 else "not reproduced"])
    else:
        lines.append([what[1], figures[1], "-", "not run yet"])
    return lines


WHY_NOT = (
    "Where it is not reproduced: Chromium acknowledges every 10th packet by itself, so the half of BQUIC that is at the client is "
    "already there, and today's stock QUIC leaves less to gain (above). Two connections were compared with the TCP of 2016, which had no RACK."
)


def draw(rows: list[Row]) -> None:
    with results.drawing(FIGURE, (8, 7), 2, 1) as (mesh, lossy):

        def plot(axes, label: str, found: list[tuple[str, list[float]]], k: int) -> None:  # type: ignore[no-untyped-def]
            points = [(list(pages.PAGES).index(page) + 0.15 * (k - 1), interval([100 * v for v in values])) for page, values in found if values]
            axes.errorbar([x for x, _ in points], [v[0] for _, v in points],
                          yerr=[[v[0] - v[1] for _, v in points], [v[2] - v[0] for _, v in points]], fmt="o", capsize=3, label=label)

        for k, (other, base) in enumerate(REDUCTIONS):
            plot(mesh, f"{other} against {base}",
                 [(p, reduction(of(rows, "mesh", p, base), of(rows, "mesh", p, other), rows)) for p in pages.PAGES], k)
        for k, contender in enumerate(CONTENDERS["lossy"]):
            plot(lossy, f"{contender}, 2 connections against 1",
                 [(p, reduction(of(rows, "lossy", p, contender, 1), of(rows, "lossy", p, contender, 2), rows)) for p in pages.PAGES], k)
        for axes, title in ((mesh, "mesh"), (lossy, "7 Mbit/s, 50 ms, 2 % loss")):
            axes.axhline(0, linewidth=0.5, color="grey")
            axes.set_xticks(range(len(pages.PAGES)), [f"{p}\n{pages.size(p) // 1000} kB" for p in pages.PAGES], fontsize=7)
            axes.set_ylabel("less load time, %", fontsize=8)
            axes.set_title(title, fontsize=9)
            axes.legend(fontsize=7)


def main() -> int:
    return realtime.main("page-load", __doc__ or "", (15, 5), RESULTS, QUICK_RESULTS, run, report, draw)


if __name__ == "__main__":
    sys.exit(main())
