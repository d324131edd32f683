# SPDX-License-Identifier: Apache-2.0
"""Behind the gateway: nginx and Caddy, WebSocket, server-sent events."""

import asyncio
import http.server
import os
import pathlib
import queue
import ssl
import subprocess
import threading
from collections.abc import Iterator

import pytest
import websockets.asyncio.client
import websockets.exceptions
import websockets.sync.server

import aioquic_client
from harness import HOST, PATIENCE, Authority, Gateway, free_port, running, wait_for_port

NGINX = """
user root;
daemon off;
master_process off;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
events {{}}
http {{
    access_log off;
    client_max_body_size 0;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    server {{
        listen 127.0.0.1:{plain};
        listen 127.0.0.1:{tls} ssl http2;
        ssl_certificate {certificate};
        ssl_certificate_key {key};
        root {root};
        dav_methods PUT;
        add_header X-Origin "nginx $server_protocol $http_host" always;
    }}
}}
"""

CADDY = """{{
    admin off
    auto_https off
}}
(site) {{
    bind 127.0.0.1
    header X-Origin "caddy {{http.request.proto}} {{http.request.hostport}}"
    @echo method POST
    respond @echo "{{http.request.body}}"
    root * {root}
    file_server
}}
http://:{plain} {{
    import site
}}
https://:{tls} {{
    import site
    tls {certificate} {key}
}}
"""


class Origin:
    def __init__(self, directory: pathlib.Path, data: bytes) -> None:
        self.root = directory / "www"
        self.root.mkdir(mode=0o777, parents=True)
        (self.root / "data").write_bytes(data)
        self.plain, self.tls = free_port(), free_port()


@pytest.fixture(scope="module")
def nginx(tmp_path_factory: pytest.TempPathFactory, authority: Authority, data: bytes) -> Iterator[Origin]:
    directory = tmp_path_factory.mktemp("nginx")
    origin = Origin(directory, data)
    config = directory / "nginx.conf"
    config.write_text(NGINX.format(directory=directory, certificate=authority.certificate, key=authority.key,
                                   **vars(origin)))
    with running("nginx", "-p", directory, "-e", directory / "error.log", "-c", config, log=directory / "nginx.log") as process:
        wait_for_port(origin.tls, process)
        yield origin


@pytest.fixture(scope="module")
def caddy(tmp_path_factory: pytest.TempPathFactory, authority: Authority, data: bytes) -> Iterator[Origin]:
    directory = tmp_path_factory.mktemp("caddy")
    origin = Origin(directory, data)
    config = directory / "Caddyfile"
    config.write_text(CADDY.format(certificate=authority.certificate, key=authority.key, **vars(origin)))
    # It begins with either of its two ports.
    with running("caddy", "run", "--adapter", "caddyfile", "--config", config, log=directory / "caddy.log",
                 env={**os.environ, "HOME": str(directory), "XDG_DATA_HOME": str(directory), "XDG_CONFIG_HOME": str(directory)}) as process:
        wait_for_port(origin.plain, process)
        wait_for_port(origin.tls, process)
        yield origin


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory, authority: Authority, nginx: Origin, caddy: Origin) -> Iterator[Gateway]:
    sites: list[dict[str, object]] = []
    for name, origin in {"nginx": nginx, "caddy": caddy}.items():
        sites.append({"host": [f"{name}-plain.{HOST}"], "origin": f"http://127.0.0.1:{origin.plain}"})
        sites.append({"host": [f"{name}-tls.{HOST}"], "origin": f"https://127.0.0.1:{origin.tls}", "origin_ca": authority.ca})
    with Gateway(tmp_path_factory.mktemp("proxy"), authority, sites) as gateway:
        yield gateway


@pytest.mark.parametrize("name", ["nginx", "caddy"])
@pytest.mark.parametrize(("kind", "protocol"), [("plain", "HTTP/1.1"), ("tls", "HTTP/2.0")])
def test_download(proxy: Gateway, authority: Authority, data: bytes, name: str, kind: str, protocol: str) -> None:
    host = f"{name}-{kind}.{HOST}"
    response = aioquic_client.request(proxy.port, authority.ca, "GET", "/data", host=host)
    assert response.headers[":status"] == "200"
    assert response.headers["x-origin"] == f"{name} {protocol} {host}:{proxy.port}"
    assert bytes(response.body) == data


@pytest.mark.parametrize("kind", ["plain", "tls"])
def test_upload_to_nginx(proxy: Gateway, authority: Authority, nginx: Origin, data: bytes, kind: str) -> None:
    response = aioquic_client.request(proxy.port, authority.ca, "PUT", f"/{kind}", data, host=f"nginx-{kind}.{HOST}")
    assert response.headers[":status"] == "201"
    assert (nginx.root / kind).read_bytes() == data


@pytest.mark.parametrize("kind", ["plain", "tls"])
def test_upload_to_caddy(proxy: Gateway, authority: Authority, data: bytes, kind: str) -> None:
    text = data[:3_000_000].hex().encode()  # what Caddy echoes must be text
    response = aioquic_client.request(proxy.port, authority.ca, "POST", "/", text, host=f"caddy-{kind}.{HOST}")
    assert response.headers[":status"] == "200"
    assert bytes(response.body) == text


async def talk(gateway: Gateway, authority: Authority) -> None:
    """Has each message sent back reversed. Not with websockets' threads: two of them would use one TLS connection at once, which ssl cannot."""
    tls = ssl.create_default_context(cafile=str(authority.ca))
    async with asyncio.timeout(PATIENCE), websockets.asyncio.client.connect(
            f"wss://{gateway.authority}/chat", ssl=tls, proxy=None, open_timeout=PATIENCE, ping_timeout=PATIENCE, host="127.0.0.1", port=gateway.port) as client:
        for message in ("hello", os.urandom(500_000), "bye"):
            await client.send(message)
            assert await client.recv() == message[::-1]
        await client.close(code=4000)


def test_websocket(tmp_path: pathlib.Path, authority: Authority) -> None:
    """Both ways, until the client closes; each side sees what the other says."""
    closed: queue.Queue[int | None] = queue.Queue()

    def echo(connection: websockets.sync.server.ServerConnection) -> None:
        try:
            while True:
                connection.send(connection.recv()[::-1])
        except websockets.exceptions.ConnectionClosed:
            closed.put(connection.close_code)

    with websockets.sync.server.serve(echo, "127.0.0.1", 0, open_timeout=PATIENCE) as origin:
        threading.Thread(target=origin.serve_forever, daemon=True).start()
        port = origin.socket.getsockname()[1]
        with Gateway(tmp_path, authority, [{"host": ["*"], "origin": f"http://127.0.0.1:{port}"}]) as gateway:
            asyncio.run(talk(gateway, authority))
            assert closed.get(timeout=PATIENCE) == 4000
        origin.shutdown()


class Events(http.server.BaseHTTPRequestHandler):
    """Sends an event when the test says so."""

    protocol_version = "HTTP/1.1"
    go: queue.Queue[str]

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        while event := self.go.get(timeout=PATIENCE):
            self.wfile.write(f"data: {event}\n\n".encode())
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("version", ["--http1.1", "--http2"])
def test_server_sent_events(tmp_path: pathlib.Path, authority: Authority, version: str) -> None:
    """An event arrives before the next one is sent: nothing is held back."""
    handler = type("Handler", (Events,), {"go": queue.Queue()})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as origin:
        origin.daemon_threads = True
        threading.Thread(target=origin.serve_forever, daemon=True).start()
        with Gateway(tmp_path, authority, [{"host": ["*"], "origin": f"http://127.0.0.1:{origin.server_port}"}]) as gateway:
            with subprocess.Popen(["curl", "-sN", "--noproxy", "*", "--max-time", str(PATIENCE), version, "--cacert", authority.ca,
                                   "--resolve", f"{gateway.authority}:127.0.0.1", f"https://{gateway.authority}/"],
                                  stdout=subprocess.PIPE, text=True) as curl:
                for number in range(5):
                    handler.go.put(f"event {number}")
                    assert curl.stdout.readline() == f"data: event {number}\n"
                    assert curl.stdout.readline() == "\n"
                handler.go.put("")
                assert curl.wait(PATIENCE) == 0
        origin.shutdown()
