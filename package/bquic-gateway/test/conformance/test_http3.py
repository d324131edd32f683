# SPDX-License-Identifier: Apache-2.0
"""HTTP/3 frames, streams, settings and QPACK."""

import asyncio

import pytest

from cases import Case, name_of
from harness import Authority, Gateway
from http3_client import (CANCEL_PUSH, CONTROL, DATA, DECODER, ENCODER, GOAWAY, GREASE, HEADERS, MAX_PUSH_ID, NO_DYNAMIC_TABLE,
                          PRIORITY_UPDATE, PRIORITY_UPDATE_PUSH, PUSH, PUSH_PROMISE, SETTINGS, Client, client, field, frame, prefixed,
                          section, settings, varint)

# An action returns the stream to look at; without one, a request of its own
# shows whether the connection lives.
FINE = "status 200"
UNEXPECTED = "connection error H3_FRAME_UNEXPECTED"
FRAME_ERROR = "connection error H3_FRAME_ERROR"


def connection(code: str) -> str:
    return f"connection error {code}"


def on_control(*frames: bytes, end: bool = False):
    """Sends frames on the control stream, after SETTINGS."""
    return lambda c: c.open(CONTROL, settings() + b"".join(frames), end) and None


def first_on_control(*frames: bytes, end: bool = False):
    return lambda c: c.open(CONTROL, b"".join(frames), end) and None


def on_request(*frames: bytes, end: bool = True):
    """Sends a good HEADERS frame and then these."""
    return lambda c: c.request(frame(HEADERS, section(c.get())), *frames, end=end)


def first_on_request(*frames: bytes, end: bool = True):
    return lambda c: c.request(*frames, end=end)


def block(*lines: bytes):
    """A request whose field section has these lines after the pseudo-header fields."""
    return lambda c: c.request(frame(HEADERS, section(c.get()) + b"".join(lines)))


def bare_block(payload: bytes):
    return lambda c: c.request(frame(HEADERS, payload))


def streams(*kinds: int, end: bool = False):
    def act(c: Client) -> None:
        for kind in kinds:
            c.open(kind, end=end)
    return act


async def reset_control(c: Client) -> None:
    stream = c.open(CONTROL, settings())
    await c.outcome(c.request(frame(HEADERS, section(c.get()))))  # until it has arrived
    c.reset(stream, 0x10C)


def truncated(data: bytes):
    """A stream that ends amid a frame."""
    return lambda c: c.request(data)


def connect(*fields: tuple[bytes, bytes], token: bytes = b"conformance"):
    return lambda c: c.request(frame(HEADERS, section([(b":method", b"CONNECT"), *fields,
                                                       (b"proxy-authorization", b"Bearer " + token)])), end=False)


SKIPPED = "the gateway does not use what it announces, and skips its payload"

FRAMES = [
    Case("a good request", "RFC 9114 4.1", FINE, on_request()),
    Case("a control stream with SETTINGS, then a request", "RFC 9114 6.2.1", FINE, on_control()),
    Case("DATA before HEADERS", "RFC 9114 4.1", UNEXPECTED, first_on_request(frame(DATA, b"x"))),
    Case("a request without any frame", "RFC 9114 4.1", "stream error H3_REQUEST_INCOMPLETE", first_on_request()),
    Case("unknown frame before HEADERS", "RFC 9114 9", FINE,
         lambda c: c.request(frame(GREASE, b"x" * 100), frame(HEADERS, section(c.get())))),
    Case("unknown frame after HEADERS", "RFC 9114 9", FINE, on_request(frame(GREASE, b"x" * 100))),
    *(Case(f"reserved frame {kind:#x} (of HTTP/2) on a request stream", "RFC 9114 7.2.8", UNEXPECTED, first_on_request(frame(kind)))
      for kind in (0x2, 0x6, 0x8, 0x9)),
    Case("reserved frame 0x2 (of HTTP/2) on the control stream", "RFC 9114 7.2.8", UNEXPECTED, on_control(frame(0x2))),
    Case("SETTINGS on a request stream", "RFC 9114 7.2.4", UNEXPECTED, first_on_request(settings())),
    Case("GOAWAY on a request stream", "RFC 9114 7.2.6", UNEXPECTED, first_on_request(frame(GOAWAY, varint(0)))),
    Case("CANCEL_PUSH on a request stream", "RFC 9114 7.2.3", UNEXPECTED, on_request(frame(CANCEL_PUSH, varint(0))),
         FINE, SKIPPED),
    Case("MAX_PUSH_ID on a request stream", "RFC 9114 7.2.7", UNEXPECTED, on_request(frame(MAX_PUSH_ID, varint(0))),
         FINE, SKIPPED),
    Case("PUSH_PROMISE from a client", "RFC 9114 7.2.5", UNEXPECTED, on_request(frame(PUSH_PROMISE, varint(0))), FINE, SKIPPED),
    Case("PUSH_PROMISE on the control stream", "RFC 9114 7.2.5", UNEXPECTED, on_control(frame(PUSH_PROMISE, varint(0))),
         FINE, SKIPPED),
    Case("PRIORITY_UPDATE on a request stream", "RFC 9218 7.2", UNEXPECTED,
         first_on_request(frame(PRIORITY_UPDATE, varint(0) + b"u=1"))),
    Case("PRIORITY_UPDATE on the control stream", "RFC 9218 7.2", FINE, on_control(frame(PRIORITY_UPDATE, varint(0) + b"u=1"))),
    Case("PRIORITY_UPDATE of a stream that is not for requests", "RFC 9218 7.2", connection("H3_ID_ERROR"),
         on_control(frame(PRIORITY_UPDATE, varint(2) + b"u=1"))),
    Case("PRIORITY_UPDATE of a push", "RFC 9218 7.2", connection("H3_ID_ERROR"),
         on_control(frame(PRIORITY_UPDATE_PUSH, varint(0) + b"u=1"))),
    Case("DATA on the control stream", "RFC 9114 7.2.1", UNEXPECTED, on_control(frame(DATA, b"x"))),
    Case("HEADERS on the control stream", "RFC 9114 7.2.2", UNEXPECTED, on_control(frame(HEADERS, NO_DYNAMIC_TABLE))),
    Case("GOAWAY with a wrong length", "RFC 9114 7.1", FRAME_ERROR, on_control(frame(GOAWAY, b"\0\0"))),
    Case("HEADERS cut off by the end of the stream", "RFC 9114 7.1", FRAME_ERROR,
         truncated(frame(HEADERS, b"\0", length=100)), "stream error H3_REQUEST_INCOMPLETE",
         "only this request fails, and the others on the connection go on"),
    Case("a frame header cut off by the end of the stream", "RFC 9114 7.1", FRAME_ERROR, truncated(b"\x01\x40"),
         "stream error H3_REQUEST_INCOMPLETE", "only this request fails, and the others on the connection go on"),
    Case("HEADERS longer than any memory", "RFC 9114 10.5", "status 431",
         first_on_request(frame(HEADERS, b"", length=1 << 61), end=False)),
]

STREAMS = [
    Case("a second control stream", "RFC 9114 6.2.1", connection("H3_STREAM_CREATION_ERROR"),
         lambda c: (c.open(CONTROL, settings()), c.open(CONTROL, settings())) and None),
    Case("the control stream ends", "RFC 9114 6.2.1", connection("H3_CLOSED_CRITICAL_STREAM"), on_control(end=True)),
    Case("the control stream is reset", "RFC 9114 6.2.1", connection("H3_CLOSED_CRITICAL_STREAM"), reset_control),
    Case("a client opens a push stream", "RFC 9114 6.2.2", connection("H3_STREAM_CREATION_ERROR"), streams(PUSH)),
    Case("a second QPACK encoder stream", "RFC 9204 4.2", connection("H3_STREAM_CREATION_ERROR"), streams(ENCODER, ENCODER)),
    Case("a second QPACK decoder stream", "RFC 9204 4.2", connection("H3_STREAM_CREATION_ERROR"), streams(DECODER, DECODER)),
    Case("the QPACK encoder stream ends", "RFC 9204 4.2", connection("H3_CLOSED_CRITICAL_STREAM"), streams(ENCODER, end=True),
         FINE, "the gateway offers no dynamic table and does not read the stream"),
    Case("unidirectional streams of unknown types", "RFC 9114 6.2", FINE, streams(GREASE, 0x54, 0x1234)),
    Case("200 unidirectional streams of unknown types, each ended before the next", "RFC 9114 6.2", FINE,
         lambda c: [c.open(GREASE, end=True) for _ in range(200)] and None),
]

SETTINGS_CASES = [
    Case("unknown settings", "RFC 9114 7.2.4.1", FINE, first_on_control(settings((GREASE, 7), (0x4242, 1)))),
    Case("another frame before SETTINGS", "RFC 9114 6.2.1", connection("H3_MISSING_SETTINGS"),
         first_on_control(frame(GOAWAY, varint(0)))),
    Case("SETTINGS twice", "RFC 9114 7.2.4", UNEXPECTED, on_control(settings())),
    Case("a setting twice", "RFC 9114 7.2.4", connection("H3_SETTINGS_ERROR"),
         first_on_control(settings((GREASE, 1), (GREASE, 2))), FRAME_ERROR, "only the code differs"),
    Case("a setting of HTTP/2 (0x2)", "RFC 9114 7.2.4.1", connection("H3_SETTINGS_ERROR"), first_on_control(settings((2, 1))),
         FINE, "it is ignored, like unknown settings"),
    Case("ENABLE_CONNECT_PROTOCOL of 2", "RFC 8441 3", connection("H3_SETTINGS_ERROR"), first_on_control(settings((8, 2))),
         FRAME_ERROR, "only the code differs"),
    Case("H3_DATAGRAM of 2", "RFC 9297 2.1.1", connection("H3_SETTINGS_ERROR"), first_on_control(settings((0x33, 2))),
         FRAME_ERROR, "only the code differs"),
    Case("SETTINGS that end within a value", "RFC 9114 7.1", FRAME_ERROR, first_on_control(frame(SETTINGS, varint(6) + b"\x80")),
         connection("H3_CLOSED_CRITICAL_STREAM"), "only the code differs"),
    Case("SETTINGS of 1 MiB", "RFC 9114 10.5", connection("H3_EXCESSIVE_LOAD"),
         first_on_control(frame(SETTINGS, b"", length=1 << 20)), FRAME_ERROR, "the gateway refuses them without reading them; only the code differs"),
]

FAILED = "connection error QPACK_DECOMPRESSION_FAILED"
STREAM_ONLY = "stream error QPACK_DECOMPRESSION_FAILED"
NO_STATE = "without a dynamic table, requests share no state, so only this one fails"

QPACK = [
    Case("static table entry that does not exist", "RFC 9204 3.1", FAILED, bare_block(NO_DYNAMIC_TABLE + prefixed(99, 6, 0xC0)),
         STREAM_ONLY, NO_STATE),
    Case("a reference to the dynamic table", "RFC 9204 2.2.3", FAILED, bare_block(NO_DYNAMIC_TABLE + prefixed(0, 6, 0x80)),
         STREAM_ONLY, NO_STATE),
    Case("a post-base reference", "RFC 9204 2.2.3", FAILED, bare_block(NO_DYNAMIC_TABLE + prefixed(0, 4, 0x10)),
         STREAM_ONLY, NO_STATE),
    Case("Required Insert Count of 1", "RFC 9204 2.2.1", FAILED, bare_block(b"\x02\0"), STREAM_ONLY, NO_STATE),
    Case("an integer of 100 bytes", "RFC 7541 5.1", FAILED, bare_block(NO_DYNAMIC_TABLE + b"\xff" + b"\xff" * 99 + b"\0"),
         STREAM_ONLY, NO_STATE),
    Case("a name longer than its section", "RFC 9204 4.5.6", FAILED, bare_block(NO_DYNAMIC_TABLE + prefixed(1 << 40, 3, 0x20) + b"x"),
         STREAM_ONLY, NO_STATE),
    Case("a value longer than its section", "RFC 9204 4.5.6", FAILED,
         bare_block(NO_DYNAMIC_TABLE + prefixed(1, 3, 0x20) + b"x" + prefixed(1 << 40, 7, 0)), STREAM_ONLY, NO_STATE),
    Case("Huffman code with EOS in it", "RFC 7541 5.2", FAILED,
         bare_block(NO_DYNAMIC_TABLE + prefixed(1, 3, 0x20) + b"x" + prefixed(4, 7, 0x80) + b"\xff\xff\xff\xff"), STREAM_ONLY, NO_STATE),
    Case("an empty section", "RFC 9114 4.3.1", "stream error H3_MESSAGE_ERROR", bare_block(NO_DYNAMIC_TABLE)),
    Case("no section at all", "RFC 9204 4.5.1", FAILED, bare_block(b""), STREAM_ONLY, NO_STATE),
    # A reference takes a byte and expands to a field of 60 (RFC 9114, section 4.2.2).
    Case("a bomb: 60,000 references to a field of the static table", "RFC 9114 4.2.2", "status 431",
         block(prefixed(46, 6, 0xC0) * 60_000)),
    Case("fields of 1 MiB", "RFC 9114 4.2.2", "status 431", block(field(b"x", b"y" * (1 << 20)))),
    Case("10,000 different fields", "RFC 9114 4.2.2", "status 431", block(*(field(b"x%d" % i, b"") for i in range(10_000)))),
    Case("fields of 60 KB", "RFC 9114 4.2.2", FINE, block(field(b"x", b"y" * 60_000))),
    Case("dynamic table capacity above what is offered", "RFC 9204 4.3.1", "connection error QPACK_ENCODER_STREAM_ERROR",
         lambda c: c.open(ENCODER, prefixed(4096, 5, 0x20)) and None, FINE, "the gateway offers no dynamic table and does not read the stream"),
]

# RFC 9114 calls these malformed and asks for a stream error; what must not be is an answer of the site or a tunnel.
MALFORMED = "stream error H3_MESSAGE_ERROR"

CONNECT = [
    Case("CONNECT with :scheme and :path", "RFC 9114 4.4", MALFORMED,
         connect((b":scheme", b"https"), (b":authority", b"192.0.2.1:80"), (b":path", b"/"))),
    Case("CONNECT without :authority", "RFC 9114 4.4", MALFORMED, connect()),
    Case("CONNECT with the target in Host only", "RFC 9114 4.4", MALFORMED, connect((b"host", b"192.0.2.1:80"))),
    Case("CONNECT without a token", "RFC 9110 11.7.1", "status 407", connect((b":authority", b"192.0.2.1:80"), token=b"")),
    Case("CONNECT with a wrong token", "RFC 9110 11.7.1", "status 407", connect((b":authority", b"192.0.2.1:80"), token=b"wrong-token")),
    Case("CONNECT to a target without port", "RFC 9110 9.3.6", "status 400", connect((b":authority", b"192.0.2.1"))),
    Case("CONNECT to port 0", "RFC 9110 9.3.6", "status 400", connect((b":authority", b"192.0.2.1:0"))),
    Case("CONNECT to port 65536", "RFC 9110 9.3.6", "status 400", connect((b":authority", b"192.0.2.1:65536"))),
    Case("CONNECT to a target with user information", "RFC 9110 9.3.6", "status 400", connect((b":authority", b"user@192.0.2.1:80"))),
    Case("CONNECT to a target with a path", "RFC 9110 9.3.6", "status 400", connect((b":authority", b"192.0.2.1:80/x"))),
    Case("CONNECT to this machine, 127.0.0.1", "RFC 9110 9.3.6", "status 403", connect((b":authority", b"127.0.0.1:22"))),
    Case("CONNECT to this machine, [::1]", "RFC 9110 9.3.6", "status 403", connect((b":authority", b"[::1]:22"))),
    Case("CONNECT to this machine, [::ffff:127.0.0.1]", "RFC 9110 9.3.6", "status 403", connect((b":authority", b"[::ffff:127.0.0.1]:22"))),
    Case("CONNECT to this machine, 0.0.0.0", "RFC 9110 9.3.6", "status 403", connect((b":authority", b"0.0.0.0:22"))),
    Case("CONNECT to this machine, localhost", "RFC 9110 9.3.6", "status 403", connect((b":authority", b"localhost:22"))),
    Case("extended CONNECT with an unknown protocol", "RFC 9220 3", "status 501",
         connect((b":protocol", b"x"), (b":scheme", b"https"), (b":authority", b"192.0.2.1:80"), (b":path", b"/"))),
    Case(":protocol without CONNECT", "RFC 8441 4", MALFORMED,
         lambda c: c.request(frame(HEADERS, section([*c.get(), (b":protocol", b"websocket")])))),
]

CASES = {"Frames": FRAMES, "Streams": STREAMS, "Settings": SETTINGS_CASES, "QPACK": QPACK, "CONNECT": CONNECT}


async def outcome(gateway: Gateway, authority: Authority, case: Case) -> str:
    async with client(gateway, authority) as c:
        stream = case.act(c)
        if asyncio.iscoroutine(stream):
            stream = await stream
        if case.expected.startswith("connection error"):
            await c.until(lambda: c.closed, 10)
        elif stream is not None:
            return await c.outcome(stream)
        # One request after the other, as an error may take a moment to come.
        for _ in range(3):
            answer = await c.outcome(c.request(frame(HEADERS, section(c.get()))))
        return answer


@pytest.mark.parametrize("case", [case for cases in CASES.values() for case in cases], ids=name_of)
def test_case(gateway: Gateway, authority: Authority, case: Case) -> None:
    assert asyncio.run(outcome(gateway, authority, case)) == case.expected
