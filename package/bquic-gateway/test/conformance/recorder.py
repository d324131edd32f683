# SPDX-License-Identifier: Apache-2.0
"""An HTTP/1.1 origin that writes down every byte, and reads them more strictly than any server would."""

from __future__ import annotations

import re
import socketserver
import threading

TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
REQUEST_LINE = re.compile(rb"(" + TOKEN + rb") ([!-~]+) HTTP/1\.1")
FIELD = re.compile(rb"(" + TOKEN + rb"):[ \t]*([\t -~\x80-\xff]*?)[ \t]*")


class Malformed(Exception):
    """This is no request."""


class Request:
    """A request at the start of data; size is how much of data it has, None: it is not complete yet."""

    def __init__(self, data: bytes) -> None:
        self.size: int | None = None
        head, found, rest = data.partition(b"\r\n\r\n")
        if not found:
            return
        first, *lines = head.split(b"\r\n")
        line = REQUEST_LINE.fullmatch(first)
        if not line:
            raise Malformed(f"request line {first!r}")
        self.method, self.target = line[1].decode(), line[2].decode()
        self.fields: list[tuple[str, bytes]] = []
        for text in lines:
            field = FIELD.fullmatch(text)
            if not field:
                raise Malformed(f"field {text!r}")
            self.fields.append((field[1].decode().lower(), field[2]))
        if len(self.all("host")) != 1:
            raise Malformed(f"Host {self.all('host')}")
        lengths, codings = self.all("content-length"), self.all("transfer-encoding")
        if len(lengths) + len(codings) > 1:
            raise Malformed(f"Content-Length {lengths}, Transfer-Encoding {codings}")
        consumed = len(head) + 4
        self.body = b""
        if codings:
            if codings != [b"chunked"]:
                raise Malformed(f"Transfer-Encoding {codings}")
            while True:
                match = re.match(rb"([0-9a-f]+)\r\n", rest)
                if not match:
                    if len(rest) > 20:
                        raise Malformed(f"chunk {rest[:20]!r}")
                    return
                size = int(match[1], 16)
                chunk = rest[match.end():match.end() + size + 2]
                if len(chunk) < size + 2:
                    return
                if not chunk.endswith(b"\r\n"):
                    # After the last chunk: trailer fields.
                    raise Malformed(f"end of chunk {chunk[-2:]!r}")
                self.body += chunk[:-2]
                consumed += match.end() + size + 2
                rest = rest[match.end() + size + 2:]
                if size == 0:
                    break
        elif lengths:
            if not re.fullmatch(rb"[0-9]+", lengths[0]):
                raise Malformed(f"Content-Length {lengths}")
            if len(rest) < int(lengths[0]):
                return
            self.body = rest[:int(lengths[0])]
            consumed += len(self.body)
        self.size = consumed

    def all(self, name: str) -> list[bytes]:
        return [value for key, value in self.fields if key == name]

    @property
    def mark(self) -> str:
        """What tells the requests of one test from another's."""
        return b"".join(self.all("x-case")).decode()

    def __str__(self) -> str:
        return f"{self.method} {self.target}" + (f" with {len(self.body)} bytes" if self.body else "")


class _Handler(socketserver.BaseRequestHandler):
    server: Recorder

    def handle(self) -> None:
        data = b""
        while piece := self.request.recv(1 << 16):
            data += piece
            while data:
                try:
                    request = Request(data)
                except Malformed as error:
                    self.server.malformed.append(str(error))
                    return
                if request.size is None:
                    break
                data = data[request.size:]
                self.server.requests.append(request)
                self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


class Recorder(socketserver.ThreadingTCPServer):
    """The requests in their order, and what was none."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[Request] = []
        self.malformed: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
