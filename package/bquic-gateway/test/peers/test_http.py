# SPDX-License-Identifier: Apache-2.0
"""curl over TCP: HTTP/1.1 and HTTP/2."""

import pathlib
import subprocess

import pytest

from harness import HOST, PATIENCE, Authority, Gateway

VERSIONS = {"1.1": "--http1.1", "2": "--http2"}


class Curl:
    def __init__(self, gateway: Gateway, authority: Authority, version: str, directory: pathlib.Path) -> None:
        self._gateway, self._version = gateway, version
        self._body = directory / "body"
        self._command = ["curl", "--silent", "--show-error", "--noproxy", "*", "--cacert", authority.ca, VERSIONS[version],
                         "--dump-header", "-", "--output", self._body]

    def __call__(self, path: str, *options: str, host: str = HOST) -> tuple[int, dict[str, str], bytes]:
        self._body.unlink(missing_ok=True)
        run = subprocess.run(
            [*self._command, "--resolve", f"{host}:{self._gateway.port}:127.0.0.1", *options,
             f"https://{host}:{self._gateway.port}{path}"], capture_output=True, timeout=PATIENCE)
        assert run.returncode == 0, run.stderr.decode()
        # The last of them: 100 Continue has headers as well.
        status, *lines = run.stdout.decode().strip().split("\r\n\r\n")[-1].split("\r\n")
        assert status.split()[0] == f"HTTP/{self._version}"
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        return int(status.split()[1]), headers, self._body.read_bytes() if self._body.exists() else b""


@pytest.fixture(params=VERSIONS)
def curl(request: pytest.FixtureRequest, gateway: Gateway, authority: Authority, tmp_path: pathlib.Path) -> Curl:
    return Curl(gateway, authority, request.param, tmp_path)


def test_download(curl: Curl, gateway: Gateway, data: bytes) -> None:
    status, headers, body = curl("/data")
    assert (status, headers["content-length"]) == (200, str(len(data)))
    assert headers["alt-svc"].startswith(f'h3=":{gateway.port}"')
    assert body == data


def test_upload(curl: Curl, data: bytes, sha256: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "upload").write_bytes(data)
    assert curl("/", "--data-binary", f"@{tmp_path}/upload", host="upload.bquic.test")[2].decode() == sha256


def test_upload_of_unknown_length(curl: Curl, data: bytes, sha256: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "upload").write_bytes(data)
    _, _, body = curl("/", "--request", "POST", "--header", "Content-Length:", "--header", "Transfer-Encoding: chunked",
                      "--data-binary", f"@{tmp_path}/upload", host="upload.bquic.test")
    assert body.decode() == sha256


@pytest.mark.parametrize(("asked", "status", "body", "range_"), [
    ("0-3", 206, b"0123", "bytes 0-3/10"),
    ("7-", 206, b"789", "bytes 7-9/10"),
    ("-2", 206, b"89", "bytes 8-9/10"),
    ("5-100", 206, b"56789", "bytes 5-9/10"),
    ("10-", 416, None, "bytes */10"),
    ("x", 416, None, None),
])
def test_range(curl: Curl, asked: str, status: int, body: bytes | None, range_: str | None) -> None:
    got, headers, content = curl("/small.txt", "--header", f"Range: bytes={asked}")
    assert (got, headers.get("content-range")) == (status, range_)
    assert body is None or content == body


def test_not_modified(curl: Curl) -> None:
    _, headers, _ = curl("/small.txt")
    for condition in (f"If-Modified-Since: {headers['last-modified']}", f"If-None-Match: {headers['etag']}"):
        status, _, body = curl("/small.txt", "--header", condition)
        assert (status, body) == (304, b""), condition


def test_range_of_changed_file(curl: Curl) -> None:
    _, headers, _ = curl("/small.txt")
    for etag, answer in ((headers["etag"], (206, b"0")), ('"another"', (200, b"0123456789"))):
        status, _, body = curl("/small.txt", "--header", f"If-Range: {etag}", "--header", "Range: bytes=0-0")
        assert (status, body) == answer


def test_head(curl: Curl) -> None:
    status, headers, _ = curl("/small.txt", "--head")  # curl itself complains about a body
    assert (status, headers["content-length"]) == (200, "10")
