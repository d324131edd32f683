# SPDX-License-Identifier: Apache-2.0
"""A middlebox in network namespaces.

    server -- eth0 [box: bridge] dl0 -- up0 [air: bridge] down0 -- [cell: bridge] -- client 0..N-1

wifirrd runs in box on dl0. down0 is the bottleneck, a tbf of RATE kbit/s,
standing for the WiFi link. Clients have MAC 02:00:00:00:00:XX and addresses
10.9.0.(10+i) and fd09::(10+i).
"""
import contextlib
import ctypes
import json
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
WIFIRRD = os.environ.get("WIFIRRD", os.path.join(HERE, "..", "src", "wifirrd"))
PATIENCE = 120  # s until something counts as never to happen, on the slowest and busiest machine
LIBC = ctypes.CDLL(None, use_errno=True)
# What asks the kernel by sockets and /proc alone. "ip netns exec" also mounts a /sys of the namespace, which others may read.
BY_SOCKETS = {"genl", "ip", "nft", "ping", "sysctl", "tc"}


def run(*args, check=True, **kwargs):
    p = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=PATIENCE, **kwargs)
    if check and p.returncode:
        raise AssertionError(f"{' '.join(args)}: exit {p.returncode}: {p.stderr.strip()}")
    return p


def wait_for(condition, what, seconds=PATIENCE, pause=0.05):
    """Polls until condition() is true and returns its value."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(pause)


class Netns:
    def __init__(self, name):
        self.name = name
        run("ip", "netns", "add", name)
        self("ip", "link", "set", "lo", "up")

    def __call__(self, *args, **kwargs):
        if args[0] in BY_SOCKETS or args[:2] == ("iw", "dev"):
            return self.here(*args, **kwargs)
        return run("ip", "netns", "exec", self.name, *args, **kwargs)

    def here(self, *args, **kwargs):
        """Without another program in between: an emulated processor takes a tenth of a second to start one."""
        with self.enter():
            return run(*args, **kwargs)

    def popen(self, *args, **kwargs):
        return subprocess.Popen(["ip", "netns", "exec", self.name, *args], **kwargs)

    def enter(self):
        return Entered(self.name)

    def remove(self):
        run("ip", "netns", "del", self.name, check=False)


class Entered:
    """Puts the calling thread into a namespace; sockets opened within the block stay there."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        self.home = os.open("/proc/self/ns/net", os.O_RDONLY)
        fd = os.open(f"/run/netns/{self.name}", os.O_RDONLY)
        if LIBC.setns(fd, 0x40000000):
            raise OSError(ctypes.get_errno(), "setns")
        os.close(fd)

    def __exit__(self, *_):
        LIBC.setns(self.home, 0x40000000)
        os.close(self.home)


class Daemon:
    """wifirrd on a device of a namespace."""

    def __init__(self, ns, device, *args, wrapper=(), log=None):
        self.ns = ns
        self.dir = tempfile.mkdtemp(prefix="wifirrd-")
        self.control = os.path.join(self.dir, "control")
        self.log_path = os.path.join(self.dir, "log")
        self.log = open(self.log_path, "w")
        self.process = ns.popen(*wrapper, WIFIRRD, "--device", device, "--control", self.control, "--backend", "htb",
                                *args, stdout=self.log, stderr=self.log)

    def ask(self, command):
        """Its answer. While the daemon sets up its queues, and on a busy machine, it may take longer than wifirrd itself would wait."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(PATIENCE)
            try:
                s.connect(self.control)
            except OSError:
                assert self.process.poll() is None, f"wifirrd ended with {self.process.returncode}: {self.text()}"
                raise
            s.sendall(command.encode())
            with s.makefile() as file:
                answer = file.read()
        assert answer, f"no answer: {self.text()}"
        return answer if command == "metrics" else json.loads(answer)

    def status(self):
        return self.ask("status")

    def clients(self):
        return {c["client"]: c for c in self.ask("clients")["clients"]}

    def ready(self):
        def up():
            assert self.process.poll() is None, "wifirrd ended: " + self.text()
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):  # it does not listen yet
                return self.status()["backend"]
        wait_for(up, "wifirrd ready")
        return self

    def text(self):
        self.log.flush()
        with open(self.log_path) as f:
            return f.read()

    def stop(self, sig=signal.SIGTERM):
        """Ends the daemon and returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(sig)
        code = self.process.wait(timeout=PATIENCE)
        self.log.close()
        return code

    def remove(self):
        """Ends the daemon as procd does. If it were killed, its guard would change settings in the midst of the next test."""
        try:
            if self.process.poll() is None:
                self.process.terminate()
                self.process.wait(timeout=PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()
            shutil.rmtree(self.dir, ignore_errors=True)


def children(daemon):
    return open(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children").read().split()


def words_of(pid):
    """Of a child's command line; one empty word: it has ended, none: it is gone, which it may be at any time."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/cmdline", "rb") as f:
        return f.read().split(b"\0")
    return []


def guard_of(daemon):
    """The process that waits for the daemon's end."""
    return [int(pid) for pid in children(daemon) if b"guard" in words_of(pid)]


def kill_both(daemon):
    daemon.process.send_signal(signal.SIGSTOP)  # or it may start another guard
    # On a busy machine, a daemon works for a while before its guard has become another program.
    for pid in wait_for(lambda: guard_of(daemon), "the guard"):
        os.kill(pid, signal.SIGKILL)
    daemon.stop(signal.SIGKILL)


def mac(i):
    return f"02:00:00:00:{i >> 8:02x}:{i & 255:02x}"


def address(i):
    return f"10.9.{(i + 10) >> 8}.{(i + 10) & 255}"


def remove_stale():
    """What a killed run has left: its namespaces, and the daemons in them."""
    for name in os.listdir("/run/netns") if os.path.isdir("/run/netns") else []:
        made = re.fullmatch(r"w(\d+)(srv|box|air|cell|c\d+)", name)
        if not made or os.path.exists(f"/proc/{made[1]}"):
            continue
        for pid in run("ip", "netns", "pids", name, check=False).stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        run("ip", "netns", "del", name, check=False)


class Bed:
    def __init__(self, clients, rate_kbit=None):
        remove_stale()
        tag = f"w{os.getpid()}"
        with contextlib.ExitStack() as self.made:
            self.server = self.space(f"{tag}srv")
            self.box = self.space(f"{tag}box")
            self.air = self.space(f"{tag}air")
            self.cell = self.space(f"{tag}cell")
            self.client = [self.space(f"{tag}c{i}") for i in range(clients)]
            self.wire(rate_kbit)
            self.made = self.made.pop_all()

    def space(self, name):
        ns = Netns(name)
        self.made.callback(ns.remove)
        return ns

    def veth(self, a, name_a, b, name_b):
        run("ip", "link", "add", name_a, "netns", a.name, "type", "veth", "peer", "name", name_b, "netns", b.name)
        a("ip", "link", "set", name_a, "up")
        b("ip", "link", "set", name_b, "up")

    def bridge(self, ns, *ports):
        ns("ip", "link", "add", "br0", "type", "bridge")
        for port in ports:
            ns("ip", "link", "set", port, "master", "br0")
        ns("ip", "link", "set", "br0", "up")

    def wire(self, rate_kbit):
        self.veth(self.server, "eth0", self.box, "eth0")
        self.veth(self.box, "dl0", self.air, "up0")
        self.veth(self.air, "down0", self.cell, "up0")
        ports = []
        for i, c in enumerate(self.client):
            self.veth(self.cell, f"p{i}", c, "eth0")
            c("ip", "link", "set", "eth0", "address", mac(i + 1))
            c("ip", "addr", "add", f"{address(i)}/16", "dev", "eth0")
            c("ip", "addr", "add", f"fd09::{i + 10:x}/64", "dev", "eth0", "nodad")
            ports.append(f"p{i}")
        self.bridge(self.box, "eth0", "dl0")
        self.bridge(self.air, "up0", "down0")
        self.bridge(self.cell, "up0", *ports)
        self.server("ip", "addr", "add", "10.9.0.1/16", "dev", "eth0")
        self.server("ip", "addr", "add", "fd09::1/64", "dev", "eth0", "nodad")
        if rate_kbit:
            self.air("tc", "qdisc", "add", "dev", "down0", "root", "tbf", "rate", f"{rate_kbit}kbit",
                     "burst", "3100", "limit", "150000")

    def daemon(self, *args, device="dl0", **kwargs):
        d = Daemon(self.box, device, *args, **kwargs)
        self.made.callback(d.remove)
        return d

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.made.close()


class Downloads:
    """Endless TCP downloads, one for each of the given clients, all in one thread."""

    def __init__(self, bed, clients):
        self.poll = select.poll()
        self.sender, self.receiver, self.received = {}, {}, {i: 0 for i in clients}
        self.block = bytes(65536)
        for i in clients:
            with bed.client[i].enter():
                listener = socket.socket()
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind((address(i), 5001))
                listener.listen(1)
            with bed.server.enter():
                s = socket.socket()
            s.settimeout(PATIENCE)
            s.connect((address(i), 5001))
            r, _ = listener.accept()
            listener.close()
            for x in (s, r):
                x.setblocking(False)
            self.sender[s.fileno()] = (i, s)
            self.receiver[r.fileno()] = (i, r)
            self.poll.register(s, select.POLLOUT)
            self.poll.register(r, select.POLLIN)

    def run(self, seconds, every=None, on_tick=None):
        end = time.monotonic() + seconds
        tick = time.monotonic()
        while time.monotonic() < end:
            for fd, _ in self.poll.poll(50):
                try:
                    if fd in self.receiver:
                        i, r = self.receiver[fd]
                        self.received[i] += len(r.recv(262144))
                    else:
                        self.sender[fd][1].send(self.block)
                except BlockingIOError:
                    pass
            if every and time.monotonic() >= tick:
                tick += every
                on_tick()
        return dict(self.received)

    def close(self):
        for _, s in list(self.sender.values()) + list(self.receiver.values()):
            s.close()


def read_pcap(path):
    """Yields (time in seconds, bytes on the wire, packet) for each packet of a classic nanosecond pcap."""
    with open(path, "rb") as f:
        data = f.read()
    assert struct.unpack_from("<I", data)[0] == 0xa1b23c4d, "not a nanosecond pcap"
    at = 24
    while at + 16 <= len(data):
        s, ns, caplen, length = struct.unpack_from("<IIII", data, at)
        if at + 16 + caplen > len(data):
            break
        yield s + ns / 1e9, length, data[at + 16:at + 16 + caplen]
        at += 16 + caplen
