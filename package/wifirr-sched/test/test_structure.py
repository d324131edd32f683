# SPDX-License-Identifier: Apache-2.0
"""No two files of the daemon call each other, not even through a third one: each can be read before its users."""
import graphlib
import pathlib
import subprocess

SRC = pathlib.Path(__file__).resolve().parent.parent / "src"


def test_no_call_circle():
    subprocess.run(["make", "-s", "-C", SRC, "wifirrd"], check=True)
    sources = {p.stem for p in SRC.glob("*.c")}
    defined, wanted = {}, {}
    for file in sorted(sources):
        for line in subprocess.check_output(["nm", SRC / f"{file}.o"], text=True).splitlines():
            *_, kind, name = line.split()
            if kind in "TDBR":
                defined[name] = file
            elif kind == "U":
                wanted.setdefault(file, set()).add(name)
    calls = {file: {defined[name] for name in names if name in defined} for file, names in wanted.items()}
    assert calls["main"] >= {"device", "options", "loop"}  # nm has worked
    # CycleError names the cycle
    assert set(graphlib.TopologicalSorter(calls).static_order()) <= sources
