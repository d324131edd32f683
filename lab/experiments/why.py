#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What decides how fast a download is: features of each transfer, and a decision tree over them.

The thesis (2019, section 6.2): from captures and logs of the congestion window,
features of some 2,000 transfers in a production mesh; throughput in classes of
10 Mbit/s; decision trees (C4.5). The mean window is the root for TCP and QUIC
alike; delay, losses and the burstiness of both ends come next.

Here: the same features of downloads over many media: chains of 1 to 5 hops, MCS
1 to 15, other networks, a wire behind, losses, and wires. Both sides of the medium
are captured; the sender's window is sampled every 25 ms. Burstiness is the index
of dispersion for intervals: the variance of the time between two packets over
its squared mean. An acknowledgement is any small packet upwards.
Recovery is the smoothed RTT after a loss for QUIC, and the time while a
retransmission is in flight for TCP. Idle (the thesis's application-limited) means
that no packet left for longer than the median delay. The tree is scikit-learn's, by
entropy, with at most three levels. Throughput depends mostly on the medium, so features
are also judged by how well they predict the share of the fastest transfer over the medium
(a forest's permutation importance for that share).

Writes results/why.json (rows: lab/realtime.py) and docs/results/why.svg. An
interrupted run continues where it stopped.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from lab import command, leg, measure, medium, namespaces, realtime, results, traces  # noqa: E402
from lab.results import Row, number  # noqa: E402
from lab.servers import Servers  # noqa: E402
from lab.topology import Mesh  # noqa: E402

RESULTS = ROOT / "results/why.json"
QUICK_RESULTS = ROOT / "build/lab/why.json"
FIGURE = ROOT / "docs/results/why.svg"

CONTENDERS = ["tcp", "standard", "bquic"]


def chain(*flags: str) -> medium.Kind:
    return medium.Kind("wifi", flags, 60, wireless=True)


# Name, medium, hops.
MEDIA = {
    "1 hop": (chain(), 1),
    "3 hops": (chain(), 3),
    "5 hops": (chain(), 5),
    "1 hop, 40 ms": (chain("--delay", "20"), 1),
    "3 hops, 20 ms": (chain("--delay", "10"), 3),
    "2 hops, MCS1": (chain("--mcs", "1"), 2),
    "2 hops, MCS4, 20 ms": (chain("--mcs", "4", "--delay", "10"), 2),
    "2 hops, MCS15": (chain("--streams", "2"), 2),
    "3 hops, 2 channels": (chain("--channels", "2"), 3),
    "3 hops, strangers": (chain("--interference", "10"), 3),
    "1 hop, strangers, 20 ms": (chain("--interference", "15", "--delay", "10"), 1),
    "2 hops, bad signal": (chain("--loss", "0.15"), 2),
    "wire": (medium.MEDIA["wired"], 1),
    "lossy wire": (medium.MEDIA["lossy"], 1),
    "shallow wire": (medium.MEDIA["shallow"], 1),
}
QUICK_MEDIA = ["1 hop", "3 hops, 20 ms", "3 hops, strangers", "wire"]
BYTES, QUICK_BYTES = 5_000_000, 2_000_000

# Columns of every row, with the names of the thesis's list.
FEATURES = {
    "server_ipt_mean_us": "time between packets, server, mean",
    "server_ipt_variance_us2": "the same, variance",
    "server_burstiness": "burstiness, server",
    "client_ipt_mean_us": "time between packets, client, mean",
    "client_ipt_variance_us2": "the same, variance",
    "client_burstiness": "burstiness, client",
    "delay_mean_ms": "one-way delay, mean",
    "delay_variance_ms2": "the same, variance",
    "loss": "lost packets",
    "out_of_order": "packets out of order",
    "acks_per_packet": "ACKs per data packet",
    "cwnd_mean_kb": "window, mean",
    "cwnd_variance_kb2": "the same, variance",
    "slow_start": "time in slow start",
    "congestion_avoidance": "time in congestion avoidance",
    "recovery": "time in recovery",
    "idle": "time idle",
}
FIGURES = ("mbps", "size", "packets")
DATA_BYTES = 600  # larger packets down are data
CLASS_MBPS = 10
LEVELS = 3


def gaps_of(times: list[float]) -> tuple[float, float, float]:
    """Statistics of the gaps between times, which are in s: mean in us, variance in us^2, index of dispersion for intervals."""
    gaps = [(b - a) * 1e6 for a, b in zip(times, times[1:])]
    mean, variance = statistics.fmean(gaps), statistics.pvariance(gaps)
    return mean, variance, variance / mean**2


def features(sent: list[traces.Packet], received: list[traces.Packet], samples: list[traces.Sample]) -> Row:
    """The features of one transfer, from the captures at the gateway and at the node, and the sender's window."""
    data = [p for p in sent if p.down and p.size >= DATA_BYTES]
    arrived = [p for p in received if p.down and p.size >= DATA_BYTES]
    if len(data) < 10 or len(arrived) < 10 or len(samples) < 4:
        raise namespaces.Failed(f"too little captured: {len(data)} packets sent, {len(arrived)} received, {len(samples)} windows")
    order = {p.key: i for i, p in enumerate(data)}
    at = {p.key: p.seconds for p in data}
    delays = [(p.seconds - at[p.key]) * 1e3 for p in arrived if p.key in at]
    highest, late = -1, 0
    for p in arrived:
        place = order.get(p.key, -1)
        late += 0 <= place < highest
        highest = max(highest, place)
    acks = sum(not p.down for p in sent)
    server, client = gaps_of([p.seconds for p in data]), gaps_of([p.seconds for p in arrived])
    pause = statistics.median(delays) / 1e3
    idle = sum(b.seconds - a.seconds for a, b in zip(data, data[1:]) if b.seconds - a.seconds > pause)
    inside = [s for s in samples if data[0].seconds <= s.seconds <= data[-1].seconds] or samples
    windows = [s.window / 1e3 for s in inside]

    def share(what: list[bool]) -> float:
        return sum(what) / len(what)

    recovery = share([s.recovery for s in inside])
    slow = share([s.slow_start and not s.recovery for s in inside])
    return {name: round(value, 6) for name, value in {
        "server_ipt_mean_us": server[0], "server_ipt_variance_us2": server[1], "server_burstiness": server[2],
        "client_ipt_mean_us": client[0], "client_ipt_variance_us2": client[1], "client_burstiness": client[2],
        "delay_mean_ms": statistics.fmean(delays), "delay_variance_ms2": statistics.pvariance(delays),
        "loss": 1 - sum(p.key in order for p in arrived) / len(data), "out_of_order": late / len(arrived),
        "acks_per_packet": acks / len(data), "cwnd_mean_kb": statistics.fmean(windows),
        "cwnd_variance_kb2": statistics.pvariance(windows), "slow_start": slow, "recovery": recovery,
        "congestion_avoidance": max(0.0, 1 - slow - recovery), "idle": idle / (data[-1].seconds - data[0].seconds),
        "packets": len(data),
    }.items()}


def transfer(servers: Servers, contender: str) -> Row:
    lab, mesh = servers.lab, servers.mesh
    sample = leg.window(servers, contender)

    def once() -> Row:
        captures = [traces.Capture(lab, name, "mesh", Mesh.GATEWAY) for name in (mesh.gateway, mesh.node)]
        with traces.watched(sample) as samples:
            mesh.medium.mark()
            result = (measure.tcp if contender == "tcp" else measure.bquic(contender))(servers)
            window = mesh.medium.mark()
        sent, received = (capture.packets() for capture in captures)
        return {**features(sent, received, samples), "mbps": round(result.mbps, 3), "window": window}

    return measure.counted(mesh.medium, once)


def run(args: argparse.Namespace, path: pathlib.Path) -> list[Row]:
    campaign = realtime.Campaign("why", args, path, FIGURES)
    names, size = (QUICK_MEDIA, QUICK_BYTES) if args.quick else (list(MEDIA), BYTES)
    total = args.repetitions * len(names) * len(CONTENDERS)
    for repetition in range(1, args.repetitions + 1):
        for name in names:
            key = {"medium": name, "size": size, "repetition": repetition}
            missing = campaign.missing(key, CONTENDERS)
            if not missing:
                continue
            kind, hops = MEDIA[name]
            with namespaces.Lab() as lab:
                servers = Servers(lab, Mesh(lab, kind, hops, seed=repetition), size)
                for contender in missing:
                    campaign.add(key, contender, lambda: transfer(servers, contender),
                                 f"{len(campaign.rows) + 1}/{total} {name}: {{contender}} {{mbps:.1f}} Mbit/s")
    return campaign.rows


def learnt(rows: list[Row]) -> tuple[str, list[tuple[str, float]], float]:
    """A contender's tree as text, its features by importance, and the share of transfers that are classified correctly
    by the tree of all others (leave-one-out)."""
    from sklearn.model_selection import LeaveOneOut, cross_val_score
    from sklearn.tree import DecisionTreeClassifier, export_text

    x = [[r[f] for f in FEATURES] for r in rows]
    y = [f"{int(r['mbps'] // CLASS_MBPS * CLASS_MBPS)}" for r in rows]

    def tree() -> Any:
        return DecisionTreeClassifier(criterion="entropy", max_depth=LEVELS, random_state=1)

    fitted = tree().fit(x, y)
    right = float(cross_val_score(tree(), x, y, cv=LeaveOneOut()).mean())
    order = sorted(zip(FEATURES, fitted.feature_importances_), key=lambda pair: -pair[1])
    text = export_text(fitted, feature_names=list(FEATURES), decimals=2).replace("class: ", "Mbit/s from ")
    return text.rstrip(), [(f, float(v)) for f, v in order if v > 0], right


def of_the_best(rows: list[Row]) -> list[float]:
    """Each row's throughput over that of the fastest transfer on the same medium."""
    best: dict[str, float] = {}
    for r in rows:
        best[r["medium"]] = max(best.get(r["medium"], 0), r["mbps"])
    return [r["mbps"] / best[r["medium"]] for r in rows]


def importance(rows: list[Row]) -> list[tuple[str, float]]:
    """How much worse a forest predicts a transfer's share of the fastest one without each feature."""
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.inspection import permutation_importance

    x, y = [[r[f] for f in FEATURES] for r in rows], of_the_best(rows)
    forest = RandomForestRegressor(200, random_state=1).fit(x, y)
    found = permutation_importance(forest, x, y, n_repeats=10, random_state=1).importances_mean
    return sorted(((f, float(v)) for f, v in zip(FEATURES, found)), key=lambda pair: -pair[1])


def medians(rows: list[Row]) -> str:
    """The table of features, by contender."""
    return results.table(
        ["median of all transfers", *CONTENDERS],
        [[words if not words.startswith("the same") else f"  {words}",
          *(number(results.median([r for r in rows if r["contender"] == c], f), ".4g") for c in CONTENDERS)]
         for f, words in {"mbps": "Mbit/s", **FEATURES}.items()])


def report(rows: list[Row]) -> str:
    text = medians(rows)
    for contender in CONTENDERS:
        some = [r for r in rows if r["contender"] == contender]
        if len(some) < 8:
            text += f"\n\n{contender}: {len(some)} transfers are too few for a tree"
            continue
        tree, order, right = learnt(some)
        text += (f"\n\n{contender}: of {len(some)} transfers, a tree learnt from all others, over the same media, classifies {right:.0%} correctly."
                 " Features by information gain: " + ", ".join(f"{f} {v:.2f}" for f, v in order) + f"\n{tree}")
    if len(rows) >= 24:
        text += "\n\nFeatures that predict a transfer's share of the fastest one over its medium: " + ", ".join(
            f"{f} {v:.2f}" for f, v in importance(rows)[:6])
    return text + "\n\n" + realtime.notes(rows)


def paper(rows: list[Row]) -> list[list[str]]:
    what, figure = "what decides the throughput, by decision trees (thesis 6.2)", "the mean window, for TCP and QUIC alike"
    first = {}
    for contender in CONTENDERS:
        some = [r for r in rows if r["contender"] == contender]
        if len(some) < 8:
            return [results.not_run(what, figure)]
        first[contender] = learnt(some)[1][0][0]
    return [[what, figure, "; ".join(f"{c}: {FEATURES[f]}" for c, f in first.items()),
             "reproduced" if set(first.values()) == {"cwnd_mean_kb"} else "not reproduced"]]


WHY_NOT = (
    "Why the root differs: the thesis had one path to each client, so the window stood for the rate. Here, media differ in delay, "
    "and a window says little without the delay. And the mean time between packets that arrive is little else than "
    "the throughput itself."
)


def draw(rows: list[Row]) -> None:
    with results.drawing(FIGURE, (10, 3.6), 1, 3) as panels:
        share = dict(zip((id(r) for r in rows), of_the_best(rows)))
        for axes, (key, title) in zip(panels, (("cwnd_mean_kb", "mean window, kB"), ("acks_per_packet", "ACKs per data packet"),
                                               ("server_burstiness", "burstiness, server"))):
            for contender in CONTENDERS:
                some = [r for r in rows if r["contender"] == contender]
                axes.plot([r[key] for r in some], [share[id(r)] for r in some], ".", label=contender)
            axes.set_xscale("log")
            axes.set_xlabel(title, fontsize=8)
            axes.set_ylabel("of the fastest transfer over the medium", fontsize=7)
        panels[0].legend(fontsize=7)


def main() -> int:
    return realtime.main("why", __doc__ or "", (10, 1), RESULTS, QUICK_RESULTS, run, report, draw)


if __name__ == "__main__":
    command(main)
