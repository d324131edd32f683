# SPDX-License-Identifier: Apache-2.0
"""Headless Chromium in a namespace, driven by the DevTools protocol over a pair of pipes."""

from __future__ import annotations

import dataclasses
import json
import os
import select
import time
from typing import Any

from lab.namespaces import Failed, Lab, stop

BINARY = "/usr/bin/chromium"
START_SECONDS = 120
ANSWER_SECONDS = 60
LOAD_SECONDS = 120

SWITCHES = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps",
    "--disable-extensions", "--no-proxy-server",
    # Keeps frames of another site in the page's process, so that their requests are seen, too.
    "--disable-site-isolation-trials",
    "--disable-features=OptimizationHints,MediaRouter,HttpsUpgrades,IsolateOrigins,site-per-process",
    "--metrics-recording-only", "--disable-domain-reliability", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 10.77.*,"
    " EXCLUDE 198.51.100.*", "--remote-debugging-pipe",
)

# From the start of the navigation to the end of the load event, ms.
LOAD_MS = "performance.getEntriesByType('navigation')[0]?.loadEventEnd || 0"


@dataclasses.dataclass
class Load:
    ms: float
    objects: int
    protocols: set[str]  # ALPN names


class Chromium:
    """Trusts the key PIN (Base64 of its SHA-256). It speaks QUIC to ORIGINS (host:port), and no QUIC if there are none."""

    def __init__(self, lab: Lab, namespace: str, pin: str, origins: list[str], http2: bool = True) -> None:
        self._lab = lab
        self._name = f"chromium-{len(lab.processes)}"
        paths = [lab.dir / f"{self._name}.{end}" for end in ("in", "out")]
        for path in paths:
            os.mkfifo(path)
        quic = f"--origin-to-force-quic-on={','.join(origins)}" if origins else "--disable-quic"
        self._process = lab.start(
            namespace, "sh", "-c", 'in=$1 out=$2; shift 2; exec "$@" 3<"$in" 4>"$out"', "sh", *map(str, paths),
            "env", f"HOME={lab.dir}", BINARY, *SWITCHES, quic, *([] if http2 else ["--disable-http2"]), f"--ignore-certificate-errors-spki-list={pin}",
            f"--user-data-dir={lab.dir / self._name}", "about:blank", log=f"{self._name}.log")
        # Opened for reading and writing: such an open of a FIFO does not wait for the other end.
        self._write, self._read = (os.open(path, os.O_RDWR) for path in paths)
        self._buffer = b""
        self._number = 0
        self._tab = ""
        self.events: list[dict[str, Any]] = []  # of the last load, in the protocol's form
        self._call("Browser.getVersion", seconds=START_SECONDS)

    def _call(self, method: str, session: str | None = None, seconds: float = ANSWER_SECONDS, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + seconds
        while True:
            while b"\0" in self._buffer:
                line, _, self._buffer = self._buffer.partition(b"\0")
                answer = json.loads(line)
                if "method" in answer:
                    self.events.append(answer)
                elif answer.get("id") == self._number:
                    if "error" in answer:
                        raise Failed(f"Chromium: {method}: {answer['error']}")
                    result: dict[str, Any] = answer["result"]
                    return result
            if self._process.poll() is not None:
                raise Failed(f"Chromium ended: {self._lab.tail(f'{self._name}.log')}")
            if time.monotonic() > end:
                raise Failed(f"Chromium: {method}: no answer within {seconds:.0f} s")
            if select.select([self._read], [], [], 0.5)[0]:
                self._buffer += os.read(self._read, 1 << 20)

    def load(self, url: str, objects: int) -> Load:
        """Loads a page of that many objects, with an empty cache and no open connections."""
        self.events.clear()
        context = self._call("Target.createBrowserContext")["browserContextId"]
        try:
            target = self._call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
            session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            self._call("Network.enable", session)
            end = time.monotonic() + LOAD_SECONDS
            # Answered when the response begins.
            error = self._call("Page.navigate", session, LOAD_SECONDS, url=url).get("errorText")
            if error:
                raise Failed(f"Chromium: {url}: {error}")
            ms = 0.0
            while not ms:
                time.sleep(0.05)
                ms = self._call("Runtime.evaluate", session, LOAD_SECONDS, expression=LOAD_MS)["result"]["value"]
                if time.monotonic() > end:
                    raise Failed(f"Chromium: {url}: not loaded within {LOAD_SECONDS} s")
        finally:
            self._call("Target.disposeBrowserContext", browserContextId=context)
        answers = [e["params"]["response"] for e in self.events if e["method"] == "Network.responseReceived"]
        bad = [f"{a['url']}: {a['status']}" for a in answers if a["status"] != 200]
        bad += [e["params"]["errorText"] for e in self.events if e["method"] == "Network.loadingFailed"]
        done = sum(e["method"] == "Network.loadingFinished" for e in self.events)
        if bad or done != objects:
            raise Failed(f"Chromium: {url}: {done} objects of {objects} loaded {bad[:3]}")
        return Load(ms, done, {a["protocol"] for a in answers})

    def visit(self, url: str) -> None:
        """Loads a page in the tab of all visits, with the cache and the connections that the browser has kept."""
        if not self._tab:
            target = self._call("Target.createTarget", url="about:blank")["targetId"]
            self._tab = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        end = time.monotonic() + LOAD_SECONDS
        error = self._call("Page.navigate", self._tab, LOAD_SECONDS, url=url).get("errorText")
        if error:
            raise Failed(f"Chromium: {url}: {error}")
        there = f"location.href == {json.dumps(url)} && {LOAD_MS}"
        while not self._call("Runtime.evaluate", self._tab, LOAD_SECONDS, expression=there)["result"]["value"]:
            time.sleep(0.05)
            if time.monotonic() > end:
                raise Failed(f"Chromium: {url}: not loaded within {LOAD_SECONDS} s")

    def run(self, url: str, script: str) -> Any:
        """Opens a page, runs a script there, and returns the value that it gives to arguments[0]."""
        context = self._call("Target.createBrowserContext")["browserContextId"]
        try:
            target = self._call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
            session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            self._call("Page.enable", session)
            self.events.clear()
            self._call("Page.navigate", session, LOAD_SECONDS, url=url)
            end = time.monotonic() + LOAD_SECONDS
            while not any(e["method"] == "Page.loadEventFired" for e in self.events):
                time.sleep(0.05)
                self._call("Browser.getVersion")
                if time.monotonic() > end:
                    raise Failed(f"Chromium: {url}: not loaded within {LOAD_SECONDS} s")
            return self._call("Runtime.evaluate", session, LOAD_SECONDS, awaitPromise=True, returnByValue=True,
                              expression=f"new Promise((over) => (function () {{{script}}})(over))")["result"]["value"]
        finally:
            self._call("Target.disposeBrowserContext", browserContextId=context)

    def close(self) -> None:
        stop(self._process)
        os.close(self._write)
        os.close(self._read)
