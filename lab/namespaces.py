# SPDX-License-Identifier: Apache-2.0
"""Network namespaces and processes in them, removed in any case."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from types import FrameType

# Of namespaces, bquic-lab<pid>-<name>, and directories. What has such a name, and no process any more, is removed, so nobody else must use it.
PREFIX = "bquic-lab"
# Other work on the machine must not affect measurements. Where the kernel groups
# processes by session (sched_autogroup), niceness counts only within a group, and
# the group has its own. So every command runs in a new session, and sets the group's.
NICE = -15
# From a namespace, no proxy of the machine's can be reached.
OWN_GROUP = (f'(echo {NICE} >/proc/self/autogroup; echo $$ >"$1") 2>/dev/null; shift;'
             ' unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY; exec "$@"')
PATIENCE_SECONDS = 60  # until what is waited for counts as never to come, on the slowest and busiest machine
STOP_SECONDS = 5  # a process has this long to end by itself

CONTROL_GROUPS = "control-groups"  # in a lab's directory, if they are mounted nowhere else
MACHINE_PRESSURE = pathlib.Path("/proc/pressure/cpu")

CUBIC = ("congctl", "cubic")  # of a route
IN_A_CONTAINER = " (in a container, the lab needs --privileged)"

# Settings that measurements rely on, whatever the machine's own are.
SYSCTLS = {
    "net.ipv4.ip_forward": "1",
    "net.ipv4.tcp_no_metrics_save": "1",  # otherwise a run would start with the last run's ssthresh
    "net.ipv6.conf.all.disable_ipv6": "1",  # no neighbour discovery during a run
    "net.ipv6.conf.default.disable_ipv6": "1",
}


class Failed(Exception):
    """A build, a run or a program of the lab has failed. The message says why, in a line or with the last ones of its output."""


def exit_on_signals() -> None:
    """Lets SIGTERM and SIGHUP unwind the stack, as Ctrl-C does."""

    def leave(number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as after nohup
            signal.signal(number, leave)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Signals that end us wait for the end of the block: who presses Ctrl-C once more must not keep us from cleaning up."""
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


def own_group(*command: str | pathlib.Path, processes: str = "/dev/null") -> list[str | pathlib.Path]:
    """Wraps the command so that it can run in a session of its own; processes: the cgroup.procs file that it joins."""
    return ["sh", "-c", OWN_GROUP, "sh", processes, *command]


def remove_stale() -> None:
    """Removes what a killed lab has left."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        if _is_stale(line.split()[0]):
            _remove_namespace(line.split()[0])
    for directory in pathlib.Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        if _is_stale(directory.name):
            _unmount(directory / CONTROL_GROUPS)
            shutil.rmtree(directory, ignore_errors=True)


def cpu_waited(pressure: pathlib.Path = MACHINE_PRESSURE) -> float:
    """Seconds in which some process waited for a CPU (pressure stall information), 0 if the kernel does not provide it."""
    try:
        some = pressure.read_text().splitlines()[0]
    except OSError:
        return 0.0
    return int(some.rpartition("total=")[2]) / 1e6


def _control_groups() -> pathlib.Path | None:
    """The mount point of control groups version 2, alone or beside version 1; None if no other than a lab has mounted
    them, as in a chroot."""
    for line in pathlib.Path("/proc/mounts").read_text().splitlines():
        _, path, kind, *_ = line.split()
        if kind == "cgroup2" and not path.endswith(f"/{CONTROL_GROUPS}"):
            return pathlib.Path(path)
    return None


def _unmount(directory: pathlib.Path) -> None:
    subprocess.run(["umount", "--lazy", directory], capture_output=True)


def _is_stale(name: str) -> bool:
    pid = name.removeprefix(PREFIX).split("-")[0]
    return name.startswith(PREFIX) and pid.isdigit() and not os.path.exists(f"/proc/{pid}")


def _remove_namespace(name: str) -> None:
    pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout
    for pid in pids.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    subprocess.run(["ip", "netns", "del", name], capture_output=True)


class Lab:
    """Owns namespaces, processes and a temporary directory (a context manager)."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[str]] = []
        self.namespaces: list[str] = []
        self.dir = pathlib.Path()
        self._group: pathlib.Path | None = None
        self._nice = os.getpriority(os.PRIO_PROCESS, 0)  # outside of the lab

    def __enter__(self) -> Lab:
        if os.geteuid() != 0:
            raise Failed("must be root, for network namespaces")
        remove_stale()
        try:
            os.setpriority(os.PRIO_PROCESS, 0, NICE)
        except PermissionError as error:
            raise Failed(f"cannot raise its priority: {error.strerror}{IN_A_CONTAINER}") from None
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        self._group = self._own_group()
        return self

    def _own_group(self) -> pathlib.Path | None:
        """A control group for the processes in our namespaces; None if the kernel has none with pressure information."""
        groups = _control_groups()
        if groups is None:
            groups = self.dir / CONTROL_GROUPS
            groups.mkdir()
            subprocess.run(["mount", "-t", "cgroup2", "none", groups], capture_output=True)
        for killed in groups.glob(f"{PREFIX}*-*"):
            if _is_stale(killed.name):
                with contextlib.suppress(OSError):  # its processes have not ended yet
                    killed.rmdir()
        group = groups / f"{self.dir.name}-ends"
        with contextlib.suppress(OSError):
            group.mkdir()
            if (group / "cpu.weight").exists():  # niceness counts only within the group
                (group / "cpu.weight").write_text("10000")
            (group / "cpu.pressure").read_text()
            return group
        with contextlib.suppress(OSError):
            group.rmdir()
        return None

    def cpu_waited(self) -> float:
        """Like cpu_waited, for the processes in our namespaces, or for the machine if that is unknown. The emulator
        is in no namespace: it has real-time priority, and reports its lag."""
        return cpu_waited(self._group / "cpu.pressure" if self._group else MACHINE_PRESSURE)

    def __exit__(self, *_: object) -> None:
        with undisturbed():
            self._remove()

    def _remove(self) -> None:
        os.setpriority(os.PRIO_PROCESS, 0, self._nice)
        for process in reversed(self.processes):
            stop(process)
        for name in self.namespaces:
            _remove_namespace(name)
        if self._group:
            with contextlib.suppress(Failed):  # the next lab removes it
                wait_until("the control group is empty", self._remove_group)
        _unmount(self.dir / CONTROL_GROUPS)
        shutil.rmtree(self.dir, ignore_errors=True)

    def _remove_group(self) -> bool:
        assert self._group
        try:
            self._group.rmdir()
        except OSError:
            return False
        return True

    def namespace(self, name: str) -> str:
        """Makes a namespace and returns its full name."""
        full = f"{PREFIX}{os.getpid()}-{name}"
        self.namespaces.append(full)
        done = subprocess.run(["ip", "netns", "add", full], capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"ip netns add: {done.stderr.strip()}{IN_A_CONTAINER}")
        self.run(full, "ip", "link", "set", "lo", "up")
        # -e: a kernel without IPv6 (ipv6.disable=1) knows no settings of it.
        self.run(full, "sysctl", "-eqw", *(f"{k}={v}" for k, v in SYSCTLS.items()))
        return full

    def veth(self, a: str, device_a: str, address_a: str, b: str, device_b: str, address_b: str) -> None:
        """Joins two namespaces by a pair of devices with addresses (ADDRESS/LENGTH)."""
        self.run(a, "ip", "link", "add", device_a, "type", "veth", "peer", "name", device_b, "netns", b)
        self.address(a, device_a, address_a)
        self.address(b, device_b, address_b)

    def address(self, namespace: str, device: str, address: str) -> None:
        # We add the route ourselves, so that TCP over it uses CUBIC: a namespace may not
        # set that by sysctl if the host has another default.
        interface = ipaddress.ip_interface(address)
        self.run(namespace, "ip", "addr", "add", address, "dev", device, "noprefixroute")
        self.run(namespace, "ip", "link", "set", device, "up")
        self.run(namespace, "ip", "route", "add", str(interface.network), "dev", device,
                 "src", str(interface.ip), *CUBIC)

    def route(self, namespace: str, target: str, via: str) -> None:
        self.run(namespace, "ip", "route", "add", target, "via", via, *CUBIC)

    def _processes(self) -> str:
        return str(self._group / "cgroup.procs") if self._group else "/dev/null"

    def run(self, namespace: str, *command: str, timeout: float = 60, stdin: str | None = None) -> str:
        """Runs a command in a namespace and returns its output; raises Failed."""
        try:
            done = subprocess.run(
                own_group("ip", "netns", "exec", namespace, *command, processes=self._processes()),
                input=stdin, capture_output=True, text=True, timeout=timeout, start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"{' '.join(command)}: did not end within {timeout:.0f} s") from None
        if done.returncode != 0:
            raise Failed(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def start(self, namespace: str | None, *command: str, log: str, pipes: bool = False) -> subprocess.Popen[str]:
        """Starts a process, in the host's namespace if none is given. Its stderr, and
        its stdout unless there are pipes, go to the file LOG in our directory."""
        group = self._processes() if namespace else "/dev/null"
        if namespace:
            # sh and ip exec the command, so the process is the command itself.
            command = ("ip", "netns", "exec", namespace, *command)
        with open(self.dir / log, "a") as file:
            process = subprocess.Popen(
                own_group(*command, processes=group),
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else file,
                stderr=file,
                text=True,
                start_new_session=True,  # also keeps Ctrl-C from them: we stop them in order
            )
        self.processes.append(process)
        return process

    def serve(self, what: str, namespace: str, *command: str, log: str, ready: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> subprocess.Popen[str]:
        """Like start, and waits until ready() is true. If the process ends first, or takes longer, stops it and raises Failed."""
        process = self.start(namespace, *command, log=log)

        def is_ready() -> bool:
            if process.poll() is not None:
                raise Failed(f"{what} ended: {self.tail(log)}")
            return bool(ready())

        try:
            wait_until(what, is_ready, seconds)
        except Failed:
            stop(process)
            raise
        return process

    def tail(self, log: str, lines: int = 5) -> str:
        """The end of a log, for an error message."""
        with contextlib.suppress(OSError):
            return "\n".join((self.dir / log).read_text().splitlines()[-lines:])
        return ""


def stop(process: subprocess.Popen[str]) -> None:
    """Ends a process: first by SIGTERM, then by SIGKILL."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe:
            with contextlib.suppress(OSError):
                pipe.close()


def wait_until(what: str, condition: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
    """Waits until condition() is true; raises Failed."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.05)
