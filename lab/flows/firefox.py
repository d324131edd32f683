# SPDX-License-Identifier: Apache-2.0
"""Headless Firefox in a namespace, driven by Marionette: messages LENGTH:JSON over a TCP connection, here through a pair of pipes."""

from __future__ import annotations

import json
import pathlib
import subprocess
import time
from typing import Any

from lab.namespaces import Failed, Lab, own_group, stop

# Loads nothing but the page.
QUIET: dict[str, object] = {
    "network.proxy.type": 0,
    "app.normandy.enabled": False, "app.update.enabled": False, "browser.shell.checkDefaultBrowser": False,
    "browser.startup.homepage_override.mstone": "ignore", "datareporting.policy.dataSubmissionEnabled": False,
    "extensions.update.enabled": False, "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False, "services.settings.server": "", "toolkit.telemetry.enabled": False,
    "browser.safebrowsing.downloads.remote.enabled": False, "trailhead.firstrun.didSeeAboutWelcome": True,
}
PORT = 2828
START_SECONDS = 120
LOAD_SECONDS = 120


def make_profile(directory: pathlib.Path, preferences: dict[str, object]) -> None:
    """Makes Firefox's profile in a new directory. Adds QUIET to the preferences."""
    directory.mkdir()
    (directory / "user.js").write_text("".join(
        f"user_pref({name!r}, {str(value).lower() if isinstance(value, (bool, int)) else repr(value)});\n"
        for name, value in {**QUIET, **preferences}.items()))


class Firefox:
    """Trusts any certificate."""

    def __init__(self, lab: Lab, namespace: str, http2: bool) -> None:
        self._lab = lab
        self._name = f"firefox-{len(lab.processes)}"
        profile = lab.dir / self._name
        make_profile(profile, {
            "network.http.http3.enable": False, "network.http.http2.enabled": http2, "network.http.spdy.enabled.http2": http2})
        self._process = lab.start(
            namespace, "env", f"HOME={lab.dir}", "MOZ_REMOTE_SETTINGS_DEVTOOLS=1", "firefox-esr", "--headless", "--no-remote",
            "--marionette", "--profile", str(profile), log=f"{self._name}.log")
        self._number = 0
        self._pipe = self._connect(namespace)
        self._read()  # its greeting
        self.call("WebDriver:NewSession", acceptInsecureCerts=True)
        self.call("WebDriver:SetTimeouts", pageLoad=LOAD_SECONDS * 1000, script=LOAD_SECONDS * 1000)

    def _connect(self, namespace: str) -> subprocess.Popen[bytes]:
        end = time.monotonic() + START_SECONDS
        while f"127.0.0.1:{PORT} " not in self._lab.run(namespace, "ss", "-Hltn"):
            if self._process.poll() is not None or time.monotonic() > end:
                raise Failed(f"Firefox does not start: {self._lab.tail(f'{self._name}.log')}")
            time.sleep(0.2)
        return subprocess.Popen(
            own_group("ip", "netns", "exec", namespace, "socat", "-", f"TCP:127.0.0.1:{PORT}"),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)

    def _read(self) -> Any:
        assert self._pipe.stdout
        length = b""
        while not length.endswith(b":"):
            more = self._pipe.stdout.read(1)
            if not more:
                raise Failed(f"Firefox ended: {self._lab.tail(f'{self._name}.log')}")
            length += more
        return json.loads(self._pipe.stdout.read(int(length[:-1])))

    def call(self, command: str, **parameters: Any) -> Any:
        assert self._pipe.stdin
        self._number += 1
        message = json.dumps([0, self._number, command, parameters]).encode()
        self._pipe.stdin.write(str(len(message)).encode() + b":" + message)
        self._pipe.stdin.flush()
        _, _, error, result = self._read()
        if error:
            raise Failed(f"Firefox: {command}: {error.get('error')}: {error.get('message')}")
        return result

    def load(self, url: str) -> float:
        """The time until the end of the load event, ms."""
        self.call("WebDriver:Navigate", url=url)
        return float(self.call("WebDriver:ExecuteScript", args=[], script="""
            return performance.getEntriesByType('navigation')[0].loadEventEnd""")["value"])

    def run(self, script: str) -> Any:
        """The value that a script passes to arguments[0]."""
        return self.call("WebDriver:ExecuteAsyncScript", args=[], script=script)["value"]

    def close(self) -> None:
        if self._pipe.stdin:
            self._pipe.stdin.close()
        stop(self._process)
        self._pipe.wait()
        if self._pipe.stdout:
            self._pipe.stdout.close()
