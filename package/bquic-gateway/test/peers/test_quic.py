# SPDX-License-Identifier: Apache-2.0
"""QUIC stacks that are not ours carry 10 MB each way over HTTP/3."""

import os
import pathlib
import subprocess

import aioquic_client
from harness import PATIENCE, Authority, Gateway

QUINN = os.environ["QUINN_PEER"]


def test_aioquic_downloads(gateway: Gateway, authority: Authority, data: bytes) -> None:
    response = aioquic_client.request(gateway.port, authority.ca, "GET", "/data")
    assert response.headers[":status"] == "200"
    assert bytes(response.body) == data


def test_aioquic_uploads(gateway: Gateway, authority: Authority, data: bytes, sha256: str) -> None:
    response = aioquic_client.request(gateway.port, authority.ca, "POST", "/", data, host="upload.bquic.test")
    assert (response.headers[":status"], response.body.decode()) == ("200", sha256)


def quinn(gateway: Gateway, authority: Authority, path: str, *upload: pathlib.Path, host: str) -> bytes:
    run = subprocess.run([QUINN, gateway.address, authority.ca, f"https://{host}:{gateway.port}{path}", *upload],
                         capture_output=True, timeout=PATIENCE)
    assert run.returncode == 0, run.stderr.decode()
    return run.stdout


def test_quinn_downloads(gateway: Gateway, authority: Authority, data: bytes) -> None:
    assert quinn(gateway, authority, "/data", host="bquic.test") == data


def test_quinn_uploads(gateway: Gateway, authority: Authority, data: bytes, sha256: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "upload").write_bytes(data)
    assert quinn(gateway, authority, "/", tmp_path / "upload", host="upload.bquic.test").decode() == sha256
