# SPDX-License-Identifier: Apache-2.0
"""A real `bquic gateway`, certificates, and origins, for tests with other programs and raw protocols."""

from __future__ import annotations

import base64
import contextlib
import datetime
import hashlib
import http.server
import ipaddress
import json
import os
import pathlib
import random
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
BQUIC = REPOSITORY / "build/bquic"
HOST = "bquic.test"  # RFC 6761: never resolves, so that nothing leaves the machine
PATIENCE = 300  # s until a condition counts as never met; generous, for loaded machines


def wait_until(condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"in {seconds:.0f} s: not {what}")
        time.sleep(0.02)


class Authority:
    """A certificate authority, and a certificate from it for HOST, its subdomains, and 127.0.0.1."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.ca = directory / "ca.pem"
        self.certificate = directory / "server.pem"
        self.key = directory / "server.key"
        ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "bquic test authority")])
        ca = self._sign(issuer, ca_key.public_key(), issuer, ca_key, [
            (x509.BasicConstraints(ca=True, path_length=0), True),
            (x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
                           key_encipherment=False, data_encipherment=False, key_agreement=False,
                           encipher_only=False, decipher_only=False), True),
            (x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), False),
        ])
        names = [x509.DNSName(HOST), x509.DNSName(f"*.{HOST}"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HOST)])
        leaf = self._sign(subject, key.public_key(), issuer, ca_key, [
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (x509.SubjectAlternativeName(names), False),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
            (x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), False),
        ])
        pem = serialization.Encoding.PEM
        self.ca.write_bytes(ca.public_bytes(pem))
        self.certificate.write_bytes(leaf.public_bytes(pem) + ca.public_bytes(pem))
        self.key.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
        spki = key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        self.pin = base64.b64encode(hashlib.sha256(spki).digest()).decode()

    @staticmethod
    def _sign(subject: x509.Name, key: ec.EllipticCurvePublicKey, issuer: x509.Name, by: ec.EllipticCurvePrivateKey,
              extensions: list[tuple[x509.ExtensionType, bool]]) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
                   .serial_number(x509.random_serial_number())
                   .not_valid_before(now - datetime.timedelta(days=1))
                   .not_valid_after(now + datetime.timedelta(days=30)))
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(by, hashes.SHA256())


class Gateway:
    """A running gateway on a free port of 127.0.0.1 (a context manager).

    Each element of sites has the options of a `config site`, options those of `config gateway`.
    Values are lists where UCI has lists.
    """

    def __init__(self, directory: pathlib.Path, authority: Authority, sites: list[dict[str, object]],
                 options: dict[str, object] | None = None, command: tuple[str, ...] = ()) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.socket = directory / "status.sock"
        self.log = directory / "gateway.log"
        config = directory / "bquic"
        self.port = free_port()
        section = {
            "enabled": "1", "listen": f"127.0.0.1:{self.port}", "certificate": authority.certificate, "key": authority.key,
            "state_dir": directory, "status_socket": self.socket, "log_level": "debug", **(options or {}),
        }
        config.write_text(_section("gateway", section) + "".join(_section("site", site) for site in sites))
        with self.log.open("w") as log:
            self.process = subprocess.Popen([*command, str(BQUIC), "gateway", "--config", str(config)],
                                            stdout=log, stderr=subprocess.STDOUT)
        try:
            wait_until(lambda: self.process.poll() is not None or self._ready(), "ready: the gateway")
            assert self._ready(), f"the gateway did not start:\n{self.log.read_text()}"
        except BaseException:
            self.stop()
            raise
        self.address = f"127.0.0.1:{self.port}"
        self.authority = f"{HOST}:{self.port}"  # of HTTP requests

    def _ready(self) -> bool:
        return 'msg="gateway ready"' in self.log.read_text()

    def status(self) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(PATIENCE)
            s.connect(str(self.socket))
            s.shutdown(socket.SHUT_WR)
            data = b""
            while piece := s.recv(1 << 16):
                data += piece
        answer: dict[str, Any] = json.loads(data)
        return answer

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError("the gateway did not stop") from None

    def __enter__(self) -> Gateway:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _section(kind: str, options: dict[str, object]) -> str:
    text = f"config {kind}" + (f" '{kind}'" if kind == "gateway" else "") + "\n"
    for name, value in options.items():
        if isinstance(value, list):
            text += "".join(f"\tlist {name} '{item}'\n" for item in value)
        else:
            text += f"\toption {name} '{value}'\n"
    return text + "\n"


class HashingOrigin(http.server.ThreadingHTTPServer):
    """Answers a POST with the SHA-256 of its body (a context manager)."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _HashingHandler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _HashingHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        digest = hashlib.sha256()
        for piece in self._body():
            digest.update(piece)
        self._answer(digest.hexdigest().encode())

    def _answer(self, answer: bytes) -> None:
        self.send_response(200)
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _body(self) -> Iterator[bytes]:
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return
        left = int(self.headers.get("Content-Length", 0))
        while left:
            piece = self.rfile.read(min(left, 1 << 16))
            left -= len(piece)
            yield piece

    def log_message(self, *_: object) -> None:
        pass


# Below the range of ephemeral ports, so that no client takes one before its program does.
_ports = iter(random.sample(range(10000, 32768), 22768))


def free_port() -> int:
    """A port of 127.0.0.1 that is currently free for TCP and UDP, for programs that cannot choose one. No two get the same."""
    for port in _ports:
        with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp, contextlib.suppress(OSError):
            tcp.bind(("127.0.0.1", port))
            udp.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port")


@contextlib.contextmanager
def running(*command: str | pathlib.Path, log: pathlib.Path, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process in its own process group, which ends with the block."""
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True, **options)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 15)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    def open_() -> bool:
        assert process.poll() is None, f"{process.args!r} ended with {process.returncode}"
        with socket.socket() as s:
            s.settimeout(1)
            return s.connect_ex(("127.0.0.1", port)) == 0

    wait_until(open_, f"listening on port {port}")
