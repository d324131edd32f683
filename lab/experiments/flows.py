#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether a flow is HTTP/1, HTTP/2 or something else, as far as a relay can tell: the tree that it ships with.

The thesis (2019, chapter 3): from bytes, packets, their means and the duration, C4.5 puts 95 % of a campus's flows into
these classes. classifier.py repeats that unchanged. This is the product's classifier: it uses records of the relay's own socket, more
applications, and a small tree. HTTP/1 and HTTP/2 are the protocols by which browsers load pages. Everything else is another
application, even if HTTP carries it: video by ranges, updates, files. Classes by protocol alone do not work: a tree
classifies less than two thirds of unseen applications correctly.

The tree learns from the eleven pages of the papers and from some applications. It is judged on unseen data: ten
other pages, and the other applications (UNSEEN). The training set was chosen with other applications, which then became part of it.
The meaning of "other" and the size of the tree were chosen with a look at UNSEEN, so UNSEEN is not entirely unseen. A record's duration is not a feature: it depends on the path
(direct or through the relay), which is what the relay compares, and here on the load of the machine. The table shows what it would have contributed.

Writes results/flows.json (a row has the flows of one activity of an application), docs/results/flows.svg, and the tree as Go:
package/bquic-gateway/src/internal/proof/tree.go.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import pathlib
import random
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from lab import flows, measure, namespaces, pages, results  # noqa: E402
from lab.flows import applications, dialogues  # noqa: E402

RESULTS = ROOT / "results/flows.json"
FIGURE = ROOT / "docs/results/flows.svg"
TREE = ROOT / "package/bquic-gateway/src/internal/proof/tree.go"
SAID = TREE.parent / "testdata/classes.json"  # records, and their classes by scikit-learn's tree

BROWSERS = ("chromium", "firefox")
ONLY = ["applications", *BROWSERS]
REPETITIONS = 2
EACH = 15  # runs of each non-browser application in a repetition
DELAYS_MS = [2, 10, 30, 80]


def several(what: str, numbers: range) -> list[str]:
    return [f"{what} of {i}" for i in numbers]


# What a browser does between its start and its end, by the part of a run.
PARTS = {
    "": [*pages.PAGES, "video", "poll"],
    "drawn": [*list(pages.DRAWN)[:20], *(x for what in ("video", "poll", "visit") for x in several(what, range(1, 4)))],
    "more drawn": [*list(pages.DRAWN)[20:], *(x for what in ("video", "poll", "visit") for x in several(what, range(4, 7)))],
    "held out": [*pages.HELD_OUT, *several("reading", range(1, 5)), *several("scroll", range(1, 4)), *several("radio", range(1, 6))],
}
STREAMED = ["video", "radio"]  # by browsers, but not page loads
HELD_OUT = {*pages.HELD_OUT, "reading", "scroll", "radio", "pip", "scp", "wget", "git clone by HTTP", "git clone by ssh", *dialogues.HELD_OUT}

CLASSES = ["other", "http1", "http2"]  # in the order of Go's constants
FEATURES = {
    "clientBytes": lambda f: f[0], "serverBytes": lambda f: f[1], "clientPackets": lambda f: f[2], "serverPackets": lambda f: f[3],
    "clientMean": lambda f: f[0] / max(f[2], 1), "serverMean": lambda f: f[1] / max(f[3], 1),
}
DURATION = {"duration": lambda f: f[4]}
LEAVES = 12  # at most; 8, 16 and 24 do as well for applications that are left out in turn
Features = dict[str, Any]


@dataclasses.dataclass
class Example:
    flow: list[float]
    actual: str
    application: str
    what: str

    @property
    def learnt(self) -> bool:
        return self.what not in HELD_OUT


def run(args: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    def done(application: str, key: str, repetition: int) -> bool:
        return any((r["application"], r["key"], r["repetition"]) == (application, key, repetition) for r in rows)

    def keep(found: list[dict[str, Any]], key: str, repetition: int) -> None:
        rows.extend({**r, "key": key, "repetition": repetition} for r in found)
        write(rows)
        measure.progress(f"flows {repetition}: {found[0]['application']} {key}: {sum(len(r['flows']) for r in found)} flows")

    only = args.only or ONLY
    flows.build()
    with namespaces.Lab() as lab:
        bench = flows.Bench(lab)
        applications.prepare(bench)
        for repetition in range(1, args.repetitions + 1):
            for key, make in (applications.OTHERS | applications.HELD_OUT).items() if "applications" in only else ():
                source = random.Random(f"{key} {repetition}")
                for i in range(EACH):
                    if not done("", f"{key} {i}", repetition):
                        keep([{**make(bench, DELAYS_MS, source), "application": ""}], f"{key} {i}", repetition)
            for browser, (number, (part, names)), http2 in itertools.product(BROWSERS, enumerate(PARTS.items()), (False, True)):
                key = " ".join(filter(None, (browser, "2" if http2 else "1", part)))
                if browser in only and (repetition == 1 or not part) and not done(browser, key, repetition):
                    keep(applications.browsed(bench, browser, http2, DELAYS_MS, repetition + 100 * number, names), key, repetition)


def write(rows: list[dict[str, Any]]) -> None:
    RESULTS.write_text("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")


def read() -> list[dict[str, Any]]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else []


def examples(rows: list[dict[str, Any]]) -> list[Example]:
    return [Example(f, r["class"] if r["application"] in BROWSERS and r["what"] not in STREAMED else "other", r["application"], r["what"])
            for r in rows for f in r["flows"]]


def learn(some: list[Example], features: Features) -> Any:
    """A tree in which all classes have the same weight, because the recall of each class counts."""
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier(criterion="entropy", max_leaf_nodes=LEAVES, min_samples_leaf=5, class_weight="balanced", random_state=1)
    return tree.fit(values(some, features), [CLASSES.index(e.actual) for e in some])


def values(some: list[Example], features: Features) -> list[list[float]]:
    return [[f(e.flow) for f in features.values()] for e in some]


def recalls(tree: Any, some: list[Example], features: Features) -> dict[str, float]:
    said = [CLASSES[i] for i in tree.predict(values(some, features))]
    return {c: sum(e.actual == c == s for e, s in zip(some, said)) / max(1, sum(e.actual == c for e in some)) for c in CLASSES}


def generated(rows: list[dict[str, Any]]) -> dict[pathlib.Path, str]:
    """The tree as Go source, and the data that its test compares it with."""
    found = examples(rows)
    tree = learn([e for e in found if e.learnt], FEATURES)
    t = tree.tree_
    names = list(FEATURES)
    lines = []
    for i in range(t.node_count):
        if t.children_left[i] < 0:
            lines.append(f"\t{{feature: leaf, yes: uint8({('Other', 'HTTP1', 'HTTP2')[int(t.value[i][0].argmax())]})}},")
        else:
            lines.append(f"\t{{{names[t.feature[i]]}, {t.threshold[i]:.9g}, {t.children_left[i]}, {t.children_right[i]}}},")
    said = [[*map(int, e.flow[:4]), CLASSES[c]] for e, c in zip(found, tree.predict(values(found, FEATURES)))]
    return {
        TREE: "// SPDX-License-Identifier: Apache-2.0\n\n// Code generated by lab/experiments/flows.py from results/flows.json; DO NOT EDIT.\n\n"
              "package proof\n\nvar tree = [...]question{\n" + "\n".join(lines) + "\n}\n",
        SAID: "[\n" + ",\n".join(map(json.dumps, said)) + "\n]\n",
    }


def report(rows: list[dict[str, Any]]) -> str:
    found = examples(rows)
    learnt, unseen = [e for e in found if e.learnt], [e for e in found if not e.learnt]
    lines = []
    for name, features in (("as shipped", FEATURES), ("with the duration", {**FEATURES, **DURATION})):
        tree = learn(learnt, features)
        for what, some in (("what it has learnt from", learnt), ("pages not learnt from", [e for e in unseen if e.application in BROWSERS]),
                           ("applications not learnt from", [e for e in unseen if e.application not in BROWSERS])):
            recall = recalls(tree, some, features)
            lines.append([name, what, str(len(some)), *(f"{100 * recall[c]:.1f}" if any(e.actual == c for e in some) else "-" for c in CLASSES)])
    text = "Flows classified correctly, %\n\n" + results.table(["tree", "flows", "number", *CLASSES], lines)
    tree = learn(learnt, FEATURES)
    kinds = sorted({(e.actual, e.application, e.what) for e in unseen if e.application not in BROWSERS or e.what in SCRIPTS})
    lines = []
    for kind in kinds:
        some = [e for e in unseen if (e.actual, e.application, e.what) == kind]
        lines.append([kind[2], kind[1] or "-", kind[0], str(len(some)), f"{100 * recalls(tree, some, FEATURES)[kind[0]]:.0f}"])
    return text + "\n\nApplications that it has not learnt from\n\n" + results.table(["application", "browser", "class", "flows", "correct, %"], lines)


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
    parser.add_argument("--check", action="store_true", help="only say whether the tree is the one learnt from the rows")
    args = parser.parse_args()
    rows = [] if args.restart else read()
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
    try:
        sys.exit(main())
    except namespaces.Failed as error:
        sys.exit(f"flows: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
