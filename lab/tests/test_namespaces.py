# SPDX-License-Identifier: Apache-2.0
"""What a lab leaves behind, however it ends: nothing. And what it says where it cannot begin."""

from __future__ import annotations

import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile

import pytest

from lab import ROOT, namespaces


def left_of(pid: int) -> list[str]:
    """Namespaces, processes and directories of a lab."""
    name = f"{namespaces.PREFIX}{pid}-"
    listed = subprocess.run("ip netns list; ps -eo args", shell=True, capture_output=True, text=True).stdout.splitlines()
    return [line for line in [*listed, *os.listdir(tempfile.gettempdir())] if name in line]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left(number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "lab/run-one"), "--repetitions", "1000", "--size", "1M"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    assert process.stdout
    assert json.loads(process.stdout.readline())["contender"] == "bquic"  # it is in the middle of a run
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert not left_of(process.pid)


def test_nothing_is_left_after_a_second_ctrl_c() -> None:
    """Its end takes seconds, and who does not wait for it presses once more."""
    program = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from lab import namespaces
with namespaces.Lab() as lab:
    lab.start(lab.namespace("slow"), "sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 1; done", log="log")
    namespaces.wait_until("it ignores SIGTERM", lambda: lab.tail("log") == "deaf", 60)
    print(flush=True)
    sys.stdin.read()
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    assert process.stdout and process.stdout.readline()
    process.send_signal(signal.SIGINT)
    namespaces.wait_until("it removes what it has made", lambda: os.getpriority(os.PRIO_PROCESS, process.pid) != namespaces.NICE, 60)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    try:
        assert process.returncode != 0 and not left_of(process.pid)
    finally:
        namespaces.remove_stale()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_of_stress(number: signal.Signals) -> None:
    """Of a measurement whose namespaces are made by another program."""
    process = subprocess.Popen([sys.executable, str(ROOT / "lab/experiments/load.py"), "--quick"], stderr=subprocess.PIPE, text=True,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))

    def stress() -> str:
        """The process number of the program."""
        return subprocess.run(["pgrep", "-P", str(process.pid), "stress"], capture_output=True, text=True).stdout.strip()

    def left(pid: str) -> str:
        return "".join(line for line in os.listdir("/run/netns") if line.endswith(f"-{pid}"))

    namespaces.wait_until("namespaces", lambda: bool((pid := stress()) and "origin" in left(pid)), 600)  # it is built before
    pid = stress()
    process.send_signal(number)
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 128 + number and "Traceback" not in said
    assert not left(pid) and not os.path.exists(f"/proc/{pid}")


def test_what_a_killed_lab_left_is_removed() -> None:
    process = subprocess.Popen([sys.executable, str(ROOT / "lab/run-one"), "--repetitions", "1000", "--size", "1M"],
                               stdout=subprocess.PIPE, text=True)
    assert process.stdout
    process.stdout.readline()
    process.kill()
    process.communicate()
    assert os.path.exists(f"/run/netns/{namespaces.PREFIX}{process.pid}-phone")
    namespaces.remove_stale()
    namespaces.wait_until("the end of the emulator", lambda: not left_of(process.pid))


def test_what_others_call_lab_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """Namespaces such as lab1-r1 are common where networks are taught. The demo removed them, and ended what ran there."""
    process = subprocess.Popen(["true"])
    process.wait()
    name = f"lab{process.pid}-r1"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / name).mkdir()
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        namespaces.remove_stale()
        assert os.path.exists(f"/run/netns/{name}") and (tmp_path / name).exists()
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True)


@pytest.mark.parametrize("missing, why", [("sys_nice", "cannot raise its priority: "), ("sys_admin", "ip netns add: "), ("net_admin", "Operation not permitted")])
def test_a_container_that_allows_too_little_is_told(missing: str, why: str) -> None:
    """Not by a traceback, which was all that a newcomer saw."""
    done = subprocess.run(["setpriv", f"--bounding-set=-{missing}", f"--inh-caps=-{missing}", sys.executable, ROOT / "lab/run-one"],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and done.stderr.startswith("run-one: ") and why in done.stderr and done.stderr.count("\n") == 1


def test_an_experiment_goes_on_after_the_end_of_a_session() -> None:
    """nohup make bench-full ended when its user logged out."""
    program = f"import os, signal, sys; sys.path.insert(0, {str(ROOT)!r}); from lab import namespaces\nnamespaces.exit_on_signals(); os.kill(os.getpid(), signal.SIGHUP)"
    for before, code in ((signal.SIG_IGN, 0), (signal.SIG_DFL, 128 + signal.SIGHUP)):
        assert subprocess.run([sys.executable, "-c", program], preexec_fn=lambda: signal.signal(signal.SIGHUP, before)).returncode == code


def test_who_is_nice_remains_so() -> None:
    """nice make test was nice until the end of its first lab."""
    program = f"import os, sys; sys.path.insert(0, {str(ROOT)!r}); from lab import namespaces\nwith namespaces.Lab(): pass\nprint(os.nice(0))"
    nice = os.nice(0)
    assert subprocess.run(["nice", "-n", "3", sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == f"{nice + 3}\n"


def test_a_full_disk_is_told() -> None:
    """By the demo, in a line."""
    done = subprocess.run([ROOT / "lab/demo"], capture_output=True, text=True, timeout=300,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)))
    assert done.returncode == 1 and "Traceback" not in done.stderr and done.stderr.splitlines()[-1] == "demo: [Errno 27] File too large"


def test_no_proxy_of_the_machine_is_asked(lab: namespaces.Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """curl, git and pip asked for a proxy that is on no side of the mesh: behind a company's, the lab's tests failed."""
    for name in ("http_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://proxy.example:3128")
    assert "proxy.example" not in lab.run(lab.namespace("end"), "env")


def test_a_kernel_without_ipv6_has_namespaces() -> None:
    """sysctl ended the demo: with ipv6.disable=1, there is no net.ipv6."""
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from lab import namespaces\nwith namespaces.Lab() as lab: lab.namespace('end')"
    settings = "mount -t tmpfs none /proc/sys/net && mkdir /proc/sys/net/ipv4 && touch /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv4/tcp_no_metrics_save"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", f'{settings} && exec "$@"', "sh", sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
