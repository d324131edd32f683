# SPDX-License-Identifier: Apache-2.0
"""
Contention windows of clients and access point, through a real hostapd on mac80211_hwsim:
what the beacon says, what the kernels do with it, and who gives it back.
"""
import contextlib
import os
import re
import signal
import socket
import threading
import time

import pytest
from wifi import PATIENCE, WIFIRRD, Bed, kill_both_while, run, wait_for

STATIONS = 4
OWN = ("wmm_ac_be_aifs=3", "wmm_ac_be_cwmin=2", "wmm_ac_be_cwmax=9", "wmm_ac_be_txop_limit=0", "wmm_ac_be_acm=0",
       "tx_queue_data2_aifs=2", "tx_queue_data2_cwmin=7", "tx_queue_data2_cwmax=127", "tx_queue_data2_burst=1.5")
# Not hostapd's defaults, so that nobody guesses them: CWmin and CWmax of clients, and of the access point: TXOP, CWmin, CWmax, AIFS.
OWN_WINDOW, OWN_QUEUE = "3-511", ("47", "7", "127", "2")
LARGER, LARGER_QUEUE = "15-1023", ("47", "15", "127", "2")
AP_RADIO = "phy0"
KBIT = 60              # of each station's upload
# hwsim's survey says that the channel is busy for an eighth of the time, and no frame is ever lost
OPTIONS = "--backend", "airtime", "--busy-threshold", "10"


class Upload:
    """UDP from each of the stations to the server, until closed."""

    def __init__(self, stations):
        self.done = threading.Event()
        self.sockets = []
        for s in stations:
            with s.enter():
                self.sockets.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.done.wait(1000 * 8 / KBIT / 1000):
            for s in self.sockets:
                try:
                    s.sendto(bytes(1000), ("10.9.0.1", 9))
                except OSError:
                    pass  # "port unreachable", or not associated just now

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()
        for s in self.sockets:
            s.close()


@pytest.fixture(scope="module")
def bed():
    b = Bed(STATIONS, control=True)
    try:
        run("sh", "-c", "echo 'func mac80211_hwsim_conf_tx +p' >/sys/kernel/debug/dynamic_debug/control")
        b.stop_ap()
        b.start_ap(True, *OWN)
        b.join(b.stations)
        b.bridged()
        yield b
    finally:
        b.remove()


@pytest.fixture
def daemon(bed):
    d = bed.daemon(*OPTIONS).ready()
    yield d
    d.remove()


def announced(station):
    """CWmin and CWmax for best effort, in the beacon that the station heard last."""
    dump = station("iw", "dev", "wlan0", "scan", "dump", "-b").stdout
    found = re.findall(r"\* BE: CW (\d+-\d+)", dump.split("from Beacon frame")[-1])  # what was in the probe response stays
    return found[-1] if found else None


class Driver:
    """What each radio's driver was given last, by hwsim's debug lines. Each is read once: dmesg would print them all at every look."""

    LINE = re.compile(rb"(\S+): mac80211_hwsim_conf_tx \(queue=2 txop=(\d+) cw_min=(\d+) cw_max=(\d+) aifs=(\d+)\)")

    def __init__(self):
        self.log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        self.given = {}

    def look(self):
        while True:
            try:
                record = os.read(self.log, 8192)
            except BlockingIOError:
                return self.given
            except BrokenPipeError:
                continue  # the kernel has overwritten some; the next ones follow
            for radio, *values in self.LINE.findall(record):
                self.given[radio.decode()] = tuple(v.decode() for v in values)


DRIVER = Driver()


def in_use():
    """TXOP, CWmin, CWmax and AIFS for best effort of each radio."""
    return DRIVER.look()


def stations_use(cwmin):
    return all(values[1] == cwmin for radio, values in in_use().items() if radio != AP_RADIO)


def all_announced(bed, window):
    return all(announced(s) == window for s in bed.stations)


def wait_window(bed, window):
    """Until the beacon announces it, and the access point has its own."""
    queue = OWN_QUEUE if window == OWN_WINDOW else LARGER_QUEUE
    try:
        wait_for(lambda: all_announced(bed, window), f"CW {window} in the beacon")
        wait_for(lambda: in_use()[AP_RADIO] == queue, f"{queue} at the access point: {in_use()}")
    except AssertionError as e:
        running = [d for d in bed.daemons if d.process.poll() is None]
        raise AssertionError(f"{e}: {[announced(s) for s in bed.stations]}; {[(d.status(), d.text()) for d in running]}") from None


def associations(bed):
    """When each of them came: another value has left in between."""
    return {s.mac: run("ip", "netns", "exec", "ap", "iw", "dev", "wlan0", "station", "get", s.mac).stdout.split(
        "associated at [boottime]:")[1].split()[0] for s in bed.stations}


def windows(daemon):
    return daemon.status()["contention"]


def test_stations_take_the_window_without_leaving(bed, daemon):
    wait_window(bed, OWN_WINDOW)
    came = associations(bed)
    with Upload(bed.stations):
        wait_window(bed, LARGER)
        wait_for(lambda: stations_use("15"), f"the stations' own parameters: {in_use()}")

        def all_count():
            """On a busy machine, they may have nothing to send for a while, and then windows become smaller again."""
            state = windows(daemon)
            assert state["without_wmm"] == 0 and state["interfaces"] == 1
            return state["windows"] and state["cwmin"] == state["ap_cwmin"] == 15 and state["clients"] == STATIONS

        wait_for(all_count, f"all stations count: {windows(daemon)}")
        assert not daemon.status()["engaged"]
    wait_window(bed, OWN_WINDOW)
    wait_for(lambda: stations_use("3"), "the stations' own parameters as before")
    assert windows(daemon)["ap_cwmin"] == 7
    assert associations(bed) == came
    assert daemon.stop() == 0


def test_given_back_at_the_end(bed, daemon):
    with Upload(bed.stations):
        wait_window(bed, LARGER)
        assert daemon.stop() == 0
        wait_window(bed, OWN_WINDOW)
    assert not os.path.getsize("/var/run/wifirr/phy0")


@pytest.mark.parametrize("window", ["7-1023", LARGER])
def test_given_back_after_a_kill(bed, daemon, window):
    """While it rises, and when it has risen."""
    with Upload(bed.stations):
        wait_for(lambda: any(announced(s) in (window, LARGER) for s in bed.stations), "larger window")
        daemon.stop(signal.SIGKILL)
        wait_window(bed, OWN_WINDOW)
        wait_for(lambda: not os.path.getsize("/var/run/wifirr/phy0"), "the guard has nothing left to give back")


def kill_both_larger(bed, daemon):
    kill_both_while(daemon, lambda: in_use().get(AP_RADIO) == LARGER_QUEUE and all_announced(bed, LARGER), "larger windows")


def test_restore_gives_back_what_no_guard_did(bed, daemon):
    with Upload(bed.stations):
        wait_window(bed, LARGER)
        assert "a wifirrd is running on this radio" in bed.ap(WIFIRRD, "restore").stdout
        kill_both_larger(bed, daemon)
        wait_window(bed, LARGER)
        bed.ap(WIFIRRD, "restore")
        wait_window(bed, OWN_WINDOW)


def test_the_next_one_gives_back_what_no_guard_did(bed, daemon):
    with Upload(bed.stations):
        kill_both_larger(bed, daemon)
    again = bed.daemon(*OPTIONS, "--control", daemon.control)
    again.control = daemon.control
    again.ready()
    wait_window(bed, OWN_WINDOW)
    assert again.stop() == 0


def test_hostapd_reloaded(bed, daemon):
    with Upload(bed.stations):
        wait_window(bed, LARGER)
        bed.hostapd.send_signal(signal.SIGHUP)  # which sends everybody away
        wait_for(lambda: not any(s.connected() for s in bed.stations), "stations noticed")
        bed.join(bed.stations)
        wait_window(bed, LARGER)
    wait_window(bed, OWN_WINDOW)
    assert daemon.stop() == 0


def test_hostapd_restarted(bed, daemon):
    with Upload(bed.stations):
        wait_window(bed, LARGER)
        bed.stop_ap()
        wait_for(lambda: not any(s.connected() for s in bed.stations), "stations noticed")
        bed.start_ap(True, *OWN)
        bed.ap("ip", "link", "set", "wlan0", "master", "br0")
        bed.join(bed.stations)
        wait_window(bed, LARGER)
    wait_window(bed, OWN_WINDOW)
    assert daemon.stop() == 0


def test_paused_and_switched_off(bed):
    d = bed.daemon(*OPTIONS).ready()
    with Upload(bed.stations):
        wait_window(bed, LARGER)
        d.ask("pause")
        wait_window(bed, OWN_WINDOW)
        d.ask("resume")
        wait_window(bed, LARGER)
    assert d.stop() == 0
    d = bed.daemon(*OPTIONS, "--windows", "off").ready()
    with Upload(bed.stations):
        wait_for(lambda: windows(d)["clients"] == STATIONS, "a crowd")
        time.sleep(5)
        assert all_announced(bed, OWN_WINDOW)
    assert d.stop() == 0


def test_a_hundred_changes(bed, daemon):
    came = associations(bed)
    with Upload(bed.stations):
        wait_window(bed, LARGER)
        for _ in range(25):  # two up and two down each
            daemon.ask("pause")
            wait_for(lambda: windows(daemon)["cwmin"] == 3, "own window")
            daemon.ask("resume")
            wait_for(lambda: windows(daemon)["cwmin"] == 15, "larger window")
        wait_window(bed, LARGER)
    wait_window(bed, OWN_WINDOW)
    assert associations(bed) == came
    assert daemon.stop() == 0


@contextlib.contextmanager
def without_wmm(bed, station):
    station.leave()
    station("insmod", f"{os.environ['VM_MODULE']}/legacy.ko")
    try:
        bed.join([station])
        yield
    finally:
        station.leave()
        run("rmmod", "legacy")
        bed.join([station])


def test_a_station_without_wmm_stays_and_exchanges_data(bed, daemon):
    plain, others = bed.stations[-1], bed.stations[:-1]
    radio = f"phy{plain.index + 1}"
    with without_wmm(bed, plain), contextlib.ExitStack() as stack:
        assert re.search(r"WMM/WME:\s+no", bed.ap("iw", "dev", "wlan0", "station", "get", plain.mac).stdout)
        came, own = associations(bed), in_use()[radio]
        with bed.server.enter():
            listener = stack.enter_context(socket.create_server(("10.9.0.1", 7)))
        with plain.enter():
            near = stack.enter_context(socket.create_connection(("10.9.0.1", 7), timeout=PATIENCE))
        far = stack.enter_context(listener.accept()[0])
        far.settimeout(PATIENCE)

        def there_and_back():
            for source, target in (near, far), (far, near):
                data = os.urandom(5000)
                source.sendall(data)
                with target.makefile("rb") as file:
                    assert file.read(len(data)) == data

        with Upload(bed.stations):
            for _ in range(7):  # two up and one down each
                for command, cwmin in ("resume", 15), ("pause", 3):
                    daemon.ask(command)
                    wait_for(lambda n=cwmin: windows(daemon)["cwmin"] == n, f"a window of {cwmin}: {windows(daemon)}")
                    there_and_back()
            daemon.ask("resume")
            wait_window(bed, LARGER)
            wait_for(lambda: all(in_use()[f"phy{s.index + 1}"][1] == "15" for s in others), f"the others' own parameters: {in_use()}")
            wait_for(lambda: windows(daemon)["clients"] == STATIONS and windows(daemon)["without_wmm"] == 1, "all stations count")
            assert re.match(rf"yes: {STATIONS - 1} of {STATIONS} clients .*; [1-9] clients aggregate", check(bed)[0]["WMM"])
            there_and_back()
        wait_window(bed, OWN_WINDOW)
        there_and_back()
        assert in_use()[radio] == own
        assert associations(bed) == came
    assert daemon.stop() == 0


def check(bed, before="true"):
    """What `wifirrd check` says, by what it is about; its exit code."""
    p = bed.ap("sh", "-c", f"{before} && exec {WIFIRRD} check wlan0", check=False)
    assert p.stderr == ""
    return dict(line.split(": ", 1) for line in p.stdout.splitlines()[:-1]), p.stdout.splitlines()[-1], p.returncode


def test_check_says_what_works_and_changes_nothing(bed):
    came = associations(bed)
    found, verdict, code = check(bed)
    assert code == 0 and "larger windows" in verdict and "airtime weights" in verdict, (found, verdict)
    assert found["windows"] == ("yes: hostapd and the driver accepted the current windows: CWmin 3, CWmax 511 slots; "
                                "the access point's own: 7, 127")
    assert found["airtime weights"] == f"yes: the driver supports them, and accepted the current weights of {STATIONS} clients again"
    assert found["airtime of clients"].startswith("no:")  # hwsim does not count it
    assert found["WMM"].startswith(f"yes: {STATIONS} of {STATIONS} clients")
    assert found["RTS"] == "yes: the driver accepted its current threshold again: none"
    assert found["survey"].startswith("no: the driver does not say how busy")  # not of the channel in use
    assert found["AQL"] and found["queue statistics"]
    assert all_announced(bed, OWN_WINDOW) and associations(bed) == came
    d = bed.daemon(*OPTIONS).ready()
    found = check(bed)[0]
    assert all("a wifirrd is running" in found[what] for what in ("windows", "airtime weights", "RTS")), found
    assert d.stop() == 0


def test_check_of_a_hostapd_that_hangs(bed):
    bed.hostapd.send_signal(signal.SIGSTOP)
    try:
        assert check(bed)[0]["windows"] == "no: hostapd does not answer on its control socket for wlan0"
    finally:
        bed.hostapd.send_signal(signal.SIGCONT)


BUSY_FOR_THREE_SECONDS = """
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

int poll(struct pollfd *fds, nfds_t n, int ms)
{
	return ms < 3000 ? 0 : syscall(SYS_poll, fds, n, ms);
}
"""


def test_check_of_a_hostapd_that_is_busy(bed, tmp_path):
    """Its answer comes after three seconds, as while ath10k answers to another program's survey."""
    (tmp_path / "busy.c").write_text(BUSY_FOR_THREE_SECONDS)
    run("gcc", "-shared", "-fPIC", "-o", str(tmp_path / "busy.so"), str(tmp_path / "busy.c"))
    found = check(bed, f"export LD_PRELOAD={tmp_path}/busy.so")[0]
    assert found["windows"].startswith("yes: hostapd and the driver accepted"), found


def test_check_of_an_access_point_that_is_down(bed):
    """As while hostapd waits for a channel without radar."""
    bed.ap("ip", "link", "set", "wlan0", "down")
    try:
        assert check(bed)[0]["windows"] == "no: not known: the access point is down"
    finally:
        bed.again(True, *OWN)


def test_check_tells_of_counters_that_count_what_is_dropped(bed):
    """Debian's kernel has no hwflags, so this makes the file."""
    made = "mount -t tmpfs none /sys/kernel/debug && mkdir -p /sys/kernel/debug/ieee80211/phy0 && printf '%s\\n' {} >/sys/kernel/debug/ieee80211/phy0/hwflags"
    assert "byte counters" not in check(bed, made.format("HAS_RATE_CONTROL SUPPORTS_RX_DECAP_OFFLOAD"))[0]
    found = check(bed, made.format("HAS_RATE_CONTROL SUPPORTS_TX_ENCAP_OFFLOAD WANT_MONITOR_VIF"))[0]
    assert found["byte counters"].startswith("no: they count what is queued")


def test_where_windows_are_left_alone(bed):
    """Without WMM, also on another access point of the radio, with 802.11g, without a control socket: and it says so."""
    try:
        bed.again(True, *OWN, "bss=wlan1", "ssid=guest", "wmm_enabled=0")
        d = bed.daemon(*OPTIONS).ready()
        wait_for(lambda: "wlan1: WMM is off" in windows(d)["why"], "the reason")
        assert d.stop() == 0
        assert check(bed)[0]["windows"] == "no: wlan1: WMM is off: windows are left alone"
        bed.again(False, "wmm_enabled=0")
        d = bed.daemon(*OPTIONS).ready()
        wait_for(lambda: "WMM is off" in windows(d)["why"], "the reason")
        assert d.stop() == 0
        assert check(bed)[0]["windows"].startswith("no: wlan0: WMM is off")
        bed.again(False, *OWN)
        d = bed.daemon(*OPTIONS).ready()
        with Upload(bed.stations):
            wait_for(lambda: windows(d)["clients"] == STATIONS and "aggregate" in windows(d)["why"], "the reason")
            assert all_announced(bed, OWN_WINDOW)
        assert d.stop() == 0
        bed.control = False
        bed.again(True)
        d = bed.daemon(*OPTIONS).ready()
        wait_for(lambda: "no control socket" in windows(d)["why"], "the reason")
        assert d.stop() == 0
        assert "no control socket" in check(bed)[0]["windows"]
    finally:
        bed.control = True
        bed.again(True, *OWN)
