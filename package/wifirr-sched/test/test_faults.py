# SPDX-License-Identifier: Apache-2.0
"""wifirrd's life: kills, lost settings, floods, devices that come and go."""
import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

import pytest

from bed import PATIENCE, WIFIRRD, Bed, Downloads, Netns, address as address_of, children, guard_of, kill_both, mac, run, wait_for, words_of

PAPER = ("--mode", "paper", "--engage", "always", "--rate", "20000")
SANITIZED = "asan" in WIFIRRD
NETLINK_NETFILTER = 12


@pytest.fixture
def bed():
    with Bed(0) as b:
        quiet_wires(b)
        yield b


def quiet_wires(bed):
    """Keeps the wires' own addresses from looking like clients."""
    bed.box("bridge", "link", "set", "dev", "dl0", "learning", "off")
    bed.box("bridge", "fdb", "flush", "dev", "dl0", "master", "dynamic", check=False)


def fdb(bed, verb, macs):
    """Others would be gone after five minutes, and a port that has just come up takes none."""
    lines = "\n".join(f"fdb {verb} {m} dev dl0 master" + (" static" if verb != "del" else "") for m in macs)
    bed.box("bridge", "-force", "-batch", "-", input=lines)


def classes(bed):
    """The rate of each client's class."""
    text = bed.box("tc", "class", "show", "dev", "dl0").stdout
    return dict(re.findall(r"class htb 5746:a([0-9a-f]{3}) .*? ceil (\S+)", text))


def unthrottled(bed):
    return sum(ceil == "20Mbit" for ceil in classes(bed).values())


def device(bed, name="dl0"):
    """The state that the daemon must restore. tc fails if a filter goes while it asks."""
    link = bed.box("ip", "-d", "link", "show", name).stdout
    return (bed.box("tc", "qdisc", "show", "dev", name).stdout, bed.box("tc", "filter", "show", "dev", name, check=False).stdout,
            re.search(r"gso_max_segs \d+", link).group(), bed.box("nft", "list", "tables").stdout)


def all_as(bed, before, name="dl0"):
    """After a daemon's end. What removes the table goes on by itself if it takes longer than 3 s."""
    assert device(bed, name)[:3] == before[:3]
    wait_for(lambda: device(bed, name) == before, "no table")


def rename(bed, name, other):
    bed.box("ip", "link", "set", name, "down")
    bed.box("ip", "link", "set", name, "name", other)
    bed.box("ip", "link", "set", other, "up")


def consistent(bed, daemon, clients):
    """The classes in the kernel match the clients, and the right number of them is open."""
    def check():
        status = daemon.status()
        return (status["clients"] == clients and len(classes(bed)) == clients and status["engaged"]
                and unthrottled(bed) == 5 == len(status["active"]))
    wait_for(check, f"{clients} clients scheduled")


def test_what_a_killed_run_left_is_removed():
    """Daemons, too: they would schedule an empty namespace for ever."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    left = Netns(f"w{dead.pid}box")
    process = left.popen("sleep", "600")
    wait_for(lambda: str(process.pid) in run("ip", "netns", "pids", left.name).stdout, "the process")
    with Bed(0):
        assert process.wait(timeout=PATIENCE) == -signal.SIGKILL
        assert not os.path.exists(f"/run/netns/{left.name}")


def test_killed_at_any_moment_and_started_again(bed):
    before = device(bed)
    fdb(bed, "add", [mac(i) for i in range(1, 13)])
    random.seed(1)
    for _ in range(10):
        daemon = bed.daemon(*PAPER, "--slot", "100")
        daemon.ready()
        time.sleep(random.random() * 0.2)
        daemon.stop(signal.SIGKILL)
    # also killed before it is ready
    for _ in range(20):
        daemon = bed.daemon(*PAPER)
        time.sleep(random.random() * 0.05)
        daemon.stop(signal.SIGKILL)
    daemon = bed.daemon(*PAPER).ready()
    consistent(bed, daemon, 12)
    assert daemon.stop() == 0
    all_as(bed, before)


def test_a_killed_daemon_leaves_nothing(bed):
    """A client left throttled would stay so until an operator notices."""
    before = device(bed)
    fdb(bed, "add", [mac(i) for i in range(1, 13)])
    for _ in range(3):
        daemon = bed.daemon(*PAPER)
        consistent(bed, daemon.ready(), 12)
        wait_for(lambda: len(guard_of(daemon)) == 1, "its guard")
        assert device(bed) != before
        daemon.stop(signal.SIGKILL)
        wait_for(lambda: device(bed) == before, "everything as before")


def test_a_killed_guard_returns(bed):
    """Until another client came, there was none: what a daemon that is killed then has set stayed."""
    daemon = bed.daemon(*PAPER).ready()
    guard, = wait_for(lambda: guard_of(daemon), "its guard")
    changes = daemon.status()["counters"]["changes"]
    os.kill(guard, signal.SIGKILL)
    wait_for(lambda: [pid for pid in guard_of(daemon) if pid != guard], "another guard")
    assert daemon.status()["counters"]["changes"] == changes
    assert daemon.stop() == 0


def test_restore_after_daemon_and_guard_were_killed(bed):
    before = device(bed)
    fdb(bed, "add", [mac(i) for i in range(1, 13)])
    daemon = bed.daemon(*PAPER)
    consistent(bed, daemon.ready(), 12)
    # the settings of a running daemon are left alone
    bed.box(WIFIRRD, "restore")
    consistent(bed, daemon, 12)
    assert daemon.status()["counters"]["restarts"] == 0
    kill_both(daemon)
    assert device(bed) != before
    said = bed.box(WIFIRRD, "restore")
    assert said.stderr == ""
    assert device(bed) == before
    assert bed.box(WIFIRRD, "restore").stderr == ""  # nothing left


def preloaded(tmp_path, text):
    """The wrapper of a daemon that runs with these functions in place of the C library's."""
    (tmp_path / "preload.c").write_text(text)
    subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", tmp_path / "preload.so", tmp_path / "preload.c"], check=True)
    return ("/usr/bin/env", f"LD_PRELOAD={tmp_path}/preload.so", f"NOW={tmp_path}/now")


WAITS_AS_LONG_AS_ONE_LOOKS = """
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int nanosleep(const struct timespec *time, struct timespec *rest)
{
	const char *now = getenv("NOW");

	close(open(now, O_CREAT, 0600));
	while (access(now, F_OK) == 0)
		usleep(10000);
	return clock_nanosleep(CLOCK_MONOTONIC, 0, time, rest);
}
"""


@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer has to come first")
def test_restore_waits_for_a_lock(bed, tmp_path):
    """The kernel may close a killed daemon's pipe to its guard before its lock. The guard took the daemon for a running one then, and left everything."""
    before = device(bed)
    daemon = bed.daemon(*PAPER).ready()
    kill_both(daemon)
    with bed.box.enter():
        lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    lock.bind(b"\0wifirrd/dl0".ljust(108, b"\0"))  # the name has all of sun_path
    restoring = bed.box.popen(*preloaded(tmp_path, WAITS_AS_LONG_AS_ONE_LOOKS), WIFIRRD, "restore")
    wait_for((tmp_path / "now").exists, "its wait for the lock")
    lock.close()
    (tmp_path / "now").unlink()
    assert restoring.wait(timeout=PATIENCE) == 0
    assert device(bed) == before


@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer has to come first")
def test_the_next_one_waits_as_long_as_the_last_ones_table_may_take(bed, tmp_path):
    """
    It ended with "another wifirrd already schedules it", and procd started another one five seconds later. Of its waits of
    50 ms, only the last one of three seconds has a duration here.
    """
    with bed.box.enter():
        lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    lock.bind(b"\0wifirrd/dl0".ljust(108, b"\0"))
    program = WAITS_AS_LONG_AS_ONE_LOOKS.replace('now = getenv("NOW");', 'now = getenv("NOW");\n\tstatic int waits;\n\n\tif (++waits < 60)\n\t\treturn 0;')
    daemon = bed.daemon(*PAPER, wrapper=preloaded(tmp_path, program))
    wait_for(lambda: (tmp_path / "now").exists() or daemon.process.poll() is not None, "its waits for the lock")
    assert daemon.process.poll() is None, daemon.text()
    lock.close()
    (tmp_path / "now").unlink()
    assert daemon.ready().stop() == 0


@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer has to come first")
def test_options_changed_while_it_waits_for_the_last_one(bed, tmp_path):
    """As by "Save & Apply" just after a restart: the last one or its guard may take a while to end."""
    with bed.box.enter():
        lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    lock.bind(b"\0wifirrd/dl0".ljust(108, b"\0"))
    daemon = bed.daemon(*PAPER, wrapper=preloaded(tmp_path, WAITS_AS_LONG_AS_ONE_LOOKS))
    wait_for((tmp_path / "now").exists, "its wait for the lock")
    daemon.process.send_signal(signal.SIGHUP)
    lock.close()
    (tmp_path / "now").unlink()
    wait_for(lambda: daemon.ready() and "SIGHUP:" in daemon.text(), "the options read again")
    assert daemon.stop() == 0


def test_killed_after_another_program_has_removed_its_queues(bed):
    """Nothing else tells what the device was like before."""
    before = device(bed)
    daemon = bed.daemon(*PAPER).ready()
    daemon.process.send_signal(signal.SIGSTOP)  # or it sets them up again
    bed.box("tc", "qdisc", "del", "dev", "dl0", "root")
    daemon.stop(signal.SIGKILL)
    wait_for(lambda: device(bed) == before, "the device as before")


def test_the_guard_says_once_what_it_cannot_restore(bed):
    """It tries again for some seconds, in which hostapd may answer."""
    said = bed.box("sh", "-c", f"mkdir -p /var/run/wifirr && mount -t tmpfs lease /var/run/wifirr && mkdir /var/run/wifirr/phy77 && ! {WIFIRRD} guard </dev/null")
    assert said.stderr.count("\n") == 2 and said.stderr.count("/var/run/wifirr/phy77: cannot restore everything") == 1, said.stderr


def test_the_next_one_removes_what_is_left_whatever_its_backend(bed):
    before = device(bed)
    daemon = bed.daemon(*PAPER).ready()
    kill_both(daemon)
    assert device(bed) != before
    p = bed.box(WIFIRRD, "--device", "dl0", "--backend", "airtime", "--control", daemon.control, check=False)
    assert p.returncode == 2 and "airtime" in p.stderr
    assert device(bed) == before


NO_MEMORY = """
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <linux/rtnetlink.h>

/* Its guard has memory. */
__attribute__((constructor)) static void begin(int argc, char **argv)
{
	if (strcmp(argv[argc - 1], "guard") == 0)
		setenv("NOW", "", 1);
}

/* As long as the file is there, or, if it is not empty, once for each byte. */
static int none(void)
{
	const char *now = getenv("NOW");
	struct stat file;

	if (stat(now, &file) < 0)
		return 0;
	if (file.st_size == 1)
		unlink(now);
	else if (file.st_size && truncate(now, file.st_size - 1) < 0)
		abort();
	return 1;
}

ssize_t sendto(int fd, const void *data, size_t size, int flags, const struct sockaddr *to, socklen_t to_size)
{
	const struct nlmsghdr *nlh = data;

	if (to_size == 12 && (nlh->nlmsg_type == RTM_NEWQDISC || nlh->nlmsg_type == RTM_GETQDISC) && none()) {
		errno = ENOBUFS;
		return -1;
	}
	return ((ssize_t (*)(int, const void *, size_t, int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "sendto"))(
		fd, data, size, flags, to, to_size);
}
"""
NO_MEMORY_FOR_QUEUES = NO_MEMORY.replace("RTM_GETQDISC", "RTM_NEWQDISC")


@pytest.mark.parametrize("memory", [True, False])
def test_a_larger_mtu_is_no_black_hole(bed, tmp_path, memory):
    """It must work even when nothing is scheduled: packets for idle clients also pass through their queues."""
    macs = [mac(i) for i in range(1, 4)]
    fdb(bed, "add", macs)
    if not memory and SANITIZED:
        pytest.skip("AddressSanitizer has to come first")
    daemon = bed.daemon("--rate", "20000", wrapper=() if memory else preloaded(tmp_path, NO_MEMORY)).ready()
    wait_for(lambda: len(classes(bed)) == 3, "the clients' classes")
    if not memory:
        (tmp_path / "now").touch()

    def sent():
        return int(bed.box("cat", "/sys/class/net/dl0/statistics/tx_bytes").stdout)

    bed.box("ip", "link", "set", "dl0", "mtu", "1600")
    bed.air("ip", "link", "set", "up0", "mtu", "1600")
    if not memory:
        wait_for(lambda: " a client: " in daemon.text(), "a queue that does not take it")
        (tmp_path / "now").unlink()

    def all_arrive():
        before = sent()
        for m in macs:
            with contextlib.suppress(OSError):  # dropped by the queue
                s.send(bytes.fromhex(m.replace(":", "")) + bytes(6) + b"\x88\xb5" + bytes(1580))
        return sent() - before >= len(macs) * 1594
    with bed.box.enter():
        s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    with s:
        s.bind(("dl0", 0))
        wait_for(all_arrive, "frames of the new size")
    assert daemon.stop() == 0


def test_a_device_without_a_link_rate_needs_the_option(bed):
    p = bed.box(WIFIRRD, "--device", "dl0", "check", check=False)
    assert p.returncode == 2 and "--rate: must be given" in p.stderr
    for args in (("dl0", "--rate", "1000"), ("nosuchdev0",), ("nosuchdev0", "--backend", "airtime")):
        assert bed.box(WIFIRRD, "--device", *args, "check").stderr == ""
    p = bed.box(WIFIRRD, "--device", "dl0", "--backend", "airtime", "--rate", "1000", "check", check=False)
    assert p.returncode == 2 and "airtime: not a wireless device" in p.stderr
    p = bed.box(WIFIRRD, "--device", "dl0", check=False)
    assert p.returncode == 2 and "option rate" in p.stderr


def test_information_is_no_error(bed):
    """procd logs stderr as daemon.err, and stdout as daemon.info."""
    control = os.path.join(tempfile.mkdtemp(prefix="wifirrd-"), "control")
    process = bed.box.popen(WIFIRRD, "--device", "dl0", "--control", control, *PAPER,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert "dl0: scheduling by htb" in process.stdout.readline()  # at once, not when it ends
    bed.box("tc", "qdisc", "del", "dev", "dl0", "root")
    assert "dl0: lost htb: setting it up again" in process.stderr.readline()
    process.terminate()
    assert process.communicate(timeout=PATIENCE)[1] == ""
    shutil.rmtree(os.path.dirname(control))


def test_settings_deleted_under_it(bed):
    before = device(bed)
    fdb(bed, "add", [mac(i) for i in range(1, 13)])
    daemon = bed.daemon(*PAPER, "--slot", "300").ready()
    consistent(bed, daemon, 12)
    for _ in range(2):
        bed.box("tc", "qdisc", "del", "dev", "dl0", "root")
        wait_for(lambda: len(classes(bed)) == 12, "the classes again")
        consistent(bed, daemon, 12)
    assert daemon.status()["counters"]["restarts"] == 2
    # another program's qdisc is left alone, and reported
    bed.box("tc", "qdisc", "replace", "dev", "dl0", "root", "handle", "77:", "tbf", "rate", "50mbit", "burst", "10k", "limit", "10k")
    assert daemon.process.wait(timeout=PATIENCE) == 1
    assert "already has a root qdisc, tbf 77:" in daemon.text()
    assert "tbf 77:" in bed.box("tc", "qdisc", "show", "dev", "dl0").stdout
    bed.box("tc", "qdisc", "del", "dev", "dl0", "root")
    assert device(bed) == before


@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer has to come first")
def test_faults_that_have_passed_do_not_add_up(bed, tmp_path):
    """The daemon gives up after five in a row."""
    daemon = bed.daemon(*PAPER, wrapper=preloaded(tmp_path, NO_MEMORY_FOR_QUEUES)).ready()
    for faults in (2, 4, 6):
        (tmp_path / "now").write_text("..")
        bed.box("tc", "qdisc", "del", "dev", "dl0", "root")
        wait_for(lambda n=faults: daemon.text().count("(trying again)") == n, "two attempts")
        wait_for(lambda: daemon.status()["backend"], "the queues again")
    assert daemon.stop() == 0


NO_FW = """
#include <dlfcn.h>
#include <string.h>
#include <sys/socket.h>
#include <linux/rtnetlink.h>

ssize_t sendto(int fd, const void *data, size_t size, int flags, const struct sockaddr *to, socklen_t to_size)
{
	struct nlmsghdr *nlh = (void *)data;

	if (to_size == 12 && nlh->nlmsg_type == RTM_NEWTFILTER && memmem(data, size, "fw", sizeof("fw")))
		nlh->nlmsg_type = NLMSG_NOOP;
	return ((ssize_t (*)(int, const void *, size_t, int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "sendto"))(
		fd, data, size, flags, to, to_size);
}
"""


def by_nft(bed, tmp_path, program=NO_FW):
    """A daemon that marks packets with nft, also where the kernel has no filter to read the marks."""
    daemon = bed.daemon(*PAPER, "--slot", "300", wrapper=() if SANITIZED else preloaded(tmp_path, program)).ready()
    if daemon.status()["classifier"] != "nft":
        assert daemon.stop() == 0
        pytest.skip("this kernel has no netdev egress hook")
    return daemon


def test_nft_table_deleted_under_it(bed, tmp_path):
    fdb(bed, "add", [mac(i) for i in range(1, 13)])
    daemon = by_nft(bed, tmp_path)

    def elements():
        return bed.box("nft", "list", "table", "netdev", "wifirr_dl0", check=False).stdout.count("02:00:00:00:00:")
    consistent(bed, daemon, 12)
    wait_for(lambda: elements() == 12, "the clients' elements")
    for restarts, command in enumerate(("flush ruleset", "delete table netdev wifirr_dl0", "flush table netdev wifirr_dl0"), 1):
        bed.box("nft", command)
        wait_for(lambda n=restarts: daemon.status()["counters"]["restarts"] == n, f"noticing {command}")
        wait_for(lambda: elements() == 12, f"the table again after {command}")
        consistent(bed, daemon, 12)
    fdb(bed, "del", [mac(1), mac(2)])
    wait_for(lambda: elements() == 10, "elements of those gone removed")
    assert daemon.status()["counters"]["restarts"] == 3
    assert daemon.stop() == 0
    wait_for(lambda: "wifirr" not in bed.box("nft", "list", "tables").stdout, "no table")


@pytest.mark.parametrize("command", ["tc qdisc del dev dl0 root", "ip link del dl0"])
def test_a_killed_daemon_leaves_no_table(bed, tmp_path, command):
    """Nor does it if its queues are already gone."""
    daemon = by_nft(bed, tmp_path)
    assert "wifirr" in bed.box("nft", "list", "tables").stdout
    daemon.process.send_signal(signal.SIGSTOP)  # or it sets them up again
    bed.box(*command.split())
    daemon.stop(signal.SIGKILL)
    wait_for(lambda: "wifirr" not in bed.box("nft", "list", "tables").stdout, "no table")


NFT_THAT_CANNOT_START = NO_FW + """
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static enum { BEFORE, SLOW, AFTER } now;

/* The first nft is slow, and there is no memory for the next one. */
int memfd_create(const char *name, unsigned flags)
{
	if (now == SLOW) {
		now = AFTER;
		errno = ENOMEM;
		return -1;
	}
	if (unlink(getenv("NOW")) == 0)
		now = SLOW;
	return syscall(SYS_memfd_create, name, flags);
}

int execlp(const char *file, const char *arg, ...)
{
	char *argv[] = { "nft", "-f", "-", NULL };

	(void)arg;
	sleep(now == SLOW ? 2 : 0);
	return execvp(file, argv);
}
"""


NFT_THAT_HANGS = NO_FW + """
#include <stdlib.h>
#include <time.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Its parent's time stands still. */
int clock_gettime(clockid_t clock, struct timespec *time)
{
	static struct timespec first;

	if (access(getenv("NOW"), F_OK) < 0 || !first.tv_sec)
		syscall(SYS_clock_gettime, clock, &first);
	*time = first;
	return 0;
}

/* It has set up the table. */
int execlp(const char *file, const char *arg, ...)
{
	char *argv[] = { "nft", "-f", "-", NULL }, script[4096] = "";

	(void)arg;
	if (access(getenv("NOW"), F_OK) == 0 && pread(0, script, sizeof(script) - 1, 0) > 0 && strstr(script, "chain") && fork()) {
		wait(NULL);
		pause();
	}
	return execvp(file, argv);
}
"""


@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer has to come first")
def test_a_stop_does_not_wait_for_an_nft_that_sets_up(bed, tmp_path):
    """It waited for up to half a minute, where a router that boots is busy."""
    before = device(bed)
    assert by_nft(bed, tmp_path, NFT_THAT_HANGS).stop() == 0
    all_as(bed, before)
    (tmp_path / "now").touch()
    daemon = bed.daemon(*PAPER, wrapper=preloaded(tmp_path, NFT_THAT_HANGS))
    wait_for(lambda: "wifirr" in bed.box("nft", "list", "tables").stdout, "the table")
    assert daemon.stop() == 0
    all_as(bed, before)


@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer has to come first")
def test_a_client_that_comes_while_nft_runs_has_its_class(bed, tmp_path):
    daemon = by_nft(bed, tmp_path, NFT_THAT_CANNOT_START)
    (tmp_path / "now").touch()
    fdb(bed, "add", [mac(1)])
    wait_for(lambda: not (tmp_path / "now").exists(), "the slow nft")
    fdb(bed, "add", [mac(2)])
    wait_for(lambda: "lost classification" in daemon.text(), "that the next one could not start")
    wait_for(lambda: bed.box("nft", "list", "ruleset").stdout.count("02:00:00:00:00:") == 2, "both clients' elements")
    assert daemon.stop() == 0


def test_nobody_listens_to_nf_tables(bed, tmp_path):
    """
    Or the kernel keeps 4 to 8 KB for each element of a set that any program loads, until all are loaded: 250 MB for
    30,000 addresses, where it needs 11 MB otherwise.
    """
    daemon = by_nft(bed, tmp_path)
    with open(f"/proc/{daemon.process.pid}/net/netlink") as f:
        sockets = [line.split() for line in f]
    groups = sockets[0].index("Groups")
    assert [s[groups] for s in sockets[1:] if int(s[1]) == NETLINK_NETFILTER and int(s[groups], 16)] == []
    assert daemon.stop() == 0


@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer has to come first")
@pytest.mark.parametrize("message", ["RTM_NEWQDISC", "RTM_NEWTFILTER"])
def test_a_client_without_memory_for_its_queue_has_it_later(bed, tmp_path, message):
    daemon = bed.daemon(*PAPER, wrapper=preloaded(tmp_path, NO_MEMORY.replace("RTM_NEWQDISC", message))).ready()
    if message == "RTM_NEWTFILTER" and daemon.status()["classifier"] == "nft":
        pytest.skip("nft has no filter for each client")
    (tmp_path / "now").touch()
    fdb(bed, "add", [mac(1)])
    wait_for(lambda: "class for a client: " in daemon.text(), "the refusal")
    time.sleep(2)  # for some more of them
    (tmp_path / "now").unlink()
    wait_for(lambda: len(classes(bed)) == 1, "its class")
    assert daemon.status()["classifier"] == "nft" or "flowid 5746:a000" in bed.box("tc", "filter", "show", "dev", "dl0").stdout
    fdb(bed, "add", [mac(i) for i in range(2, 9)])
    consistent(bed, daemon, 8)
    assert daemon.text().count("class for a client: ") == 1
    assert daemon.stop() == 0


@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer has to come first")
@pytest.mark.parametrize("message", ["RTM_GETQDISC", "RTM_DELQDISC"])
def test_an_end_without_memory_leaves_nothing(bed, tmp_path, message):
    """What the daemon could not restore, its guard does a little later."""
    before = device(bed)
    fdb(bed, "add", [mac(i) for i in range(1, 13)])
    daemon = bed.daemon(*PAPER, wrapper=preloaded(tmp_path, NO_MEMORY.replace("RTM_GETQDISC", message))).ready()
    consistent(bed, daemon, 12)
    (tmp_path / "now").touch()
    assert daemon.stop() == 0
    wait_for(lambda: device(bed) == before, "everything as before")
    with open(daemon.log_path) as log:
        assert "wifirrd has left something changed: restoring it\n" in log.read()


@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer has to come first")
def test_a_guard_that_has_restored_something_is_gone(bed, tmp_path):
    """A process that has ended stays in the list of processes until its parent asks for it."""
    before = device(bed)
    daemon = bed.daemon(*PAPER, wrapper=preloaded(tmp_path, NO_MEMORY.replace("RTM_GETQDISC", "RTM_DELQDISC"))).ready()
    (tmp_path / "now").touch()
    rename(bed, "dl0", "other0")
    wait_for(lambda: daemon.status()["present"] is False, "noticing the new name")
    wait_for(lambda: device(bed, "other0") == before, "everything as before")
    (tmp_path / "now").unlink()
    rename(bed, "other0", "dl0")
    wait_for(lambda: daemon.status()["backend"], "the old name again")
    # An nft that has just ended may be there until the daemon looks.
    wait_for(lambda: [b""] not in [words_of(pid) for pid in children(daemon)], "no child that has ended")
    assert daemon.stop() == 0
    all_as(bed, before)


@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer has to come first")
def test_a_new_setup_without_memory(bed, tmp_path):
    """Queues that could not be removed then are no other program's."""
    fdb(bed, "add", [mac(i) for i in range(1, 13)])
    daemon = bed.daemon(*PAPER, wrapper=preloaded(tmp_path, NO_MEMORY)).ready()
    consistent(bed, daemon, 12)
    (tmp_path / "now").write_text("...")  # when they are removed, when what is left is, and when they are made
    bed.box("tc", "filter", "del", "dev", "dl0")
    bed.box("tc", "class", "del", "dev", "dl0", "classid", "5746:a000")
    wait_for(lambda: "(trying again)" in daemon.text(), "a failed attempt")
    assert not (tmp_path / "now").exists()
    consistent(bed, daemon, 12)
    assert daemon.stop() == 0


CLASSES_OF_OTHERS = """
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include <linux/rtnetlink.h>

ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	ssize_t got = ((ssize_t (*)(int, struct msghdr *, int))dlsym(RTLD_NEXT, "recvmsg"))(fd, msg, flags);
	struct nlmsghdr *nlh = msg->msg_iov->iov_base;
	int len = got;

	for (; got > 0 && NLMSG_OK(nlh, len); nlh = NLMSG_NEXT(nlh, len))
		if (nlh->nlmsg_type == RTM_NEWTCLASS && ((struct tcmsg *)NLMSG_DATA(nlh))->tcm_handle >> 16 != 0x5746)
			close(open(getenv("NOW"), O_CREAT, 0600));
	return got;
}
"""


@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer has to come first")
def test_at_each_tick_only_the_clients_classes_are_read(bed, tmp_path):
    """Below each of them are others, a tbf's and those of fq_codel's flows."""
    fdb(bed, "add", [mac(i) for i in range(1, 13)])
    daemon = bed.daemon(*PAPER, wrapper=preloaded(tmp_path, CLASSES_OF_OTHERS)).ready()
    consistent(bed, daemon, 12)
    assert not (tmp_path / "now").exists()
    assert daemon.stop() == 0


SLOW_TO_BECOME_ANOTHER_PROGRAM = """
#include <unistd.h>

int execl(const char *path, const char *arg, ...)
{
	char *argv[] = { "wifirrd", "guard", NULL };

	(void)arg;
	sleep(2);
	return execv(path, argv);
}
"""


@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer has to come first")
def test_an_answered_client_goes_while_a_child_has_its_connection(bed, tmp_path):
    """On a busy router, a process that the daemon starts has the daemon's descriptors for a while."""
    daemon = bed.daemon(*PAPER, wrapper=preloaded(tmp_path, SLOW_TO_BECOME_ANOTHER_PROGRAM)).ready()
    wait_for(lambda: guard_of(daemon), "the guard")
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(daemon.control)
        assert daemon.status()  # so it has taken the connection
        os.kill(guard_of(daemon)[0], signal.SIGKILL)
        bed.box("tc", "qdisc", "del", "dev", "dl0", "root")
        wait_for(lambda: "lost" in daemon.text() and "qdisc htb" in bed.box("tc", "qdisc", "show", "dev", "dl0").stdout, "the queues again")
        asking.send(b"status")
        assert asking.recv(1 << 16)
    assert daemon.status()
    assert daemon.stop() == 0


def test_lost_events(bed):
    """While the daemon is stopped, more events occur than fit into its sockets; time jumps for it, too."""
    daemon = bed.daemon(*PAPER).ready()
    daemon.process.send_signal(signal.SIGSTOP)
    for _ in range(4):
        fdb(bed, "add", [mac(i) for i in range(1, 1000)])
        fdb(bed, "del", [mac(i) for i in range(1, 1000)])
    fdb(bed, "add", [mac(i) for i in range(1, 31)])
    time.sleep(3)
    daemon.process.send_signal(signal.SIGCONT)
    consistent(bed, daemon, 30)
    assert daemon.stop() == 0


def test_five_hundred_join_and_leave(bed):
    daemon = bed.daemon(*PAPER).ready()
    begun = time.monotonic()
    fdb(bed, "add", [mac(i) for i in range(1, 501)])
    consistent(bed, daemon, 500)
    # more than fit: earlier clients stay, if they have not been idle for 10 s
    fdb(bed, "add", [mac(i) for i in range(501, 800)])
    wait_for(lambda: daemon.status()["counters"]["refused_clients"] > 0, "a full table")
    assert daemon.status()["clients"] == 512
    assert mac(1) in daemon.clients() or time.monotonic() - begun > 10
    fdb(bed, "del", [mac(i) for i in range(1, 800) if i % 10])
    # clients that found the table full have a place now
    there = {mac(i) for i in range(1, 800) if not i % 10}
    wait_for(lambda: set(daemon.clients()) == there, "the gone ones dropped")
    consistent(bed, daemon, len(there))
    # at random
    random.seed(2)
    for _ in range(30):
        some = {mac(random.randrange(1, 400)) for _ in range(20)}
        if random.random() < 0.5:
            fdb(bed, "replace", some)
            there |= some
        else:
            fdb(bed, "del", some & there)
            there -= some
        time.sleep(0.05)
    wait_for(lambda: set(daemon.clients()) == there, "the same set")
    assert daemon.stop() == 0


def neighbour(bed, verb, address, i):
    bed.box("ip", "neigh", verb, address, "lladdr", mac(i), "dev", "dl0", "nud", "permanent")


def test_a_host_with_several_addresses_is_one_client(bed):
    """With --match ip, a host may have IPv6 addresses beside its IPv4 address. Hosts behind one MAC (proxy ARP) are several clients."""
    for i in (1, 2):
        for address in (f"fe80::{i}", f"10.9.0.{i}", f"fd09::{i}", f"fd09::1:{i}"):
            neighbour(bed, "replace", address, i)
    daemon = bed.daemon(*PAPER, "--match", "ip", "--always", "fd09::1:2").ready()
    wait_for(lambda: daemon.status()["clients"] == 2, f"two hosts: {list(daemon.clients())}")
    assert len(classes(bed)) == 2
    assert sorted(c["always"] for c in daemon.clients().values()) == [False, True]

    def filters():
        text = bed.box("tc", "filter", "show", "dev", "dl0").stdout
        return sorted(re.findall(r"flowid 5746:a00(.)", text))
    if daemon.status()["classifier"] == "u32":
        assert filters() == ["0"] * 4 + ["1"] * 4
    neighbour(bed, "del", "fd09::1", 1)
    neighbour(bed, "add", "fd09::2:1", 1)
    if daemon.status()["classifier"] == "u32":
        wait_for(lambda: len(filters()) == 8, "one address for another")
    # the host's key address vanishes: the host stays
    for first in daemon.clients():
        bed.box("ip", "neigh", "del", first, "dev", "dl0")
    wait_for(lambda: len(daemon.clients()) == 2 and not {"fe80::1", "fe80::2"} & set(daemon.clients()), "known by another")
    neighbour(bed, "add", "10.9.0.77", 1)
    neighbour(bed, "add", "10.9.0.78", 1)
    wait_for(lambda: len(daemon.clients()) == 6, "each address of theirs a client, and the other host")
    assert daemon.stop() == 0


def test_an_address_has_one_client(bed):
    """Whatever else says that it exists, and whoever has it next: a map of nft takes an address only once."""
    for i in (1, 2):
        for address in (f"10.9.0.{i}", f"fd09::{i}", f"fd09::1:{i}"):
            neighbour(bed, "replace", address, i)
    daemon = bed.daemon(*PAPER, "--match", "ip").ready()
    wait_for(lambda: set(daemon.clients()) == {"10.9.0.1", "10.9.0.2"}, f"two hosts: {list(daemon.clients())}")

    def owners():
        """Of addresses with the last byte 1 and 2, by filter; by element, one that is there twice is refused."""
        return len(re.findall(r"flowid 5746:a", bed.box("tc", "filter", "show", "dev", "dl0").stdout))

    u32 = daemon.status()["classifier"] == "u32"
    bed.box("ip", "-6", "route", "add", "fd09::1", "dev", "dl0")
    neighbour(bed, "replace", "fd09::1:2", 1)
    time.sleep(2.5)
    assert set(daemon.clients()) == {"10.9.0.1", "10.9.0.2"}
    assert not u32 or owners() == 6
    assert daemon.status()["counters"]["restarts"] == 0
    # the neighbour has left, and its route is there
    for address in ("10.9.0.1", "fd09::1", "fd09::1:1", "fd09::1:2"):
        bed.box("ip", "neigh", "del", address, "dev", "dl0")
    wait_for(lambda: set(daemon.clients()) == {"fd09::1", "10.9.0.2"}, f"one by its route: {list(daemon.clients())}")
    assert daemon.stop() == 0


def test_an_exemption_goes_with_its_address(bed):
    for address in ("10.9.0.1", "fd09::1", "fd09::1:1"):
        neighbour(bed, "replace", address, 1)
    daemon = bed.daemon(*PAPER, "--match", "ip", "--always", "fd09::1:1").ready()
    wait_for(lambda: daemon.clients().get("10.9.0.1", {}).get("always"), "the exemption")
    bed.box("ip", "neigh", "del", "fd09::1:1", "dev", "dl0")
    wait_for(lambda: not daemon.clients()["10.9.0.1"]["always"], "no exemption without the address")
    assert daemon.stop() == 0


def test_device_down_up_gone_and_back(bed):
    before = device(bed)
    fdb(bed, "add", [mac(i) for i in range(1, 13)])
    daemon = bed.daemon(*PAPER).ready()
    for _ in range(50):
        bed.box("ip", "link", "set", "dl0", "down")
        bed.box("ip", "link", "set", "dl0", "up")
    fdb(bed, "replace", [mac(i) for i in range(1, 13)])
    consistent(bed, daemon, 12)
    for _ in range(3):
        bed.box("ip", "link", "del", "dl0")
        wait_for(lambda: daemon.status()["present"] is False, "noticing that the device is gone")
        status = daemon.status()
        assert (status["engaged"], status["throttling"], status["why"]) == (False, False, "clients with demand: 0, more than 5 are needed")
        bed.veth(bed.box, "dl0", bed.air, "up0")
        bed.box("ip", "link", "set", "dl0", "master", "br0")
        bed.air("ip", "link", "set", "up0", "master", "br0")
        fdb(bed, "add", [mac(i) for i in range(1, 9)])
        wait_for(lambda: daemon.status()["clients"] >= 8, "clients again")
        wait_for(lambda: unthrottled(bed) == 5, "throttled again")
    rename(bed, "dl0", "other0")
    wait_for(lambda: daemon.status()["present"] is False, "noticing the new name")
    all_as(bed, before, "other0")
    rename(bed, "other0", "dl0")
    wait_for(lambda: daemon.status()["backend"], "the old name again")
    assert daemon.stop() == 0
    all_as(bed, before)


def test_other_devices_come_and_go(bed):
    """The daemon looks for its device among many, some of which appear and vanish just then."""
    bed.box("ip", "link", "del", "dl0")
    bed.box("ip", "-batch", "-", input="\n".join(f"link add stays{i} type bridge" for i in range(300)))
    bed.veth(bed.box, "dl0", bed.air, "up0")
    bed.box("ip", "link", "set", "dl0", "master", "br0")
    bed.air("ip", "link", "set", "up0", "master", "br0")
    daemon = bed.daemon(*PAPER).ready()
    over = threading.Event()
    rounds = []

    def others():
        while not over.is_set():
            bed.box("ip", "-batch", "-", input="\n".join(f"link add other{i} group 7 type bridge" for i in range(30)))
            bed.box("ip", "link", "del", "group", "7")
            rounds.append(None)

    thread = threading.Thread(target=others)
    thread.start()
    try:
        for _ in range(200):
            said = daemon.text().count("SIGHUP:")
            daemon.process.send_signal(signal.SIGHUP)
            wait_for(lambda: daemon.text().count("SIGHUP:") > said, "the signal taken")
    finally:
        over.set()
        thread.join()
    assert rounds, "no others came and went"
    wait_for(lambda: daemon.status()["present"], "the device there")
    assert "disappeared" not in daemon.text()
    assert daemon.stop() == 0


LISTS_OF_QUEUES = CLASSES_OF_OTHERS.replace(
    "nlh->nlmsg_type == RTM_NEWTCLASS && ((struct tcmsg *)NLMSG_DATA(nlh))->tcm_handle >> 16 != 0x5746",
    "nlh->nlmsg_type == RTM_NEWQDISC && nlh->nlmsg_flags & NLM_F_MULTI")


@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer has to come first")
def test_its_queues_are_not_looked_for_in_a_list(bed, tmp_path):
    """In a list, the kernel counts places: if devices vanish while it is read, it lacks others, perhaps the daemon's."""
    before = device(bed)
    daemon = bed.daemon(*PAPER, wrapper=preloaded(tmp_path, LISTS_OF_QUEUES)).ready()
    bed.box("tc", "qdisc", "del", "dev", "dl0", "root")
    wait_for(lambda: daemon.status()["backend"] and daemon.status()["counters"]["restarts"], "the queues again")
    assert daemon.stop() == 0
    all_as(bed, before)
    assert not (tmp_path / "now").exists()


def test_hangup_pause_resume(bed):
    before = device(bed)
    fdb(bed, "add", [mac(i) for i in range(1, 13)])
    daemon = bed.daemon(*PAPER).ready()
    consistent(bed, daemon, 12)
    assert daemon.ask("pause") == {"paused": True}
    wait_for(lambda: "20Mbit" not in classes(bed).values() and "10Gbit" in classes(bed).values(), "all open")
    assert daemon.status()["why"] == "paused"
    assert daemon.ask("resume") == {"paused": False}
    consistent(bed, daemon, 12)
    daemon.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "SIGHUP:" in daemon.text(), "the signal taken")
    consistent(bed, daemon, 12)
    assert daemon.status()["counters"]["restarts"] == 0
    assert daemon.stop() == 0
    all_as(bed, before)


@contextlib.contextmanager
def downloading(bed, clients):
    """All clients download all the time."""
    downloads = Downloads(bed, range(clients))
    over = threading.Event()
    load = threading.Thread(target=lambda: [downloads.run(0.5) for _ in iter(over.is_set, True)])
    load.start()
    try:
        yield
    finally:
        over.set()
        load.join()
        downloads.close()


def test_options_change_under_load_without_a_gap(tmp_path):
    """Turns continue with the new options, and no queued packet is dropped."""
    with Bed(6, rate_kbit=20000) as bed:
        file = tmp_path / "options"
        always = "engage=always\nengage-delay=600000\n"  # on a busy machine, downloads may stand still for a second
        file.write_text(always + "rate=18000\n")
        daemon = bed.daemon("--options", str(file)).ready()
        with downloading(bed, 6):
            wait_for(lambda: daemon.status()["throttling"], "turns")
            since = daemon.clients()
            engagements = daemon.status()["counters"]["engagements"]

            def intervals():
                return set(re.findall(r"interval (\S+)", bed.box("tc", "qdisc", "show", "dev", "dl0").stdout))
            fq_codel = intervals()  # empty if the kernel has no fq_codel
            for option, shown in (("slot=1000", '"slot_ms": 1000'), ("active=4", '"active_max": 4'), ("always=" + mac(1), '"active_max": 3'),
                                  ("weights=300,2", None), ("rate=17000", None)):
                file.write_text(always + ("" if option.startswith("rate") else "rate=18000\n") + option + "\n")
                said = daemon.text().count("SIGHUP:")
                daemon.process.send_signal(signal.SIGHUP)

                def turns_go_on():
                    status = daemon.status()
                    assert status["throttling"], (option, status)
                    return daemon.text().count("SIGHUP:") > said and (not shown or shown in json.dumps(status))
                wait_for(turns_go_on, option)
                if option == "slot=1000" and fq_codel:
                    wait_for(lambda: intervals() == {"1s"}, f"interval of the queues ({intervals()})")
            wait_for(lambda: "rate 17Mbit" in bed.box("tc", "class", "show", "dev", "dl0").stdout, "the new rate")
            counters = daemon.status()["counters"]
            assert (counters["restarts"], counters["engagements"]) == (0, engagements)
            clients = daemon.clients()
            assert clients[mac(1)]["delivered_bytes"] > since[mac(1)]["delivered_bytes"], "its counters began anew"
            assert not clients[mac(1)]["always"]
            # options with a mistake change nothing
            file.write_text(always + "rate=18000\nslot=5\n")
            daemon.process.send_signal(signal.SIGHUP)
            wait_for(lambda: f"{file}:4: --slot 5: must be" in daemon.text(), "the complaint")
            file.write_text("backend=airtime\n")
            daemon.process.send_signal(signal.SIGHUP)
            wait_for(lambda: daemon.text().count("keeping the previous options") == 2, "the second complaint")
            wait_for(lambda: daemon.status()["throttling"], "turns")
            status = daemon.status()
            assert status["backend"] == "htb" and status["slot_ms"] == 2400
            assert status["reload"]["error"].startswith("airtime: "), status
            assert status["counters"]["restarts"] == 0, "no other program has removed anything"
            # other keys for clients: their IP addresses
            for i in range(6):
                neighbour(bed, "replace", address_of(i), i + 1)
            file.write_text(always + "rate=18000\nmatch=ip\n")
            daemon.process.send_signal(signal.SIGHUP)
            wait_for(lambda: set(daemon.clients()) == {address_of(i) for i in range(6)}, "clients by address")
            wait_for(lambda: daemon.status()["throttling"], "turns of addresses")
            assert "reload" not in daemon.status()
        assert daemon.stop() == 0


def changes(daemon, file, options):
    """Has the daemon read these options."""
    said = daemon.text().count("SIGHUP:")
    file.write_text(options)
    daemon.process.send_signal(signal.SIGHUP)
    wait_for(lambda: daemon.text().count("SIGHUP:") > said, "the signal taken")


def away(bed):
    bed.box("ip", "link", "set", "dl0", "down")
    bed.box("ip", "link", "set", "dl0", "name", "away0")


def back(bed):
    bed.box("ip", "link", "set", "away0", "name", "dl0")
    bed.box("ip", "link", "set", "dl0", "up")


def test_options_that_cannot_start_leave_the_previous_ones(bed, tmp_path):
    """Without a rate, htb cannot start. Another "match" ends everything before the new options are tried."""
    file = tmp_path / "options"
    file.write_text("rate=20000\n")
    fdb(bed, "add", [mac(1)])
    daemon = bed.daemon("--options", str(file)).ready()
    for device_away in (False, True):
        if device_away:
            away(bed)
            wait_for(lambda: daemon.status()["present"] is False, "noticing that the device is gone")
        changes(daemon, file, "match=ip\n")
        if device_away:
            back(bed)
            fdb(bed, "replace", [mac(1)])
        wait_for(lambda: "option rate" in daemon.status().get("reload", {}).get("error", ""), "the complaint")
        wait_for(lambda: mac(1) in daemon.clients(), "the client as before")
        assert daemon.status()["backend"] == "htb"
        changes(daemon, file, "rate=20000\n")
        wait_for(lambda: daemon.status()["backend"] and "reload" not in daemon.status(), "no complaint any more")
    changes(daemon, file, "rate=20000\nmatch=ip\n")
    wait_for(lambda: daemon.status()["backend"] and mac(1) not in daemon.clients(), "clients by address")
    assert daemon.stop() == 0


@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer has to come first")
def test_options_changed_while_the_device_is_away_stay(bed, tmp_path):
    """They have started when the device was back. So if something else fails later, it is not their fault."""
    file = tmp_path / "options"
    file.write_text("rate=20000\nactive=3\n")
    daemon = bed.daemon("--options", str(file), wrapper=preloaded(tmp_path, NO_MEMORY_FOR_QUEUES)).ready()
    away(bed)
    wait_for(lambda: daemon.status()["present"] is False, "noticing that the device is gone")
    changes(daemon, file, "rate=20000\nactive=7\n")
    back(bed)
    wait_for(lambda: daemon.status()["backend"] and daemon.status()["active_max"] == 7, "the new options")
    (tmp_path / "now").write_text(".")
    bed.box("tc", "qdisc", "del", "dev", "dl0", "root")
    wait_for(lambda: "(trying again)" in daemon.text(), "a failed attempt")
    wait_for(lambda: daemon.status()["backend"], "the settings again")
    status = daemon.status()
    assert status["active_max"] == 7 and "reload" not in status, status
    assert daemon.stop() == 0


def test_turns_that_gain_nothing_end():
    """On a wire there is no contention: turns are tried, and then all clients are served again."""
    with Bed(6, rate_kbit=20000) as bed:
        daemon = bed.daemon("--rate", "18000").ready()
        with downloading(bed, 6):
            wait_for(lambda: daemon.status()["throttling"], "the trial of turns", 3 * PATIENCE)

            def judged():
                """On a busy machine, downloads may stand still for all of a trial's time; the daemon tries again later."""
                found = re.match(r"turns delivered (\d+)\D+(\d+)", daemon.status()["why"])
                return found and 5000 < int(found[1]) < 1.1 * int(found[2])

            wait_for(judged, f"the end of a trial with load: {daemon.status()}", 3 * PATIENCE)
            with_demand = []

            def stays():
                status = daemon.status()
                assert not status["engaged"] and not status["throttling"], status
                with_demand.append(status["clients_with_demand"] > status["active_max"])
                return sum(with_demand) == 20

            wait_for(stays, "20 looks while there is demand", pause=0.25)
        assert daemon.stop() == 0


def test_flow_offload_is_warned_about(bed):
    # on br0, whose qdisc software offload would bypass
    p = bed.box("nft", "-f", "-", check=False, input="table inet t {\nflowtable f {\nhook ingress priority 0;\ndevices = { eth0, dl0 };\n}\n}\n")
    if p.returncode:
        pytest.skip("this kernel has no nf_tables flow offload")
    daemon = bed.daemon("--rate", "20000").ready()
    assert daemon.status()["warning"] is None
    assert daemon.stop() == 0
    daemon = bed.daemon("--rate", "20000", device="br0").ready()
    assert "software flow offload" in daemon.status()["warning"]
    # the operator follows the advice
    bed.box("nft", "delete", "table", "inet", "t")
    assert daemon.status()["warning"] is None
    assert daemon.stop() == 0


class Traffic:
    """A few bytes for each client, often enough to count as demand with --demand-rate 1; or more than a trickle carries."""

    def __init__(self, bed, macs, payload=46):
        with bed.box.enter():
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
            self.socket.bind(("dl0", 0))
        self.frames = [bytes.fromhex(m.replace(":", "")) + bytes(6) + b"\x88\xb5" + bytes(payload) for m in macs]

    def run(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for frame in self.frames:
                self.socket.send(frame)
            time.sleep(0.1)


def resources(pid):
    fds = len(os.listdir(f"/proc/{pid}/fd"))
    rss = int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{pid}/status").read()).group(1))
    return fds, rss


def test_ten_thousand_turns_leak_nothing(bed):
    macs = [mac(i) for i in range(1, 21)]
    fdb(bed, "add", macs)
    daemon = bed.daemon("--engage", "always", "--slot", "10", "--active", "5", "--demand-rate", "1", "--rate", "20000").ready()
    traffic = Traffic(bed, 2 * macs, 1486)
    traffic.run(3)
    wait_for(lambda: len(children(daemon)) == 1, "the end of nft")
    before = resources(daemon.process.pid)
    wait_for(lambda: traffic.run(1) or daemon.status()["counters"]["turns"] >= 10000, "10,000 turns", 3 * PATIENCE)
    for _ in range(100):
        daemon.status()
    after = resources(daemon.process.pid)
    assert after[0] == before[0]
    assert after[1] <= before[1] + 64 or SANITIZED  # kB
    assert daemon.stop() == 0


@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer does not run under valgrind")
def test_valgrind_finds_nothing(bed):
    assert shutil.which("valgrind"), "valgrind is missing"
    macs = [mac(i) for i in range(1, 21)]
    fdb(bed, "add", macs)
    daemon = bed.daemon("--engage", "always", "--slot", "200", "--demand-rate", "1", "--rate", "20000", "--exempt-voice",
                        wrapper=("valgrind", "-q", "--error-exitcode=99", "--leak-check=full", "--errors-for-leak-kinds=definite,indirect"))
    daemon.ready()
    traffic = Traffic(bed, macs)
    traffic.run(3)
    bed.box("tc", "qdisc", "del", "dev", "dl0", "root")
    traffic.run(2)
    fdb(bed, "del", macs[:10])
    traffic.run(2)
    wait_for(lambda: traffic.run(1) or daemon.status()["counters"]["turns"], "turns")
    assert daemon.ask("clients")["clients"]
    bed.box("ip", "link", "del", "dl0")
    wait_for(lambda: daemon.status()["present"] is False, "noticing that the device is gone")
    assert daemon.stop() == 0, daemon.text() if not daemon.log.closed else open(daemon.log_path).read()
