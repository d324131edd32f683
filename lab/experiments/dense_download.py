#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Many stations of one AP download at once: with WiFiRR, without, and with others' schedulers.

The paper (WiFiRR, TMC 2016, table 2 and figures 10 to 15): 30 stations of 802.11g with Minstrel download 5 MB each, and send a browser's
requests meanwhile. Their AP has one FIFO of 512 packets. The last station finishes after 443 s, with WiFiRR after 284 s (1.6x). With one
multiplexed connection, the gain is 2.9x, with a constant 10 kbit/s up 3.2x.

Here: ns-3 with wifirrd's own policy.c (lab/ns3). The gain that counts is the one over today's AP (mac80211: CoDel flow queues, airtime
fairness). The paper's AP stands beside it. The "centre" has 30 stations, 802.11g, Minstrel and today's AP; each station sends a constant
200 kbit/s, and goes on with that after its download. Each other cell differs from the centre as its line says. A client's time begins with its own
start. The gain is the time of the last client without a scheduler over its time with one.

Each cell has the five seeds on which turns were chosen. Where these do not tell whether wifirrd is slower than no scheduler (the interval of the gain
contains 0.98), both have fifteen. Crowds have other seeds (docs/lab.md, "A crowded cell"), and a table of their own.
Runs "2/5": two of five runs have a gain. In the others, no run of the pair ended within the limit, or the run to compare with is missing.

Writes results/dense-download.json (rows: lab/simulation.py) and
docs/results/dense-download*.svg. An interrupted run continues where it stopped.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys
from collections.abc import Iterable

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from lab import command, results, simulation  # noqa: E402
from lab.results import FEWEST_RUNS, Row, interval, spread  # noqa: E402
from lab.simulation import CENTRE, REPORTED, pairs  # noqa: E402

RESULTS = ROOT / "results/dense-download.json"
QUICK_RESULTS = ROOT / "build/lab/dense-download.json"
FIGURES = ROOT / "docs/results"

FORMS = ["none", "ap", "middlebox", "wifirr", "wifirr-htb", "wifox"]
OURS = ["none", "wifirr", "wifirr-htb"]
PAPERS = ["none", "ap", "middlebox", "wifirr-htb", "wifox"]  # airtime weights need mac80211

# Cells for the paper's tables and the named gains have files of 5 MB. The other cells
# have smaller files, so that the full set ends within 3 hours.
NAMED: list[tuple[Row, list[str]]] = [
    ({}, FORMS), ({"upload_goes_on": False}, FORMS), ({"upload_goes_on": False, "upload_kbit": 100}, FORMS),
    ({"upload_goes_on": False, "traffic": "browse", "upload_kbit": 10}, FORMS),
    # a few stations finish soon, so small files would show little but the start
    ({"stations": 1}, FORMS), ({"stations": 10}, FORMS),
    ({"ap": "fifo512", "traffic": "browse", "upload_kbit": 10}, PAPERS),
    ({"ap": "fifo512", "traffic": "spdy", "upload_kbit": 10}, PAPERS),
    ({"ap": "fifo512", "upload_kbit": 10}, PAPERS),
]
AXES: list[tuple[Row, list[str]]] = [
    *(({"traffic": "browse", "upload_kbit": rate}, FORMS) for rate in (10, 50, 100, 200)),
    *(({"traffic": "spdy", "upload_kbit": rate}, FORMS) for rate in (10, 50, 100, 200)),
    *(({"upload_kbit": rate}, FORMS) for rate in (10, 50, 100, 400, 800)),
    ({"traffic": "none", "upload_kbit": 0}, FORMS),
    *(({"stations": n}, FORMS) for n in (20, 40, 50)),
    *(({"ap": "fifo512", "traffic": "spdy", "upload_kbit": 10, "stations": n}, ["none", "ap", "wifirr-htb"]) for n in (10, 20, 40, 50)),
    ({"ap": "fifo512"}, PAPERS),
    # at the centre's 200 kbit/s, AARF falls to the lowest rate, and no station finishes within the limit in any form
    ({"rate_control": "aarf", "traffic": "browse", "upload_kbit": 10}, FORMS),
    ({"rate_control": "aarf", "upload_kbit": 50}, FORMS),
    ({}, ["none"]), ({"rts": True}, OURS),  # with the base of its gain
]
# The factors that decide a crowded cell, on every driver (docs/lab.md): each with the access point alone, with turns alone,
# and with wifirrd's defaults, windows and RTS as decided by contention.c.
CROWD: Row = {"phy": "11n"}
CROWDS: list[Row] = [
    {}, {"rtt_ms": 50}, {"driver": "tx-only"}, {"driver": "aql"}, {"stations": 50}, {"stations": 10}, {"stations": 3}, {"upload_kbit": 800},
    {"traffic": "browse", "upload_kbit": 10}, {"sibling": "bss"}, {"rtt_ms": 20}, {"rtt_ms": 100}, {"rtt_ms": 0},
]
CROWDS_ENDING: list[Row] = [{"upload_goes_on": False}]
# The same for 802.11g, which has only turns; and cells with numbers of clients and uploads on which nothing was chosen.
CROWDS_11G: list[Row] = [{}, {"rtt_ms": 50}, {"driver": "tx-only"}, {"driver": "aql"}, {"sibling": "bss"}]
HELD_OUT: list[Row] = [*({"stations": n} for n in (7, 13, 23, 37)), *({"upload_kbit": rate} for rate in (33, 150, 330, 550))]
LEVERS: dict[str, Row] = {
    "access point": {"form": "none"}, "turns": {"form": "wifirr"}, "windows": {"form": "wifirr", "windows": "auto"},
    "windows, RTS": {"form": "wifirr", "windows": "auto", "rts": True},
}
CROWD_MB, CROWD_ENDING_MB, CROWD_11G_MB = 2, 5, 1
# A mesh neighbour, other distances and other radios, with the defaults only.
OTHERS: list[Row] = [{"phy": "11n", "file_mb": CROWD_MB, **c} for c in (
    {"sibling": "mesh"}, {"sibling": "mesh", "phy": "11g", "file_mb": CROWD_11G_MB}, {"distance": "mixed"}, {"streams": 2}, {"phy": "11ac", "file_mb": 5})]
SWEEP_CELL: Row = {"upload_goes_on": False}
SWEEP: list[Row] = [
    *({"form": "wifirr", "active": k} for k in (2, 3, 5, 8)),
    *({"form": "wifirr", "slot_ms": t} for t in (1600, 2400, 3600, 9600)),
]
NAMED_MB, AXES_MB = 5, 1

QUICK: list[tuple[Row, list[str]]] = [
    ({}, FORMS),
    ({"upload_goes_on": False, "traffic": "browse", "upload_kbit": 10}, OURS),
    ({"upload_goes_on": False, "upload_kbit": 100}, OURS), ({"upload_goes_on": False}, OURS), ({"stations": 10}, OURS), ({"stations": 1}, OURS),
    ({"traffic": "none", "upload_kbit": 0}, OURS),
    ({"rate_control": "aarf", "traffic": "browse", "upload_kbit": 10}, OURS),
    ({"ap": "fifo512"}, PAPERS),
    # for paper()
    ({"ap": "fifo512", "traffic": "browse", "upload_kbit": 10}, ["none", "ap"]),
    ({"ap": "fifo512", "traffic": "spdy", "upload_kbit": 10}, ["none", "ap"]),
    ({"ap": "fifo512", "upload_kbit": 10}, ["none", "ap", "wifox"]),
    *(({"ap": "fifo512", "traffic": "spdy", "upload_kbit": 10, "stations": n}, ["none", "ap"]) for n in (10, 40, 50)),
]
QUICK_MB, QUICK_SEEDS = 1, 2

# The gains in worst completion that ours must reach over the same AP without a scheduler.
TARGETS: list[tuple[str, Row, float]] = [
    ("802.11g, browsing 10 kbit/s", {"upload_goes_on": False, "traffic": "browse", "upload_kbit": 10}, 1.25),
    ("802.11g, constant 100 kbit/s", {"upload_goes_on": False, "upload_kbit": 100}, 1.5),
    ("802.11g, constant 200 kbit/s", {"upload_goes_on": False}, 2.0),
    ("802.11g, constant 200 kbit/s, going on", {}, 1.6),
]
# The same for crowds with the shipped defaults, on the reported seeds.
CROWD_TARGETS: list[tuple[str, Row, float]] = [
    ("802.11n, constant 200 kbit/s, going on", {}, 1.65), ("the same, 5 MB, ending", {"upload_goes_on": False, "file_mb": 5}, 1.9),
    ("50 ms to the server", {"rtt_ms": 50}, 1.75), ("TX-only airtime", {"driver": "tx-only"}, 1.7), ("AQL", {"driver": "aql"}, 1.7),
    ("50 clients", {"stations": 50}, 1.9), ("10 clients", {"stations": 10}, 1.1), ("800 kbit/s", {"upload_kbit": 800}, 1.25),
    ("802.11g, 50 ms to the server", {"phy": "11g", "rtt_ms": 50, "file_mb": 1}, 1.2),
]
NEVER_BELOW = 0.98
UPLOAD_KEPT, SIBLING_KEPT = 0.85, 0.95
# Number of runs of a cell whose first runs do not show on which side of NEVER_BELOW it is.
DOUBT_SEEDS = 15

Cell = tuple[tuple[str, object], ...]


def cell(row: Row) -> Cell:
    """The columns that two compared rows have in common: all but the form, its settings and the seed."""
    own = ("form", "seed", "active", "slot_ms", "trickle_kbit", "windows")
    return tuple((key, row[key]) for key in CENTRE if key not in own)


def crowds(seeds: Iterable[int]) -> list[Row]:
    """All crowds with the first seed, then with the next, and so on."""
    cells = [*(({**CROWD, **c, "file_mb": CROWD_MB}) for c in CROWDS), *(({**CROWD, **c, "file_mb": CROWD_ENDING_MB}) for c in CROWDS_ENDING),
             *({**c, "phy": "11g", "file_mb": CROWD_11G_MB} for c in CROWDS_11G)]
    unseen = [{**c, "phy": phy, "file_mb": size} for c in HELD_OUT for phy, size in (("11n", CROWD_MB), ("11g", CROWD_11G_MB))]
    return [{**c, **lever, "seed": seed} for seed in seeds for c in cells for lever in LEVERS.values() if possible(c, lever)] + [
        {**c, **lever, "seed": seed} for seed in seeds for c in [*unseen, *OTHERS] for lever in ({"form": "none"}, simulation.SHIPPED[str(c["phy"])])]


def wanted_crowds() -> list[Row]:
    return [c for c in crowds(REPORTED["11g"]) if c["seed"] in REPORTED[str(c["phy"])]]


def possible(c: Row, lever: Row) -> bool:
    """Whether the lever exists in the cell: 802.11g has no WMM here, and we set no RTS for it."""
    return c["phy"] == "11n" or ("windows" not in lever and not lever.get("rts"))


def levers(rows: list[Row]) -> list[list[str]]:
    """The effect of each lever on a crowd, on the reported seeds: worst completion, its gain, uploads, and the same of the radio's sibling."""
    lines = []
    for c in crowds([0]):
        some = on_reported(rows, c)
        if c["form"] == "none":
            base = some
        if not some:
            continue
        lever = next(name for name, own in LEVERS.items() if all(c.get(k, CENTRE[k]) == own.get(k, CENTRE[k]) for k in ("form", "windows", "rts")))
        lines.append([name(cell({**CENTRE, **c, "rts": False})), f"{c['file_mb']:g}", lever,
                      (">" if any(r["unfinished"] for r in some) else "") + spread([r["worst_s"] for r in some], ".1f"),
                      spread([r["median_s"] for r in some], ".1f"), spread(gains := finished(base, some)),
                      spread([r["upload_delivered_kbit"] for r in some], ".0f"), f"{100 * (results.median(some, 'collided_share') or 0):.1f}",
                      spread(pairs(base, some, "sibling_median_s")), spread([k for r in some if (k := r.get("sibling_upload_kbit"))], ".0f"),
                      f"{results.median(some, 'window_exponent') or 0:.1f}",
                      str(len(some)) if c["form"] == "none" else number_of(gains, some)])
    return lines


def wanted(quick: bool, seeds: int) -> list[Row]:
    """The most important runs first, and among these all cells with one seed before the next, because a run may be interrupted."""
    if quick:
        crowd = [{**CROWD, **own, "file_mb": CROWD_MB, "seed": REPORTED["11n"][0]} for own in ({"form": "none"}, simulation.SHIPPED["11n"])]
        return crowd + [{**c, "form": form, "seed": seed, "file_mb": QUICK_MB} for seed in range(1, seeds + 1) for c, forms in QUICK for form in forms]
    cells = [*((c, form, NAMED_MB) for c, forms in NAMED for form in forms),
             *((c, form, AXES_MB) for c, forms in AXES for form in forms)]

    def some(rank: int) -> list[Row]:
        return [{**c, "form": form, "seed": seed, "file_mb": size} for seed in range(1, seeds + 1)
                for c, form, size in cells if rank == importance(c, form)]

    sweep = [{**SWEEP_CELL, **c, "seed": seed, "file_mb": NAMED_MB} for seed in range(1, seeds + 1) for c in SWEEP]
    return some(0) + some(1) + some(2) + sweep


def doubtful(rows: list[Row], seeds: int) -> list[Row]:
    """More runs of ours and its base where the interval of the first runs contains NEVER_BELOW, whatever their median is."""
    first = [r for r in rows if r["seed"] <= seeds]
    more: list[Row] = []
    for c in dict.fromkeys(cell(r) for r in first):
        for form in ("wifirr", "wifirr-htb"):
            gains = gain(first, c, form)
            if gains and interval(gains)[1] < NEVER_BELOW <= interval(gains)[2]:
                more += [{**dict(which), "form": f, "seed": seed} for seed in range(seeds + 1, DOUBT_SEEDS + 1)
                         for which, f in ((without_rts(c), "none"), (c, form))]
    return more


def importance(c: Row, form: str) -> int:
    """0: the named targets; 1: whether ours is ever worse; 2: other forms and the paper's AP."""
    if form not in OURS or c.get("ap") == "fifo512":
        return 2
    targets = [differs for _, differs, _ in TARGETS]
    return 0 if form != "wifirr-htb" and any({**CENTRE, **c} == {**CENTRE, **differs} for differs in targets) else 1


def of(rows: list[Row], c: Cell, form: str) -> list[Row]:
    """Runs of a form with default settings (without those of the sweep)."""
    return [r for r in rows if cell(r) == c and r["form"] == form and not (r["active"] or r["slot_ms"]) and r["windows"] == "off"]


def gain(rows: list[Row], c: Cell, form: str) -> list[float]:
    return finished(of(rows, without_rts(c), "none"), of(rows, c, form))


def finished(base: list[Row], other: list[Row]) -> list[float]:
    """The gain seed by seed, without seeds for which neither finished within the limit."""
    stuck = {r["seed"] for r in base if r["unfinished"]} & {r["seed"] for r in other if r["unfinished"]}
    return pairs([r for r in base if r["seed"] not in stuck], other, "worst_s")


def number_of(gains: list[float], some: list[Row]) -> str:
    """The number of runs, and before it that of those with a gain, unless all or none have one."""
    return f"{len(gains)}/" * (0 < len(gains) < len(some)) + str(len(some))


def without_rts(c: Cell) -> Cell:
    """The cell without RTS. RTS is part of our product, so its gain is also measured over the AP without it."""
    return tuple((key, False if key == "rts" else value) for key, value in c)


def name(c: Cell) -> str:
    words = [f"{key}={value}" for key, value in c if value != CENTRE[key] and key != "file_mb"]
    return ", ".join(words) or "centre"


def overview(rows: list[Row]) -> list[list[str]]:
    """All cells but the crowds', which have seeds and a table (levers) of their own: a median over both would be of no cell."""
    rows, lines = [r for r in rows if r["seed"] not in REPORTED["11g"]], []  # which has all reported ones
    for c in dict.fromkeys(cell(r) for r in rows):
        for form in FORMS:
            some = of(rows, c, form)
            if not some:
                continue
            gains = gain(rows, c, form)
            lines.append([
                name(c), str(dict(c)["file_mb"]), form,
                (">" if any(r["unfinished"] for r in some) else "") + spread([r["worst_s"] for r in some], ".1f"),
                spread([r["median_s"] for r in some], ".1f"),
                "-" if form == "none" and not dict(c)["rts"] else spread(gains),
                spread([r["upload_delivered_kbit"] for r in some], ".0f"),
                f"{100 * (results.median(some, 'collided_share') or 0):.1f}",
                results.number(results.median(some, "timeouts"), ".0f"),
                results.number(results.median(some, "waiting_upload_rtt_p95_ms"), ".0f"),
                number_of(gains, some),
            ])
    return lines


def sweep(rows: list[Row]) -> list[list[str]]:
    """The paper's figure 10: K and T, one at a time around the defaults."""
    lines = []
    base = of(rows, cell({**CENTRE, **SWEEP_CELL, "file_mb": NAMED_MB}), "none")
    for c in [{"form": "wifirr"}, *SWEEP]:
        full = {**CENTRE, **SWEEP_CELL, "file_mb": NAMED_MB, **c}
        some = [r for r in rows if all(r[key] == full[key] for key in CENTRE if key != "seed")]
        if some:
            gains = finished(base, some)
            lines.append([str(full["active"] or "default"), str(full["slot_ms"] or "default"), spread([r["worst_s"] for r in some], ".1f"),
                          spread(gains), str(len(some))])
    return lines


def targets(rows: list[Row]) -> list[list[str]]:
    """Each named gain, with the largest files available."""
    lines = []
    for what, c, goal in TARGETS:
        sizes = sorted({r["file_mb"] for r in rows}, reverse=True)
        found = [(size, g) for size in sizes if (g := gain(rows, cell({**CENTRE, **c, "file_mb": size}), "wifirr"))]
        if not found:
            lines.append([what, "-", f"{goal:.2f}", "not measured"])
            continue
        size, gains = found[0]
        lines.append(verdict(f"{what} ({size:g} MB, {len(gains)} runs, tuned on)", gains, goal))
    for what, c, goal in CROWD_TARGETS:
        full = {**CROWD, "file_mb": CROWD_MB, **c}
        if gains := finished(*off_and_on(rows, full)):
            lines.append(verdict(f"{what} ({full['file_mb']:g} MB, {len(gains)} runs)", gains, goal))
    return lines


def verdict(what: str, gains: list[float], goal: float) -> list[str]:
    text = "met" if interval(gains)[0] >= goal else "MISSED"
    return [what, spread(gains), f"{goal:.2f}", text if len(gains) >= FEWEST_RUNS else "too few runs to say"]


def on_reported(rows: list[Row], c: Row) -> list[Row]:
    """Runs of a cell on the reported seeds."""
    full = {**CENTRE, **c}
    return [r for r in rows if r["seed"] in REPORTED[str(full["phy"])] and all(r[k] == v for k, v in full.items() if k != "seed")]


def off_and_on(rows: list[Row], c: Row) -> tuple[list[Row], list[Row]]:
    """Runs of a crowd on the reported seeds, without a scheduler and with the defaults."""
    alone: Row = {**c, "form": "none", "windows": "off", "rts": False}
    return on_reported(rows, alone), on_reported(rows, {**alone, **simulation.SHIPPED[c["phy"]]})


def shipped(rows: list[Row]) -> dict[str, tuple[list[float], list[float], dict[str, list[float]]]]:
    """All crowds with the defaults: gain, share of the upload delivered, and gains of the radio's sibling and of all but it, seed by seed."""
    found = {}
    for c in crowds([0]):
        base, ours = off_and_on(rows, c)
        if gains := finished(base, ours):
            found[name(cell({**CENTRE, **c, "rts": False}))] = gains, pairs(ours, base, "upload_delivered_kbit"), {
                "sibling": pairs(base, ours, "sibling_median_s"), "own clients": pairs(base, ours, "own_worst_s") if "sibling" in c else []}
    return found


def losses(rows: list[Row]) -> list[list[str]]:
    """Cells in which ours is slower than no scheduler, starves the upload, or is behind another form by more than noise."""
    lines = []

    def lost(what: str, form: str, gains: list[float], kept: list[float]) -> None:
        if interval(gains)[0] < NEVER_BELOW:
            lines.append([what, form, f"slower than none: {spread(gains)}"])
        if kept and interval(kept)[0] < UPLOAD_KEPT:
            lines.append([what, form, f"upload delivered: {spread(kept)} of none's"])

    for what, (gains, kept, parts) in shipped(rows).items():
        if "phy=" in what:  # with 802.11g, they are turns, as below
            lost(what, "defaults", gains, kept)
        lines += [[what, "defaults", f"{whose} slower than with none: {spread(some)}"]
                  for whose, some in parts.items() if some and interval(some)[0] < SIBLING_KEPT]
    for c in dict.fromkeys(cell(r) for r in rows):
        for form in ("wifirr", "wifirr-htb"):
            own, base = of(rows, c, form), of(rows, without_rts(c), "none")
            gains = gain(rows, c, form)
            if not gains:
                continue
            lost(name(c), form, gains, pairs(own, base, "upload_delivered_kbit"))
            if form == "wifirr-htb" and of(rows, c, "wifirr"):
                continue  # the fallback
            for rival in ("ap", "middlebox", "wifox"):
                behind = pairs(own, of(rows, c, rival), "worst_s")
                if behind and interval(behind)[1] > 1:
                    lines.append([name(c), form, f"takes {spread(behind)} times as long as {rival}"])
    return lines


def paper(rows: list[Row]) -> list[list[str]]:
    """The paper's figures, on its AP, beside ours. The paper simulated its form for APs."""
    def some(form: str, **differs: object) -> list[Row]:
        sizes = sorted({r["file_mb"] for r in rows}, reverse=True)
        centre = {**CENTRE, "ap": "fifo512", "upload_kbit": 10}
        found = (of(rows, cell({**centre, **differs, "file_mb": size}), form) for size in sizes)
        return next((f for f in found if f), [])

    def ratio(base: list[Row], other: list[Row]) -> list[float]:
        return pairs(base, other, "worst_s")

    browse = some("none", traffic="browse")
    lines = [
        ("browsing 10 kbit/s, HTTP: WiFiRR", 1.6, ratio(browse, some("ap", traffic="browse"))),
        ("the same, SPDY: without WiFiRR", 1.8, ratio(browse, some("none", traffic="spdy"))),
        ("the same, SPDY: WiFiRR", 2.9, ratio(browse, some("ap", traffic="spdy"))),
        ("constant 10 kbit/s: WiFiRR", 3.2, ratio(some("none"), some("ap"))),
        ("constant 10 kbit/s: WiFox", 3.2 / 2.25, ratio(some("none"), some("wifox"))),
        *((f"SPDY, {n} stations: WiFiRR (over SPDY without)", goal,
           ratio(some("none", traffic="spdy", stations=n), some("ap", traffic="spdy", stations=n)))
          for n, goal in ((10, 2.7), (40, 3.5), (50, 3.4))),
    ]
    table = []
    for what, goal, values in lines:
        if not values:
            table.append(results.not_run(what, f"{goal:.2f}x"))
            continue
        table.append([what, f"{goal:.2f}x", spread(values) + "x", results.verdict(interval(values)[0], goal, 1.1 * goal)])
    collided = results.median(browse, "collided_share")
    lost = "airtime lost in collisions: HTTP without, SPDY with WiFiRR"
    if collided is None:
        table.append(results.not_run(lost, "15-20 %, 2-3 %"))
    else:
        after = results.median(some("ap", traffic="spdy"), "collided_share")
        table.append([lost, "15-20 %, 2-3 %",
                      f"{collided:.1%}, {results.number(after, '.1%')}",
                      "reproduced" if collided >= 0.15 and after is not None and after <= 0.03 else "not reproduced"])
    return table


WHY_NOT = (
    "Why the paper's gains are not reproduced: its AP was slower without WiFiRR. Stations with the Minstrel of 2014 fell to low rates, and "
    "lost 15 to 20 % of the airtime in collisions; 150 MB took 443 s (2.7 Mbit/s). Here, the same load loses less airtime, and "
    "the channel carries several times as much. So there is less to gain with 10 kbit/s up. The more the stations send, the larger is the gain."
)


def report(rows: list[Row]) -> str:
    text = results.table(["cell (differs from the centre in)", "MB", "form", "worst s", "median s", "gain", "upload kbit/s",
                          "collided %", "timeouts", "RTT p95 ms", "runs"], overview(rows))
    text += "\n\n" + results.table(["ours (airtime) over today's AP, worst completion", "gain", "goal", ""], targets(rows))
    text += "\n\n" + results.table(["K (airtime, 200 kbit/s)", "T ms", "worst s", "gain", "runs"], sweep(rows))
    if crowd := levers(rows):
        text += "\n\n" + results.table(["crowd (differs from the centre in)", "MB", "lever", "worst s", "median s", "gain", "upload kbit/s",
                                       "collided %", "sibling's gain", "its upload", "CWmin 2^", "runs"], crowd)
    if of_all := {what: gains for what, (gains, *_) in shipped(rows).items()}:
        least = min(of_all, key=lambda what: interval(of_all[what])[0])
        text += (f"\n\nThe defaults gain {results.geomean([interval(gains)[0] for gains in of_all.values()]):.2f} in the geometric mean of"
                 f" {len(of_all)} crowds. The least gain, {spread(of_all[least])}, is in {least}.")
    lost = losses(rows)
    text += "\n\n" + (results.table(["ours loses in", "form", "how"], lost) if lost else "Ours loses in no cell.")
    text += "\n\n" + results.table(["the paper's AP, worst completion", "paper", "here", ""], paper(rows))
    return text


def draw(rows: list[Row]) -> None:
    """The paper's figures 10, 13 and 14, with minimum, median and maximum of each form's median run."""

    def plot(file: str, what: str, cells: list[tuple[str, Row]]) -> None:
        sizes = {r["file_mb"] for r in rows}
        chosen = []
        for label, c in cells:
            for size in sorted(sizes, reverse=True):
                full = cell({**CENTRE, **c, "file_mb": size})
                if of(rows, full, "none"):
                    chosen.append((f"{label}\n{size:g} MB", full))
                    break
        if not chosen:
            return
        with results.drawing(FIGURES / f"{file}.svg", (max(5, 1.6 * len(chosen)), 3.6)) as axes:
            for k, form in enumerate(FORMS):
                found = []
                for i, (_, full) in enumerate(chosen):
                    if some := of(rows, full, form):
                        middle, least, most = ((results.median(some, figure) or 0) / some[0]["file_mb"] for figure in ("median_s", "best_s", "worst_s"))
                        found.append((i + 0.12 * (k - (len(FORMS) - 1) / 2), (middle, least, most)))
                if found:
                    results.intervals(axes, found, form)
            axes.set_xticks(range(len(chosen)), [label for label, _ in chosen], fontsize=8)
            axes.set_ylabel("s for each MB (best, median, worst client)", fontsize=8)
            axes.set_ylim(bottom=0)
            axes.set_title(what, fontsize=9)
            axes.legend(fontsize=7)

    def rate(c: Row) -> str:
        traffic = {"cbr": "constant", "browse": "browsing", "spdy": "SPDY", "none": "no upload"}[c.get("traffic", "cbr")]
        return traffic if traffic == "no upload" else f"{traffic} {c.get('upload_kbit', 200)}"

    def by_rate(cells: list[Row], more: Row) -> list[tuple[str, Row]]:
        return [(rate(c), {**more, **c}) for c in cells]

    plot("dense-download", "Today's AP, 30 stations, 802.11g: upload of each client, kbit/s",
         by_rate([{"traffic": "none", "upload_kbit": 0}, {"traffic": "browse", "upload_kbit": 10}, {"upload_kbit": 10},
                  {"upload_kbit": 50}, {"upload_kbit": 100}, {}, {"upload_kbit": 400}, {"upload_kbit": 800}], {"upload_goes_on": True}))
    plot("dense-download-ends", "Today's AP, 30 stations, 802.11g: the upload ends with the download",
         by_rate([{"traffic": "browse", "upload_kbit": 10}, {"upload_kbit": 100}, {}], {"upload_goes_on": False}))
    plot("dense-download-paper", "The paper's AP (512-packet FIFO), 30 stations, 802.11g",
         by_rate([{"traffic": "browse", "upload_kbit": 10}, {"traffic": "spdy", "upload_kbit": 10}, {"upload_kbit": 10}, {}], {"ap": "fifo512"}))
    plot("dense-download-stations", "Today's AP, 802.11g, constant 200 kbit/s: stations",
         [(str(n), {"stations": n}) for n in (1, 10, 20, 30, 40, 50)])
    draw_crowds(rows)


def draw_crowds(rows: list[Row]) -> None:
    """When the last client of a crowd of 802.11n is done: the access point alone, and each lever."""
    shown = [(what, c) for what, c, _ in CROWD_TARGETS if c.get("phy") != "11g"]
    with results.drawing(FIGURES / "dense-download-11n.svg", (9, 3.6)) as axes:
        for k, (lever, form) in enumerate(LEVERS.items()):
            found = [(i + 0.15 * (k - (len(LEVERS) - 1) / 2), (statistics.median(worst), min(worst), max(worst))) for i, (_, c) in enumerate(shown)
                     if (worst := [r["worst_s"] for r in on_reported(rows, {**CROWD, "file_mb": CROWD_MB, **c, **form})])]
            if found:
                results.intervals(axes, found, lever)
        axes.set_xticks(range(len(shown)), [what.replace(", ", ",\n") for what, _ in shown], fontsize=7)
        axes.set_ylabel("last client done, s", fontsize=8)
        axes.set_ylim(bottom=0)
        axes.set_title("802.11n, 30 clients, 2 MB each, unless the label says otherwise", fontsize=9)
        axes.legend(fontsize=7)


def measured(args: argparse.Namespace, path: pathlib.Path) -> list[Row]:
    rows = simulation.run(wanted(args.quick, args.seeds), path, args.jobs, args.restart)
    if not args.quick:
        rows += simulation.run([*doubtful(rows, args.seeds), *wanted_crowds()], path, args.jobs, args.restart)
    return rows


def main() -> int:
    return simulation.main("dense-download", __doc__ or "", RESULTS, QUICK_RESULTS, measured, report, draw, QUICK_SEEDS)


if __name__ == "__main__":
    command(main)
