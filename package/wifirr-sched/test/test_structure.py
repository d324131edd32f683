# SPDX-License-Identifier: Apache-2.0
"""No file of the daemon calls another one that calls it, be it by a third: each is read before those that use it."""
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
    assert calls["main"] >= {"device", "options", "loop"}  # nm has told something
    # CycleError names the circle
    assert set(graphlib.TopologicalSorter(calls).static_order()) <= sources
