# SPDX-License-Identifier: Apache-2.0
"""Pages with the objects of WCNC 2019, table II: their number by kind, and the page's size."""

from __future__ import annotations

import pathlib
import random
import struct
import zlib

# HTML, CSS, JS, images, others, kB. Content and the sizes of single objects are ours.
PAGES = {
    "google": (2, 1, 3, 5, 1, 56),
    "live": (2, 2, 2, 2, 0, 262),
    "twitter": (6, 1, 4, 2, 3, 421),
    "wikipedia": (1, 1, 2, 20, 1, 441),
    "reddit": (4, 2, 5, 26, 2, 470),
    "yahoo": (16, 13, 5, 48, 4, 839),
    "ebay": (4, 1, 6, 3, 14, 985),
    "instagram": (3, 1, 7, 25, 1, 1409),
    "youtube": (8, 3, 5, 113, 20, 2911),
    "facebook": (1, 1, 8, 123, 1, 3560),
    "amazon": (5, 2, 14, 41, 2, 3723),
}
LEAST_BYTES = 300  # of an object
SPREAD = 1.0  # sigma of the lognormal distribution of object sizes


def objects(name: str) -> int:
    return sum(PAGES[name][:5])


def size(name: str) -> int:
    return PAGES[name][5] * 1000


def write(root: pathlib.Path, name: str, other: str | None = None) -> str:
    """Makes a page below root and returns its path in URLs. OTHER: the origin
    (https://host:port) that every second object comes from."""
    source = random.Random(name)  # the same page in every run
    path = f"pages/{name}{'-2' if other else ''}"
    directory = root / path
    directory.mkdir(parents=True, exist_ok=True)
    kinds = [kind for kind, n in zip(("html", "css", "js", "png", "bin"), PAGES[name]) for _ in range(n)]
    weights = [source.lognormvariate(0, SPREAD) for _ in kinds]
    # The first one is the page itself: it must have room for what it refers to.
    least = [LEAST_BYTES + 120 * len(kinds)] + [LEAST_BYTES] * (len(kinds) - 1)
    spare = size(name) - sum(least)
    if spare < 0:  # many objects in few bytes
        raise ValueError(f"{name}: {size(name)} bytes are too few for {len(kinds)} objects")
    sizes = [m + int(spare * w / sum(weights)) for m, w in zip(least, weights)]
    sizes[0] += size(name) - sum(sizes)
    links = []
    for i, (kind, length) in enumerate(zip(kinds, sizes)):
        if i == 0:
            continue
        file = f"{i}.{kind}"
        (directory / file).write_bytes(content(kind, length, source))
        url = f"{other}/{path}/{file}" if other and i % 2 else file
        links.append({
            "html": f'<iframe src="{url}"></iframe>',
            "css": f'<link rel="stylesheet" href="{url}">',
            "js": f'<script async src="{url}"></script>',
            "png": f'<img src="{url}">',
            "bin": f'<link rel="stylesheet" media="print" href="{url}">',  # loaded, and not used
        }[kind])
    page = f'<!doctype html><title>{name}</title><link rel="icon" href="data:,">'.encode() + "\n".join(links).encode()
    (directory / "index.html").write_bytes(page + filler(sizes[0] - len(page), "<!--", "-->", source))
    return f"/{path}/"


def content(kind: str, length: int, source: random.Random) -> bytes:
    """An object of that size that a browser takes for what it is, and that does not compress well."""
    if kind == "png":
        def chunk(name: bytes, data: bytes) -> bytes:
            return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

        head = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
        tail = chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")
        # A private ancillary chunk (PNG, 3rd edition, section 5.4).
        return head + chunk(b"raNd", source.randbytes(length - len(head) - len(tail) - 12)) + tail
    if kind == "html":
        return b"<!doctype html>" + filler(length - 15, "<!--", "-->", source)
    return filler(length, "/*", "*/", source)


def filler(length: int, begin: str, end: str, source: random.Random) -> bytes:
    n = length - len(begin) - len(end)
    if n < 0:
        raise ValueError(f"{length} bytes are too few")
    return (begin + source.randbytes((n + 1) // 2).hex()[:n] + end).encode()
