# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator

import pytest

from harness import HOST, Authority, Gateway
from recorder import Recorder

ORIGIN = f"origin.{HOST}"


@pytest.fixture(scope="session")
def recorder() -> Iterator[Recorder]:
    with Recorder() as recorder:
        yield recorder
        # Also what came after its test had ended.
        assert not recorder.malformed
        assert not [request for request in recorder.requests if request.target == "/smuggled"]


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory, authority: Authority, recorder: Recorder) -> Iterator[Gateway]:
    """A site with a file, one with an origin that records what it is sent, and relays."""
    directory = tmp_path_factory.mktemp("gateway")
    (directory / "www").mkdir()
    (directory / "www" / "index.html").write_text("hello")
    with Gateway(directory / "gateway", authority, [
        {"host": [HOST], "root": directory / "www"},
        {"host": [ORIGIN], "origin": recorder.url},
    ], {"mesh": ["127.0.0.0/8"], "token": "conformance", "connect_from": ["127.0.0.0/8"]}) as gateway:
        yield gateway
