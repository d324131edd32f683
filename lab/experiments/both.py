#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Both packages at once: ten stations of one access point, with BQUIC, with WiFiRR, with both, with none.

The papers measured them separately (BQUIC, WCNC 2019; WiFiRR, TMC 2016: 15 laptops
of 802.11n, each downloading 9 MB, finished 2.4 to 2.7x sooner).

Here: 802.11n MCS7, mac80211's queues. The gateway runs on the access point. Five
stations download 10 MB each, five load 470 kB, the size of a page, again and
again with a second in between; all send 200 (or 800) kbit/s up in packets of 500
bytes, all the time. "none" and "wifirr" use stock QUIC, "bquic" and "both" the
bquic profile at both ends. wifirrd runs with its default settings and its htb
backend (3 active clients, turns of 2.4 s, once a crowd has lasted for 40 s and if a
trial shows that they deliver more), because airtime weights need mac80211, which the
emulated medium does not have. Where the downloads are over sooner ("engaged" 0 %),
there are no turns, and "wifirr" only shows that wifirrd costs nothing. Worst and median are over the downloads, which all
begin at once.

Writes results/both.json (rows: lab/realtime.py) and docs/results/both.svg. An
interrupted run continues where it stopped.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import sys
import threading
import time
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from lab import BQUIC, command, measure, namespaces, realtime, results  # noqa: E402
from lab.namespaces import Lab  # noqa: E402
from lab.results import Row, interval, median, number, spread  # noqa: E402
from lab.servers import serve_gateway  # noqa: E402
from lab.topology import Cell  # noqa: E402

RESULTS = ROOT / "results/both.json"
QUICK_RESULTS = ROOT / "build/lab/both.json"
FIGURE = ROOT / "docs/results/both.svg"

CONTENDERS = ["none", "bquic", "wifirr", "both"]
STATIONS, DOWNLOADS = 10, 5  # the first DOWNLOADS stations download, the others load pages
BYTES = 10_000_000
PAGE_BYTES = 470_000
PAUSE_SECONDS = 1.0  # between two pages
UPLOADS_KBIT, QUICK_UPLOADS_KBIT = [200, 800], [200]
UPLOAD_BYTES = 500
# What the medium carries to one station, in IP bytes. The medium gives no
# backpressure, so wifirrd's link must be limited to this.
RATE_KBIT = 57_000
FIGURES = ("worst_s", "median_s", "page_ms", "page_p95_ms", "pages", "delivered_kbit")

UPLOAD = """
import socket, sys, time
host, size, gap = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((host, 9))
packet, at = bytes(size - 28), time.monotonic()
while True:
    try: s.send(packet)
    except ConnectionRefusedError: pass
    at += gap
    time.sleep(max(0, at - time.monotonic()))
"""


class Network:
    """A cell whose access point serves files of both sizes, with a gateway for each profile."""

    def __init__(self, lab: Lab, seed: int, size: int, upload_kbit: int) -> None:
        self.lab, self.size = lab, size
        self.cell = Cell(lab, STATIONS, "11n", seed)
        root = lab.dir / "site"
        root.mkdir()
        for name, length in (("download", size), ("page", PAGE_BYTES)):
            with open(root / name, "wb") as file:
                file.truncate(length)
        self.ports = {"standard": 8443, "bquic": 8444}
        for profile, port in self.ports.items():
            serve_gateway(lab, self.cell.ap, profile, port, f"""
	list mesh '{Cell.PREFIX}'
	option mesh_profile '{profile}'

config site
	list host '*'
	option root '{root}'
""")
        lab.run(self.cell.ap, "nft", "add table inet count; add counter inet count up;"
                " add chain inet count in { type filter hook input priority 0; };"
                " add rule inet count in udp dport 9 counter name up drop")
        for station in self.cell.stations:
            lab.start(station, sys.executable, "-c", UPLOAD, Cell.address(0), str(UPLOAD_BYTES),
                      str(UPLOAD_BYTES * 8 / upload_kbit / 1e3), log="upload.log")

    def uploaded(self) -> int:
        """IP bytes sent by all stations so far."""
        listed = json.loads(self.lab.run(self.cell.ap, "nft", "-j", "list", "counters"))["nftables"]
        return int(next(e["counter"]["bytes"] for e in listed if "counter" in e))

    def fetch(self, station: int, profile: str, name: str) -> Row:
        answer: Row = json.loads(self.lab.run(
            self.cell.stations[station], str(BQUIC), "fetch", "--config", str(self.lab.dir / f"{profile}.conf"), "--profile",
            profile, "--insecure", "--json", f"https://{Cell.address(0)}:{self.ports[profile]}/{name}", timeout=measure.RUN_SECONDS))
        if answer["bytes"] != (self.size if name == "download" else PAGE_BYTES):
            raise namespaces.Failed(f"station {station + 1}: {answer['bytes']} bytes of {name}")
        return answer


def wifirrd(network: Network) -> Callable[[], Row]:
    """Starts it on the access point; returns a function that queries its status."""
    lab, control = network.lab, network.lab.dir / "wifirr.sock"
    process = lab.serve("wifirrd", network.cell.ap, str(realtime.WIFIRRD), "--device", Cell.DEVICE, "--backend", "htb", "--rate",
                        str(RATE_KBIT), "--control", str(control), log="wifirrd.log", ready=control.exists)

    def status() -> Row:
        if process.poll() is not None:
            raise namespaces.Failed(f"wifirrd ended: {lab.tail('wifirrd.log')}")
        answer: Row = json.loads(lab.run(network.cell.ap, str(realtime.WIFIRRD), "--control", str(control), "status"))
        return answer

    return status


def run_once(network: Network, contender: str) -> Row:
    """Runs all downloads, and loads pages at the same time."""
    profile = "bquic" if contender in ("bquic", "both") else "standard"
    errors: list[Exception] = []
    seconds: dict[int, float] = {}
    page_ms: list[float] = []
    over = threading.Event()
    engaged: list[bool] = []
    crowd = False
    processes = len(network.lab.processes)
    status = wifirrd(network) if contender in ("wifirr", "both") else None

    def guarded(work: Callable[[], None]) -> threading.Thread:
        def target() -> None:
            try:
                work()
            except Exception as error:  # in a thread: raised below
                errors.append(error)
                over.set()

        return threading.Thread(target=target)

    def download(station: int) -> None:
        network.fetch(station, profile, "download")
        seconds[station] = time.monotonic() - start

    def browse(station: int) -> None:
        while not over.wait(PAUSE_SECONDS):
            page_ms.append(network.fetch(station, profile, "page")["seconds"] * 1e3)

    downloads = [guarded(lambda i=i: download(i)) for i in range(DOWNLOADS)]  # type: ignore[misc]
    browsers = [guarded(lambda i=i: browse(i)) for i in range(DOWNLOADS, STATIONS)]  # type: ignore[misc]
    network.cell.medium.mark()
    start, before = time.monotonic(), network.uploaded()
    threads = downloads + browsers
    try:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in downloads):
            time.sleep(0.5)
            if status:
                now = status()
                engaged.append(bool(now["engaged"]))
                crowd |= now["clients_with_demand"] > now["active_max"]
        if errors:
            raise errors[0]
        took, uploaded = time.monotonic() - start, network.uploaded() - before
        window = network.cell.medium.mark()
    except (KeyboardInterrupt, SystemExit):
        threads = []  # the lab ends what they wait for, which may take minutes
        raise
    finally:
        over.set()
        for thread in threads:
            thread.join()
        for process in network.lab.processes[processes:]:
            namespaces.stop(process)
    if errors:
        raise errors[0]
    if status and not crowd:
        raise namespaces.Failed("wifirrd saw no crowd")
    page_ms.sort()
    return {
        "worst_s": round(max(seconds.values()), 3), "median_s": round(statistics.median(seconds.values()), 3),
        "page_ms": round(statistics.median(page_ms), 1), "page_p95_ms": round(page_ms[int(0.95 * (len(page_ms) - 1))], 1),
        "pages": len(page_ms), "delivered_kbit": round(uploaded * 8 / took / 1e3 / STATIONS, 1),
        "engaged_share": round(sum(engaged) / len(engaged), 3) if engaged else None,
        "ampdu": round(window["down"]["mpdus_per_ampdu"], 3), "busy": round(window["busy"], 4), "window": window,
    }


def measured(network: Network, contender: str) -> Row:
    return measure.counted(network.cell.medium, lambda: run_once(network, contender), cpu_limit=measure.ANY_CPU)


def run(args: argparse.Namespace, path: pathlib.Path) -> list[Row]:
    campaign = realtime.Campaign("both", args, path, FIGURES, [realtime.WIFIRRD])
    uploads = QUICK_UPLOADS_KBIT if args.quick else UPLOADS_KBIT
    total = args.repetitions * len(uploads) * len(CONTENDERS)
    for repetition in range(1, args.repetitions + 1):
        for upload in uploads:
            key = {"stations": STATIONS, "downloads": DOWNLOADS, "size": BYTES, "upload_kbit": upload, "repetition": repetition}
            missing = campaign.missing(key, CONTENDERS)
            if not missing:
                continue
            with Lab() as lab:
                network = Network(lab, repetition, BYTES, upload)
                for contender in missing:
                    campaign.add(key, contender, lambda: measured(network, contender),
                                 f"{len(campaign.rows) + 1}/{total} {upload} kbit/s up, {{contender}}:"
                                 " worst {worst_s:.1f} s, page {page_ms:.0f} ms")
    return campaign.rows


def of(rows: list[Row], upload: int, contender: str) -> list[Row]:
    return [r for r in rows if (r["upload_kbit"], r["contender"]) == (upload, contender)]


def report(rows: list[Row]) -> str:
    lines = []
    for upload in UPLOADS_KBIT:
        base = of(rows, upload, "none")
        for contender in CONTENDERS:
            some = of(rows, upload, contender)
            if not some:
                continue

            def gain(key: str) -> str:
                return spread(realtime.gains(some, base, key))

            lines.append([
                f"{upload} kbit/s up, {contender}", number(median(some, "worst_s")), gain("worst_s"),
                number(median(some, "median_s")), gain("median_s"), number(median(some, "page_ms"), ".0f"),
                number(median(some, "page_p95_ms"), ".0f"), gain("page_ms"), number(median(some, "delivered_kbit"), ".0f"),
                number(median(some, "ampdu")), number(median(some, "engaged_share"), ".0%"), str(len(some))])
    return results.table(
        ["", "worst s", "none/", "median s", "none/", "page ms", "p95", "none/", "delivered up", "MPDU/A-MPDU", "engaged", "runs"],
        lines) + "\n\n" + realtime.notes(rows)


def draw(rows: list[Row]) -> None:
    with results.drawing(FIGURE, (9, 3.4), 1, 3) as panels:
        for axes, (key, title) in zip(panels, (("worst_s", "last download done, s"), ("median_s", "median download, s"), ("page_ms", "page, ms"))):
            for k, upload in enumerate(UPLOADS_KBIT):
                found = [(i, interval(results.figures(some, key))) for i, c in enumerate(CONTENDERS) if (some := of(rows, upload, c))]
                axes.bar([i + 0.4 * k - 0.2 for i, _ in found], [v[0] for _, v in found], 0.38, label=f"{upload} kbit/s up",
                         yerr=results.arms([v for _, v in found]), capsize=3)
            axes.set_xticks(range(len(CONTENDERS)), CONTENDERS, fontsize=8)
            axes.set_title(title, fontsize=9)
        panels[0].legend(fontsize=7)


def main() -> int:
    return realtime.main("both", __doc__ or "", (10, 2), RESULTS, QUICK_RESULTS, run, report, draw)


if __name__ == "__main__":
    command(main)
