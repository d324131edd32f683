#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a byte costs on a MIPS router

Not in the papers, whose gateways were PCs. Mesh routers commonly have one MIPS core, and no hardware that computes
checksums or segments packets for it.

Here: QEMU's 24Kf with Debian's kernel for it. Each instruction takes 8 ns of the kernel's clock, so the process time that the kernel reports is
a count of instructions. Client, node (relay), gateway and origin are network namespaces on that board, with an MTU of 1500. They carry 3 MB, and figures are
medians of three. A process's instructions are all that the kernel charges to it: its own, its system calls, and network processing on its
behalf. For the gateway that serves a file, and for fetch, the handshake is counted separately. Fetch's handshake includes the start of the process:
`bquic version`, which does nothing else, takes 8 million. Offload "off": no GSO, no checksums by the device, as with ath9k.

A step is a state of the code:

- `today`: Go's unchanged runtime;
- `runtime`: a runtime with corrected sleeps ([go-mips-usleep.md](go-mips-usleep.md));
- `cipher`: a ChaCha20-Poly1305 with 32-bit words;
- `path`: other savings per packet ([architecture.md](architecture.md#what-a-packet-costs));
- `assembly`: the cipher's inner loops in assembly ([architecture.md](architecture.md#the-cipher-of-small-processors)). This is what ships.

ChaCha20-Poly1305 is also counted alone: each instruction of its functions for a packet, under qemu-user, on mipsel and on mips, which has the opposite byte
order. The classifier is counted in the same way, for the flows that `make bench-flows` has recorded.

Mbit/s are calculated from the processor's clock, of which a fifth goes to interrupts and the radio's driver. They assume 0.5 to 0.8
instructions per cycle, for such processors with their slow memory, and one thread on MT7621.

The last table shows how many connections a relay holds on a board with so much memory. Clients, gateway and origin are outside the board. Each connection
has loaded 20 kB; then one more loads 1 MB. Connections that are not carried go direct. "left" is the memory that the kernel could still give to
processes, while the whole binary is in memory.

Writes results/router.json and docs/results/router.svg; continues where it stopped. `--step NAME --bquic FILE` measures another
state of the code, whose binary (linux/mipsle, softfloat) is there.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import os
import pathlib
import subprocess
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from lab import BQUIC, command, measure, namespaces, results  # noqa: E402
from lab.router import board, cells, cipher, classes, memory  # noqa: E402

RESULTS = ROOT / "results/router.json"
FIGURE = ROOT / "docs/results/router.svg"
BINARY = ROOT / "build/lab/bquic-mipsle"

STEPS = ["today", "runtime", "cipher", "path", "assembly"]  # in chronological order; the tree is at the last step
NO_STEP = "-"  # for code that is not ours

CELLS = [
    *itertools.product(["relayed"], ["down", "up"], ["bquic", "standard"], ["off", "on"]),
    *itertools.product(["file"], ["down"], ["bquic", "standard"], ["off", "on"]),
    *itertools.product(["forward"], ["down"], [NO_STEP], ["off", "on"]),
]
# The subjects of a cell's rows.
WHATS = {
    "relayed": ["relay", "gateway relaying"],
    "file": ["gateway serving a file", "fetch"],
    "forward": ["forwarding, a hop"],
}

MHZ = {"AR7240": 400, "AR9344": 560, "QCA9558": 720, "MT7621": 880}
PER_CYCLE = (0.5, 0.8)  # instructions per cycle
SHARE = 0.8  # share of the processor left for the relay

BOARDS_MB = [64, 128]
CONNECTIONS = [100, 350, 500]  # open at the same time

Row = dict[str, Any]


def key(row: Row) -> tuple[Any, ...]:
    """Identifies the subject of a row. There is one row per subject."""
    return (row["what"], row["direction"], row["profile"], row["offload"], row["step"], row.get("board_mb"), row.get("connections"),
            row.get("processor"))


def merge(rows: list[Row], new: list[Row]) -> list[Row]:
    """The rows, with new ones replacing those with the same key."""
    replaced = {key(row): row for row in new}
    return [row for row in rows if key(row) not in replaced] + new


def cell_key(what: str, direction: str, profile: str, offload: str, step: str) -> tuple[Any, ...]:
    return what, direction, profile, offload, step, None, None, None


def held_key(board_mb: int, connections: int, step: str) -> tuple[Any, ...]:
    return "held", "down", "bquic", "on", step, board_mb, connections, None


def cipher_key(direction: str, step: str, processor: str) -> tuple[Any, ...]:
    return "ChaCha20-Poly1305", direction, NO_STEP, NO_STEP, step, None, None, processor


def run(step: str, bquic: pathlib.Path) -> None:
    binary = hashlib.sha256(bquic.read_bytes()).hexdigest()[:12]

    def done() -> set[tuple[Any, ...]]:
        """The keys already measured with this binary, whose counts do not change."""
        return {key(row) for row in results.read(RESULTS) if row["step"] == NO_STEP or row.get("binary") == binary}

    def add(new: list[Row], step: str) -> None:
        more = {"step": step, "commit": measure.commit()} | ({} if step == NO_STEP else {"binary": binary})
        results.write(RESULTS, merge(results.read(RESULTS), [row | more for row in new]))

    if step == STEPS[-1]:
        for processor in cipher.PROCESSORS:
            measure.progress(f"router: the cipher on {processor}")
            results.write(RESULTS, merge(results.read(RESULTS), [row | {"commit": measure.commit()} for row in cipher.count(processor, BINARY.with_name(f"cipher-{processor}"))]))
            add([classes.count(processor, BINARY.with_name(f"classes-{processor}"))], step)
    for board_mb in BOARDS_MB:
        if not done() >= {held_key(board_mb, connections, step) for connections in CONNECTIONS}:
            measure.progress(f"router: connections on a board of {board_mb} MB, step {step}")
            add(memory.hold(BQUIC, bquic, board_mb, CONNECTIONS), step)
    for number, (scenario, direction, profile, offload) in enumerate(CELLS, 1):
        of = NO_STEP if scenario == "forward" else step
        if done() >= {cell_key(what, direction, profile, offload, of) for what in WHATS[scenario]}:
            continue
        measure.progress(f"router: {number}/{len(CELLS)} {scenario} {direction} {profile}, offload {offload}, step {of}")
        add(cells.count(bquic, scenario, direction, profile, offload), of)


def number(row: Row | None, name: str, form: str = ".0f", scale: float = 1) -> str:
    return "-" if row is None or row.get(name) is None else format(row[name] * scale, form)


def mbps(soc: str, relay: Row, per_cycle: float) -> float:
    """Mbit/s through a relay that costs what its row says, on the processor SOC of MHZ, at PER_CYCLE instructions per cycle."""
    return float(MHZ[soc] * per_cycle * SHARE * 8 / relay["instructions_per_byte"])


def report(rows: list[Row]) -> str:
    counted = [row for row in rows if "instructions_per_byte" in row]
    steps = [step for step in STEPS if any(row["step"] == step for row in counted)]
    by = {key(row): row for row in counted}
    held = {key(row): row for row in rows if row["what"] == "held"}
    lines = []
    for scenario, direction, profile, offload in CELLS:
        for what in WHATS[scenario]:
            name = f"{what}, {direction}" if scenario == "relayed" else what
            found = [by.get(cell_key(what, direction, profile, offload, NO_STEP if profile == NO_STEP else step)) for step in steps]
            form = ".1f" if profile == NO_STEP else ".0f"
            lines.append([name, profile, offload, *(number(row, "instructions_per_byte", form) for row in found)])
    lines.sort(key=lambda line: [line[0].startswith("forw"), not line[0].startswith("relay,"), line[0], line[1], line[2]])
    text = "Instructions a byte\n" + results.table(["what", "profile", "offload", *steps], lines)

    lines = []
    for processor, direction in itertools.product(cipher.PROCESSORS, ("seal", "open")):
        found = [by.get(cipher_key(direction, step, processor)) for step in cipher.CODE]
        lines.append([processor, direction, *(number(row, "instructions_per_byte", ".1f") for row in found)])
    text += "\n\nInstructions a byte of ChaCha20-Poly1305, in packets of 1,300 bytes\n" + results.table(["processor", "", "x/crypto", "ours"], lines)

    lines = [[row["processor"], row["step"], str(row["instructions_per_flow"])] for row in rows if "instructions_per_flow" in row]
    if lines:
        text += "\n\nInstructions to tell a flow's class from its record, once a flow\n" + results.table(["processor", "step", "instructions"], lines)

    lines = []
    for what, profile in itertools.product(WHATS["file"], ["bquic", "standard"]):
        found = [by.get(cell_key(what, "down", profile, "off", step)) for step in steps]
        lines.append([what, profile, *(number(row, "handshake_instructions", ".0f", 1e-6) for row in found)])
    text += "\n\nMillions of instructions a handshake, offload off\n" + results.table(["side", "profile", *steps], lines)

    lines = []
    for soc, mhz in MHZ.items():
        line = [soc, str(mhz)]
        for step in steps:
            row = by.get(cell_key("relay", "down", "bquic", "off", step))
            speeds = [mbps(soc, row, per_cycle) for per_cycle in PER_CYCLE] if row else []
            line.append(" to ".join(f"{speed:.1f}" for speed in speeds) or "-")
        lines.append(line)
    text += "\n\nMbit/s down through the relay, calculated from these\n" + results.table(["processor", "MHz", *steps], lines)

    lines = []
    for board_mb, step, connections in itertools.product(BOARDS_MB, STEPS, CONNECTIONS):
        row = held.get(held_key(board_mb, connections, step))
        if row:
            lines.append([f"{board_mb} MB", step, *(str(row[name]) for name in ("connections", "carried", "failed", "killed")),
                          *(number(row, name, ".1f", 1 / 1024) for name in ("rss_kib", "available_kib")),
                          number(row, "bulk_seconds", ".1f")])
    header = ["board", "step", "connections", "carried", "failed", "killed", "relay, MiB", "left, MiB", "1 MB more, s"]
    return text + "\n\nConnections held at a time\n" + results.table(header, lines)


def draw(rows: list[Row]) -> None:
    counted = {key(row): row["instructions_per_byte"] for row in rows if "instructions_per_byte" in row}
    shown = [("relay", "down"), ("relay", "up"), ("gateway relaying", "down"), ("gateway relaying", "up"),
             ("gateway serving a file", "down"), ("fetch", "down")]
    steps = [step for step in STEPS if any(step in of for of in counted)]
    with results.drawing(FIGURE, (8, 3.2)) as axes:
        width = 0.8 / max(len(steps), 1)
        for i, step in enumerate(steps):
            heights = [counted.get(cell_key(what, direction, "bquic", "off", step), 0) for what, direction in shown]
            axes.bar([x + i * width for x in range(len(shown))], heights, width, label=step)
        axes.set_xticks([x + (len(steps) - 1) * width / 2 for x in range(len(shown))],
                        [f"{what},\n{direction}" for what, direction in shown], fontsize=8)
        axes.set_ylabel("instructions a byte")
        axes.legend()


def main() -> int:
    parser = argparse.ArgumentParser(description="What a byte costs on a MIPS router, counted in emulation.")
    parser.add_argument("--step", default=STEPS[-1], choices=STEPS, help="the state of the code that is measured; default: %(default)s")
    parser.add_argument("--bquic", type=pathlib.Path, metavar="FILE", help="its binary; default: built from this tree")
    parser.add_argument("--report", action="store_true", help="only prints the tables and draws the figure of what there is")
    args = parser.parse_args()
    if args.report:
        return results.show("router", RESULTS, results.read(RESULTS), report, draw)
    namespaces.exit_on_signals()
    if args.bquic is None:
        subprocess.run([ROOT / "scripts/build-bquic", "--router", BINARY], check=True,
                       env=os.environ | {"GOOS": "linux", "GOARCH": "mipsle", "GOMIPS": "softfloat"})
        args.bquic = BINARY
    if not BQUIC.exists():
        subprocess.run([ROOT / "scripts/build-bquic", BQUIC], check=True)
    try:
        run(args.step, args.bquic)
    except board.CannotRun as error:
        print(f"router: {error}", file=sys.stderr)
        return 77
    return results.show("router", RESULTS, results.read(RESULTS), report, draw)


if __name__ == "__main__":
    command(main)
