# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 frames, and how connections end."""

import asyncio
import pathlib

import hpack
import pytest
from hyperframe.frame import (ContinuationFrame, Frame, HeadersFrame, PingFrame, PushPromiseFrame, RstStreamFrame, SettingsFrame,
                              WindowUpdateFrame)

from cases import Case, name_of
from harness import HOST, PATIENCE, Authority, Gateway
from http2_client import PREFACE, Http2, data, headers
from http3_client import HEADERS, client, frame, section

FINE = "status 200"
PROTOCOL = "connection error PROTOCOL_ERROR"
SIZE = "connection error FRAME_SIZE_ERROR"


def request(c: Http2, stream: int = 1, end: bool = True, method: bytes = b"GET") -> HeadersFrame:
    return headers(stream, [(b":method", method), (b":scheme", b"https"), (b":authority", c.authority), (b":path", b"/")], end)


def send(*frames: bytes | Frame):
    """Frames of which none needs a request before it."""
    return lambda c: c.send(*frames, request(c))


def after(*frames: bytes | Frame, end: bool = False):
    return lambda c: c.send(request(c, end=end), *frames)


def raw(kind: int, flags: int, stream: int, payload: bytes, length: int | None = None) -> bytes:
    return (len(payload) if length is None else length).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def continuations(c: Http2) -> None:
    """The flood of CVE-2024-27316: a header section without end."""
    block = hpack.Encoder().encode([(b":method", b"GET")])
    c.send(HeadersFrame(1, block), *(ContinuationFrame(1, b"\x00\x01x\x7f\x81\x7d" + b"y" * 16_380) for _ in range(400)))


def bomb(c: Http2) -> None:
    """One field in the dynamic table, and references to it."""
    encoder = hpack.Encoder()
    block = encoder.encode([(b":method", b"GET"), (b":scheme", b"https"), (b":authority", c.authority), (b":path", b"/"),
                            (b"x", b"y" * 3900)], huffman=False)
    c.send(HeadersFrame(1, block + encoder.encode([(b"x", b"y" * 3900)]) * 12_000, flags=["END_HEADERS", "END_STREAM"]))


def section_of(block: bytes):
    return lambda c: c.send(HeadersFrame(1, block, flags=["END_HEADERS", "END_STREAM"]))


FRAMES = [
    Case("a good request", "RFC 9113 8.1", FINE, send()),
    Case("a frame of unknown type", "RFC 9113 5.5", FINE, send(raw(0x42, 0xFF, 0, b"x"))),
    Case("DATA on stream 0", "RFC 9113 6.1", PROTOCOL, send(data(1, b"x").serialize()[:5] + bytes(4) + b"x")),
    Case("DATA on a stream that is idle", "RFC 9113 5.1", PROTOCOL, send(data(1, b"x"))),
    Case("HEADERS on a stream that belongs to the server", "RFC 9113 5.1.1", PROTOCOL, lambda c: c.send(request(c, stream=2))),
    Case("a stream below one that was used", "RFC 9113 5.1.1", PROTOCOL, lambda c: c.send(request(c, stream=5), request(c, stream=3))),
    Case("HEADERS on a closed stream", "RFC 9113 5.1", "connection error STREAM_CLOSED",
         lambda c: (c.send(request(c)), c.outcome(), c.send(request(c))), PROTOCOL, "only the code differs"),
    Case("SETTINGS with a length that is not a multiple of 6", "RFC 9113 6.5", SIZE, send(raw(4, 0, 0, b"x"))),
    Case("SETTINGS ACK with a payload", "RFC 9113 6.5", SIZE, send(raw(4, 1, 0, bytes(6)))),
    Case("SETTINGS on a stream", "RFC 9113 6.5", PROTOCOL, send(raw(4, 0, 1, b""))),
    Case("INITIAL_WINDOW_SIZE above 2^31 - 1", "RFC 9113 6.5.2", "connection error FLOW_CONTROL_ERROR",
         send(raw(4, 0, 0, b"\0\4" + b"\xff" * 4))),
    Case("MAX_FRAME_SIZE of 1", "RFC 9113 6.5.2", PROTOCOL, send(raw(4, 0, 0, b"\0\5" + b"\0\0\0\1"))),
    Case("a frame above MAX_FRAME_SIZE", "RFC 9113 4.2", SIZE, send(raw(0, 0, 1, bytes((1 << 20) + 1)))),
    Case("PING of 7 bytes", "RFC 9113 6.7", SIZE, send(raw(6, 0, 0, bytes(7)))),
    Case("PING on a stream", "RFC 9113 6.7", PROTOCOL, send(raw(6, 0, 1, bytes(8)))),
    Case("PUSH_PROMISE from a client", "RFC 9113 8.4", PROTOCOL, send(PushPromiseFrame(1, 2, b"", flags=["END_HEADERS"]))),
    Case("CONTINUATION without HEADERS", "RFC 9113 6.10", PROTOCOL, send(ContinuationFrame(1, b"", flags=["END_HEADERS"]))),
    Case("another frame between HEADERS and CONTINUATION", "RFC 9113 6.10", PROTOCOL,
         lambda c: c.send(HeadersFrame(1, b"\x82"), PingFrame(0, bytes(8)))),
    Case("RST_STREAM of an idle stream", "RFC 9113 6.4", PROTOCOL, send(RstStreamFrame(1, 8))),
    Case("WINDOW_UPDATE of 0 on the connection", "RFC 9113 6.9", PROTOCOL, send(raw(8, 0, 0, bytes(4)))),
    Case("WINDOW_UPDATE above 2^31 - 1", "RFC 9113 6.9.1", "connection error FLOW_CONTROL_ERROR",
         send(WindowUpdateFrame(0, (1 << 31) - 1))),
    Case("padding longer than its frame", "RFC 9113 6.1", PROTOCOL, after(raw(0, 8, 1, b"\xff"))),
    Case("a header block that cannot be decoded", "RFC 9113 4.3", "connection error COMPRESSION_ERROR", section_of(b"\xff\xff\xff\xff\xff\xff\xff")),
    Case("a table size above what is offered", "RFC 7541 6.3", "connection error COMPRESSION_ERROR", section_of(b"\x3f\xe1\xff\x7f")),
    Case("a header section without end (CONTINUATION flood)", "RFC 9113 10.5.1", "connection error ENHANCE_YOUR_CALM, or connection closed", continuations),
    Case("a bomb: 12,000 references to a field of 3,900 bytes", "RFC 9113 10.5.1", "status 431", bomb),
]

CASES = {"HTTP/2 frames": FRAMES}


@pytest.mark.parametrize("case", FRAMES, ids=name_of)
def test_frame(gateway: Gateway, authority: Authority, case: Case) -> None:
    with Http2(gateway, authority, PREFACE + SettingsFrame().serialize()) as c:
        case.act(c)
        outcome = c.outcome()
        # The request may have been answered before, and what it still has to send may not be wanted (RFC 9113, section 8.1).
        for early in ("status", "stream error NO_ERROR"):
            if case.expected.startswith("connection error") and outcome.startswith(early):
                outcome = c.outcome()
        assert outcome in case.expected.split(", or ")


def test_bad_preface(gateway: Gateway, authority: Authority) -> None:
    with Http2(gateway, authority, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") as c:
        assert c.outcome() in ("connection closed", PROTOCOL)


def test_goaway(tmp_path: pathlib.Path, authority: Authority) -> None:
    """A gateway that is told to stop says so on every connection (RFC 9114, section 5.2, and RFC 9113, section 6.8)."""
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "index.html").write_text("hello")

    async def run() -> None:
        with Gateway(tmp_path / "gateway", authority, [{"host": [HOST], "root": tmp_path / "www"}]) as gateway:
            async with client(gateway, authority) as c:
                assert await c.outcome(c.request(frame(HEADERS, section(c.get())))) == FINE
                gateway.process.terminate()
                assert await c.until(lambda: c.closed, PATIENCE)
                assert c.connection_outcome() == "connection error H3_NO_ERROR"
                # SETTINGS and then GOAWAY on the control stream, which is the server's first unidirectional one.
                assert bytes(c.received[3]).endswith(b"\x07\x01\x04")

    asyncio.run(run())
