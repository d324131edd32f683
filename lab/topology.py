# SPDX-License-Identifier: Apache-2.0
"""The networks that experiments run in."""

from __future__ import annotations

from lab.medium import Kind, Medium
from lab.namespaces import CUBIC, Lab


def warm_up(lab: Lab, namespace: str, target: str) -> None:
    """Sets up block-ack agreements in both directions, by a burst and its echo. The
    first one may take 0.2 s, and an agreement made under load longer."""
    lab.run(namespace, "ping", "-q", "-c", "60", "-l", "30", "-i", "0.01", "-s", "1400", "-w", "10", target)


class Mesh:
    """phone -- node ~~~ medium ~~~ gateway -- origin

    The phone is wired to the mesh node, so that there is only the medium between
    the two ends, and an RTT of BEYOND_MS between gateway and origin.
    """

    PHONE = "10.77.1.2"
    NEIGHBOUR = "10.77.1.3"  # another client of the node, once the phone has this address, too
    NODE = "10.77.1.1"  # towards the phone
    NODE_MESH = "10.77.2.1"
    GATEWAY = "10.77.2.2"
    # The Internet beyond the gateway (RFC 5737): a relay leaves private addresses alone.
    GATEWAY_WIRE = "198.51.100.1"
    ORIGIN = "198.51.100.2"
    WORLD = "198.51.100.0/24"
    PREFIX = "10.77.0.0/16"
    NODE_DEVICE = "lan"  # the node's device towards the phone

    def __init__(self, lab: Lab, kind: Kind, hops: int = 1, seed: int = 1, ap: str = "mac80211", beyond_ms: float = 0) -> None:
        self.kind, self.hops, self.ap = kind, hops, ap
        self.ends(lab, beyond_ms)
        flags = [*kind.flags, "--seed", str(seed)]
        if kind.wireless:
            flags += ["--hops", str(hops), "--ap", ap]
        self.medium = Medium(lab, flags, [f"{self.node}/mesh", f"{self.gateway}/mesh"])
        lab.address(self.node, "mesh", f"{self.NODE_MESH}/24")
        lab.address(self.gateway, "mesh", f"{self.GATEWAY}/24")
        self.routes(lab)
        if kind.wireless:
            warm_up(lab, self.phone, self.ORIGIN)

    def ends(self, lab: Lab, beyond_ms: float = 0) -> None:
        """Makes the namespaces, and all but what is between node and gateway."""
        self.beyond: Medium | None = None
        self.phone, self.node, self.gateway, self.origin = (
            lab.namespace(name) for name in ("phone", "node", "gateway", "origin")
        )
        lab.run(self.node, "sysctl", "-qw", "net.ipv4.tcp_early_demux=0")  # as the package's init script does
        lab.veth(self.phone, "wan", f"{self.PHONE}/24", self.node, self.NODE_DEVICE, f"{self.NODE}/24")
        if beyond_ms:
            self.beyond = Medium(
                lab, ["--wired", "1Gbps", "--delay", str(beyond_ms / 2), "--queue", "10000"],
                [f"{self.gateway}/wire", f"{self.origin}/wire"])
            lab.address(self.gateway, "wire", f"{self.GATEWAY_WIRE}/24")
            lab.address(self.origin, "wire", f"{self.ORIGIN}/24")
        else:
            lab.veth(self.gateway, "wire", f"{self.GATEWAY_WIRE}/24", self.origin, "wire", f"{self.ORIGIN}/24")
        lab.route(self.phone, "default", self.NODE)
        lab.route(self.origin, "default", self.GATEWAY_WIRE)

    def add_client(self, lab: Lab, address: str) -> None:
        """Gives the phone a further address, for what another client of the node does."""
        lab.run(self.phone, "ip", "addr", "add", f"{address}/32", "dev", "wan")

    def routes(self, lab: Lab) -> None:
        """Adds the routes between node and gateway, which have the addresses NODE_MESH and GATEWAY."""
        lab.route(self.node, "default", self.GATEWAY)
        lab.route(self.gateway, "10.77.1.0/24", self.NODE_MESH)
        self.greet(lab)

    def greet(self, lab: Lab) -> None:
        """Fills the neighbour tables, before any measurement."""
        lab.run(self.phone, "ping", "-q", "-c", "2", "-i", "0.05", "-w", "10", self.ORIGIN)


class Loopback(Mesh):
    """Both ends in one namespace, without a medium between them."""

    def __init__(self, lab: Lab) -> None:
        self.phone = self.gateway = self.origin = lab.namespace("loopback")
        lab.run(self.gateway, "ip", "addr", "add", f"{Mesh.GATEWAY}/32", "dev", "lo")


class TwoPaths(Mesh):
    """phone -- node == two wires of equal cost == gateway -- origin

    Node and gateway spread flows over both wires by a hash of addresses and ports, each for its direction.
    """

    DEVICES = ("path0", "path1")

    def __init__(self, lab: Lab, kind: Kind, second: Kind, seed: int) -> None:
        self.kind, self.hops, self.ap = kind, 1, "mac80211"
        self.ends(lab)
        # One medium for each wire; the second one's lag counts, too.
        self.medium, self.other = (
            Medium(lab, [*of.flags, "--seed", str(seed)], [f"{self.node}/{device}", f"{self.gateway}/{device}"])
            for of, device in zip((kind, second), self.DEVICES))
        ends = ((self.node, self.NODE_MESH, 1), (self.gateway, self.GATEWAY, 2))
        for namespace, address, host in ends:
            lab.run(namespace, "sysctl", "-qw", "net.ipv4.fib_multipath_hash_policy=1", "net.ipv4.conf.all.rp_filter=0")
            lab.run(namespace, "ip", "addr", "add", f"{address}/32", "dev", "lo")
            for i, device in enumerate(self.DEVICES):
                lab.address(namespace, device, f"10.77.{3 + i}.{host}/24")
        for namespace, target, source, host in (
            (self.node, "default", self.NODE_MESH, 2), (self.gateway, "10.77.1.0/24", self.GATEWAY, 1), (self.gateway, self.NODE_MESH, self.GATEWAY, 1),
        ):
            hops = [word for i, device in enumerate(self.DEVICES) for word in ("nexthop", "via", f"10.77.{3 + i}.{host}", "dev", device)]
            lab.run(namespace, "ip", "route", "add", target, "src", source, *CUBIC, *hops)
        self.greet(lab)

    def pin(self, lab: Lab, address: str) -> None:
        """Sends everything to a client over the second wire."""
        lab.run(self.gateway, "ip", "route", "add", f"{address}/32", "via", "10.77.4.1", *CUBIC)


class Cell:
    """An access point, 10.78.0.1, and its stations, from 10.78.0.2 on.

    Every device is called "wlan". Sockets, qdiscs and filters of the access
    point's device are those of the real kernel. The queues behind it belong to
    the medium, and give no backpressure.
    """

    PREFIX = "10.78.0.0/24"
    DEVICE = "wlan"

    def __init__(self, lab: Lab, stations: int, standard: str = "11n", seed: int = 1, ap: str = "mac80211") -> None:
        self.ap = lab.namespace("ap")
        self.stations = [lab.namespace(f"sta{i}") for i in range(1, stations + 1)]
        flags = ["--stations", str(stations), "--standard", standard, "--ap", ap, "--seed", str(seed)]
        everyone = [self.ap, *self.stations]
        self.medium = Medium(lab, flags, [f"{name}/{self.DEVICE}" for name in everyone])
        for i, name in enumerate(everyone):
            lab.address(name, self.DEVICE, f"{self.address(i)}/24")
        for name in self.stations:
            warm_up(lab, name, self.address(0))

    @staticmethod
    def address(index: int) -> str:
        """Index 0 is the access point, the stations follow from 1 on."""
        return f"10.78.0.{index + 1}"

    def mac(self, lab: Lab, index: int) -> str:
        """Like address, for the MAC address."""
        name = self.stations[index - 1] if index else self.ap
        return lab.run(name, "cat", f"/sys/class/net/{self.DEVICE}/address").strip()
