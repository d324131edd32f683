# SPDX-License-Identifier: Apache-2.0
"""lab/vm/run leaves no virtual machine behind, and starts one again that does not begin."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

from helpers import of_session
from lab import ROOT
from lab.namespaces import wait_until


def prepared(tmp_path: pathlib.Path, qemu: str) -> list[str | pathlib.Path]:
    """lab/vm/run with this for QEMU."""
    boot = tmp_path / ".cache/vm/6.1"
    for directory in ("bin", "lab/vm", boot / "boot", boot / "lib/modules/6.1.0-1-amd64", boot / "usr/src"):
        (tmp_path / directory).mkdir(parents=True)
    for name in ("run", "init"):
        shutil.copy(ROOT / "lab/vm" / name, tmp_path / "lab/vm")
    (boot / "boot/vmlinuz-6.1.0-1-amd64").touch()
    (boot / "initrd.gz").touch()
    (boot.parent / ("kvm-" + pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip())).write_text("no\n")
    program = tmp_path / "bin/qemu-system-x86_64"
    program.write_text(f"#!/bin/sh\n{qemu}\n")
    program.chmod(0o755)
    return ["/usr/bin/env", f"PATH={tmp_path}/bin:/usr/sbin:/usr/bin:/sbin:/bin", tmp_path / "lab/vm/run"]


def test_a_machine_that_has_not_begun_in_its_time_is_started_again(tmp_path: pathlib.Path) -> None:
    """One that does not start has a limit of its own, but a busy host's counts slowly: the time of the tests was over first."""
    status = 'for arg; do case $arg in *,id=status,path=*) printf "begun\\n7\\n" >"${arg#*,path=}" ;; esac; done'
    command = prepared(tmp_path, f"[ -e {tmp_path}/second ] || {{ touch {tmp_path}/second; exec sleep 600; }}\n{status}")
    done = subprocess.run([*command, "--timeout", "10", "/bin/true"], capture_output=True, text=True)
    assert done.returncode == 7 and "is started again\n" in done.stderr, done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_who_ends_it_ends_its_machine(number: signal.Signals, tmp_path: pathlib.Path) -> None:
    """QEMU went on until its time was over, half an hour later."""
    process = subprocess.Popen([*prepared(tmp_path, f"echo >{tmp_path}/begun\nexec sleep 600"), "/bin/true"], start_new_session=True)
    try:
        wait_until("the machine", (tmp_path / "begun").exists, 60)
        process.send_signal(number)
        assert process.wait(timeout=60) == -number
        wait_until("its end", lambda: not of_session(process.pid), 60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
