#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much faster web pages load: over the mesh, by HTTP/3 and through the relay.

The paper (BQUIC, WCNC 2019, figure 2 and table II): 11 cloned pages over 5 hops
load in 5 % (small pages) to 25 % (large ones) less time. Thesis 2019, chapter 5
(H2-Parallel): with 2 % loss, two connections instead of one load pages in 53 %
less time (7 Mbit/s, 50 ms, 45 kB of buffer).

Here, in the part "paper": pages with the number of objects and the size that
table II gives, of random content, loaded by headless Chromium with an empty
cache and no open connection, from navigation start to load event. "mesh": 3
hops, 802.11n MCS7, 20 ms behind the gateway. "h3-*" is Chromium's HTTP/3 to the
gateway with that profile (Chromium decides itself when to acknowledge),
"relay-*" Chromium's TCP, carried by the relay with that profile, "tcp"
Chromium's TCP to the gateway. "lossy": 7 Mbit/s, 50 ms, 30 packets, 2 % loss
each way, with one connection, and with every second object from a second
address.

The part "relay" is an operator's case: the origin is 20 or 45 ms beyond the
gateway, which is at the mesh's edge. Those pages and ten current ones are loaded
by TCP, straight from the origin ("tcp": the relay is off) and through the relay
("relay-bquic"). Chromium takes more processor time than all the rest together, so a
loader replays Chromium's recorded requests, each when the data that it waited for
has arrived, by HTTP/1.1 on up to six connections ("h1") and by HTTP/2
on one ("h2"); times are from the first packet to the last byte. "at best" is what no relay
can shorten: a page's time with the loader at the gateway, without a mesh, or that of its
bytes at the mesh's ceiling, whichever is longer. Chromium itself loads three pages, too,
if the processors allow. In one more scene, the 20 ms are in the relay's own leg; in another,
a second client of the node downloads at the same time.

Writes results/page-load.json (rows: lab/realtime.py) and
docs/results/page-load.svg. An interrupted run continues where it stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "lab/experiments")]

import bquic_mesh  # noqa: E402
from lab import command, measure, medium, namespaces, pages, realtime, replay, results  # noqa: E402
from lab.chromium import Chromium  # noqa: E402
from lab.results import Row, interval, median, spread  # noqa: E402
from lab.servers import Servers  # noqa: E402
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
PARTS = ("paper", "relay")

RELAY_CONTENDERS = ["tcp", "relay-bquic"]
# The light loader at the gateway: what a page takes without a mesh, because of its origin and the browser.
EDGE = "edge"
HOPS = 3
# Settings, and the largest time of all pages through the relay, over the time by TCP.
SCENES: dict[str, tuple[Row, float]] = {
    "20 ms beyond": ({"beyond_ms": 20, "rtt_ms": 0, "downloads": 0}, 0.75),
    "45 ms beyond": ({"beyond_ms": 45, "rtt_ms": 0, "downloads": 0}, 0.75),
    "20 ms in the leg": ({"beyond_ms": 0, "rtt_ms": 20, "downloads": 0}, 0.95),
    "20 ms beyond, beside a download": ({"beyond_ms": 20, "rtt_ms": 0, "downloads": 1}, 0.5),
}
QUICK_SCENES = ("20 ms beyond", "20 ms beyond, beside a download")
QUICK_RELAY_PAGES = ["google", "reddit", "login", "median"]
CHROMIUM_SCENES, CHROMIUM_PAGES = ("20 ms beyond", "45 ms beyond"), ["google", "reddit", "instagram"]
FIRST = 11  # first repetition, and seed, of "relay": smaller ones were used to choose how a window is found
PAUSE_SECONDS = 0.3  # between pages
NEIGHBOUR_SECONDS = 3.0  # until its rate is steady


def origin(servers: Servers, contender: str) -> str:
    """The origin of a contender's pages: https://host:port."""
    way, _, profile = contender.partition("-")
    if way == "relay":
        servers.relay(profile)
        return servers.site("standard", "origin")
    return servers.site(profile or "standard")


@contextlib.contextmanager
def browser(servers: Servers, contender: str) -> Iterator[tuple[Chromium, str]]:
    """A Chromium set up as the contender, which has loaded a first page; and the origin of its pages."""
    url = origin(servers, contender)
    by_quic = contender.startswith("h3-")
    host, _, port = url.removeprefix("https://").partition(":")
    chromium = Chromium(servers.lab, servers.mesh.phone, servers.spki("standard" if contender == "tcp" else contender.partition("-")[2]),
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
        servers.mesh.medium, lambda: chromium.load(f"{url}{path}", pages.objects(page)), cpu_limit=measure.ANY_CPU)
    expected = {"h3"} if contender.startswith("h3-") else {"h2"}
    if result.protocols != expected:
        raise namespaces.Failed(f"{contender}: {page} came by {sorted(result.protocols)}")
    if contender.startswith("relay-") and servers.relay_status()["carried"]["total"] == before:
        raise namespaces.Failed("the relay did not carry the page")
    return {
        "ms": round(result.ms, 2), "objects": result.objects, "size": pages.size(page), **measure.conditions(window, discarded),
        "ampdu": round(window["down"]["mpdus_per_ampdu"], 3) if "mpdus_per_ampdu" in window["down"] else None,
    }


class Scene:
    """The mesh and an origin beyond it, with or without the relay, and optionally a downloading neighbour."""

    def __init__(self, lab: namespaces.Lab, setting: Row, seed: int) -> None:
        self.lab, self.setting = lab, setting
        kind = medium.Kind("mesh", ("--mcs", "7", "--width", "20", "--delay", str(setting["rtt_ms"] / 2)), 60, wireless=True)
        self.mesh = Mesh(lab, kind, HOPS, seed=seed, beyond_ms=setting["beyond_ms"])
        self.servers = Servers(lab, self.mesh, 1000)
        self.mesh.add_client(lab, Mesh.NEIGHBOUR)
        self.url = self.servers.site("standard", "origin")
        self._contender = ""
        self._chromium: Chromium | None = None

    @contextlib.contextmanager
    def of(self, contender: str) -> Iterator[None]:
        """Within the block, loads are this contender's; it has loaded a first page."""
        self._contender = contender
        neighbour = None
        try:
            if self._relays():
                self.servers.relay(contender.partition("-")[2])
            self.load("h2", "google")
            if self.setting["downloads"]:
                neighbour = self.servers.neighbour()
                time.sleep(NEIGHBOUR_SECONDS)
            yield
        finally:
            if neighbour:
                namespaces.stop(neighbour)
            if self._chromium:
                self._chromium.close()
                self._chromium = None
            self.servers.stop_relay()
            measure.drained(self.mesh.medium)

    def load(self, loader: str, page: str) -> Row:
        path = pages.write(self.servers.root, page)
        carried = self._carried()
        if loader == "chromium" and self._chromium is None:
            self.servers.site("bquic")  # makes the certificate that the origin uses, too
            self._chromium = Chromium(self.lab, self.mesh.phone, self.servers.spki("bquic"), [])
            self._chromium.load(self.url + path, pages.objects(page))
        moved: list[float] = []

        def once() -> tuple[float, int]:
            before, begun = self._neighbour_bytes(), time.monotonic()
            if self._chromium and loader == "chromium":
                ms, connections = self._chromium.load(self.url + path, pages.objects(page)).ms, 1
            else:
                loaded = replay.load(self.lab, self.mesh.gateway if self._contender == EDGE else self.mesh.phone, loader, self.url, page)
                ms, connections = loaded.ms, loaded.connections
            moved[:] = [(self._neighbour_bytes() - before) * 8 / (time.monotonic() - begun) / 1e6]
            return ms, connections

        time.sleep(PAUSE_SECONDS)
        (ms, connections), window, discarded = measure.kept_up(self.mesh.medium, once, beyond=self.mesh.beyond)
        if self._relays() and self._carried() == carried:
            raise namespaces.Failed("the relay did not carry the page")
        return {
            "ms": round(ms, 2), "objects": pages.objects(page), "size": pages.size(page), "tcp_connections": connections,
            "bulk_mbps": round(moved[0], 3) if self.setting["downloads"] else None, **measure.conditions(window, discarded),
            "ampdu": round(window["down"].get("mpdus_per_ampdu") or 0, 3),
        }

    def _relays(self) -> bool:
        return self._contender.startswith("relay-")

    def _carried(self) -> int:
        return int(self.servers.relay_status()["carried"]["total"]) if self._relays() else 0

    def _neighbour_bytes(self) -> int:
        told = self.lab.run(self.mesh.phone, "ss", "-Htin", "src", Mesh.NEIGHBOUR)
        return sum(int(n) for n in re.findall(r"bytes_received:(\d+)", told))


def run(args: argparse.Namespace, path: pathlib.Path) -> list[Row]:
    is_relay = args.part == "relay"
    more = []
    if is_relay:
        replay.build()
        more = [replay.BINARY, replay.RECORDINGS]
    campaign = realtime.Campaign("page-load", args, path, FIGURES, more, part=lambda row: ("beyond_ms" in row) == is_relay)
    (run_relay if is_relay else run_paper)(args, campaign)
    return campaign.rows


def run_relay(args: argparse.Namespace, campaign: realtime.Campaign) -> None:
    names = QUICK_RELAY_PAGES if args.quick else list(pages.PAGES)
    allowed = not args.quick  # loads by Chromium
    for repetition in range(FIRST, FIRST + args.repetitions):
        for scene in QUICK_SCENES if args.quick else SCENES:
            loads = [(loader, page) for loader in replay.LOADERS for page in names]
            if allowed and scene in CHROMIUM_SCENES:
                loads += [("chromium", page) for page in CHROMIUM_PAGES]
            keys: list[Row] = [
                {"medium": "mesh", **SCENES[scene][0], "loader": loader, "page": page, "connections": 1, "repetition": repetition}
                for loader, page in loads]
            missing = campaign.todo(keys, RELAY_CONTENDERS)
            if not SCENES[scene][0]["downloads"]:
                missing |= campaign.todo([k for k in keys if k["loader"] != "chromium"], [EDGE])
            if not missing:
                continue
            with namespaces.Lab() as lab:
                at = Scene(lab, SCENES[scene][0], repetition)
                for contender, todo in missing.items():
                    with campaign.blaming(todo, contender), at.of(contender):
                        for key in todo:
                            if key["loader"] == "chromium" and not allowed:
                                continue
                            try:
                                campaign.add(key, contender, lambda: at.load(key["loader"], key["page"]),
                                             f"{repetition}: {scene}, {{contender}} {{page}} by {{loader}}: {{ms:.0f}} ms")
                            except measure.TooSlow as error:
                                if key["loader"] != "chromium":
                                    raise
                                allowed = False
                                measure.progress(f"no more loads by Chromium: {error}")


def run_paper(args: argparse.Namespace, campaign: realtime.Campaign) -> None:
    chosen = QUICK_PAGES if args.quick else {name: list(pages.PAPER) for name in MEDIA}
    total = args.repetitions * sum(len(chosen[n]) * len(CONTENDERS[n]) * (2 if n == "lossy" else 1) for n in MEDIA)
    for repetition in range(1, args.repetitions + 1):
        for name, (kind, hops) in MEDIA.items():
            keys: list[Row] = [{"medium": name, "loader": "chromium", "page": page, "connections": connections, "repetition": repetition}
                    for page in chosen[name] for connections in ([1, 2] if name == "lossy" else [1])]
            missing = campaign.todo(keys, CONTENDERS[name])
            if not missing:
                continue
            with namespaces.Lab() as lab:
                servers = Servers(lab, Mesh(lab, kind, hops, seed=repetition), 1000)
                lab.run(servers.mesh.gateway, "ip", "addr", "add", f"{SECOND_ADDRESS}/32", "dev", "mesh")
                for contender, todo in missing.items():
                    with campaign.blaming(todo, contender), browser(servers, contender) as (chromium, url):
                        for key in todo:
                            campaign.add(
                                key, contender,
                                lambda: load(servers, chromium, contender, url, key["page"], key["connections"]),
                                f"{len(campaign.rows) + 1}/{total} {name} {{contender}} {{page}} (connections: {{connections}}): {{ms:.0f}} ms")


def of(rows: list[Row], name: str, page: str, contender: str, connections: int = 1) -> list[Row]:
    """Rows of the part "paper"."""
    return [r for r in rows if "beyond_ms" not in r
            and (r["medium"], r["page"], r["contender"], r["connections"]) == (name, page, contender, connections)]


def of_scene(rows: list[Row], scene: str, loader: str, page: str, contender: str) -> list[Row]:
    """Rows of the part "relay"."""
    key = {**SCENES[scene][0], "loader": loader, "page": page, "contender": contender}
    return [r for r in rows if "beyond_ms" in r and all(r[k] == v for k, v in key.items())]


Turns = dict[tuple[int, str], float]


def shares(rows: list[Row], scene: str, loader: str, page: str) -> Turns:
    """A page's time through the relay over its time by TCP."""
    base, other = ({realtime.turn(r): r["ms"] for r in of_scene(rows, scene, loader, page, c)} for c in RELAY_CONTENDERS)
    return {n: other[n] / base[n] for n in base if n in other}


def least(rows: list[Row], scene: str, loader: str, page: str) -> Turns:
    """The least share that any relay can reach: the page's time without a mesh, or that of its bytes at the mesh's ceiling."""
    base, edge = ({realtime.turn(r): r["ms"] for r in of_scene(rows, scene, loader, page, c)} for c in ("tcp", EDGE))
    ceiling = bquic_mesh.ceiling()
    return {n: max(edge[n], pages.size(page) * 8 / ceiling / 1000) / base[n] for n in base if n in edge} if ceiling else {}


def share_of_all(rows: list[Row], scene: str, loader: str, share: Callable[..., Turns] = shares) -> list[float]:
    """The geometric mean over the pages, repetition by repetition, without repetitions that lack a page."""
    some = [s for page in pages.PAGES if (s := share(rows, scene, loader, page))]
    whole = set.intersection(*map(set, some)) if some else set()
    return [results.geomean([s[n] for s in some]) for n in sorted(whole)]


# The pairs that are compared, by the reduction of the load time.
REDUCTIONS = [("h3-bquic", "h3-standard"), ("relay-bquic", "relay-standard"), ("relay-bquic", "tcp")]


def reduction(base: list[Row], other: list[Row]) -> list[float]:
    """The reduction of the load time, repetition by repetition."""
    return [1 - g for g in realtime.gains(base, other, "ms")]


def percent(values: list[float]) -> str:
    return "{:+.0%} ({:+.0%} to {:+.0%})".format(*(-v for v in interval(values))) if values else "-"


def report(rows: list[Row]) -> str:
    paper_rows, relay_rows = ([r for r in rows if ("beyond_ms" in r) == relay] for relay in (False, True))
    tables = [report_relay(relay_rows)] if relay_rows else []
    tables += [report_paper(paper_rows)] if paper_rows else []
    return "\n\n".join([*tables, realtime.notes(rows)])


def report_relay(rows: list[Row]) -> str:
    lines = []
    for scene, (_, target) in SCENES.items():
        for loader in (*replay.LOADERS, "chromium"):
            of_all = share_of_all(rows, scene, loader)
            if not of_all:
                continue
            each = {p: interval(list(s.values()))[0] for p in pages.PAGES if (s := shares(rows, scene, loader, p))}
            worst = max(each, key=lambda p: each[p])
            middle = interval(of_all)[0]
            bulk = [median([r for p in each for r in of_scene(rows, scene, loader, p, c)], "bulk_mbps") for c in RELAY_CONTENDERS]
            met = middle <= target and each[worst] <= 1
            possible = share_of_all(rows, scene, loader, least)
            lines.append([
                scene, loader, str(len(each)), spread(of_all, ".3f"), f"{interval(possible)[0]:.3f}" if possible else "-",
                f"{worst} {each[worst]:.2f}",
                str(sum(share > 1 for share in each.values())), f"{target:.2f}",
                "-" if loader == "chromium" else "met" if met else "MISSED",
                "/".join(results.number(b) for b in bulk) if bulk[0] else "-", str(len(of_all))])
    text = "Pages through the relay: share of their time by TCP, geometric mean\n\n" + results.table(
        ["origin", "loader", "pages", "relay/tcp", "at best", "worst", "slower", "target", "", "neighbour, Mbit/s: tcp/relay", "runs"], lines)
    lines = []
    for page in pages.PAGES:
        cells = []
        for scene in SCENES:
            for loader in replay.LOADERS:
                some = shares(rows, scene, loader, page)
                ms = [median(of_scene(rows, scene, loader, page, c), "ms") for c in RELAY_CONTENDERS]
                cells.append(f"{'/'.join(results.number(m, '.0f') for m in ms)} {interval(list(some.values()))[0]:.2f}" if some else "-")
        if set(cells) != {"-"}:
            lines.append([page, str(pages.objects(page)), f"{pages.size(page) / 1000:.0f}", *cells])
    return text + "\n\nMedians in ms: tcp/relay-bquic, and the median ratio\n\n" + results.table(
        ["page", "objects", "kB", *(f"{scene}, {loader}" for scene in SCENES for loader in replay.LOADERS)], lines)


def report_paper(rows: list[Row]) -> str:
    lines = []
    for page in pages.PAPER:
        some = {c: of(rows, "mesh", page, c) for c in CONTENDERS["mesh"]}
        if any(some.values()):
            lines.append([
                page, str(pages.objects(page)), f"{pages.size(page) / 1000:.0f}",
                *(results.number(median(some[c], "ms"), ".0f") for c in CONTENDERS["mesh"]),
                *(percent(reduction(some[base], some[other])) for other, base in REDUCTIONS),
                str(max(len(s) for s in some.values()))])
    text = "Mesh: medians in ms; change with 95 % interval\n\n" + results.table(
        ["page", "objects", "kB", *CONTENDERS["mesh"], *(f"{other}/{base}" for other, base in REDUCTIONS), "loads"], lines)
    lines = []
    for page in pages.PAPER:
        for contender in CONTENDERS["lossy"]:
            one, two = (of(rows, "lossy", page, contender, n) for n in (1, 2))
            if one and two:
                lines.append([page, contender, results.number(median(one, "ms"), ".0f"), results.number(median(two, "ms"), ".0f"),
                              percent(reduction(one, two)), str(len(one))])
    text += "\n\nLossy: 1 and 2 connections\n\n" + results.table(
        ["page", "contender", "1: ms", "2: ms", "change", "loads"], lines)
    return text


def paper(rows: list[Row]) -> list[list[str]]:
    what = ["page load time, 11 pages, smallest and largest: BQUIC over QUIC", "H2-Parallel, 2 connections over 1, 2 % loss, median of all pages"]
    figures = ["-5 % (small), -25 % (large)", "-53 %"]
    ends = [reduction(of(rows, "mesh", p, "h3-standard"), of(rows, "mesh", p, "h3-bquic"))
            for p in (min(pages.PAPER, key=pages.size), max(pages.PAPER, key=pages.size))]
    halves = [reduction(of(rows, "lossy", p, "tcp", 1), of(rows, "lossy", p, "tcp", 2)) for p in pages.PAPER]
    lines = []
    if all(ends):
        small, large = (interval(e)[0] for e in ends)
        lines.append([what[0], figures[0], f"{-small:+.0%}, {-large:+.0%}",
                      "reproduced" if small >= 0.9 * 0.05 and large >= 0.9 * 0.25 else "not reproduced"])
    else:
        lines.append(results.not_run(what[0], figures[0]))
    if all(halves):
        of_all = interval([interval(h)[0] for h in halves])[0]
        lines.append([what[1], figures[1], f"{-of_all:+.0%}", "reproduced" if of_all >= 0.9 * 0.53 else "not reproduced"])
    else:
        lines.append(results.not_run(what[1], figures[1]))
    return lines


WHY_NOT = (
    "Where it is not reproduced: Chromium acknowledges every 10th packet by itself, so it already has the client's half of "
    "BQUIC, and today's stock QUIC leaves less to gain (above). Two connections were compared with the TCP of 2016, which had no RACK."
)


def draw(rows: list[Row]) -> None:
    with results.drawing(FIGURE, (8, 7), 2, 1) as (mesh, lossy):

        def plot(axes: Any, label: str, found: list[tuple[str, list[float]]], k: int) -> None:
            results.intervals(axes, [(list(pages.PAPER).index(page) + 0.15 * (k - 1), interval([100 * v for v in values]))
                                     for page, values in found if values], label)

        for k, (other, base) in enumerate(REDUCTIONS):
            plot(mesh, f"{other} against {base}",
                 [(p, reduction(of(rows, "mesh", p, base), of(rows, "mesh", p, other))) for p in pages.PAPER], k)
        for k, contender in enumerate(CONTENDERS["lossy"]):
            plot(lossy, f"{contender}, 2 connections against 1",
                 [(p, reduction(of(rows, "lossy", p, contender, 1), of(rows, "lossy", p, contender, 2))) for p in pages.PAPER], k)
        for axes, title in ((mesh, "mesh"), (lossy, "7 Mbit/s, 50 ms, 2 % loss")):
            axes.axhline(0, linewidth=0.5, color="grey")
            axes.set_xticks(range(len(pages.PAPER)), [f"{p}\n{pages.size(p) // 1000} kB" for p in pages.PAPER], fontsize=7)
            axes.set_ylabel("less load time, %", fontsize=8)
            axes.set_title(title, fontsize=9)
            axes.legend(fontsize=7)


def main() -> int:
    return realtime.main("page-load", __doc__ or "", (15, 5), RESULTS, QUICK_RESULTS, run, report, draw, PARTS)


if __name__ == "__main__":
    command(main)
