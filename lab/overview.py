# SPDX-License-Identifier: Apache-2.0
"""The first page of docs/results.md: what was found, in ten lines and five plots, from results/*.json."""

from __future__ import annotations

import importlib
import pathlib
import re
import statistics
import sys
from collections.abc import Sequence
from typing import Any

from lab import ROOT

sys.path.insert(0, str(ROOT / "lab/experiments"))

import beside  # noqa: E402
import bquic_mesh  # noqa: E402
import fairness  # noqa: E402
import paths  # noqa: E402
import router  # noqa: E402
import sharing  # noqa: E402

from lab import headline, realtime, results  # noqa: E402
from lab.results import Row, spread  # noqa: E402

FIGURES = {  # in docs/results
    "relay": "What clients gain from the relay, by how far the origin is beyond the gateway.",
    "latency": "How long small requests take beside a neighbour's downloads and uploads.",
    "dense-download-11n": "When the last client of a crowded 802.11n access point is done.",
    "paths": "`bquic` and stock QUIC on random paths.",
    "router": "What a byte costs on a MIPS router, as the code was made cheaper.",
}


def anchor(title: str) -> str:
    """Where a link to a heading goes (GitHub's rule)."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def details(*modules: str) -> str:
    titles = [(importlib.import_module(name).__doc__ or "").strip().split("\n", 1)[0] for name in modules]
    return "; ".join(f"[{name.replace('_', '-')}](#{anchor(title)})" for name, title in zip(modules, titles))


def clients(directory: pathlib.Path) -> list[str]:
    """What clients gain from the relay."""
    ms = headline.BEYOND_MS[0]
    at = f"{headline.HOPS} hops, 802.11n, origin {ms} ms beyond the gateway"
    by = {line.what: line for line in headline.lines(ms, directory)}
    shares = [f"web pages {spread(line.share)} over {what.split(', ')[1]}" for what, line in by.items()
              if "web pages" in what and "neighbour" not in what]
    shares += [f"{what} {spread(line.share)}" for what, line in by.items() if "download of" in what]
    some = []
    if shares:
        some.append(f"**Through the relay**, clients wait for this share of the time without it: {'; '.join(shares)} ({at})."
                    f" {details('page_load', 'bquic_mesh')}")
    requests = [f"{spread(line.share)} {what.partition(', ')[2] or 'alone'}" for what, line in by.items() if "request" in what]
    if requests:
        some.append(f"**Small requests** of 1 kB, on the same path: {'; '.join(requests)}. {details('latency')}")
    return some


def others(rows: list[Row]) -> list[str]:
    """What clients get beside another node's downloads."""
    base, relayed, single = (beside.of(rows, beside.AXES[-1], c) for c in beside.CONTENDERS)
    gains = [realtime.gains(base, some, "mbps") for some in (relayed, single)]
    if not all(gains):
        return []
    return [f"**Beside four downloads of another node**, four clients' downloads through the relay are {spread(gains[0])} times as fast as without it;"
            f" with a single connection (`option connections '1'`) {spread(gains[1])} times. {details('beside')}"]


def leg(rows: list[Row]) -> list[str]:
    ratios = bquic_mesh.leg_gains(rows)
    if not ratios:
        return []
    worst = min(ratios, key=lambda name: ratios[name])
    return [f"**The mesh leg alone:** 10 MB by `bquic` are {results.geomean(list(ratios.values())):.2f} times as fast as by TCP CUBIC, in the"
            f" geometric mean of {len(ratios)} settings; the least is {ratios[worst]:.2f} ({worst}). {details('bquic_mesh')}"]


def random_paths(rows: list[Row]) -> list[str]:
    found = sorted(paths.ratio(r) for r in rows if not r["variant"])
    if not found:
        return []
    share = sum(r >= paths.WANTED for r in found) / len(found)
    return [f"**Random paths:** on {len(found)} of them, in virtual time, `bquic` is {results.geomean(found):.2f} times as fast as stock QUIC in the"
            f" geometric mean, at least {paths.WANTED} times on {100 * share:.1f} %, and {found[0]:.2f} times on the worst. {details('paths')}"]


def neighbours(rows: list[Row], virtual: list[Row]) -> list[str]:
    """What a flow of ours takes of an equal share, beside those of others: over the emulated media, and in virtual time."""
    equal = [cell for cell in sharing.cells(virtual) if cell[3] == cell[4]]  # RTTs

    def shares(contender: str) -> list[float]:
        return [results.interval(results.figures(some, "of_share"))[0] for name in fairness.MEDIA for who, against, others in fairness.PAIRS
                if who == contender and (some := fairness.of(rows, name, (who, against, others)))]

    def virtual_shares(contender: str) -> list[float]:
        return [found[0] for cell in equal if (found := sharing.figures(virtual, cell, contender or cell[1]))]

    def told(ours: list[float], who: str, others: list[float]) -> str:
        fair = sum(sharing.LEAST <= share <= sharing.MOST for share in ours)
        return (f"{min(ours):.2f} to {max(ours):.2f} of an equal share, and {sharing.LEAST} to {sharing.MOST} in {fair} of {len(ours)} mixes"
                + (f" ({who}: {min(others):.2f} to {max(others):.2f})" if others else ""))

    some = []
    if ours := shares("bquic"):
        some.append(f"beside Linux's CUBIC and stock QUIC, over WiFi and a wire, `bquic` takes"
                    f" {told(ours, 'stock QUIC beside CUBIC', shares('standard'))}. {details('fairness')}")
    if ours := virtual_shares("bquic"):
        some.append(f"In virtual time, with equal RTTs, it takes {told(ours, 'a further flow of their own kind', virtual_shares(''))}. {details('sharing')}")
    return [f"**Other users:** {' '.join(some)}"] if some else []


def crowd(directory: pathlib.Path) -> list[str]:
    lines = {line.what.removesuffix(headline.LAST): spread(line.share) for line in headline.crowded(directory) if line.what.endswith(headline.LAST)}
    if not lines:
        return []
    shares = "; ".join(f"{share} with {name}" for name, share in lines.items())
    return [f"**A crowded access point:** with the scheduler, the last client is done after this share of the time, in simulations of 802.11n:"
            f" {shares}. {details('dense_download')}"]


def processors(rows: list[Row], starved: list[headline.Line]) -> list[str]:
    by = {router.key(row): row for row in rows}
    relay = by.get(router.cell_key("relay", "down", "bquic", "off", router.STEPS[-1]))
    first = by.get(router.cell_key("relay", "down", "bquic", "off", router.STEPS[0]))
    held = [row for row in rows if row["what"] == "held" and row["step"] == router.STEPS[-1] and row["board_mb"] == router.BOARDS_MB[0]]
    some = []
    if relay and first:
        slow, fast = (router.mbps("AR9344", relay, per_cycle) for per_cycle in router.PER_CYCLE)
        some.append(f"**A MIPS router** needs {relay['instructions_per_byte']:.0f} instructions for each byte that it relays"
                    f" ({first['instructions_per_byte']:.0f} with Go's own runtime and cipher): an AR9344 carries {slow:.0f} to {fast:.0f} Mbit/s."
                    + (f" With {held[0]['board_mb']} MB of memory it holds {max(row['carried'] for row in held)} connections; more go direct."
                       if held else "") + f" {details('router')}")
    if starved:
        some.append(f"**A relay whose processor is too slow** steps aside: at worst, a download takes {spread(starved[0].share)} of its time without"
                    f" it. {details('starved')}")
    return some


def strangers(attacks: list[Row], fleet: list[Row]) -> list[str]:
    some = []
    if attacks:
        kept = [row["good_ratio"] for row in attacks]
        some.append(f"under {len(kept)} attacks, one at a time, another client keeps {min(kept):.2f} to {max(kept):.2f} of its throughput (median"
                    f" {statistics.median(kept):.2f}), and {sum(row['good_errors'] for row in attacks)} of its requests fail")
    if fleet:
        row = fleet[-1]
        some.append(f"{row['peers']} relays with {row['connections']} connections each get {row['transfers']:,} transfers in"
                    f" {row['seconds'] / 60:.0f} min with {row['errors']} errors, and Jain's index is {row['jain']:.2f}")
    return [f"**A gateway among strangers:** {'; '.join(some)}. {details('abuse', 'fleet')}"] if some else []


def reproduced(lines: Sequence[Sequence[str]]) -> str:
    """LINES are those of the papers' table."""
    fine = sum(line[3] in ("reproduced", "better") for line in lines)
    return (f"**The papers:** of {len(lines)} results, {fine} are reproduced or exceeded. [The table](#the-papers-results) has each of them, and"
            " the sections say why the others are not.")


def page(paper_lines: Sequence[Sequence[str]], directory: pathlib.Path = ROOT / "results") -> str:
    """The page. PAPER_LINES is the papers' table; the rows come from DIRECTORY."""

    def rows(name: str) -> list[dict[str, Any]]:
        return results.read(directory / f"{name}.json")

    lines = [
        *clients(directory), *others(rows("beside")), *leg(rows("bquic-mesh")), *random_paths(rows("paths")), *neighbours(rows("fairness"), rows("sharing")), *crowd(directory),
        *processors(rows("router"), headline.slow_node(directory)), *strangers(rows("abuse"), rows("fleet")), reproduced(paper_lines)]
    plots = [f"![{name}](results/{name}.svg)\n*{caption}*\n" for name, caption in FIGURES.items()
             if directory == ROOT / "results" and (ROOT / f"docs/results/{name}.svg").exists()]
    return "## In short\n\n" + "".join(f"- {line}\n" for line in lines) + "\n" + "\n".join(plots)
