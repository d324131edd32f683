# SPDX-License-Identifier: Apache-2.0
"""Chromium without a window, driven by the DevTools protocol."""

from __future__ import annotations

import contextlib
import itertools
import json
import pathlib
from typing import Any

import websockets.sync.client

from harness import HOST, PATIENCE, Authority, running, wait_until


def switches(profile: pathlib.Path, authority: Authority, address: str = "127.0.0.1") -> list[str]:
    """For Chromium to trust authority's certificate, to find HOST at address, and to ask nobody else for anything."""
    return [
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps",
        "--disable-extensions", "--no-proxy-server",
        f"--host-resolver-rules=MAP {HOST} {address}, MAP *.{HOST} {address}, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        f"--ignore-certificate-errors-spki-list={authority.pin}",
        # By QUIC, only well-known authorities count, but for hosts that are named here; port 1 is nobody's.
        f"--origin-to-force-quic-on={HOST}:1,upload.{HOST}:1",
        f"--user-data-dir={profile}",
    ]


class Chromium:
    """One page of a fresh profile (a context manager)."""

    def __init__(self, directory: pathlib.Path, authority: Authority) -> None:
        profile = directory / "profile"
        self._stack = contextlib.ExitStack()
        self._process = running("/usr/bin/chromium", *switches(profile, authority), "--remote-debugging-port=0", "about:blank",
                                log=directory / "chromium.log")
        self._port = profile / "DevToolsActivePort"
        self._ids = itertools.count(1)

    def __enter__(self) -> Chromium:
        self._stack.enter_context(self._process)
        try:
            wait_until(lambda: self._port.exists() and self._port.read_text().count("\n") == 1, "started: Chromium")
            port, path = self._port.read_text().split("\n")
            self._socket = self._stack.enter_context(
                websockets.sync.client.connect(f"ws://127.0.0.1:{port}{path}", max_size=None, proxy=None, open_timeout=PATIENCE, ping_interval=None))
            target = self._call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            self._call("Network.enable", self._session)
            self._call("Network.setCacheDisabled", self._session, cacheDisabled=True)
            self._call("Page.enable", self._session)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def _call(self, method: str, session: str | None = None, **parameters: object) -> dict[str, Any]:
        number = next(self._ids)
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        self._socket.send(json.dumps(message))
        while True:
            answer = json.loads(self._socket.recv(timeout=PATIENCE))
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page, or of its promise."""
        result = self._call("Runtime.evaluate", self._session, expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def load(self, url: str) -> None:
        """Returns when the page and what it refers to are there."""
        error = self._call("Page.navigate", self._session, url=url).get("errorText")
        assert not error, f"{url}: {error}"
        wait_until(lambda: self.evaluate(f"location.href == {json.dumps(url)} && document.readyState == 'complete'"),
                   f"loaded: {url}")
