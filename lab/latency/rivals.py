# SPDX-License-Identifier: Apache-2.0
"""The near end of the experiment "beside": python3 rivals.py OWN ORIGIN PORT SECONDS [OWN-ADDRESS...] -- [OTHER-ADDRESS...]

Downloads from OWN-ADDRESSes, which may go by a relay, and from OTHER-ADDRESSes, which stand for other nodes' clients, as fast as
they can. After WARM_UP, requests 1 kB from OWN again and again. Writes JSON: the time of every request in ms, LOST_MS if there was no
answer, and the throughput of both kinds of downloads in bit/s.
"""

from __future__ import annotations

import asyncio
import json
import pathlib
import socket
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent))

from lab.latency import origin  # noqa: E402
from lab.latency.clients import WARM_UP, requests  # noqa: E402

BEFORE = 2.0  # s, in which a relay is used and makes its connections


class Downloads:
    """Downloads that count together."""

    def __init__(self, host: str, port: int, addresses: list[str]) -> None:
        self.bytes = 0
        for own in addresses:
            threading.Thread(target=self._one, args=(own, host, port), daemon=True).start()

    def _one(self, own: str, host: str, port: int) -> None:
        buffer = bytearray(1 << 18)
        with socket.create_connection((host, port), source_address=(own, 0)) as s:
            while n := s.recv_into(buffer):
                self.bytes += n  # not atomic, but an addition lost between threads would not show


def main() -> None:
    phone, host, port, seconds, *rest = sys.argv[1:]
    split = rest.index("--")

    def ask(duration: float) -> list[float]:
        return asyncio.run(requests(time.monotonic() + duration, phone, host, int(port)))

    ask(0.1)
    time.sleep(BEFORE)
    both = [Downloads(host, origin.SOURCE, rest[:split]), Downloads(host, origin.OTHERS, rest[split + 1 :])]
    time.sleep(WARM_UP)
    before, begun = [d.bytes for d in both], time.monotonic()
    took = ask(float(seconds))
    lasted = time.monotonic() - begun
    own, others = ((d.bytes - b) * 8 / lasted for d, b in zip(both, before))
    print(json.dumps({"request": took, "own": own, "others": others}))


if __name__ == "__main__":
    main()
