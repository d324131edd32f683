# SPDX-License-Identifier: Apache-2.0
"""Pages: their number of objects by kind, and their size.

The pages of PAPER have the objects of WCNC 2019, table II, and refer to all of them directly.

The pages of TODAY resemble current pages, which discover many objects late. The median desktop page has 71 requests for
2.65 MB, among them 18 images of 1.05 MB and 24 scripts of 0.6 MB (HTTP Archive, Web Almanac 2024, page weight). There are
ten kinds of page, from light to heavy, with the median page in the middle. Half of their scripts block the parser, and some
of their objects are named only by other objects: images by style sheets and scripts, scripts by scripts, images in frames by
frames.
"""

from __future__ import annotations

import pathlib
import random
import struct
import zlib

# Numbers of HTML, CSS, JS, images and others, and kB. Contents and the sizes of single objects are our choice.
PAPER = {
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
TODAY = {
    "text": (1, 1, 0, 2, 0, 40),
    "login": (1, 1, 4, 2, 1, 180),
    "timetable": (1, 2, 6, 3, 8, 350),
    "blog": (1, 3, 9, 8, 3, 700),
    "documentation": (1, 3, 12, 6, 4, 900),
    "weather": (3, 2, 16, 14, 12, 1300),
    "forum": (2, 3, 12, 40, 4, 1600),
    "median": (2, 8, 24, 18, 19, 2650),
    "shop": (3, 6, 30, 45, 12, 3400),
    "news": (8, 6, 48, 38, 20, 4500),
}
PAGES = PAPER | TODAY


def drawn(number: int) -> tuple[int, int, int, int, int, int]:
    """A random page. Half are as an origin of today's pages: 70 objects in the median, a tenth fewer than 20, a tenth more than 180 (HTTP
    Archive). Half are light, as is most of what a browser loads from any further origin of a page."""
    source = random.Random(f"drawn {number}")
    count = source.randint(1, 12) if number % 2 else int(min(220, max(6, source.lognormvariate(0, 0.9) * 70)))
    weights = [source.expovariate(1 / share) for share in (0.05, 0.1, 0.33, 0.3, 0.2)]
    kinds = source.choices(range(5), weights, k=count - 1)
    kb = sum(min(500.0, max(1.0, source.lognormvariate(0, 1) * 18)) for _ in range(count))
    html, css, js, png, other = (kinds.count(i) for i in range(5))
    return html + 1, css, js, png, other, int(kb) + 1


DRAWN = {f"drawn {i}": drawn(i) for i in range(1, 101)}
# Kinds of page that were held out at first.
MORE = {
    "search results": (1, 2, 7, 14, 2, 260),
    "parked domain": (1, 0, 1, 0, 0, 9),
    "captive portal": (1, 1, 1, 1, 0, 35),
    "sign-in button": (2, 1, 2, 1, 0, 95),
    "advertisement": (1, 0, 2, 1, 1, 60),
    "font server": (1, 1, 0, 0, 3, 88),
    "analytics": (1, 0, 1, 1, 0, 48),
    "comments": (1, 1, 3, 12, 2, 310),
    "recipe": (1, 4, 18, 22, 9, 2100),
    "gallery": (1, 2, 6, 90, 0, 9500),
    "map": (1, 2, 9, 64, 6, 2300),
    "bank": (2, 5, 22, 9, 7, 1900),
    "web mail": (3, 4, 16, 25, 30, 3300),
    "wiki article": (1, 2, 4, 15, 2, 620),
    "municipality": (1, 6, 14, 11, 8, 2900),
    "newspaper": (6, 5, 62, 55, 35, 5200),
    "auction": (2, 4, 26, 80, 11, 4100),
    "school": (1, 3, 5, 6, 2, 5600),
    "single-page application": (1, 1, 5, 4, 26, 2400),
    "personal page": (1, 1, 0, 5, 0, 150),
    "weblog entry": (1, 2, 6, 9, 3, 830),
    "hotel": (2, 4, 31, 36, 12, 3800),
    "dictionary": (1, 2, 8, 4, 5, 540),
    "tracker": (1, 0, 1, 0, 1, 24),
    "picture host": (1, 0, 0, 7, 0, 1300),
    "script host": (1, 0, 5, 0, 0, 410),
    "consent dialog": (2, 1, 4, 0, 1, 230),
    "button": (1, 1, 0, 1, 0, 18),
    "error page": (1, 1, 0, 0, 0, 12),
    "library catalogue": (1, 3, 9, 21, 4, 760),
    "radio station": (2, 3, 19, 13, 8, 2200),
    "television guide": (1, 4, 22, 70, 14, 4700),
    "club": (1, 2, 4, 12, 1, 2700),
    "price comparison": (1, 3, 17, 52, 9, 1900),
    "job offers": (1, 3, 21, 16, 10, 1700),
    "encyclopedia": (1, 2, 3, 28, 1, 1100),
    "microblog": (1, 2, 11, 33, 18, 3100),
    "source code": (1, 6, 34, 8, 11, 1500),
    "railway": (2, 3, 14, 6, 15, 1250),
    "cooking forum": (3, 3, 9, 26, 3, 1400),
}
# These were held out next.
STILL_MORE = {
    "museum": (1, 3, 12, 24, 6, 4300),
    "bus stop": (1, 1, 3, 4, 4, 210),
    "cinema": (1, 4, 17, 31, 9, 2800),
    "online course": (2, 5, 28, 14, 18, 3500),
    "petition": (1, 2, 10, 5, 3, 620),
    "press photographs": (1, 1, 4, 38, 1, 6100),
    "widget": (1, 1, 2, 2, 1, 75),
    "style host": (1, 3, 0, 0, 2, 190),
    "image host": (1, 0, 0, 12, 0, 700),
    "beacon": (1, 0, 1, 1, 0, 15),
    "notice": (1, 1, 0, 2, 0, 90),
    "housing": (2, 3, 24, 45, 11, 3300),
    "tax office": (1, 3, 8, 3, 6, 980),
    "pharmacy": (2, 4, 33, 29, 10, 2500),
    "mailing list": (1, 1, 1, 1, 0, 130),
    "football": (3, 4, 41, 42, 17, 4400),
    "classified ads": (1, 2, 15, 60, 7, 1700),
    "parish": (1, 3, 6, 8, 3, 1900),
    "software download": (1, 2, 7, 6, 2, 480),
    "discussion": (1, 2, 6, 18, 4, 560),
}


def pictures(number: int) -> tuple[int, int, int, int, int, int]:
    """A random page of a few things and some pictures, which make most of it: 40 to 400 kB each."""
    source = random.Random(f"pictures {number}")
    each, count = 40 * 10 ** source.random(), int(2 * 20 ** source.random())
    css, js = source.randint(0, 2), source.randint(0, 4)
    return 1, css, js, count, 0, int(min(8000, each * count)) + 25 * (1 + css + js)


PICTURES = {f"pictures {i}": pictures(i) for i in range(1, 25)}
# For judging a classifier only (lab/experiments/flows.py): kinds of page that are neither above nor drawn.
HELD_OUT = {
    "ferry": (1, 2, 9, 4, 5, 420),
    "theatre": (1, 3, 14, 19, 7, 3100),
    "hardware store": (3, 5, 27, 52, 9, 3000),
    "podcast": (1, 2, 12, 16, 4, 1500),
    "hiking route": (1, 2, 8, 48, 9, 2700),
    "animal shelter": (1, 2, 5, 22, 2, 4600),
    "wedding pictures": (1, 1, 2, 30, 1, 7200),
    "comic": (1, 1, 3, 5, 0, 1900),
    "outages": (1, 1, 3, 1, 3, 140),
    "second factor": (1, 1, 5, 1, 2, 260),
    "icon host": (1, 0, 0, 20, 0, 90),
    "video previews": (1, 2, 13, 60, 6, 1800),
    "exam results": (1, 1, 2, 0, 0, 60),
    "court": (1, 4, 7, 5, 4, 760),
    "insurance": (2, 4, 30, 17, 9, 2600),
    "open data": (1, 3, 18, 9, 22, 1900),
    "headlines": (1, 1, 2, 1, 4, 70),
    "travel guide": (2, 3, 22, 41, 8, 4900),
    "code playground": (2, 3, 26, 3, 8, 2300),
    "tag": (1, 0, 2, 0, 0, 45),
}
KNOWN = PAGES | DRAWN | MORE | STILL_MORE | PICTURES | HELD_OUT
LATE = 0.4  # share of the objects of TODAY that another object than the page names, if there is one
LEAST_BYTES = 300  # of an object
NAMED_BY = {"html": ("png",), "css": ("png",), "js": ("js", "png", "bin")}  # the kinds that an object of that kind can name
NAME_BYTES = 130  # at most, to name an object
SPREAD = 1.0  # sigma of the lognormal distribution of object sizes


def objects(name: str) -> int:
    return sum(KNOWN[name][:5])


def size(name: str) -> int:
    return KNOWN[name][5] * 1000


def write(root: pathlib.Path, name: str, other: str | None = None) -> str:
    """Makes a page below root and returns its path in URLs. OTHER: an origin
    (https://host:port) for every second object."""
    source = random.Random(name)  # the same page in every run
    path = f"pages/{name.replace(' ', '-')}{'-2' if other else ''}"
    directory = root / path
    directory.mkdir(parents=True, exist_ok=True)
    kinds = [kind for kind, n in zip(("html", "css", "js", "png", "bin"), KNOWN[name]) for _ in range(n)]
    weights = [source.lognormvariate(0, SPREAD) for _ in kinds]
    # The first object is the page itself: it must have room for its references.
    least = [LEAST_BYTES + len(cookie(name)) + 120 * len(kinds)] + [LEAST_BYTES] * (len(kinds) - 1)
    spare = size(name) - sum(least)
    if spare < 0:  # many objects in few bytes
        raise ValueError(f"{name}: {size(name)} bytes are too few for {len(kinds)} objects")
    sizes = [m + int(spare * w / sum(weights)) for m, w in zip(least, weights)]
    sizes[0] += size(name) - sum(sizes)
    parents = parents_of(name, kinds, sizes)
    urls = [f"{other}/{path}/{i}.{kind}" if other and i % 2 else f"{i}.{kind}" for i, kind in enumerate(kinds)]
    for i, (kind, length) in enumerate(zip(kinds, sizes)):
        if i:
            children = "".join(reference(kind, kinds[k], urls[k], k) for k in range(len(kinds)) if k and parents[k] == i)
            (directory / f"{i}.{kind}").write_bytes(content(kind, length, source, children))
    links = [
        link(kinds[k], urls[k], blocks=name not in PAPER and k % 2 == 0) if parents[k] == 0
        else f'<i class="n{k}"></i>' if kinds[parents[k]] == "css" else "" for k in range(1, len(kinds))]
    page = f'<!doctype html><title>{name}</title><link rel="icon" href="data:,">{cookie(name)}'.encode() + "\n".join(filter(None, links)).encode()
    (directory / "index.html").write_bytes(page + filler(sizes[0] - len(page), "<!--", "-->", source))
    return f"/{path}/"


def cookie(name: str) -> str:
    """A script for half of the pages that are not in PAGES: the browser's further requests have a cookie."""
    source = random.Random(f"{name}: cookie")
    if name in PAGES or source.random() < 0.5:
        return ""
    return f"<script>document.cookie='s={source.randbytes(int(min(1000, source.lognormvariate(0, 0.8) * 120))).hex()};path=/'</script>"


def parents_of(name: str, kinds: list[str], sizes: list[int]) -> list[int]:
    """The object that names each object: 0 is the page."""
    parents = [0] * len(kinds)
    if name in PAPER:
        return parents
    source = random.Random(f"{name}: who names whom")
    room = {i: length - LEAST_BYTES // 2 for i, length in enumerate(sizes) if kinds[i] in NAMED_BY}
    for i, kind in enumerate(kinds):
        able = [p for p in room if 0 < p < i and room[p] >= NAME_BYTES and kind in NAMED_BY[kinds[p]]]
        if able and source.random() < LATE:
            parents[i] = source.choice(able)
            room[parents[i]] -= NAME_BYTES
    return parents


def reference(by: str, kind: str, url: str, number: int) -> str:
    """The text by which an object of a kind names another, so that the page's load event waits for it."""
    if by == "html":
        return link(kind, url)
    if by == "css":
        return f"i.n{number}{{background:url({url})}}"
    if kind == "js":
        return f'{{let s=document.createElement("script");s.src="{url}";document.head.append(s)}}'
    if kind == "png":
        return f'new Image().src="{url}";'
    return f'{{let s=document.createElement("link");s.rel="stylesheet";s.media="print";s.href="{url}";document.head.append(s)}}'


def link(kind: str, url: str, blocks: bool = False) -> str:
    """The reference of a document to an object."""
    return {
        "html": f'<iframe src="{url}"></iframe>',
        "css": f'<link rel="stylesheet" href="{url}">',
        "js": f'<script{"" if blocks else " async"} src="{url}"></script>',
        "png": f'<img src="{url}">',
        "bin": f'<link rel="stylesheet" media="print" href="{url}">',  # loaded, but not used
    }[kind]


def content(kind: str, length: int, source: random.Random, names: str = "") -> bytes:
    """An object of that size, valid for a browser and poorly compressible. NAMES: its references to other objects."""
    if kind == "png":
        def chunk(name: bytes, data: bytes) -> bytes:
            return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

        head = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
        tail = chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")
        # A private ancillary chunk (PNG, 3rd edition, section 5.4).
        return head + chunk(b"raNd", source.randbytes(length - len(head) - len(tail) - 12)) + tail
    if kind == "html":
        return b"<!doctype html>" + names.encode() + filler(length - 15 - len(names), "<!--", "-->", source)
    return names.encode() + filler(length - len(names), "/*", "*/", source)


def filler(length: int, begin: str, end: str, source: random.Random) -> bytes:
    n = length - len(begin) - len(end)
    if n < 0:
        raise ValueError(f"{length} bytes are too few")
    return (begin + source.randbytes((n + 1) // 2).hex()[:n] + end).encode()
