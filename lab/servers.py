# SPDX-License-Identifier: Apache-2.0
"""What clients download from: gateways, origins, Caddy; and the relay in between."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

from lab import BQUIC, ROOT
from lab.namespaces import Lab, stop
from lab.topology import Mesh

TOKEN = "lab-relay-token"
TUNED = "tuned"  # a profile with extra options
UPLOAD_PORT = 8080


def serve_gateway(lab: Lab, namespace: str, name: str, port: int, config: str, program: pathlib.Path = BQUIC) -> pathlib.Path:
    """Starts a gateway and returns its status socket. CONFIG continues its section, and may add others."""
    path, socket = lab.dir / f"{name}.conf", lab.dir / f"{name}.sock"
    path.write_text(f"""
config gateway
	option enabled '1'
	option listen ':{port}'
	option state_dir '{lab.dir}/state'
	option status_socket '{socket}'
	option log_level 'warn'
{config}""")
    lab.serve("bquic gateway", namespace, str(program), "gateway", "--config", str(path), log=f"{name}.log", ready=socket.exists)
    return socket


def ask(lab: Lab, namespace: str, socket: pathlib.Path, program: pathlib.Path = BQUIC) -> dict[str, Any]:
    """The status of the daemon that has this socket."""
    said = json.loads(lab.run(namespace, str(program), "status", "--json", "--socket", str(socket)))
    answer: dict[str, Any] = said["gateway"] or said["relay"]
    return answer


class Servers:
    """Serves one random file from the mesh's gateway and origin to the contenders."""

    def __init__(self, lab: Lab, mesh: Mesh, size: int, options: list[str] | None = None, uploads: bool = False) -> None:
        """With UPLOADS, gateways take uploads for a server beside them instead."""
        self.lab, self.mesh = lab, mesh
        self._taker = UPLOAD_PORT if uploads else None
        if uploads:
            lab.serve("the server for uploads", mesh.gateway, sys.executable, str(ROOT / "lab/flows/uploads.py"), str(UPLOAD_PORT),
                      log="uploads.log", ready=lambda: f":{UPLOAD_PORT}" in lab.run(mesh.gateway, "ss", "-Hltn"))
        self._options = options or []  # NAME=VALUE of a profile that replaces the contenders' profiles
        self._sites: dict[str, str] = {}
        self._sockets: dict[str, pathlib.Path] = {}
        self._relay: subprocess.Popen[str] | None = None
        # The servers' root, in the lab's directory.
        self.root = lab.dir / "site"
        self.root.mkdir(exist_ok=True)
        self.serve(size)

    def serve(self, size: int) -> None:
        """Serves another file from now on."""
        data = os.urandom(size)
        (self.root / "data").write_bytes(data)
        self.size, self.sha256 = size, hashlib.sha256(data).hexdigest()

    def config(self, contender: str) -> tuple[pathlib.Path, str]:
        """A UCI file with the contender's profile, and the profile's name."""
        if self._options:
            lines = [f"config profile '{TUNED}'", f"\toption base '{contender}'"]
            for option in self._options:
                name, _, value = option.partition("=")
                lines.append(f"\toption {name} '{value}'")
            text, profile = "\n".join(lines) + "\n", TUNED
        else:
            text, profile = "\n", contender  # a file without a byte is one for which there was no room
        path = self.lab.dir / f"profile-{contender}"
        path.write_text(text)
        return path, profile

    def gateway(self, profile: str, place: str = "gateway") -> str:
        """The URL of the file on a gateway."""
        return f"{self.site(profile, place)}/data"

    def site(self, profile: str, place: str = "gateway") -> str:
        """https://HOST:PORT of a gateway with that profile for the mesh, started on demand."""
        key = f"{place}-{profile}"
        if key in self._sites:
            return self._sites[key]
        namespace, host = {
            "gateway": (self.mesh.gateway, Mesh.GATEWAY),
            "origin": (self.mesh.origin, Mesh.ORIGIN),
        }[place]
        own, name = self.config(profile)
        port = 8443 + len(self._sites)
        self._sockets[key] = serve_gateway(self.lab, namespace, key, port, f"""
	list mesh '{Mesh.PREFIX}'
	option mesh_profile '{name}'
	option token '{TOKEN}'
	list connect_from '{Mesh.PREFIX}'
	list connect_to '{Mesh.WORLD}'

config site
	list host '*'
	{f"list origin 'http://127.0.0.1:{self._taker}'" if self._taker else f"option root '{self.root}'"}

{own.read_text()}""")
        self._sites[key] = f"https://{host}:{port}"
        return self._sites[key]

    def status_socket(self, profile: str) -> pathlib.Path:
        return self._sockets[f"gateway-{profile}"]

    def status(self, profile: str) -> dict[str, Any]:
        return ask(self.lab, self.mesh.gateway, self.status_socket(profile))

    def spki(self, profile: str) -> str:
        """The pin of all gateways, as browsers take it."""
        return str(self.status(profile)["pin"]).removeprefix("sha256/")

    def caddy(self, binary: pathlib.Path) -> str:
        if "caddy" not in self._sites:
            self.site("standard")  # makes the certificate that this one uses
            state = self.lab.dir / "state"
            port = 9443
            path = self.lab.dir / "Caddyfile"
            path.write_text(
                "{\n\tadmin off\n\tauto_https off\n\tpersist_config off\n}\n"
                f"https://:{port} {{\n\ttls {state}/cert.pem {state}/key.pem\n"
                f"\troot * {self.root}\n\tfile_server\n}}\n"
            )
            self.lab.serve(
                "caddy", self.mesh.gateway, "env", f"HOME={self.lab.dir}", str(binary), "run", "--config", str(path), "--adapter",
                "caddyfile", log="caddy.log", ready=lambda: f":{port}" in self.lab.run(self.mesh.gateway, "ss", "-Hltn"),
            )
            self._sites["caddy"] = f"https://{Mesh.GATEWAY}:{port}"
        return f"{self._sites['caddy']}/data"

    def relay(self, profile: str, connections: int | str = "auto", udp_ports: Iterable[int] = (), exclude_ports: Iterable[int] = ()) -> str:
        """Starts the node's relay and returns the URL of the file on the origin."""
        url = self.gateway("standard", "origin")
        if self._relay is None:
            gateway = self.site(profile).removeprefix("https://")
            own, name = self.config(profile)
            path = self.lab.dir / "relay.conf"
            socket = self.lab.dir / "relay.sock"
            path.write_text(
                own.read_text()
                + f"""
config relay
	option enabled '1'
	option gateway '{gateway}'
	option pin '{self.status(profile)["pin"]}'
	option token '{TOKEN}'
	option profile '{name}'
	list interface '{Mesh.NODE_DEVICE}'
	option status_socket '{socket}'
	option cpu_share '0'
	option control_share '0'
	option connections '{connections}'
	option log_level 'warn'
{"".join(f"	list udp_port '{port}'{chr(10)}" for port in udp_ports)}{"".join(f"	list exclude_port '{port}'{chr(10)}" for port in exclude_ports)}"""
            )
            # Until it has a connection to the gateway, it lets connections pass.
            self._relay = self.lab.serve(
                "bquic relay", self.mesh.node, str(BQUIC), "relay", "--config", str(path), log="relay.log",
                ready=lambda: socket.exists() and self.relay_status()["state"] == "up" and self.relay_status()["taking"])
        return url

    def relay_status(self) -> dict[str, Any]:
        return ask(self.lab, self.mesh.node, self.lab.dir / "relay.sock")

    def stop_relay(self) -> None:
        if self._relay is not None:
            stop(self._relay)
            self._relay = None

    def endless(self, site: str) -> str:
        """The URL of a file that no run receives to its end."""
        with open(self.root / "endless", "ab") as file:  # which may be in use
            file.truncate(2 << 30)  # sparse
        return f"{site}/endless"

    def neighbour(self, *flags: str) -> subprocess.Popen[str]:
        """Another client of the node, which downloads from the origin until it is stopped. FLAGS are curl's."""
        return self.lab.start(
            self.mesh.phone, "curl", "--silent", "--show-error", "--insecure", "--interface", Mesh.NEIGHBOUR, *flags,
            "--output", "/dev/null", self.endless(self.site("standard", "origin")), log="neighbour.log")
