# SPDX-License-Identifier: Apache-2.0
"""wifirrd on an access point of the lab's real-time 802.11 medium.

Endless downloads to every station, without and with the daemon, interleaved.
Checks that turns show in the stations' throughput and that the total is not
more than 2 % below the unscheduled one. A run counts only while the medium
keeps up with the clock; on a busy machine it says so and ends with 77.

    wifi_rotation.py [11g|11n]...
"""
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "..")]

import bed  # noqa: E402
from lab import medium  # noqa: E402
from lab.namespaces import Lab  # noqa: E402
from lab.topology import Cell  # noqa: E402

STATIONS = {"11g": 5, "11n": 10}
SECONDS = 12
ROUNDS = 2
ACTIVE = 3
BEHIND = 77


class Named:
    """A namespace made elsewhere, for bed.py's classes."""

    def __init__(self, name):
        self.name = name

    __call__ = bed.Netns.__call__
    here = bed.Netns.here
    popen = bed.Netns.popen
    enter = bed.Netns.enter


class CellBed:
    def __init__(self, cell):
        self.server = Named(cell.ap)
        self.client = [Named(name) for name in cell.stations]


def lag(cell, since):
    seconds = cell.medium.seconds[since:]
    return max((s["lag_ms"] for s in seconds), default=0)


def experiment(standard):
    stations = STATIONS[standard]
    totals = {"without": [], "with": []}
    in_turn = everything = 0.0
    late = 0.0
    with Lab() as lab:
        cell = Cell(lab, stations, standard)
        bed.address = lambda i: Cell.address(i + 1)
        space = CellBed(cell)
        macs = {cell.mac(lab, i + 1): i for i in range(stations)}
        downloads = bed.Downloads(space, range(stations))
        downloads.run(4)
        for _ in range(ROUNDS):
            for name in totals:
                daemon = None
                if name == "with":
                    # the medium gives no backpressure, so the queue must be here
                    wire = totals["without"][-1] * 1514 / 1448
                    daemon = bed.Daemon(space.server, Cell.DEVICE, "--rate", str(int(wire * 1.03)), "--engage", "always",
                                        "--active", str(ACTIVE)).ready()
                downloads.run(5)
                first = len(cell.medium.seconds)
                before = dict(downloads.received)
                samples = []

                def sample():
                    active = [macs[m] for m in daemon.status()["active"] if m in macs] if daemon else []
                    samples.append((time.monotonic(), dict(downloads.received), active))
                start = time.monotonic()
                downloads.run(SECONDS, 0.2, sample)
                kbit = sum(downloads.received[i] - before[i] for i in before) * 8 / (time.monotonic() - start) / 1000
                totals[name].append(kbit)
                late = max(late, lag(cell, first))
                if not daemon:
                    continue
                status = daemon.status()
                assert status["engaged"], status
                for (_, a, active), (_, b, still) in zip(samples, samples[1:]):
                    for i in range(stations):
                        everything += b[i] - a[i]
                        in_turn += b[i] - a[i] if i in active or i in still else 0
                assert daemon.stop() == 0
                daemon.remove()
        downloads.close()
    ratio = (sum(totals["with"]) / ROUNDS) / (sum(totals["without"]) / ROUNDS)
    print(f"{standard}, {stations} stations, K={ACTIVE}: without {[round(t) for t in totals['without']]} kbit/s, "
          f"with {[round(t) for t in totals['with']]}: {ratio:.3f}; {in_turn / everything:.1%} of it to active stations; "
          f"medium's worst mean lag of a second {late:.1f} ms")
    if late >= medium.LAG_LIMIT_MS:
        return BEHIND
    return 0 if ratio >= 0.98 and in_turn >= 0.8 * everything else 1


def main():
    medium.build()
    results = [experiment(standard) for standard in sys.argv[1:] or STATIONS]
    if 1 in results:
        return 1
    if BEHIND in results:
        print("the machine is too busy for the real-time medium: the run does not count")
        return BEHIND
    return 0


if __name__ == "__main__":
    sys.exit(main())
