# SPDX-License-Identifier: Apache-2.0
import hashlib
import os
from collections.abc import Iterator

import pytest

from harness import Authority, Gateway, HashingOrigin

SIZE = 10_000_000


@pytest.fixture(scope="session")
def data() -> bytes:
    """What is downloaded and uploaded."""
    return os.urandom(SIZE)


@pytest.fixture(scope="session")
def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory, authority: Authority, data: bytes) -> Iterator[Gateway]:
    """Serves data as a file, and hashes uploads to the host upload.bquic.test."""
    directory = tmp_path_factory.mktemp("gateway")
    root = directory / "www"
    root.mkdir()
    (root / "data").write_bytes(data)
    (root / "small.txt").write_text("0123456789")
    # More objects than browsers or servers have streams at once.
    (root / "page.html").write_text("<!doctype html><title>100 objects</title>"
                                    + "".join(f'<script src="object{i}.js"></script>' for i in range(100)))
    for i in range(100):
        (root / f"object{i}.js").write_text("//" + "x" * 5000)
    with HashingOrigin() as origin, Gateway(directory / "gateway", authority, [
        {"host": ["*"], "root": root},
        {"host": ["upload.bquic.test"], "origin": origin.url},
    ]) as gateway:
        yield gateway
