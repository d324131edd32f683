# SPDX-License-Identifier: Apache-2.0
"""The effect of the htb backend on real TCP over a real link of 20 Mbit/s."""
import statistics
import subprocess
import time

from bed import PATIENCE, Bed, Downloads, address, read_pcap, wait_for

LINK_KBIT = 20000
CLIENTS = 20
ACTIVE = 5
SLOT_MS = 1600
TRICKLE_KBIT = 100


class Capture:
    """tcpdump on a device of a namespace, with the first 96 bytes of each packet."""

    def __init__(self, ns, device, path, direction):
        self.path = str(path)
        self.process = ns.popen("tcpdump", "-i", device, "-Q", direction, "-w", self.path, "-s", "96", "-B", "16384",
                                "--time-stamp-precision=nano", "-Z", "root", "tcp", stderr=open(self.path + ".log", "w"))
        wait_for(lambda: "listening on" in open(self.path + ".log").read(), "tcpdump")

    def packets(self):
        """(time, wire bytes, client, TCP sequence number, payload bytes)"""
        self.process.terminate()
        self.process.wait()
        assert "\n0 packets dropped by kernel" in open(self.path + ".log").read()
        index = {address(i): i for i in range(CLIENTS)}
        found = []
        for t, length, p in read_pcap(self.path):
            to = ".".join(str(b) for b in p[30:34])
            if to in index:
                header = 14 + (p[14] & 15) * 4
                seq = int.from_bytes(p[header + 4:header + 8], "big")
                payload = length - header - (p[header + 12] >> 4) * 4
                found.append((t, length, index[to], seq, payload))
        return found


def levels(log, mac_index):
    """(time, client, level) of each change, from the daemon's log."""
    found = []
    for line in log.splitlines():
        words = line.split()
        if len(words) == 4 and words[2] in mac_index and words[1][0].isdigit():
            found.append((float(words[1]), mac_index[words[2]], words[3]))
    return found


def reordered(before, after):
    """Packets that left after a later packet of their connection, although the sender sent them only once.

    Counts only data whose first transmission is in the capture: later than the data in flight during the first round.
    """
    sent, known = {}, {}
    first_round = before[0][0] + 7
    for t, _, client, seq, payload in before + after:
        if t < first_round and payload > 0 and (seq - known.get(client, seq - 1)) % 2**32 < 2**31:
            known[client] = seq
    for _, _, client, seq, payload in before:
        if payload > 0:
            for start in range(seq, seq + payload, 1448):
                sent[client, start % 2**32] = sent.get((client, start % 2**32), 0) + 1
    highest = dict(known)
    wrong = 0
    for _, _, client, seq, payload in after:
        if payload <= 0 or client not in known or (seq - known[client]) % 2**32 > 2**31:
            continue
        if (seq - highest[client]) % 2**32 > 2**31:
            wrong += sent.get((client, seq), 2) == 1
        else:
            highest[client] = seq
    return wrong


def came(before):
    """The last arrival time of each (client, TCP sequence number)."""
    return {(client, s % 2**32): t for t, _, client, seq, payload in before for s in range(seq, seq + payload, 1448)}


def test_twenty_downloads_take_turns(tmp_path):
    seconds = 64  # ten rounds of 6.4 s
    with Bed(CLIENTS, LINK_KBIT) as bed:
        downloads = Downloads(bed, range(CLIENTS))
        downloads.run(3)
        before = dict(downloads.received)
        downloads.run(8)
        unscheduled = sum(downloads.received[i] - before[i] for i in before) * 8 / 8 / 1000

        daemon = bed.daemon("--active", str(ACTIVE), "--slot", str(SLOT_MS), "--trickle", str(TRICKLE_KBIT),
                            "--rate", str(LINK_KBIT), "--engage", "always", "--verbose", "--verbose").ready()
        # the first round, until every client has had a turn
        downloads.run(1.5 * CLIENTS / ACTIVE * SLOT_MS / 1000)
        assert daemon.status()["engaged"], daemon.status()
        enters = Capture(bed.box, "eth0", tmp_path / "in.pcap", "in")
        leaves = Capture(bed.box, "dl0", tmp_path / "out.pcap", "out")
        before = dict(downloads.received)
        begin = time.time()
        downloads.run(seconds)
        end = time.time()
        got = {i: downloads.received[i] - before[i] for i in before}
        out = leaves.packets()
        into = enters.packets()
        downloads.close()
        assert daemon.stop() == 0
        (tmp_path / "log").write_text(open(daemon.log_path).read())
        changes = levels((tmp_path / "log").read_text(), {f"02:00:00:00:00:{i + 1:02x}": i for i in range(CLIENTS)})

    # the time each client was at each level
    spans, since = [], {}
    for t, client, level in changes:
        if client in since:
            spans.append((client, *since[client], t))
        since[client] = (level, t)
    spans += [(client, level, t, end) for client, (level, t) in since.items()]
    arrivals = {i: [(t, length) for t, length, client, _, payload in out if client == i and payload > 0]
                for i in range(CLIENTS)}
    sequence = {(client, t): seq for t, _, client, seq, payload in out if payload > 0}
    entered = came(into)
    active_bytes = 0
    waited = {i: [0.0, 0] for i in range(CLIENTS)}
    switch_on = []
    active = dict.fromkeys(range(CLIENTS), 0.0)  # s
    turns = {i: [] for i in range(CLIENTS)}  # bytes in each whole turn
    for client, level, start, stop in spans:
        start, stop = max(start, begin), min(stop, end)
        if stop <= start:
            continue
        size = sum(length for t, length in arrivals[client] if start <= t < stop)
        if level == "active":
            active_bytes += size
            active[client] += stop - start
            if start > begin and stop < end:
                turns[client].append(size)
            first = [t for t, _ in arrivals[client] if t >= start]
            # only clients with a queue: the sender's delay is not the scheduler's
            if start > begin and stop < end and first and entered.get((client, sequence[client, first[0]]), 0) < start:
                switch_on.append((first[0] - start) * 1000)
        elif level != "open":
            waited[client][0] += stop - start
            waited[client][1] += size
    trickle = {i: size * 8 / t / 1000 for i, (t, size) in waited.items()}
    goodput = sum(got.values()) * 8 / seconds / 1000
    # A sender that another process keeps from the processor in a few of its turns does not count.
    typical = [statistics.median(sizes) for sizes in turns.values()]
    times, shares = ([v / statistics.mean(values) for v in values] for values in (list(active.values()), typical))
    late = reordered(into, out)
    link = active_bytes * 8 / seconds / 1000 / LINK_KBIT
    lost = statistics.mean(switch_on) / SLOT_MS
    print(f"\nunscheduled {unscheduled:.0f} kbit/s, scheduled {goodput:.0f}; active clients had {link:.1%} of the link; "
          f"waiting ones {min(trickle.values()):.0f}..{max(trickle.values()):.0f} kbit/s; "
          f"at their turn for {min(times):.3f}..{max(times):.3f} of the mean, a median turn {min(shares):.3f}..{max(shares):.3f} of it; "
          f"the first packet of a turn after {lost:.2%} of it in the mean of {len(switch_on)}, {max(switch_on):.0f} ms at most; "
          f"{late} of {len(out)} packets reordered")
    assert late == 0
    assert max(trickle.values()) <= 1.3 * TRICKLE_KBIT
    assert goodput >= 0.95 * unscheduled
    assert link >= 0.85
    assert 0.9 <= min(times) and max(times) <= 1.1
    assert 0.85 <= min(shares) and max(shares) <= 1.15
    # A single turn may begin late because another process has the processor.
    assert lost <= 0.01


def median_rtt(ping):
    """The median RTT of a running ping, ms."""
    text, _ = ping.communicate(timeout=PATIENCE)
    return statistics.median(float(line.split("time=")[1].split()[0]) for line in text.splitlines() if "time=" in line)


def beyond_noise(rows):
    """
    The columns in which runs with the daemon differ from those without by more than runs of one kind differ among
    themselves, which is much on a busy machine.
    """
    found = []
    for column in (0, 1):
        off, on = ([r[column] for r in rows[name]] for name in ("without", "with"))
        noise = max(max(off) - min(off), max(on) - min(on), 0.03 * statistics.median(off))
        if abs(statistics.median(on) - statistics.median(off)) > noise:
            found.append(column)
    return found


def test_few_clients_lose_nothing():
    """K clients with demand: interleaved runs with and without the daemon. By chance, five may differ, but not ten more as well."""
    rows = {"without": [], "with": []}
    with Bed(6, LINK_KBIT) as bed:
        downloads = Downloads(bed, range(3))
        downloads.run(3)
        while len(rows["with"]) < 5 or len(rows["with"]) < 15 and beyond_noise(rows):
            for name in rows:
                daemon = bed.daemon("--rate", str(LINK_KBIT), "--active", "3").ready() if name == "with" else None
                downloads.run(1)
                # a client without demand beside three with demand
                ping = bed.server.popen("ping", "-n", "-i", "0.1", "-w", "2", address(5), stdout=subprocess.PIPE, text=True)
                before = sum(downloads.received.values())
                start = time.monotonic()
                downloads.run(2.1)
                kbit = (sum(downloads.received.values()) - before) * 8 / (time.monotonic() - start) / 1000
                if daemon:
                    status = daemon.status()
                    assert status["clients_with_demand"] == 3 and not status["throttling"], status
                rows[name].append((kbit, median_rtt(ping)))
                if daemon:
                    assert daemon.stop() == 0
        downloads.close()
    print("\n          kbit/s                              idle client's RTT, ms")
    for name, runs in rows.items():
        print(f"{name:8}", *(f"{k:6.0f}" for k, _ in runs), "  ", *(f"{r:6.2f}" for _, r in runs))
    assert not beyond_noise(rows), rows
