# SPDX-License-Identifier: Apache-2.0
"""The emulated medium: a running wifi-medium, and the media that experiments use."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import queue
import shutil
import subprocess
import sys
import threading
from typing import Any

from lab import ROOT
from lab.namespaces import Failed, Lab, stop

BINARY = ROOT / "build/lab/wifi-medium"
READY_SECONDS = 30  # stations associate meanwhile
ANSWER_SECONDS = 30

# A run counts only while the emulator keeps up with the clock: mean lag below this.
LAG_LIMIT_MS = 5.0


@dataclasses.dataclass(frozen=True)
class Kind:
    """A medium between two ends. Delays are one way, so the RTT is twice that."""

    name: str
    flags: tuple[str, ...]
    capacity_mbps: float  # approximate capacity of one hop, where floods start
    wireless: bool = False


WIFI = Kind("wifi", ("--mcs", "7", "--width", "20"), 60, wireless=True)
MEDIA = {
    kind.name: kind
    for kind in (
        WIFI,
        # A buffer of one bandwidth-delay product.
        Kind("wired", ("--wired", "50Mbps", "--delay", "10", "--queue", "100"), 50),
        # The papers' client with 21 % of loss: far away and lossy.
        Kind("lossy", ("--wired", "20Mbps", "--delay", "50", "--queue", "200", "--loss", "0.01"), 20),
        # Bursts hurt here: the buffer is much smaller than a burst.
        Kind("shallow", ("--wired", "30Mbps", "--delay", "10", "--queue", "10"), 30),
    )
}


def build_go(output: pathlib.Path, package: str, *flags: str) -> None:
    """Builds a program of package/bquic-gateway/src. It takes the place of the old one, which may be running: where /tmp is another file
    system, go would write it in place."""
    output.parent.mkdir(parents=True, exist_ok=True)
    new = output.with_name(f"{output.name}.new{os.getpid()}")
    if output.exists():
        shutil.copy(output, new)  # go links only what has changed
    done = subprocess.run(["go", "build", *flags, "-o", new, package], cwd=ROOT / "package/bquic-gateway/src",
                          env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": ""}, capture_output=True, text=True)
    if done.returncode != 0:
        new.unlink(missing_ok=True)
        raise Failed(f"go build {package}:\n{done.stderr[-2000:]}")
    new.replace(output)


def make(directory: str, what: str) -> None:
    """Makes what is missing or out of date in a directory of the lab, and says so before, because it takes a minute."""
    command = ["make", "-s", "-C", str(ROOT / directory)]
    if subprocess.run([*command, "-q"], capture_output=True).returncode == 0:
        return
    print(f"building {what} (once)", file=sys.stderr, flush=True)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"make -C {directory}:\n{done.stderr[-2000:]}")


def build() -> None:
    """Builds wifi-medium."""
    make("lab/wifi", "the emulator of the medium")


class Medium:
    """A running wifi-medium. TAPS are "NETNS/DEVICE", in its order."""

    def __init__(self, lab: Lab, flags: list[str], taps: list[str]) -> None:
        self.lab = lab
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.seconds: list[dict[str, Any]] = []  # its output line of each second
        command = [str(BINARY), *flags]
        for tap in taps:
            command += ["--tap", tap]
        self._process = lab.start(None, *command, log="medium.log", pipes=True)
        threading.Thread(target=self._read, daemon=True).start()
        if self._answer(READY_SECONDS)["kind"] != "ready":
            raise Failed("wifi-medium: did not say that it is ready")

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            entry = json.loads(line)
            if entry["kind"] == "second":
                self.seconds.append(entry)
            else:
                self._answers.put(entry)
        self._answers.put(None)

    def _answer(self, seconds: float) -> dict[str, Any]:
        try:
            answer = self._answers.get(timeout=seconds)
        except queue.Empty:
            raise Failed(f"wifi-medium: no answer within {seconds:.0f} s") from None
        if answer is None:
            raise Failed(f"wifi-medium ended: {self.lab.tail('medium.log')}")
        return answer

    def mark(self) -> dict[str, Any]:
        """The medium's counters since the last mark."""
        assert self._process.stdin
        try:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # _answer reports the reason
        return self._answer(ANSWER_SECONDS)

    def stop(self) -> None:
        stop(self._process)
