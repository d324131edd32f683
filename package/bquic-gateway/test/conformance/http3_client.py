# SPDX-License-Identifier: Apache-2.0
"""An HTTP/3 client over aioquic's QUIC that sends whatever it is told to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pylsqpack
from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.buffer import Buffer, encode_uint_var
from aioquic.h3.connection import ErrorCode
from aioquic.quic import events
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.packet import QuicErrorCode

from harness import HOST, PATIENCE, Authority, Gateway

# Frame types, RFC 9114, section 7.2 and RFC 9218, section 7.1.
DATA, HEADERS, CANCEL_PUSH, SETTINGS, PUSH_PROMISE, GOAWAY, MAX_PUSH_ID = 0, 1, 3, 4, 5, 7, 0xD
PRIORITY_UPDATE, PRIORITY_UPDATE_PUSH = 0xF0700, 0xF0701
# Types of unidirectional streams, RFC 9114, section 6.2 and RFC 9204, section 4.2.
CONTROL, PUSH, ENCODER, DECODER = 0, 1, 2, 3
GREASE = 0x1F * 7 + 0x21  # a reserved type, RFC 9114, section 7.2.8

Fields = list[tuple[bytes, bytes]]


def varint(value: int) -> bytes:
    return encode_uint_var(value)


def frame(kind: int, payload: bytes = b"", length: int | None = None) -> bytes:
    return varint(kind) + varint(len(payload) if length is None else length) + payload


def settings(*pairs: tuple[int, int]) -> bytes:
    return frame(SETTINGS, b"".join(varint(key) + varint(value) for key, value in pairs))


def prefixed(value: int, bits: int, first: int) -> bytes:
    """An integer of HPACK and QPACK, RFC 7541, section 5.1."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([first | value])
    out = bytearray([first | most])
    value -= most
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(name: bytes, value: bytes) -> bytes:
    """A literal field line with literal name, RFC 9204, section 4.5.6: bytes as they are."""
    return prefixed(len(name), 3, 0x20) + name + prefixed(len(value), 7, 0) + value


NO_DYNAMIC_TABLE = b"\0\0"  # Required Insert Count and Base of a field section


def section(fields: Fields) -> bytes:
    return NO_DYNAMIC_TABLE + b"".join(field(name, value) for name, value in fields)


class Client(QuicConnectionProtocol):
    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.authority = b""
        self.closed: events.ConnectionTerminated | None = None
        self.received: dict[int, bytearray] = {}
        self.ended: dict[int, str] = {}  # streams, by "end" or their error
        self._news = asyncio.Event()

    def quic_event_received(self, event: events.QuicEvent) -> None:
        if isinstance(event, events.ConnectionTerminated):
            self.closed = event
        elif isinstance(event, events.StreamDataReceived):
            self.received.setdefault(event.stream_id, bytearray()).extend(event.data)
            if event.end_stream:
                self.ended[event.stream_id] = "end"
        elif isinstance(event, events.StreamReset):
            self.ended[event.stream_id] = _http_error(event.error_code)
        self._news.set()

    async def until(self, condition: object, seconds: float = PATIENCE) -> bool:
        """Whether it became true in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not condition():
                    self._news.clear()
                    await self._news.wait()
        return bool(condition())

    def send(self, stream: int, data: bytes, end: bool = False) -> None:
        if not self.closed:
            self._quic.send_stream_data(stream, data, end)
            self.transmit()

    def open(self, kind: int, data: bytes = b"", end: bool = False) -> int:
        """A unidirectional stream."""
        stream = self._quic.get_next_available_stream_id(is_unidirectional=True)
        self.send(stream, varint(kind) + data, end)
        return stream

    def request(self, *frames: bytes, end: bool = True) -> int:
        stream = self._quic.get_next_available_stream_id()
        self.send(stream, b"".join(frames), end)
        return stream

    def get(self, path: bytes = b"/", method: bytes = b"GET") -> Fields:
        return [(b":method", method), (b":scheme", b"https"), (b":authority", self.authority), (b":path", path)]

    def reset(self, stream: int, code: int) -> None:
        self._quic.reset_stream(stream, code)
        self.transmit()

    def inject(self, frame_type: int, payload: bytes = b"") -> None:
        """Sends a QUIC frame of any kind in a packet of its own, once."""
        ping = self._quic._write_ping_frame

        def write(builder: object, uids: object = (), comment: str = "") -> None:
            self._quic._write_ping_frame = ping
            builder.start_frame(frame_type, capacity=8 + len(payload)).push_bytes(payload)

        self._quic._write_ping_frame = write
        self._quic.send_ping(0)
        self.transmit()

    def connection_outcome(self) -> str:
        code = self.closed.error_code
        # A frame type is there in a CONNECTION_CLOSE by the transport only (RFC 9000, section 19.19).
        if self.closed.frame_type is None:
            return f"connection error {_http_error(code)}"
        return f"connection error {QuicErrorCode(code).name}"

    async def outcome(self, stream: int) -> str:
        """How the gateway answers on a stream, or closes the connection."""
        await self.until(lambda: self.closed or stream in self.ended)
        if self.closed:
            return self.connection_outcome()
        if stream not in self.ended:
            return "nothing"
        if self.ended[stream] != "end":
            return f"stream error {self.ended[stream]}"
        return f"status {self.status(stream)}"

    def status(self, stream: int) -> str:
        buffer = Buffer(data=bytes(self.received.get(stream, b"")))
        while not buffer.eof():
            kind, size = buffer.pull_uint_var(), buffer.pull_uint_var()
            payload = buffer.pull_bytes(size)
            if kind == HEADERS:
                _, fields = pylsqpack.Decoder(0, 0).feed_header(stream, payload)
                return dict(fields)[b":status"].decode()
        return "missing"


def _http_error(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return hex(code)


@contextlib.asynccontextmanager
async def client(gateway: Gateway, authority: Authority) -> AsyncIterator[Client]:
    configuration = QuicConfiguration(is_client=True, alpn_protocols=["h3"], server_name=HOST, max_datagram_frame_size=65536)
    configuration.load_verify_locations(str(authority.ca))
    async with connect("127.0.0.1", gateway.port, configuration=configuration, create_protocol=Client) as connection:
        connection.authority = gateway.authority.encode()
        yield connection
