# SPDX-License-Identifier: Apache-2.0
"""A browser's requests without the browser: recordings of Chromium (lab/record-pages), and the loader that replays them.

A browser takes more processor time than relay, gateway and emulator together. The loader,
package/bquic-gateway/src/test/replay, requests the same objects in the same order, each when what it waits for has
arrived, and does nothing with them.
"""

from __future__ import annotations

import dataclasses
import json

from lab import ROOT, pages
from lab.medium import build_go
from lab.namespaces import Failed, Lab

BINARY = ROOT / "build/lab/replay"
RECORDINGS = ROOT / "lab/recordings.json"
LOADERS = ("h1", "h2")  # HTTP/1.1 by up to six connections, HTTP/2 by one
LOAD_SECONDS = 120


@dataclasses.dataclass
class Object:
    """An object of a page, and what its request waits for; numbers are indices of the page's list."""

    file: str
    size: int
    parent: int | None  # the object that names it; None: it is the page itself
    at: int  # bytes of the parent that must have arrived
    after: list[int]  # other objects that must be complete
    delay_ms: float  # how long the browser then takes
    urgency: int  # as in RFC 9218


@dataclasses.dataclass
class Load:
    ms: float  # from the first packet to the last byte
    objects: int
    bytes: int
    connections: int


def build() -> None:
    build_go(BINARY, "./test/replay")


def read() -> dict[str, list[Object]]:
    return {name: [Object(*o) for o in objects] for name, objects in json.loads(RECORDINGS.read_text()).items()}


def write(recordings: dict[str, list[Object]]) -> None:
    """Writes one line per object, with its fields in order."""
    texts = [
        f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(dataclasses.astuple(o), separators=(",", ":")) for o in objects) + "\n]"
        for name, objects in recordings.items()]
    RECORDINGS.write_text("{\n" + ",\n".join(texts) + "\n}\n")


def load(lab: Lab, namespace: str, loader: str, url: str, page: str) -> Load:
    """Loads a page that pages.write has put below URL, over new connections."""
    out = lab.run(namespace, str(BINARY), "-protocol", loader, "-page", page, str(RECORDINGS), url, timeout=LOAD_SECONDS)
    result = Load(**json.loads(out))
    if (result.objects, result.bytes) != (pages.objects(page), pages.size(page)):
        raise Failed(f"{page}: {result.objects} objects of {result.bytes} bytes came")
    return result
