# SPDX-License-Identifier: Apache-2.0
"""The cost of the packet cipher on MIPS of both byte orders: counts each instruction under qemu-user."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
from typing import Any

from lab.namespaces import Failed
from lab.router import board

SOURCES = board.HERE.parent.parent / "package/bquic-gateway/src/quic-go"
PROCESSORS = {"mips": "qemu-mips-static", "mipsle": "qemu-mipsel-static"}
PACKET = 1300  # bytes, as sent
PACKETS = 40  # counted packets
CODE = {"today": "reference", "assembly": "32_bits"}  # by step: x/crypto's code, and ours


def code(binary: pathlib.Path, names: str) -> str:
    """The addresses of the functions with such names, in the form of QEMU's -dfilter."""
    ranges = []
    for line in subprocess.run(["go", "tool", "nm", "-size", binary], capture_output=True, text=True, check=True).stdout.splitlines():
        address, size, kind, *name = line.split()
        if kind in "Tt" and re.search(names, name[0]):
            ranges.append(f"0x{address}+{size}")
    return ",".join(ranges)


def instructions(command: list[str], code: str, directory: pathlib.Path | None = None) -> int:
    """The number of instructions of CODE that a program runs in a directory. With one instruction per block and unchained blocks, QEMU logs a line for each."""
    qemu, *rest = command
    process = subprocess.Popen([qemu, "-singlestep", "-d", "exec,nochain", "-dfilter", code, "-D", "/dev/stderr", *rest],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=directory)
    assert process.stderr
    lines = 0
    while chunk := process.stderr.read(1 << 20):
        lines += chunk.count(b"Trace ")
    if process.wait() != 0:
        raise Failed(f"{' '.join(rest)}: exit code {process.returncode}")
    return lines


def count(processor: str, binary: pathlib.Path) -> list[dict[str, Any]]:
    """Builds the cipher's test for PROCESSOR as BINARY, and returns a row for each step and direction. Raises board.CannotRun
    and Failed."""
    qemu = PROCESSORS[processor]
    if not shutil.which(qemu):
        raise board.CannotRun(f"{qemu} is not installed")
    subprocess.run([SOURCES.parent.parent / "quic-go/prepare"], check=True)
    subprocess.run(["go", "test", "-c", "-tags", "mips32r2", "-o", binary.resolve(), "./chacha20poly1305"], cwd=SOURCES, check=True,
                   env=os.environ | {"GOOS": "linux", "GOARCH": processor, "GOMIPS": "softfloat", "CGO_ENABLED": "0", "GOFLAGS": ""})
    where = code(binary, r"chacha20|poly1305|crypto/subtle|internal/alias")
    rows = []
    for step, name in CODE.items():
        for direction in ("seal", "open"):
            few, many = (instructions([qemu, str(binary), "-test.run", "^$", "-test.bench", f"Packet/{direction}/{name}/{PACKET}$",
                                        "-test.benchtime", f"{packets}x"], where) for packets in (2, 2 + PACKETS))
            rows.append({"what": "ChaCha20-Poly1305", "direction": direction, "profile": "-", "offload": "-", "step": step,
                         "processor": processor, "instructions_per_byte": round((many - few) / PACKETS / PACKET, 1)})
    return rows
