# SPDX-License-Identifier: Apache-2.0
"""The cost of a change of turns: wifirrd against a shell script that forks tc.

Both open the next client's class and throttle the previous one's, on the same
device with the same classes, for N clients. wifirrd: CPU time of the process
(kernel included) over the changes it counted; netlink_us: its time in the calls
that change classes. tc-shell: the same for the shell and its children. Also size,
memory and wake-ups. Writes results/wifirr-cost.json.
"""
import json
import os
import re
import resource
import subprocess
import tempfile
import time

from bed import HERE, WIFIRRD, Bed, mac
from test_faults import Traffic, fdb, quiet_wires

RESULTS = os.path.join(HERE, "..", "..", "..", "results", "wifirr-cost.json")
CLIENTS = (10, 50, 200)
SHELL_CHANGES = 40


def proc(pid):
    """CPU in us, RSS in kB, wake-ups (voluntary switches)"""
    stat = open(f"/proc/{pid}/schedstat").read().split()
    status = open(f"/proc/{pid}/status").read()
    return int(stat[0]) / 1000, int(re.search(r"VmRSS:\s+(\d+)", status).group(1)), \
        int(re.search(r"\nvoluntary_ctxt_switches:\s+(\d+)", status).group(1))


def wifirrd(bed, n):
    macs = [mac(i) for i in range(1, n + 1)]
    fdb(bed, "add", macs)
    # 2 kbit/s count as demand, so that a few bytes for each client keep all of them waiting for turns
    daemon = bed.daemon("--engage", "always", "--demand-rate", "1", "--rate", "20000").ready()
    pid = daemon.process.pid
    time.sleep(3)
    idle = proc(pid)
    time.sleep(10)
    idle = proc(pid)[2] - idle[2]
    traffic = Traffic(bed, macs)
    traffic.run(4)
    assert daemon.status()["engaged"]
    before, counters = proc(pid), daemon.status()["counters"]
    start = time.monotonic()
    traffic.run(20)
    seconds = time.monotonic() - start
    after, last = proc(pid), daemon.status()["counters"]
    changes = last["changes"] - counters["changes"]
    assert changes > 50, changes
    assert daemon.stop() == 0
    fdb(bed, "del", macs)
    return {"clients": n, "contender": "wifirrd", "cpu_us_per_change": round((after[0] - before[0]) / changes, 1),
            "netlink_us": round((last["change_us"] - counters["change_us"]) / changes, 1), "rss_kb": after[1],
            "changes": changes, "wakeups_per_s": round((after[2] - before[2]) / seconds, 1),
            "wakeups_per_s_idle": round(idle / 10, 1)}


SCRIPT = """
set -e
tc qdisc add dev dl0 root handle 1: htb default 1
tc class add dev dl0 parent 1: classid 1:fff htb rate 20mbit quantum 1514
i=1; while [ $i -le {n} ]; do
	tc class add dev dl0 parent 1:fff classid 1:$(printf %x $i) htb rate 20kbit ceil 20kbit quantum 1514
	i=$((i + 1))
done
echo ready
read go
times
# one change: everybody's rate as it has to be, the next client in
c=1; while [ $c -le {changes} ]; do
	i=1; while [ $i -le {n} ]; do
		if [ $i = $c ]; then ceil=20mbit; else ceil=20kbit; fi
		tc class change dev dl0 parent 1:fff classid 1:$(printf %x $i) htb rate 20kbit ceil $ceil quantum 1514
		i=$((i + 1))
	done
	c=$((c + 1))
done
"""


def tc_shell(bed, n):
    changes = max(3, SHELL_CHANGES * 10 // n)
    p = bed.box.popen("sh", "-c", SCRIPT.format(n=n, changes=changes), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert p.stdout.readline() == "ready\n"
    p.stdin.write("go\n")
    p.stdin.flush()
    p.stdout.readline()  # output of times: first the shell
    children = p.stdout.readline()  # then its children so far
    setup = sum(int(m) * 60 + float(s) for m, s in re.findall(r"(\d+)m([\d.]+)s", children))
    rss = proc(p.pid)[1]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    p.communicate()
    elapsed = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert p.returncode == 0
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime - setup
    bed.box("tc", "qdisc", "del", "dev", "dl0", "root")
    return {"clients": n, "contender": "tc-shell", "cpu_us_per_change": round(cpu * 1e6 / changes, 1),
            "netlink_us": round(elapsed * 1e6 / changes, 1), "rss_kb": rss, "changes": changes}


def stripped_size():
    with tempfile.NamedTemporaryFile() as f:
        subprocess.run(["strip", "-o", f.name, WIFIRRD], check=True)
        return os.path.getsize(f.name)


def main():
    with Bed(0) as bed:
        quiet_wires(bed)
        rows = [contender(bed, n) for n in CLIENTS for contender in (wifirrd, tc_shell)]
    print("clients contender  CPU us/change  in netlink us  RSS kB  wake-ups/s (idle)")
    for r in rows:
        print(f"{r['clients']:7} {r['contender']:9} {r['cpu_us_per_change']:14.1f} {r['netlink_us']:14.1f} {r['rss_kb']:7} "
              + (f"{r['wakeups_per_s']:11.1f} ({r['wakeups_per_s_idle']})" if "wakeups_per_s" in r else ""))
    size = stripped_size()
    print(f"wifirrd stripped: {size} bytes")
    os.makedirs(os.path.dirname(RESULTS), exist_ok=True)
    with open(RESULTS, "w") as f:
        json.dump({"rows": rows, "stripped_bytes": size}, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
