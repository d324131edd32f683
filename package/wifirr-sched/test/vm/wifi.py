# SPDX-License-Identifier: Apache-2.0
"""An access point and stations on mac80211_hwsim, each in a network namespace.

    server -- eth0 [ap: br0, or routed] wlan0 ))) wlan0 station 0..N-1

wifirrd runs in ap on wlan0. Bridged, the server is in the stations' network
(10.9.0.1, fd09::1); routed, it is behind the access point (10.8.0.1, fd08::1).
Stations have 10.9.0.(10+i) and fd09::(10+i).
"""
import math
import os
import re
import signal
import socket
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import bed as middlebox  # noqa: E402
from bed import PATIENCE, WIFIRRD, Daemon, Netns, guard_of, kill_both, run, words_of  # noqa: E402

__all__ = ["PATIENCE", "WIFIRRD", "Bed", "Load", "guard_of", "kill_both_while", "run", "wait_for", "words_of"]

HOSTAPD = """\
interface=wlan0
driver=nl80211
ssid=bed
hw_mode=g
channel=1
wmm_enabled=1
"""


def wait_for(condition, what):
    """Long enough for an emulated machine on a busy one, on which to look takes a tenth of a second and more."""
    return middlebox.wait_for(condition, what, 2 * PATIENCE, 0.3)


class Station(Netns):
    def __init__(self, index):
        super().__init__(f"sta{index}")
        self.index = index
        self.ipv4, self.ipv6 = f"10.9.0.{index + 10}", f"fd09::{index + 10:x}"

    def setup(self, device):
        self("ip", "link", "set", device, "name", "wlan0")
        self.mac = self("cat", "/sys/class/net/wlan0/address").stdout.strip()
        self("ip", "-batch", "-", input="\n".join((
            "link set wlan0 up",
            f"addr add {self.ipv4}/24 dev wlan0",
            f"addr add {self.ipv6}/64 dev wlan0 nodad",
            "route add 10.8.0.0/24 via 10.9.0.2",
            "route add fd08::/64 via fd09::2",
        )))

    def join(self, ssid="bed", **kwargs):
        self("iw", "dev", "wlan0", "connect", ssid, "2412", **kwargs)  # channel 1: no need to scan the others

    def scan(self):
        """
        Forgets what it took the access point for. iw, asked to scan, waits for the kernel to say that it has; in an
        emulated machine that has not come within a minute.
        """
        asked = -math.inf

        def found():
            nonlocal asked
            if time.monotonic() - asked > 5:  # a scan may miss the beacon; one that is under way refuses another
                self("iw", "dev", "wlan0", "scan", "trigger", "flush", "freq", "2412", check=False)
                asked = time.monotonic()
            return "SSID: bed" in self("iw", "dev", "wlan0", "scan", "dump").stdout

        wait_for(found, f"{self.name} found the access point")

    def leave(self):
        self("iw", "dev", "wlan0", "disconnect")

    def connected(self):
        return self("iw", "dev", "wlan0", "link", check=False).stdout.startswith("Connected")


class Bed:
    def __init__(self, stations, control=False, weights=True, channels=1):
        """
        control: hostapd as OpenWrt starts it, with a control socket and its configuration where wifirrd looks for it.
        weights: the driver has airtime weights, as ath9k and ath10k have.
        channels: each wiphy can be on so many at once, as one with several radios.
        """
        # A station that has missed seven beacons asks the access point with a frame, and leaves without a word if its
        # ACK is not there after twice 0.5 s (net/mac80211/mlme.c). On a busy machine it may not be, and a station
        # does not come back by itself.
        run("modprobe", "mac80211", "probe_wait_ms=60000")
        run("modprobe", "mac80211_hwsim", f"radios={stations + 1}", f"channels={channels}")
        self.control, self.has_weights = control, weights
        self.daemons = []
        self.hostapd = None
        self.dir = tempfile.mkdtemp(prefix="wifi-")
        self.ap, self.server = Netns("ap"), Netns("server")
        if weights:  # lab/vm/run --module fairness
            run("insmod", f"{os.environ['VM_MODULE']}/fairness.ko", "device=wlan0")
        run("iw", "phy", "phy0", "set", "netns", "name", "ap")
        self.stations = [Station(i) for i in range(stations)]
        for s in self.stations:
            run("iw", "phy", f"phy{s.index + 1}", "set", "netns", "name", s.name)
            s.setup(f"wlan{s.index + 1}")
        run("ip", "link", "add", "eth0", "netns", "ap", "type", "veth", "peer", "name", "eth0", "netns", "server")
        for ns in self.ap, self.server:
            ns("ip", "link", "set", "eth0", "up")
        self.start_ap()

    def start_ap(self, ht=True, *more):
        """With or without 802.11n; more: lines of its configuration, the last one of a name counts."""
        path = "/var/run/hostapd-phy0.conf" if self.control else os.path.join(self.dir, "hostapd.conf")
        with open(path, "w") as f:
            f.write(f"{HOSTAPD}ieee80211n={int(ht)}\n")
            if self.control:
                f.write("ctrl_interface=/var/run/hostapd\n")
            f.writelines(line + "\n" for line in more)
        log = open(os.path.join(self.dir, "hostapd.log"), "w")
        self.hostapd = self.ap.popen("hostapd", path, stdout=log, stderr=log)
        wait_for(lambda: "type AP" in self.ap("iw", "dev", "wlan0", "info").stdout, "access point")

    def stop_ap(self):
        self.hostapd.terminate()
        self.hostapd.wait(timeout=PATIENCE)

    def again(self, ht=True, *more):
        """Another hostapd in its place, which all stations join."""
        self.stop_ap()
        wait_for(lambda: not any(s.connected() for s in self.stations), "stations noticed")
        self.start_ap(ht, *more)
        self.ap("ip", "link", "set", "wlan0", "master", "br0")
        for s in self.stations:
            s.scan()  # or they take it for what it was before
        self.join(self.stations)

    def join(self, stations, ssid="bed"):
        """
        Again for those that did not get in: iw asks once, and the kernel gives
        up after three times 0.2 s (net/mac80211/mlme.c), in which an access
        point on a busy machine may not have answered.
        """
        for s in stations:
            s.join(ssid, check=False)  # one that still scans refuses
        asked = time.monotonic()

        def joined():
            nonlocal asked
            left = [s for s in stations if not s.connected()]
            if left and time.monotonic() - asked > 5:
                for s in left:
                    s.join(ssid, check=False)  # or still waits for an answer
                asked = time.monotonic()
            return not left

        wait_for(joined, f"{len(stations)} stations connected to {ssid}")

    def weights(self):
        dump = self.ap("iw", "dev", "wlan0", "station", "dump").stdout
        return {mac: int(weight) for mac, weight in
                re.findall(r"^Station (\S+).*?airtime weight: (\d+)", dump, re.M | re.S)}

    def bridged(self):
        self.ap("ip", "link", "add", "br0", "type", "bridge")
        for port in "eth0", "wlan0":
            self.ap("ip", "link", "set", port, "master", "br0")
        self.ap("ip", "link", "set", "br0", "up")
        self.server("ip", "addr", "add", "10.9.0.1/24", "dev", "eth0")
        self.server("ip", "addr", "add", "fd09::1/64", "dev", "eth0", "nodad")

    def unbridged(self):
        self.ap("ip", "link", "del", "br0")
        self.server("ip", "addr", "flush", "dev", "eth0", "scope", "global")

    def routed(self):
        for key in "ipv4.ip_forward", "ipv6.conf.all.forwarding":
            self.ap("sysctl", "-qw", f"net.{key}=1")
        self.address_wlan()
        for address in "10.8.0.2/24", "fd08::2/64":
            self.ap("ip", "addr", "add", address, "dev", "eth0", *nodad(address))
        for address in "10.8.0.1/24", "fd08::1/64":
            self.server("ip", "addr", "add", address, "dev", "eth0", *nodad(address))
        self.server("ip", "route", "add", "10.9.0.0/24", "via", "10.8.0.2")
        self.server("ip", "route", "add", "fd09::/64", "via", "fd08::2")

    def address_wlan(self):
        for address in "10.9.0.2/24", "fd09::2/64":
            self.ap("ip", "addr", "add", address, "dev", "wlan0", *nodad(address))

    def daemon(self, *args, device="wlan0", **kwargs):
        d = Daemon(self.ap, device, *args, **kwargs)
        self.daemons.append(d)
        return d

    def state(self):
        """What both ends of every connection say, for the report of a failed test."""
        asked = [(self.ap, ("iw", "dev", "wlan0", "info")), (self.ap, ("iw", "dev", "wlan0", "station", "dump")), (self.ap, ("ip", "neigh"))]
        asked += [(s, ("iw", "dev", "wlan0", "link")) for s in self.stations]
        said = [f"{ns.name}: {' '.join(args)}\n{ns(*args, check=False).stdout}" for ns, args in asked]
        said.append(f"hostapd: {'gone' if self.hostapd.poll() is not None else 'there'}\n")
        with open(os.path.join(self.dir, "hostapd.log")) as f:
            said.append("".join(f.readlines()[-40:]))
        said.append("".join(run("dmesg").stdout.splitlines(True)[-40:]))
        return "\n".join(said)

    def remove(self):
        for d in self.daemons:
            d.remove()
        if self.hostapd and self.hostapd.poll() is None:
            self.stop_ap()
        for ns in self.ap, self.server, *self.stations:
            ns.remove()
        # With cfg80211, which would go on counting phys where it was.
        for module in [*["fairness"] * self.has_weights, "mac80211_hwsim", "mac80211", "cfg80211"]:
            wait_for(lambda m=module: not run("rmmod", m, check=False).returncode, f"{module} gone")


def kill_both_while(daemon, holds, what):
    """
    Kills the daemon and its guard while something is so. On a busy machine, no load may come for a while, and then the
    daemon gives everything back: so it has to stand still while one looks.
    """
    def holding():
        daemon.process.send_signal(signal.SIGSTOP)
        if holds():
            return True
        daemon.process.send_signal(signal.SIGCONT)
        return False

    wait_for(holding, what)
    kill_both(daemon)


def nodad(address):
    return ["nodad"] if ":" in address else []


class Load:
    """A UDP stream of rate_kbit from the server to each of the stations, until closed."""

    def __init__(self, bed, stations, rate_kbit):
        self.packet = bytes(1000)
        self.pause = len(self.packet) * 8 / rate_kbit / 1000
        self.targets = [(s.ipv4, 9) for s in stations]
        with bed.server.enter():
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        due = time.monotonic()
        while not self.done.is_set():
            for target in self.targets:
                try:
                    self.socket.sendto(self.packet, target)
                except (BlockingIOError, ConnectionError):
                    pass  # the queue is full; or "port unreachable", which is what port 9 is
            due = max(due + self.pause, time.monotonic() - 1)
            self.done.wait(max(0, due - time.monotonic()))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()
        self.socket.close()
