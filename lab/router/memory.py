# SPDX-License-Identifier: Apache-2.0
"""How many connections a board with little memory holds: clients, gateway and origin are outside of it."""

from __future__ import annotations

import pathlib
import queue
import sys
import threading
import time
from typing import Any

from lab import measure
from lab.namespaces import Failed, Lab, wait_until
from lab.router import board
from lab.servers import ask, serve_gateway

LOADED = 20_000  # bytes, by each open connection
BULK = 1_000_000  # bytes of one more connection, to see whether the board still works
TOKEN = "token-of-the-board"
ORIGIN = "198.51.100.2"
SECONDS = 1500  # limit

# In the origin: sends as many bytes as each line requests.
SERVE = """
import asyncio
async def serve(reader, writer):
    try:
        while line := await reader.readline():
            writer.write(bytes(int(line)))
            await writer.drain()
    except ConnectionError: pass
    finally: writer.close()
async def main():
    server = await asyncio.start_server(serve, "%s", 80, backlog=4096)
    await server.serve_forever()
asyncio.run(main())
""" % ORIGIN

# In the client: for each line "COUNT" on stdin opens as many more connections, each of which loads LOADED bytes and stays, then loads
# BULK bytes by another one, and writes how many failed and the seconds of the latter.
CLIENT = """
import asyncio, sys, time
held = []
async def load(size):
    reader, writer = await asyncio.wait_for(asyncio.open_connection("%s", 80), 60)
    writer.write(b"%%d\\n" %% size)
    await asyncio.wait_for(reader.readexactly(size), 120)
    return writer
async def several(count, places):
    async def one():
        async with places:
            try: held.append(await load(%d))
            except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError): return 1
            return 0
    return sum(await asyncio.gather(*(one() for _ in range(count))))
async def main():
    for line in sys.stdin:
        failed = await several(int(line), asyncio.Semaphore(10))
        begun = time.monotonic()
        try:
            writer = await load(%d)
            writer.close()
            await writer.wait_closed()
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError): failed += 1
        print(failed, time.monotonic() - begun, flush=True)
asyncio.run(main())
""" % (ORIGIN, LOADED, BULK)


def hold(native: pathlib.Path, bquic: pathlib.Path, megabytes: int, counts: list[int]) -> list[dict[str, Any]]:
    """One row for each of COUNTS connections, an ascending list, held by the relay BQUIC on a board of MEGABYTES. NATIVE runs
    as the gateway on this machine."""
    rows = []
    with Lab() as lab:
        phone, gateway = lab.namespace("phone"), lab.namespace("gateway")
        lab.run(gateway, "ip", "addr", "add", f"{ORIGIN}/32", "dev", "lo")
        socket = serve_gateway(lab, gateway, "gateway", 8443, f"""
	list mesh '10.77.0.0/16'
	option mesh_profile 'bquic'
	option token '{TOKEN}'
	list connect_from '10.77.0.0/16'
	list connect_to '{ORIGIN}/32'
""", native)
        lab.start(gateway, sys.executable, "-c", SERVE, log="origin.log")

        # In slots with different interrupts: shared ones get lost.
        devices = [word for name, slot in (("lan", 0x12), ("mesh", 0x14)) for word in (
            "-netdev", f"tap,id={name},ifname={name},script=no,downscript=no", "-device", f"e1000,netdev={name},addr={slot:#x}")]
        with board.run(board.HERE / "hold", [ask(lab, gateway, socket, native)["pin"]], {"bquic": bquic}, megabytes=megabytes, seconds=SECONDS,
                       counted=False, devices=devices, within=["ip", "netns", "exec", phone]) as lines:
            said: queue.Queue[str] = queue.Queue()

            def listen() -> None:
                for line in lines:
                    if not line.startswith("sample "):
                        measure.progress(f"  board: {line}")
                    said.put(line)
                said.put("")

            listener = threading.Thread(target=listen, daemon=True)
            listener.start()

            def sample(after: float) -> dict[str, int]:
                """The board's next report after that time."""
                others = []
                while line := said.get(timeout=SECONDS):
                    others.append(line)
                    if line.startswith("sample ") and time.monotonic() > after:
                        return dict(zip(("rss_kib", "available_kib", "killed", "major_faults"), map(int, line.split()[1:])))
                raise Failed("\n".join(["the board ended:", *others[-30:]]))

            wait_until("the board's devices", lambda: "mesh" in lab.run(phone, "ip", "-o", "link"), 30)
            lab.run(phone, "ip", "link", "set", "mesh", "netns", gateway)
            lab.address(phone, "lan", "10.77.1.2/24")
            lab.address(gateway, "mesh", "10.77.2.2/24")
            lab.route(phone, "default", "10.77.1.1")
            lab.route(gateway, "10.77.1.0/24", "10.77.2.1")
            while (line := said.get(timeout=SECONDS)) != "taking":  # a session does not mean that the gateway has answered
                if not line:
                    raise Failed("the board ended before its relay took connections")
            idle = sample(time.monotonic() + 5)
            client = lab.start(phone, sys.executable, "-c", CLIENT, log="client.log", pipes=True)
            assert client.stdin and client.stdout
            opened = 0
            for count in counts:
                client.stdin.write(f"{count - opened}\n")
                client.stdin.flush()
                answer = client.stdout.readline().split()
                if len(answer) != 2:
                    raise Failed(f"the client ended: {lab.tail('client.log')}")
                opened = count
                now = sample(time.monotonic() + 5)
                rows.append({
                    "what": "held", "direction": "down", "profile": "bquic", "offload": "on", "board_mb": megabytes, "connections": count, "carried": ask(lab, gateway, socket, native)["tunnels"]["open"],
                    "failed": int(answer[0]), "bulk_seconds": round(float(answer[1]), 2), "idle_rss_kib": idle["rss_kib"], **now,
                })
                measure.progress(f"router: {rows[-1]}")
            lab.run(phone, sys.executable, "-c", "import socket; socket.create_connection(('10.77.1.1', 9))")
            listener.join()
    return rows
