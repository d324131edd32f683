# SPDX-License-Identifier: Apache-2.0
"""QUIC packets and frames."""

import asyncio
import os
import socket

import pytest

from cases import Case, name_of
from harness import PATIENCE, Authority, Gateway
from http3_client import HEADERS, Client, client, frame, section, varint

ACK_FREQUENCY, IMMEDIATE_ACK = 0xAF, 0x1F  # draft-ietf-quic-ack-frequency
VERSION_1 = 1
WAIT = 1  # s without an answer until there is none, where there should be none; a later one is no failure of the gateway's
NOTHING = "nothing"


def long_header(version: int, destination: bytes, size: int) -> bytes:
    """Like an Initial packet, but it cannot be decrypted."""
    head = bytes([0xC0]) + version.to_bytes(4) + bytes([len(destination)]) + destination + b"\x08" + os.urandom(8)
    head += varint(0) + varint(max(size - len(head) - 3, 64))
    return head + os.urandom(max(size - len(head), 0))


def datagram(payload: bytes):
    """What the gateway answers to a datagram of a stranger within so many seconds."""
    def act(gateway: Gateway, seconds: float) -> str:
        with socket.socket(type=socket.SOCK_DGRAM) as s:
            s.connect(("127.0.0.1", gateway.port))
            s.settimeout(seconds)
            s.send(payload)
            try:
                answer = s.recv(1 << 16)
            except TimeoutError:
                return NOTHING
        assert len(answer) < len(payload) or len(answer) <= 3 * len(payload)
        if not answer[0] & 0x80:
            # Only who knows the token can tell it from a packet, by design (RFC 9000, section 10.3).
            return "stateless reset" if 21 <= len(answer) < len(payload) else f"{len(answer)} bytes"
        if answer[1:5] == bytes(4):
            at = 6 + answer[5]
            versions = answer[at + 1 + answer[at]:]
            offered = [versions[i:i + 4] for i in range(0, len(versions), 4)]
            return "version negotiation" if VERSION_1.to_bytes(4) in offered else "version negotiation without version 1"
        return f"a packet of type {answer[0] >> 4 & 3}"
    return act


DATAGRAMS = [
    Case("an unknown version, 1,200 bytes", "RFC 9000 6.1", "version negotiation", datagram(long_header(0x1A2A3A4A, b"12345678", 1200))),
    Case("an unknown version, 1,199 bytes", "RFC 9000 6.1", NOTHING, datagram(long_header(0x1A2A3A4A, b"12345678", 1199))),
    Case("version 1, an Initial of 1,199 bytes", "RFC 9000 14.1", NOTHING, datagram(long_header(VERSION_1, b"12345678", 1199))),
    Case("version 1, a destination of 7 bytes", "RFC 9000 7.2", NOTHING, datagram(long_header(VERSION_1, b"1234567", 1200))),
    Case("version negotiation from a client", "RFC 9000 6.1", NOTHING, datagram(long_header(0, b"12345678", 1200))),
    Case("a short header with an unknown connection ID", "RFC 9000 10.3", "stateless reset", datagram(b"\x40" + os.urandom(99))),
    Case("a short header, 20 bytes", "RFC 9000 10.3", NOTHING, datagram(b"\x40" + os.urandom(19))),
    Case("one byte", "RFC 9000 5.2", NOTHING, datagram(b"\x40")),
]


def inject(kind: int, *values: int, payload: bytes = b""):
    """Sends a frame after a request that was answered, and then another request."""
    async def act(c: Client) -> str:
        await c.outcome(c.request(frame(HEADERS, section(c.get()))))
        c.inject(kind, b"".join(map(varint, values)) + payload)
        if await c.until(lambda: c.closed, 0.2):
            return c.connection_outcome()
        for _ in range(3):
            answer = await c.outcome(c.request(frame(HEADERS, section(c.get()))))
        return answer
    return act


ACKED = "acknowledged at once"


async def immediate_ack(c: Client) -> str:
    """Asks for an ACK of every 1000th packet or after 10 s, and then for one at once."""
    await c.outcome(c.request(frame(HEADERS, section(c.get()))))
    c.inject(ACK_FREQUENCY, varint(1) + varint(1000) + varint(10_000_000) + varint(0))
    await c.ping()
    for _ in range(10):  # until the gateway has nothing else to send, such as a probe of the path: that comes with an ACK
        acknowledged = asyncio.ensure_future(c.ping())
        await asyncio.sleep(0)
        done, _ = await asyncio.wait([acknowledged], timeout=0.3)
        if not done:
            break
    else:
        return "acknowledged without being asked to"
    c.inject(IMMEDIATE_ACK)
    done, _ = await asyncio.wait([acknowledged], timeout=5)
    return ACKED if done else "not acknowledged in 5 s"


VIOLATION = "connection error PROTOCOL_VIOLATION"
ENCODING = "connection error FRAME_ENCODING_ERROR"
DRAFT = "draft-ietf-quic-ack-frequency"

FRAMES = [
    Case("ACK_FREQUENCY", f"{DRAFT} 4", "status 200", inject(ACK_FREQUENCY, 0, 10, 25_000, 1)),
    Case("ACK_FREQUENCY with a delay below min_ack_delay", f"{DRAFT} 4", VIOLATION, inject(ACK_FREQUENCY, 0, 10, 999, 1)),
    Case("ACK_FREQUENCY with the largest numbers there are", f"{DRAFT} 4", "status 200",
         inject(ACK_FREQUENCY, (1 << 62) - 1, (1 << 62) - 1, 25_000, (1 << 62) - 1)),
    Case("ACK_FREQUENCY cut off", "RFC 9000 12.4", ENCODING, inject(ACK_FREQUENCY, 0, 10)),
    Case("IMMEDIATE_ACK", f"{DRAFT} 5", ACKED, immediate_ack),
    Case("a frame of unknown type", "RFC 9000 12.4", ENCODING, inject(0x3FFF)),
    Case("a frame type in more bytes than it needs", "RFC 9000 12.4", "status 200", inject(0x01, payload=b"\x40\x01")),
    Case("HANDSHAKE_DONE from a client", "RFC 9000 19.20", VIOLATION, inject(0x1E)),
    Case("NEW_TOKEN from a client", "RFC 9000 19.7", VIOLATION, inject(0x07, 1, payload=b"x")),
    Case("an ACK of packets never sent", "RFC 9000 13.1", VIOLATION, inject(0x02, 1 << 30, 0, 0, 0)),
    Case("STREAM on a stream that only the server may send on", "RFC 9000 19.8", "connection error STREAM_STATE_ERROR",
         inject(0x0A, 3, 1, payload=b"x")),
    Case("STREAM on one of the server's streams that is not open", "RFC 9000 19.8", "connection error STREAM_STATE_ERROR",
         inject(0x0A, 1, 1, payload=b"x")),
    Case("STREAM above the limit of streams", "RFC 9000 4.6", "connection error STREAM_LIMIT_ERROR",
         inject(0x0A, 4 * 1_000_000, 1, payload=b"x")),
    Case("STREAM beyond the flow control limit", "RFC 9000 4.1", "connection error FLOW_CONTROL_ERROR",
         inject(0x0E, 40, 1 << 40, 1, payload=b"x")),
    Case("STREAM beyond 2^62 - 1", "RFC 9000 19.8", ENCODING, inject(0x0E, 40, (1 << 62) - 1, 1, payload=b"x")),
    Case("MAX_STREAMS above 2^60", "RFC 9000 19.11", ENCODING, inject(0x12, 1 << 61)),
    Case("RETIRE_CONNECTION_ID of one never issued", "RFC 9000 19.16", VIOLATION, inject(0x19, 1000)),
    Case("NEW_CONNECTION_ID that retires more than it issues", "RFC 9000 19.15", ENCODING,
         inject(0x18, 5, 6, payload=b"\x08" + bytes(24))),
    Case("NEW_CONNECTION_ID of 21 bytes", "RFC 9000 19.15", ENCODING, inject(0x18, 5, 0, payload=b"\x15" + bytes(37))),
    Case("PATH_RESPONSE to no challenge", "RFC 9000 19.18", VIOLATION, inject(0x1B, payload=bytes(8))),
    Case("CRYPTO after the handshake, far ahead", "RFC 9000 7.5", "connection error CRYPTO_BUFFER_EXCEEDED", inject(0x06, 1 << 20, 1, payload=b"x")),
]

CASES = {"QUIC datagrams": DATAGRAMS, "QUIC frames": FRAMES}


@pytest.mark.parametrize("case", DATAGRAMS, ids=name_of)
def test_datagram(gateway: Gateway, case: Case) -> None:
    assert case.act(gateway, WAIT if case.expected == NOTHING else PATIENCE) == case.expected


@pytest.mark.parametrize("case", FRAMES, ids=name_of)
def test_frame(gateway: Gateway, authority: Authority, case: Case) -> None:
    async def outcome() -> str:
        async with client(gateway, authority) as c:
            return await case.act(c)

    assert asyncio.run(outcome()) == case.expected
