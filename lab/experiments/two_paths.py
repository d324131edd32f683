#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pages over two paths of equal cost, one of them congested.

The thesis (2019, chapter 5, figure 5.6): a router spreads flows over two paths of equal cost by a hash. While one of them is
congested, HTTP/2 over one connection is slow whenever the hash chooses that path. HTTP/1.1 and two connections (H2-Parallel) are
only slightly slower.

Here: two wires of 20 Mbit/s with an RTT of 20 ms and a buffer of 100 packets between node and gateway. Both
choose a wire by a hash of addresses and ports. "congested": the second wire loses 2 % of the packets in either direction, and eight downloads of another client fill
its queue. "tcp": the relay is off; HTTP/1.1 opens up to six connections, HTTP/2 one. "relay-1", "relay-2": the relay has one
connection to the gateway, or two; each of two is the quickest of four from different ports. Each repetition has new connections, and so
new ports.

Writes results/two-paths.json (rows: lab/realtime.py) and docs/results/two-paths.svg. An interrupted run continues where it stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import sys
import time
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from lab import command, measure, medium, namespaces, pages, realtime, replay, results  # noqa: E402
from lab.results import Row, spread  # noqa: E402
from lab.servers import Servers  # noqa: E402
from lab.topology import TwoPaths  # noqa: E402

RESULTS = ROOT / "results/two-paths.json"
QUICK_RESULTS = ROOT / "build/lab/two-paths.json"
FIGURE = ROOT / "docs/results/two-paths.svg"

RATE_MBPS = 20
LOSS = 0.02
SCENES = ("free", "congested")
CONTENDERS = ["tcp", "relay-1", "relay-2"]
PAGES = ["google", "twitter", "reddit", "instagram", "youtube"]  # of the thesis; from light to heavy
QUICK_PAGES = ["google", "reddit"]
FIRST = 11  # first repetition
NEIGHBOUR_CONNECTIONS = 8
NEIGHBOUR_SECONDS = 3.0  # until the queue is full
PAUSE_SECONDS = 0.3  # between pages
FIGURES = ("ms",)
# The pages' geometric mean by two connections, congested, over that with both paths free.
TARGET = 1.15


def wire(loss: float) -> medium.Kind:
    flags = ["--wired", f"{RATE_MBPS}Mbps", "--delay", "10", "--queue", "100"] + (["--loss", str(loss)] if loss else [])
    return medium.Kind("wire", tuple(flags), RATE_MBPS)


class Scene:
    """The two paths, and the neighbour's downloads over the second one if it is congested."""

    def __init__(self, lab: namespaces.Lab, scene: str, seed: int) -> None:
        self.lab = lab
        self.mesh = TwoPaths(lab, wire(0), wire(LOSS if scene == "congested" else 0), seed)
        self.servers = Servers(lab, self.mesh, 1000)
        self.url = self.servers.site("standard", "origin")
        self.mesh.add_client(lab, TwoPaths.NEIGHBOUR)
        self.mesh.pin(lab, TwoPaths.NEIGHBOUR)
        if scene == "congested":
            for _ in range(NEIGHBOUR_CONNECTIONS):
                self.servers.neighbour("--http1.1")
            time.sleep(NEIGHBOUR_SECONDS)

    @contextlib.contextmanager
    def of(self, contender: str) -> Iterator[None]:
        """Within the block, loads are this contender's."""
        self._relayed = contender != "tcp"
        try:
            if self._relayed:
                self.servers.relay("bquic", int(contender.partition("-")[2]))
                self.load("h2", "google")  # it has connections
            yield
        finally:
            self.servers.stop_relay()

    def load(self, loader: str, page: str) -> Row:
        pages.write(self.servers.root, page)
        before = self._carried()
        time.sleep(PAUSE_SECONDS)

        def once() -> Row:
            loaded = replay.load(self.lab, self.mesh.phone, loader, self.url, page)
            return {"ms": round(loaded.ms, 2), "tcp_connections": loaded.connections}

        row = measure.counted(self.mesh.medium, once, beyond=self.mesh.other)
        if self._relayed and self._carried() == before:
            raise namespaces.Failed("the relay did not carry the page")
        return row

    def _carried(self) -> int:
        return int(self.servers.relay_status()["carried"]["total"]) if self._relayed else 0


def run(args: argparse.Namespace, path: pathlib.Path) -> list[Row]:
    replay.build()
    campaign = realtime.Campaign("two-paths", args, path, FIGURES, [replay.BINARY, replay.RECORDINGS])
    chosen = QUICK_PAGES if args.quick else PAGES
    for repetition in range(FIRST, FIRST + args.repetitions):
        for scene in SCENES:
            keys: list[Row] = [{"scene": scene, "loader": loader, "page": page, "repetition": repetition}
                               for loader in replay.LOADERS for page in chosen]
            missing = campaign.todo(keys, CONTENDERS)
            if not missing:
                continue
            with namespaces.Lab() as lab:
                at = Scene(lab, scene, repetition)
                for contender, todo in missing.items():
                    with campaign.blaming(todo, contender), at.of(contender):
                        for key in todo:
                            campaign.add(key, contender, lambda: at.load(key["loader"], key["page"]),
                                         f"{repetition}: {scene}, {{contender}} {{page}} by {{loader}}: {{ms:.0f}} ms")
    return campaign.rows


def means(rows: list[Row], scene: str, contender: str, loader: str) -> dict[tuple[int, str], float]:
    """The pages' geometric mean in ms, turn by turn, without turns that lack a page."""
    some = [r for r in rows if (r["scene"], r["contender"], r["loader"]) == (scene, contender, loader)]
    turns = {n: [r["ms"] for r in some if realtime.turn(r) == n] for n in sorted(set(map(realtime.turn, some)))}
    return {n: results.geomean(ms) for n, ms in turns.items() if len(ms) == len({r["page"] for r in rows})}


def slowdowns(rows: list[Row], contender: str, loader: str) -> list[float]:
    """Congested over free, turn by turn."""
    free, congested = (means(rows, scene, contender, loader) for scene in SCENES)
    return [congested[n] / free[n] for n in free if n in congested]


def report(rows: list[Row]) -> str:
    lines = []
    for loader in replay.LOADERS:
        for contender in CONTENDERS:
            slower = slowdowns(rows, contender, loader)
            if not slower:
                continue
            middle = results.geomean(slower)
            verdict = "-" if contender != "relay-2" else "met" if middle <= TARGET else "MISSED"
            lines.append([
                contender, loader, *(spread(list(means(rows, scene, contender, loader).values()), ".0f") for scene in SCENES),
                f"{middle:.2f}", spread(slower), f"{max(slower):.2f}", verdict, str(len(slower))])
    return results.table(
        ["contender", "loader", "free, ms", "congested, ms", "congested / free, mean", "median", "worst", f"at most {TARGET}", "runs"],
        lines) + "\n\n" + realtime.notes(rows)


def draw(rows: list[Row]) -> None:
    with results.drawing(FIGURE, (7, 3)) as axes:
        shown = [(contender, loader) for loader in replay.LOADERS for contender in CONTENDERS if slowdowns(rows, contender, loader)]
        for k, (contender, loader) in enumerate(shown):
            for which, (scene, marker) in enumerate(zip(SCENES, "ox")):
                found = list(means(rows, scene, contender, loader).values())
                axes.plot([k + 0.2 * (which - 0.5)] * len(found), found, marker, color=f"C{which}", markersize=4, label=None if k else scene)
        axes.set_xticks(range(len(shown)), [f"{contender}\n{loader}" for contender, loader in shown], fontsize=7)
        axes.set_yscale("log")
        axes.set_ylabel("pages' geometric mean, ms", fontsize=8)
        axes.legend(fontsize=7)


def main() -> int:
    return realtime.main("two-paths", __doc__ or "", (10, 2), RESULTS, QUICK_RESULTS, run, report, draw)


if __name__ == "__main__":
    command(main)
