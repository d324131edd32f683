# SPDX-License-Identifier: Apache-2.0
"""Applications whose connections are recorded in the place of a relay, and their records.

phone -- node (package/bquic-gateway/src/test/flows) -- server. Nothing is timed, so there is no medium, and other work may run.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
from typing import Any

from lab import ROOT
from lab.medium import build_go
from lab.namespaces import Failed, Lab
from lab.servers import ask, serve_gateway

BINARY = ROOT / "build/lab/flows"
PHONE, NODE, NODE_SERVER, SERVER = "10.77.1.2", "10.77.1.1", "10.77.2.1", "10.77.2.2"
WEB = 8443  # the gateway's port
UPLOADS, UPLOADS_PORT = "uploads.test", 8081  # a site of the gateway whose origin accepts uploads (RFC 6761: never resolves)
END_SECONDS = 60


def build() -> None:
    build_go(BINARY, "./test/flows")


class Recorder:
    """Forwards connections to a port of the node, and records each one."""

    def __init__(self, bench: Bench, address: str, target: int, delay_ms: int, idle_seconds: int) -> None:
        self.port = bench.new_port()
        self.address = address
        self._process = bench.lab.start(
            bench.node, str(BINARY), "-listen", f"{address}:{self.port}", "-to", f"{SERVER}:{target}", "-delay", f"{delay_ms}ms", "-idle", f"{idle_seconds}s",
            log="flows.log", pipes=True)
        assert self._process.stdout
        if not self._process.stdout.readline():
            raise Failed(f"flows ended: {bench.lab.tail('flows.log')}")

    def end(self) -> list[dict[str, Any]]:
        """Waits for the last connection to end, and returns all of them in the order in which they began."""
        try:
            out, _ = self._process.communicate("", timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            raise Failed("a connection did not end") from None
        return sorted((json.loads(line) for line in out.splitlines()), key=lambda r: float(r["start"]))


class Bench:
    """The namespaces, and a gateway that serves a directory by HTTP/1.1 and HTTP/2."""

    def __init__(self, lab: Lab, nodes: int = 1) -> None:
        self.lab = lab
        self._port = 20000
        self.phone, self.node, self.server = (lab.namespace(name) for name in ("phone", "node", "server"))
        lab.veth(self.phone, "wan", f"{PHONE}/24", self.node, "lan", f"{NODE}/24")
        lab.veth(self.node, "wan", f"{NODE_SERVER}/24", self.server, "lan", f"{SERVER}/24")
        lab.route(self.phone, "default", NODE)
        lab.route(self.server, "default", NODE_SERVER)
        self.nodes = [NODE]
        for i in range(1, nodes):
            self.nodes.append(f"10.77.1.{100 + i}")
            lab.run(self.node, "ip", "addr", "add", f"{self.nodes[-1]}/32", "dev", "lan")
        self.root = lab.dir / "site"
        self.root.mkdir()
        socket = serve_gateway(lab, self.server, "gateway", WEB, f"""
config site
	list host '*'
	option root '{self.root}'

config site
	list host '{UPLOADS}'
	list origin 'http://127.0.0.1:{UPLOADS_PORT}'
""")
        self.spki = str(ask(lab, self.server, socket)["pin"]).removeprefix("sha256/")
        self.certificate, self.key = lab.dir / "state/cert.pem", lab.dir / "state/key.pem"

    def new_port(self) -> int:
        self._port += 1
        return self._port

    def record(self, target: int = WEB, delay_ms: int = 0, node: int = 0, idle_seconds: int = 0) -> Recorder:
        return Recorder(self, self.nodes[node], target, delay_ms, idle_seconds)

    def path(self, name: str) -> pathlib.Path:
        return self.lab.dir / name

