# SPDX-License-Identifier: Apache-2.0
"""Chromium comes by HTTP/2, and from then on by HTTP/3."""

import collections
import pathlib
from collections.abc import Iterator

import pytest

from chromium import Chromium
from harness import HOST, Authority, Gateway, wait_until

PROTOCOLS = "performance.getEntriesByType('{}').map(entry => entry.nextHopProtocol)"


@pytest.fixture
def chromium(tmp_path: pathlib.Path, authority: Authority) -> Iterator[Chromium]:
    with Chromium(tmp_path, authority) as chromium:
        yield chromium


def test_upgrade(chromium: Chromium, gateway: Gateway) -> None:
    url = f"https://{gateway.authority}/page.html"
    chromium.load(f"{url}?first")
    assert chromium.evaluate(PROTOCOLS.format("navigation")) == ["h2"]

    # Chromium may well race TCP against QUIC, until QUIC has worked once.
    loads = 0

    def upgraded() -> bool:
        nonlocal loads
        loads += 1
        chromium.load(f"{url}?{loads}")
        return chromium.evaluate(PROTOCOLS.format("navigation")) == ["h3"]

    wait_until(upgraded, "HTTP/3 after Alt-Svc")
    chromium.load(f"{url}?last")
    assert chromium.evaluate(PROTOCOLS.format("navigation")) == ["h3"]
    assert collections.Counter(chromium.evaluate(PROTOCOLS.format("resource"))) == {"h3": 100}
    assert chromium.evaluate("performance.getEntriesByType('resource').every(e => e.responseStatus == 200)")

    live = [c for c in gateway.status()["connections"] if not c["closed"]]
    assert any(c["stats"]["packets_sent"] > 100 for c in live), live


def test_upload(chromium: Chromium, gateway: Gateway) -> None:
    """10 MB, the same as the other peers; the browser and the origin each hash them.

    They are sent as a Blob: DevTools repeats other bodies in its notifications, and stops there when they are as large as this."""
    upload = f"https://upload.{HOST}:{gateway.port}/"
    chromium.load(f"https://{gateway.authority}/page.html")
    chromium.evaluate(f"fetch('{upload}1')")
    result = chromium.evaluate(f"""(async () => {{
        const body = new Uint8Array(10e6)
        for (let i = 0; i < body.length; i += 65536)
            crypto.getRandomValues(body.subarray(i, i + 65536))
        const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', body))
        const sent = Array.from(digest, b => b.toString(16).padStart(2, '0')).join('')
        const response = await fetch('{upload}', {{method: 'POST', body: new Blob([body])}})
        return [sent, await response.text()]
    }})()""")
    assert result[0] == result[1]
