#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether a flow is HTTP/1, HTTP/2 or something else, as far as a relay can tell: the trees that it ships with.

The thesis (2019, chapter 3): from bytes, packets, their means and the duration, C4.5 puts 95 % of a campus's flows into
these classes. classifier.py repeats that unchanged. This is the product's classifier: it uses records of the relay's own socket, more
applications, and a few small trees, which vote. "HTTP/1" and "HTTP/2" are flows by which browsers load pages. All others are "other",
even if HTTP carries them: video by ranges, updates, files. If the classes were protocols only, a tree would recognise few of the applications that HTTP
carries and that it has not learnt from.

[lab.md](lab.md#flows-what-is-learnt-from-and-what-is-reported) says what is learnt from, what decides, and what is held out. A record's duration
is not a feature: it depends on the path (direct or through the relay), which is what the relay compares, and here on the load of the machine.
The table shows what it would have contributed.

The target, 90 % of each class, is missed, because some records of different classes are alike:

- programs that load a few things by HTTP/1.1 with long requests (mail, calendars, pip), and a browser's HTTP/1;
- programs that load tiles, segments or pictures (maps, radio, messengers), and a browser's HTTP/2;
- a browser's few large or many small images, and videos and messages.

The length of a TLS handshake tells little: many of the dialogues have handshakes as long as a browser's, with keys of X25519MLKEM768.

One more feature was tried since, and is not shipped: turns, that is how often a client has sent something after data had arrived for it. A flow by HTTP/1 has
mostly one request a turn, one by HTTP/2 several. Trees with turns were made from new records, by the same rule, and judged once, by 20 more pages
and 20 more applications. They recognise more of "other" and less of HTTP/2. They miss programs that show feeds and shops, and pages of one or two
things. The shipped trees, too, recognise less of HTTP/1 in the new records, even of the same pages, because on a busy machine, or with a newer Firefox, these
flows have more packets. So records from several machines would help at least as much as another feature.

It is the record that limits the result. Other trees and more applications to learn from help little, as the next table shows: recall, in %, of what is
held out. Its figures come from the same rows, and nothing was chosen by them.

| trees | other | HTTP/1 | HTTP/2 |
|---|---|---|---|
| those shipped | 80.3 | 90.1 | 97.6 |
| learnt from an eighth of the other applications | 56.6 | 99.5 | 99.2 |
| from a half of them | 75.2 | 95.3 | 98.4 |
| from three quarters of them | 79.1 | 92.8 | 97.6 |
| 300 boosted trees of 31 leaves | 79.5 | 96.0 | 97.6 |
| of the shipped size, learnt also from half of the flows of each held-out page and application; the other half is judged | 86.0 | 89.0 | 92.9 |
| 300 boosted trees that have learnt so | 85.0 | 96.6 | 95.3 |
| these, with the duration | 90.8 | 98.2 | 95.2 |

Even trees that have learnt from the very applications take some of their flows for pages, because a messenger, a map, a radio, office mail or a mirror of
files moves as many bytes and packets as some page does. So what `bquic report` calls page loads includes some flows of such programs, in both
groups alike.

The part "learning" in the big table looks easier only because fewer of its applications speak HTTP. The next table has those that do: recall, in %, each group by
the others. More weight on "other" costs more of HTTP/1 than it gains. Two more values of the record, short packets and the bytes after the handshake, gain
next to nothing there. Who speaks first does not help either: in all flows that are mistaken for pages, the client does.

| trees | other, by HTTP | HTTP/1 |
|---|---|---|
| those shipped | 82 | 94 |
| with twice the weight of "other" | 84 | 87 |

Writes results/flows.json (a row has the flows of one activity of an application), docs/results/flows.svg, and the trees as Go:
package/bquic-gateway/src/internal/proof/tree.go.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import pathlib
import random
import sys
from collections.abc import Callable
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from lab import command, flows, measure, namespaces, pages, results  # noqa: E402
from lab.flows import applications, dialogues  # noqa: E402

RESULTS = ROOT / "results/flows.json"
FIGURE = ROOT / "docs/results/flows.svg"
TREE = ROOT / "package/bquic-gateway/src/internal/proof/tree.go"
SAID = TREE.parent / "testdata/classes.json"  # records, and their classes by scikit-learn's tree

BROWSERS = ("chromium", "firefox")
ONLY = ["applications", *BROWSERS]
REPETITIONS = 2
EACH = 15  # runs of each non-browser application in a repetition
EACH_DRAWN = 4  # runs of each protocol that is drawn
DELAYS_MS = [2, 10, 30, 80]


def several(what: str, numbers: range) -> list[str]:
    return [f"{what} of {i}" for i in numbers]


# What a browser does between its start and its end, by the part of a run.
PARTS = {
    "": [*pages.PAGES, "video", "poll"],
    "drawn": [*list(pages.DRAWN)[:20], *(x for what in ("video", "poll", "visit") for x in several(what, range(1, 4)))],
    "more drawn": [*list(pages.DRAWN)[20:40], *(x for what in ("video", "poll", "visit") for x in several(what, range(4, 7)))],
    "more": [*list(pages.MORE)[:20], *several("reading", range(1, 5)), *several("scroll", range(1, 4)), *several("radio", range(1, 6))],
    **{f"drawn from {i}": [*list(pages.DRAWN)[i:i + 20], *several("scroll", range(i, i + 2)), *several("visit", range(i, i + 2))] for i in (40, 60, 80)},
    "still more": [*list(pages.MORE)[20:], *several("browsing", range(1, 6))],
    "held out": [*pages.STILL_MORE, *several("looking around", range(1, 6))],  # learnt from now; the rows keep the name
    "pictures": [*pages.PICTURES],
    "held out next": [*pages.HELD_OUT, *several("stopping by", range(1, 6))],
}
STREAMED = ["video", "radio"]  # by browsers, but not page loads
HELD_OUT = {*pages.HELD_OUT, "stopping by", *dialogues.HELD_OUT}

CLASSES = ["other", "http1", "http2"]  # in the order of Go's constants
FOLDS = 10
MOST = (1 << 28) - 1  # bytes and packets beyond do not matter; a sixteenth of them still fits into 32 bits
HELLO_BYTES, HELLO_PACKETS = 2000, 3  # of a browser's TLS handshake, about


def sixteenths(number: float, of: float) -> int:
    return int(16 * number // max(of, 1))


# Those of the chosen classifier are Go's constants. Whole numbers, because routers compute others in software.
FEATURES: dict[str, Callable[[int, int, int, int], int]] = {
    "clientBytes": lambda cb, sb, cp, sp: cb,
    "serverBytes": lambda cb, sb, cp, sp: sb,
    "clientPackets": lambda cb, sb, cp, sp: cp,
    "serverPackets": lambda cb, sb, cp, sp: sp,
    "clientMean": lambda cb, sb, cp, sp: sixteenths(cb, cp),
    "serverMean": lambda cb, sb, cp, sp: sixteenths(sb, sp),
    "bytesRatio": lambda cb, sb, cp, sp: sixteenths(sb, cb),
    "packetsRatio": lambda cb, sb, cp, sp: sixteenths(sp, cp),
    "answerMean": lambda cb, sb, cp, sp: sixteenths(sb, cp),
    "requestMean": lambda cb, sb, cp, sp: sixteenths(max(cb - HELLO_BYTES, 0), cp - HELLO_PACKETS if cp > HELLO_PACKETS else 1),
}
THESIS = list(FEATURES)[:6]


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A classifier that could be chosen: so many trees, of at most so many leaves, by these features."""

    trees: int
    leaves: int
    features: tuple[str, ...]
    other: float = 1  # the weight of other applications, in those of HTTP/1 and HTTP/2
    drawn: float = 1  # the weight of a protocol that is drawn, in that of an application
    duration: bool = False

    @property
    def name(self) -> str:
        which = {6: "the thesis's features", 8: "two ratios more", 9: "three more", 10: "four more"}[len(self.features)]
        return f"{'a tree' if self.trees == 1 else f'{self.trees} trees'} of {self.leaves} leaves, {which}{f', other x {self.other:g}' if self.other != 1 else ''}{f', drawn x {self.drawn:g}' if self.drawn != 1 else ''}{', duration' if self.duration else ''}"


@dataclasses.dataclass
class Example:
    flow: list[float]
    actual: str
    application: str
    what: str

    @property
    def learnt(self) -> bool:
        return self.what not in HELD_OUT


SEEDS = range(1, 4)  # of the division into groups
SETS = [tuple(THESIS), (*THESIS, "packetsRatio", "answerMean"), (*THESIS, "packetsRatio", "answerMean", "requestMean"), tuple(FEATURES)]
SHAPES = ((1, 12), (1, 48), (8, 24), (8, 48), (16, 64), (30, 64))  # trees, and leaves of each
CANDIDATES = [
    *(Candidate(*shape, features, drawn=drawn) for features in (SETS[0], SETS[2], SETS[3]) for shape in SHAPES for drawn in (0.3, 1)),
    *(Candidate(*shape, features, other, drawn) for features in (SETS[2], SETS[3]) for shape in SHAPES for other in (2, 4, 6, 8) for drawn in (0.3, 1)),
    *(Candidate(16, 64, features, duration=True) for features in (SETS[0], SETS[3])),
]
CHOSEN = Candidate(8, 48, SETS[2], other=4, drawn=0.3)


def run(args: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    def done(application: str, key: str, repetition: int) -> bool:
        return any((r["application"], r["key"], r["repetition"]) == (application, key, repetition) for r in rows)

    def keep(found: list[dict[str, Any]], key: str, repetition: int) -> None:
        rows.extend({**r, "key": key, "repetition": repetition, "commit": measure.commit()} for r in found)
        results.write(RESULTS, rows)
        measure.progress(f"flows {repetition}: {found[0]['application']} {key}: {sum(len(r['flows']) for r in found)} flows")

    only = args.only or ONLY
    flows.build()
    with namespaces.Lab() as lab:
        bench = flows.Bench(lab)
        applications.prepare(bench)
        for repetition in range(1, args.repetitions + 1):
            for key, make in (applications.OTHERS | applications.HELD_OUT).items() if "applications" in only else ():
                for i in range(EACH_DRAWN if key in dialogues.DRAWN else EACH):
                    if not done("", f"{key} {i}", repetition):
                        source = random.Random(f"{key} {repetition} {i}")  # so that a run that continues draws nothing twice
                        keep([{**make(bench, DELAYS_MS, source), "application": ""}], f"{key} {i}", repetition)
            for browser, (number, (part, names)), http2 in itertools.product(BROWSERS, enumerate(PARTS.items()), (False, True)):
                key = " ".join(filter(None, (browser, "2" if http2 else "1", part)))
                if browser in only and (repetition == 1 or not part) and not done(browser, key, repetition):
                    keep(applications.browsed(bench, browser, http2, DELAYS_MS, repetition + 100 * number, names), key, repetition)


def examples(rows: list[dict[str, Any]]) -> list[Example]:
    return [Example(f, r["class"] if r["application"] in BROWSERS and r["what"] not in STREAMED else "other", r["application"], r["what"])
            for r in rows for f in r["flows"]]


def kinds(some: list[Example]) -> dict[tuple[str, str], list[int]]:
    """The numbers of the examples of each page and each application, which count the same."""
    found: dict[tuple[str, str], list[int]] = {}
    for i, e in enumerate(some):
        found.setdefault((e.actual, e.what), []).append(i)
    return found


def values(some: list[Example], candidate: Candidate) -> list[list[float]]:
    found: list[list[float]] = []
    for e in some:
        counts = [min(int(n), MOST) for n in e.flow[:4]]
        found.append([FEATURES[f](*counts) for f in candidate.features] + ([e.flow[4]] if candidate.duration else []))
    return found


def learn(some: list[Example], candidate: Candidate) -> list[Any]:
    """Trees in whose eyes all classes weigh the same, and in a class all pages or applications."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.tree import DecisionTreeClassifier

    weights = [0.0] * len(some)
    of = kinds(some)
    each = {kind: candidate.drawn if kind[1] in dialogues.DRAWN else 1 for kind in of}
    for (actual, what), numbers in of.items():
        all_of_class = sum(weight for (a, _), weight in each.items() if a == actual)
        for i in numbers:
            weights[i] = len(some) * each[actual, what] / len(numbers) / all_of_class * (candidate.other if actual == "other" else 1)
    how = {"criterion": "entropy", "max_leaf_nodes": candidate.leaves, "random_state": 1}
    one = candidate.trees == 1
    forest = DecisionTreeClassifier(min_samples_leaf=5, **how) if one else RandomForestClassifier(candidate.trees, min_samples_leaf=2, **how)
    forest.fit(values(some, candidate), [CLASSES.index(e.actual) for e in some], sample_weight=weights)
    return [forest.tree_] if one else [e.tree_ for e in forest.estimators_]


def votes(tree: Any, node: int, trees: int) -> int:
    """What a leaf adds to the sum of all trees, which has ten bits for each class."""
    found = 0
    for share in tree.value[node][0] / tree.value[node][0].sum():
        found = found << 10 | int(share * (1023 // trees))
    return found


def elected(total: int) -> str:
    """The class with most votes; the first of several."""
    each = [total >> 20, total >> 10 & 1023, total & 1023]
    return CLASSES[each.index(max(each))]


def classify(trees: list[Any], some: list[Example], candidate: Candidate) -> list[str]:
    """As Go's code does it."""
    kept = [(t.feature.tolist(), [math.floor(x) for x in t.threshold] if not candidate.duration else t.threshold.tolist(), t.children_left.tolist(),
             t.children_right.tolist(), [votes(t, i, len(trees)) if t.children_left[i] < 0 else 0 for i in range(t.node_count)]) for t in trees]
    said = []
    for x in values(some, candidate):
        total = 0
        for feature, limit, left, right, leaf in kept:
            node = 0
            while left[node] >= 0:
                node = left[node] if x[feature[node]] <= limit[node] else right[node]
            total += leaf[node]
        said.append(elected(total))
    return said


def recalls(said: list[str], some: list[Example]) -> dict[str, float]:
    """The recall of each class: the mean over its pages or applications. Protocols that were drawn are none."""
    shares: dict[str, list[float]] = {}
    for (actual, what), numbers in kinds(some).items():
        if what in dialogues.DRAWN:
            continue
        shares.setdefault(actual, []).append(sum(said[i] == actual for i in numbers) / len(numbers))
    return {c: sum(s) / len(s) for c, s in shares.items()}


def crossed(some: list[Example], candidate: Candidate, seed: int) -> list[str]:
    """The class of each flow, by what is learnt without its page or application and those of its group."""
    source = random.Random(seed)
    fold: dict[str, int] = {}
    for browsed in (True, False):
        names = sorted({e.what for e in some if (e.actual != "other") == browsed})
        source.shuffle(names)
        fold |= {name: i % FOLDS for i, name in enumerate(names) if name not in fold}
    said = [""] * len(some)
    for k in range(FOLDS):
        inside = [i for i, e in enumerate(some) if fold[e.what] == k]
        trees = learn([e for e in some if fold[e.what] != k], candidate)
        for i, c in zip(inside, classify(trees, [some[i] for i in inside], candidate)):
            said[i] = c
    return said


def choose(rows: list[dict[str, Any]]) -> str:
    """The scores of all candidates on the learning part."""
    some = [e for e in examples(rows) if e.learnt]
    lines = []
    for candidate in CANDIDATES:
        each = [recalls(crossed(some, candidate, seed), some) for seed in SEEDS]
        mean = {c: sum(r[c] for r in each) / len(each) for c in CLASSES}
        score = sum(min(r.values()) for r in each) / len(each)
        lines.append([candidate.name, *(f"{100 * mean[c]:.1f}" for c in CLASSES), f"{100 * score:.1f}"])
        measure.progress("  ".join(lines[-1]))
    return results.table(["classifier", *CLASSES, "lowest"], lines)


def generated(rows: list[dict[str, Any]]) -> dict[pathlib.Path, str]:
    """The trees as Go source, and the data that their test compares them with."""
    found = examples(rows)
    trees = learn([e for e in found if e.learnt], CHOSEN)
    lines: list[str] = []
    roots: list[int] = []
    for t in trees:
        roots.append(len(lines))
        for i in range(t.node_count):
            if t.children_left[i] < 0:
                lines.append(f"\t{{bits: {votes(t, i, len(trees)):#x}}},")
            else:
                lines.append(f"\t{{{CHOSEN.features[t.feature[i]]}<<limitBits | {math.floor(t.threshold[i])}, {roots[-1] + t.children_left[i]}, {roots[-1] + t.children_right[i]}}},")
    said = [[*map(int, e.flow[:4]), c] for e, c in zip(found, classify(trees, found, CHOSEN))]
    return {
        TREE: "// SPDX-License-Identifier: Apache-2.0\n\n// Code generated by lab/experiments/flows.py from results/flows.json; DO NOT EDIT.\n\n"
              "package proof\n\nvar roots = [...]uint16{" + ", ".join(map(str, roots)) + "}\n\nvar trees = [...]question{\n" + "\n".join(lines) + "\n}\n",
        SAID: "[\n" + ",\n".join(map(json.dumps, said)) + "\n]\n",
    }


def report(rows: list[dict[str, Any]]) -> str:
    found = examples(rows)
    learnt, held = [e for e in found if e.learnt], [e for e in found if not e.learnt]
    lines = []
    said: list[str] = []
    for name, candidate in (("as shipped", CHOSEN), ("a tree of 12 leaves", Candidate(1, 12, tuple(THESIS))),
                            ("with the duration", dataclasses.replace(CHOSEN, duration=True))):
        trees = learn(learnt, candidate)
        across = [crossed(learnt, candidate, seed) for seed in (SEEDS if candidate == CHOSEN else SEEDS[:1])]
        for what, some, each in (("learning, each group by the others", learnt, across), ("held out", held, [classify(trees, held, candidate)])):
            said = each[0] if candidate == CHOSEN and some is held else said
            by_kind = [recalls(s, some) for s in each]
            by_flow = [sum(e.actual == c == x for s in each for e, x in zip(some, s)) / len(each) / max(1, sum(e.actual == c for e in some)) for c in CLASSES]
            lines.append([name, what, str(len(some)), *(f"{100 * sum(r.get(c, 0) for r in by_kind) / len(each):.1f}" for c in CLASSES), *(f"{100 * x:.1f}" for x in by_flow)])
    text = "Recall, %: the mean over pages and applications, and of all flows\n\n" + results.table(
        ["classifier", "part", "flows", *CLASSES, *(f"{c}, flows" for c in CLASSES)], lines)
    lines = []
    for (actual, what), numbers in sorted(kinds(held).items()):
        for application in sorted({held[i].application for i in numbers}) if actual != "other" else [""]:
            some_of = [i for i in numbers if application in ("", held[i].application)]
            as_what = [f"{said_as} {n}" for said_as in CLASSES if said_as != actual and (n := sum(said[i] == said_as for i in some_of))]
            lines.append([what, application or "-", actual, str(len(some_of)), f"{100 * sum(said[i] == actual for i in some_of) / len(some_of):.0f}", ", ".join(as_what) or "-"])
    return text + "\n\nHeld out: what is classified correctly, and as what else\n\n" + results.table(["page or application", "browser", "class", "flows", "correct, %", "mistaken for"], lines)


def draw(rows: list[dict[str, Any]]) -> None:
    found = examples(rows)
    with results.drawing(FIGURE, (6, 3.6)) as axes:
        for which in CLASSES:
            axes.plot([e.flow[0] for e in found if e.actual == which], [e.flow[0] / max(e.flow[2], 1) for e in found if e.actual == which], ".",
                      markersize=3, label=which)
        axes.set_xscale("log")
        axes.set_xlabel("client bytes", fontsize=8)
        axes.set_ylabel("client bytes a packet", fontsize=8)
        axes.legend(fontsize=7)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--only", action="append", choices=ONLY, help="record only these")
    parser.add_argument("--restart", action="store_true", help="forget what an earlier run has recorded")
    parser.add_argument("--learn", action="store_true", help="record nothing")
    parser.add_argument("--report", action="store_true", help="only print the tables")
    parser.add_argument("--choose", action="store_true", help="only print the scores of the candidates, on the learning part")
    parser.add_argument("--check", action="store_true", help="only say whether the trees are those learnt from the rows")
    args = parser.parse_args()
    rows = [] if args.restart else results.read(RESULTS)
    if args.report:
        return results.show("flows", RESULTS, rows, report)
    if args.choose:
        print(choose(rows))
        return 0
    if args.check:
        other = [path for path, text in generated(rows).items() if path.read_text() != text]
        for path in other:
            print(f"{path.relative_to(ROOT)} is not what the rows yield: run {pathlib.Path(__file__).name} --learn")
        return 1 if other else 0
    if not args.learn:
        namespaces.exit_on_signals()
        run(args, rows)
    for path, text in generated(rows).items():
        path.write_text(text)
    draw(rows)
    print(report(rows))
    return 0


if __name__ == "__main__":
    command(main)
