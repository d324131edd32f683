# SPDX-License-Identifier: Apache-2.0
"""An HTTP/3 client of aioquic. As a program it downloads once:

    aioquic_client.py ADDRESS PORT CA.pem PATH
"""

from __future__ import annotations

import asyncio
import dataclasses
import pathlib
import sys
from collections import defaultdict

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, H3Event, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import QuicEvent

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
from harness import HOST, PATIENCE  # noqa: E402


@dataclasses.dataclass
class Response:
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    body: bytearray = dataclasses.field(default_factory=bytearray)
    done: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)


class _Client(QuicConnectionProtocol):
    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.http = H3Connection(self._quic)
        self.responses: dict[int, Response] = defaultdict(Response)

    def quic_event_received(self, event: QuicEvent) -> None:
        for e in self.http.handle_event(event):
            self._http_event(e)

    def _http_event(self, event: H3Event) -> None:
        if not isinstance(event, (HeadersReceived, DataReceived)):
            return
        response = self.responses[event.stream_id]
        if isinstance(event, HeadersReceived):
            response.headers.update((k.decode(), v.decode()) for k, v in event.headers)
        else:
            response.body += event.data
        if event.stream_ended:
            response.done.set()


def request(port: int, ca: pathlib.Path, method: str, path: str, body: bytes = b"", host: str = HOST,
            address: str = "127.0.0.1") -> Response:
    """One request over a connection of its own."""
    async def run() -> Response:
        configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, server_name=HOST)
        configuration.load_verify_locations(str(ca))
        async with connect(address, port, configuration=configuration, create_protocol=_Client) as client:
            stream = client._quic.get_next_available_stream_id()
            client.http.send_headers(stream, [
                (b":method", method.encode()), (b":scheme", b"https"), (b":authority", f"{host}:{port}".encode()),
                (b":path", path.encode()),
            ], end_stream=not body)
            if body:
                client.http.send_data(stream, body, end_stream=True)
            client.transmit()
            await asyncio.wait_for(client.responses[stream].done.wait(), PATIENCE)
            return client.responses[stream]

    return asyncio.run(run())


if __name__ == "__main__":
    _address, _port, _ca, _path = sys.argv[1:]
    _response = request(int(_port), pathlib.Path(_ca), "GET", _path, address=_address)
    sys.exit(_response.headers[":status"] != "200")
