# SPDX-License-Identifier: Apache-2.0
"""README's tables and their plot, from results/*.json: what clients gain from the relay and from the scheduler, on against off."""

from __future__ import annotations

import dataclasses
import pathlib
import sys
from collections.abc import Sequence

from lab import ROOT

sys.path.insert(0, str(ROOT / "lab/experiments"))

import beside  # noqa: E402
import bquic_mesh  # noqa: E402
import latency  # noqa: E402
import page_load  # noqa: E402
import starved  # noqa: E402

from lab import pages, results, simulation  # noqa: E402
from lab.results import Row, geomean, interval, median, spread  # noqa: E402

RESULTS = ROOT / "results"
README = ROOT / "README.md"
FIGURE = ROOT / "docs/results/relay.svg"
BEGIN, END = "<!-- by lab/report.py, from results/ -->\n", "<!-- until here -->\n"

HOPS = 3
BEYOND_MS = (20, 45)  # the table has the first one
CROWD: Row = {"phy": "11n", "file_mb": 2}
CROWDS: dict[str, Row] = {  # by what differs
    "30 clients": {},
    "30 clients, servers 50 ms away": {"rtt_ms": 50},
    "30 clients, ath10k's airtime accounting": {"driver": "tx-only"},
    "30 clients, airtime queue limits (mt76)": {"driver": "aql"},
    "50 clients": {"stations": 50},
    "10 clients": {"stations": 10},
    "3 clients": {"stations": 3},  # the least gain
}
LAST = ": time until the last one finishes"  # what a crowd's line says after its name


@dataclasses.dataclass
class Line:
    """One activity of a client, repetition by repetition."""

    what: str
    unit: str  # a format; {} is the figure
    off: list[float]
    on: list[float]
    share: list[float]  # its time with the relay over its time without


def compared(what: str, unit: str, off: Sequence[Row], on: Sequence[Row], key: str) -> list[Line]:
    """One line, or none if no repetition is in both. For Mbit/s, more is better; they are converted to time."""
    a, b = ({(r["repetition"], r.get("binary", "")): r[key] for r in rows} for rows in (off, on))  # simulations have no binary
    both = sorted(set(a) & set(b))
    if not both:
        return []
    share = [a[n] / b[n] if key == "mbps" else b[n] / a[n] for n in both]
    return [Line(what, unit, [a[n] for n in both], [b[n] for n in both], share)]


def of_pages(rows: list[Row], scene: str, loader: str, name: str) -> list[Line]:
    share = page_load.share_of_all(rows, scene, loader)
    if not share:
        return []
    there = [p for p in pages.PAGES if page_load.shares(rows, scene, loader, p)]
    off, on = (
        geomean([median(page_load.of_scene(rows, scene, loader, p, c), "ms") or 0 for p in there]) for c in page_load.RELAY_CONTENDERS)
    return [Line(f"{len(there)} web pages, {name}", "{:.0f} ms", [off], [on], share)]


def lines(ms: int, directory: pathlib.Path) -> list[Line]:
    """The lines for an origin that is ms beyond the gateway."""
    mesh, page, small = (results.read(directory / f"{name}.json") for name in ("bquic-mesh", "page-load", "latency"))
    some: list[Line] = []
    for loader, name in (("h1", "HTTP/1.1"), ("h2", "HTTP/2")):
        some += of_pages(page, f"{ms} ms beyond", loader, name)
        if f"{ms} ms beyond, beside a download" in page_load.SCENES:
            some += of_pages(page, f"{ms} ms beyond, beside a download", loader, f"{name}, beside a neighbour's download")
    for size in (2_000_000, 10_000_000):
        off, on = (bquic_mesh.of_beyond(mesh, HOPS, ms, size, c) for c in bquic_mesh.BEYOND_CONTENDERS)
        some += compared(f"a download of {bquic_mesh.sized(size)}", "{:.1f} Mbit/s", off, on, "mbps")
    for downloads, uploads, name in ((0, 0, ""), (1, 0, ", beside a neighbour's download"), (1, 1, ", beside a download and an upload")):
        off, on = (latency.of(small, {"downloads": downloads, "uploads": uploads, "beyond_ms": ms}, "request", c)
                   for c in latency.CONTENDERS)
        some += compared(f"a request of 1 kB{name}", "{:.0f} ms", off, on, "median_ms")
    if ms == beside.CENTRE["beyond_ms"]:
        rows = results.read(directory / "beside.json")
        for others, name in ((0, ""), (4, " and four of another node")):
            off, on = (beside.of(rows, {"own": 4, "clients": 4, "others": others}, c) for c in ("tcp", "relay-bquic"))
            some += compared(f"a request of 1 kB, beside four downloads{name}", "{:.0f} ms", off, on, "request_ms")
        some += compared("four clients' downloads, beside four of another node", "{:.1f} Mbit/s", off, on, "mbps")
    return some


def slow_node(directory: pathlib.Path) -> list[Line]:
    """A relay whose processor is too slow for its leg: the worst of the cases on which nothing was chosen."""
    rows = results.read(directory / "starved.json")
    some: list[Line] = []
    for leg in starved.LEGS:
        for level in starved.REPORTED:
            off, on = ([{"repetition": r["repetition"], "s": r[which]["bulk"]} for r in rows if (r["leg"], r["level"]) == (leg, level)]
                       for which in ("off", "on"))
            some += compared(f"a download of 10 MB over a {leg} Mbit/s wire, with little processor time", "{:.1f} s", off, on, "s")
    worst = sorted(some, key=lambda line: interval(line.share)[0])[-1:]
    return [dataclasses.replace(line, what=f"{line.what} (worst of {len(some)} cases)") for line in worst]


def crowded(directory: pathlib.Path) -> list[Line]:
    """Crowded access points without the scheduler and with its defaults, on seeds on which nothing was chosen."""
    some: list[Line] = []
    for file, what, unit, key, cells in (
        ("dense-download", LAST, "{:.1f} s", "worst_s", CROWDS),
        ("interactive", ": 99th percentile of a call's packet delays", "{:.0f} ms", "delay_p99_ms",
         {"30 clients": {"interactive": "g711", "interactive_alone": True}}),
    ):
        rows = [r for r in results.read(directory / f"{file}.json") if r["seed"] in simulation.REPORTED[r["phy"]]]
        for name, differs in cells.items():
            off, on = (
                [{"repetition": r["seed"], key: r[key]} for r in rows
                 if all(r[k] == v for k, v in {**simulation.CENTRE, **CROWD, **differs, **form}.items() if k != "seed")]
                for form in ({"form": "none"}, simulation.SHIPPED["11n"]))
            some += compared(name + what, unit, off, on, key)
    for line in some:
        if line.unit == "{:.1f} s" and interval(line.off)[0] < 1:
            line.unit = "{:.2f} s"  # with one digit, rounding is a fifth
    return some


def table(header: str, some: list[Line]) -> str:
    text = f"| {header} | time on ÷ time off |\n|---|---|---|---|\n"
    for line in some:
        off, on = (line.unit.format(interval(values)[0]) for values in (line.off, line.on))
        text += f"| {line.what} | {off} | **{on}** | {spread(line.share)} |\n"
    return text


def block() -> str:
    """README's text between BEGIN and END."""
    mb, kbit = CROWD["file_mb"], simulation.CENTRE["upload_kbit"]
    relay = table(f"{HOPS} hops, 802.11n, origin {BEYOND_MS[0]} ms beyond the gateway | relay off | relay on",
                  [*lines(BEYOND_MS[0], RESULTS), *slow_node(RESULTS)])
    scheduler = table("one access point, 802.11n | scheduler off | scheduler on", crowded(RESULTS))
    return (f"{relay}\n![relay on against off]({FIGURE.relative_to(ROOT)})\n\n"
            "This table shows what the scheduler gains for the clients of a crowded access point, in simulations. Each of them downloads"
            f" {mb} MB and\nsends {kbit} kbit/s meanwhile:\n\n{scheduler}\n"
            "Figures are medians of all runs; for web pages, they are the geometric mean of all pages' medians. The last column compares runs in pairs, one with\n"
            "relay or scheduler off and one with it on. It is the median of the pairs' ratios, so it can differ from the ratio of the two medians. In parentheses is its\n"
            "95 % interval, or, with fewer than six pairs, the smallest and the largest ratio.\n")


def draw() -> None:
    with results.drawing(FIGURE, (8, 3.6)) as axes:
        names: list[str] = []
        for k, ms in enumerate(BEYOND_MS):
            points = []
            for line in lines(ms, RESULTS):
                if line.what not in names:
                    names.append(line.what)
                points.append((names.index(line.what) + 0.16 * (2 * k - 1), interval(line.share)))
            axes.errorbar(
                [v[0] for _, v in points], [y for y, _ in points],
                xerr=results.arms([v for _, v in points]), fmt="o", capsize=3, label=f"origin {ms} ms beyond")
        axes.axvline(1, linewidth=0.5, color="grey")
        axes.set_yticks(range(len(names)), names, fontsize=8)
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        axes.set_xlabel(f"time with the relay, of that without (median, 95 %), {HOPS} hops", fontsize=8)
        axes.legend(fontsize=7)


def update() -> None:
    """Writes the tables."""
    text = README.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"README.md: no {BEGIN.strip()} ... {END.strip()}")
    README.write_text(before + begin + block() + end + after)
