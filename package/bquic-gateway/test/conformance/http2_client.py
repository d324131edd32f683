# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 and HTTP/1.1 clients that send whatever they are told to."""

from __future__ import annotations

import re
import socket
import ssl

import hpack
from h2.errors import ErrorCodes
from hyperframe.frame import (DataFrame, Frame, GoAwayFrame, HeadersFrame, RstStreamFrame, SettingsFrame)

from harness import HOST, PATIENCE, Authority, Gateway

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def tls(gateway: Gateway, authority: Authority, protocol: str) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=str(authority.ca))
    context.set_alpn_protocols([protocol])
    connection = socket.create_connection(("127.0.0.1", gateway.port), PATIENCE)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    wrapped = context.wrap_socket(connection, server_hostname=HOST)
    assert wrapped.selected_alpn_protocol() == protocol
    return wrapped


class Http2:
    def __init__(self, gateway: Gateway, authority: Authority, preface: bytes = PREFACE + SettingsFrame().serialize()) -> None:
        self._socket = tls(gateway, authority, "h2")
        self.authority = gateway.authority.encode()
        self._buffer = b""
        self._decoder = hpack.Decoder()
        self.send(preface)

    def __enter__(self) -> Http2:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, *frames: bytes | Frame) -> None:
        try:
            self._socket.sendall(b"".join(f if isinstance(f, bytes) else f.serialize() for f in frames))
        except OSError:
            pass  # outcome tells why

    def _frames(self):
        """What the gateway sends, until it closes the connection."""
        while True:
            while len(self._buffer) >= 9:
                frame, size = Frame.parse_frame_header(memoryview(self._buffer[:9]))
                if len(self._buffer) < 9 + size:
                    break
                frame.parse_body(memoryview(self._buffer[9:9 + size]))
                self._buffer = self._buffer[9 + size:]
                yield frame
            try:
                piece = self._socket.recv(1 << 16)
            except TimeoutError:
                raise
            except OSError:
                return
            if not piece:
                return
            self._buffer += piece

    def outcome(self, stream: int = 1) -> str:
        """How the gateway answers on a stream, or closes the connection."""
        status = ""
        try:
            for frame in self._frames():
                if isinstance(frame, GoAwayFrame) and frame.error_code:
                    return f"connection error {ErrorCodes(frame.error_code).name}"
                if isinstance(frame, RstStreamFrame) and frame.stream_id == stream:
                    return status or f"stream error {ErrorCodes(frame.error_code).name}"
                if isinstance(frame, HeadersFrame):
                    fields = dict(self._decoder.decode(frame.data, raw=True))
                    if frame.stream_id == stream:
                        status = f"status {fields[b':status'].decode()}"
                if isinstance(frame, SettingsFrame) and "ACK" not in frame.flags:
                    self.send(SettingsFrame(flags=["ACK"]))
                if frame.stream_id == stream and "END_STREAM" in frame.flags:
                    return status
        except TimeoutError:
            return status or "nothing"
        return status or "connection closed"


def headers(stream: int, fields: list[tuple[bytes, bytes]], end: bool = True) -> HeadersFrame:
    block = hpack.Encoder().encode(fields, huffman=False)
    return HeadersFrame(stream, block, flags=["END_HEADERS", "END_STREAM"] if end else ["END_HEADERS"])


def data(stream: int, payload: bytes, end: bool = True) -> DataFrame:
    return DataFrame(stream, payload, flags=["END_STREAM"] if end else [])


def http1(gateway: Gateway, authority: Authority, request: bytes) -> list[int]:
    """The statuses of all answers until the gateway closes the connection."""
    answer = b""
    with tls(gateway, authority, "http/1.1") as connection:
        try:
            connection.sendall(request)
            while piece := connection.recv(1 << 16):
                answer += piece
        except TimeoutError:
            return [*_statuses(answer), 0]
        except OSError:  # reset, as what was sent is not read
            pass
    return _statuses(answer)


def _statuses(answer: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) [A-Z]", answer) if status != b"100"]
