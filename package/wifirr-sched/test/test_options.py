# SPDX-License-Identifier: Apache-2.0
"""Bad input: one line that names the flag, exit code 2, and the device untouched."""
import contextlib
import os
import re
import socket
import subprocess

import pytest

from bed import HERE, PATIENCE, WIFIRRD, Bed, mac, wait_for

ROOT = os.path.join(HERE, "..", "..", "..")


@pytest.fixture(scope="module")
def bed():
    with Bed(0) as b:
        b.box("bridge", "fdb", "add", mac(1), "dev", "dl0", "master", "static")
        yield b


def refused(bed, *args, binary=WIFIRRD, wrapper=()):
    def state():
        return [bed.box("tc", what, "show", "dev", "dl0").stdout for what in ("qdisc", "class", "filter")] + \
            [re.search(r"gso_max_segs \d+", bed.box("ip", "-d", "link", "show", "dl0").stdout).group(), bed.box("nft", "list", "ruleset").stdout]
    before = state()
    p = bed.box(*wrapper, binary, *args, check=False)
    assert p.returncode == 2, (p.returncode, p.stderr)
    assert len(p.stderr.splitlines()) == 1, p.stderr
    assert state() == before
    return p.stderr


GOOD = ("--device", "dl0", "--backend", "htb", "--rate", "20000", "--control", "/tmp/wifirrd-test-%d" % os.getpid())


@pytest.mark.parametrize("args, said", [
    (("--device", "nosuch0"), "--device nosuch0: no such device"),
    (("--device", 'dl0"; flush ruleset'), ": not a device name"),
    (("--device", "a" * 16), ": not a device name"),
    (("--device", ""), ": not a device name"),
    (("--active", "0"), "--active 0: must be a whole number from 1 to 512"),
    (("--active", "10000"), "--active 10000"),
    (("--active", "-1"), "--active -1"),
    (("--active", "3x"), "--active 3x"),
    (("--active", ""), "--active"),
    (("--slot", "1"), "--slot 1: must be a whole number from 10 to 60000"),
    (("--slot", "99999999999999999999"), "--slot"),
    (("--trickle", "20000"), "--trickle 20000: must be below --rate 20000"),
    (("--trickle", "30000"), "--trickle 30000"),
    (("--trickle", "0"), "--trickle 0"),
    (("--rate", "1"), "--rate 1"),
    (("--backend", "tbf"), "--backend tbf: must be auto, airtime or htb"),
    (("--mode", "fair"), "--mode fair: must be backlog or paper"),
    (("--engage", "never"), "--engage never"),
    (("--match", "name"), "--match name"),
    (("--weights", "256"), "--weights 256"),
    (("--weights", "0,1"), "--weights 0"),
    (("--weights", "1,70000"), "--weights 70000"),
    (("--rts", "x"), "--rts x"),
    (("--windows", "10"), "--windows 10: must be off or auto"),
    (("--demand-bytes", "-5"), "--demand-bytes -5"),
    (("--demand-rate", "y"), "--demand-rate y"),
    (("--busy-threshold", "101"), "--busy-threshold 101"),
    (("--engage-delay", "1.5"), "--engage-delay 1.5"),
    (("--always", "02:00:00:00:00"), "--always 02:00:00:00:00"),
    (("--always", mac(1), "--always", mac(1)), "given twice"),
    (("--always", mac(1), "--ignore", mac(1)), "given twice"),
    (("--always", mac(1).upper(), "--ignore", mac(1)), "given twice"),
    (("--ignore", "10.0.0.300"), "--ignore 10.0.0.300"),
    (("--always", "10.9.0.10"), "--always 10.9.0.10: must be a MAC address, as match is mac"),
    (("--ignore", mac(1), "--match", "ip"), f"--ignore {mac(1)}: must be an IP address, as match is ip"),
    (("--control", "/nonexistent/dir/socket"), "--control /nonexistent/dir/socket"),
    (("--control", "/etc/passwd"), "--control /etc/passwd: exists and is not a socket"),
    (("--control", "/" + "x" * 200), "--control"),
    (("--nosuch",), "--nosuch"),
    (("--rate",), "--rate: needs a value"),
    (("status", "clients"), "one command at a time"),
    (("frobnicate",), "frobnicate: must be status"),
])
def test_bad_option(bed, args, said):
    assert said in refused(bed, *GOOD, *args)


def checked(*args):
    return subprocess.run([WIFIRRD, "--device", "nosuch0", *args, "check"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)


def test_limits_are_those_of_the_init_script():
    script = open(os.path.join(HERE, "..", "files", "etc", "init.d", "wifirr-sched")).read()
    ranges = [(name, int(least), int(most)) for name, least, most in re.findall(r"^(\w+):.*?range\((\d+),(\d+)\)", script, re.M) if name != "verbose"]
    assert len(ranges) >= 9
    for name, least, most in ranges:
        flag = "--" + name.replace("_", "-")
        for value, good in ((least - 1, False), (least, True), (most, True), (most + 1, False)):
            p = checked(flag, str(value))
            assert p.returncode == (0 if good else 2), (flag, value, p.stderr)
            assert good or f"{flag} {value}: must be a whole number from {least} to {most}" in p.stderr


@pytest.mark.parametrize("args", [
    ("--weights", "1,1"), ("--weights", "65535,65535"), ("--rts", "off"), ("--rts", "auto"), ("--control", "/" + "x" * 106),
    tuple(x for i in range(128) for x in ("--always", mac(i))), ("--match", "ip", "--always", "fd09::1", "--ignore", "10.0.0.1"),
    ("--always=" + mac(1), "--exempt-voice", "--verbose", "--verbose"), ("--trickle", "99", "--rate", "100"), ("--device", "a" * 15),
    ("--options", "/dev/null"),
])
def test_good_options(args):
    p = checked(*args)
    assert (p.returncode, p.stdout, p.stderr) == (0, "", "")


def test_a_file_of_the_largest_size(tmp_path):
    file = tmp_path / "options"
    file.write_text("verbose\n" * 1023 + "verbose")
    assert checked("--options", str(file)).returncode == 0
    file.write_text("verbose\n" * 1024)
    assert "less than 8192 bytes" in checked("--options", str(file)).stderr


@pytest.mark.parametrize("args, said", [
    (("--weights", "1,0"), "--weights 0: must be a whole number from 1 to 65535"),
    (("--weights", "65536,1"), "--weights 65536"),
    (("--weights", "12345678,1"), "must be two numbers, ACTIVE,WAITING"),
    (("--control", "/" + "x" * 107), "--control: path longer than 107 characters"),
    (tuple(x for i in range(129) for x in ("--always", mac(i))), "at most 128 addresses"),
    (("--trickle", "100", "--rate", "100"), "--trickle 100: must be below --rate 100"),
    (("--mode", "paper", "--rate", "100"), "--trickle 100: must be below --rate 100"),
    (("--always", mac(1).replace(":", "-")), "not a MAC, IPv4 or IPv6 address"),
    (("--always", mac(1)[:-1] + "g"), "not a MAC, IPv4 or IPv6 address"),
    (("--exempt-voice=1",), "--exempt-voice=1: unknown option"),
    (("--slots", "500"), "--slots: unknown option"),
    (("--slo", "500"), "--slo: unknown option"),
    (("--slox", "500"), "--slox: unknown option"),
    (("-v",), "-v: unknown option"),
    (("-xslot=500",), "-xslot=500: unknown option"),
])
def test_more_bad_options(args, said):
    p = checked(*args)
    assert p.returncode == 2 and said in p.stderr and re.fullmatch("wifirrd: -.*\n", p.stderr), p.stderr


def test_options_after_a_command():
    for slot, code in ("500", 0), ("5", 2):
        assert subprocess.run([WIFIRRD, "check", "--device", "nosuch0", "--slot", slot, "--active", "2"], stderr=subprocess.DEVNULL, check=False).returncode == code


@pytest.mark.parametrize("length", [200, 300])
def test_a_line_about_a_file_with_a_long_name(tmp_path, length):
    """It ends where there is no more room."""
    file = str(tmp_path / "f").ljust(length, "x")
    with open(file, "w") as f:
        f.write("nosuch=" + "1" * 300)
    p = checked("--options", file)
    assert (p.returncode, p.stderr) == (2, f"wifirrd: {file}:1: --nosuch={'1' * 300}"[:9 + 255] + "\n")


@pytest.mark.parametrize("text, said", [
    ("slot=500\nslot=1\n", ":2: --slot 1: must be a whole number from 10 to 60000"),
    ("# a comment\n\nweights=1,2;x", ":3: --weights 2;x: must be a whole number from 1 to 65535"),
    ("nosuch=1", ":1: --nosuch=1: unknown option"),
    ("device=eth0", ":1: --device: only on the command line"),
    ("exempt-voice\nhelp", ":2: --help: only on the command line"),
    ("options=/etc/passwd", ":1: --options: only on the command line"),
    ("control=/tmp/x", ":1: --control: only on the command line"),
    ("version", ":1: --version: only on the command line"),
    ("rate", ":1: --rate: needs a value"),
    ("verbose\n" * 2000, "must be a text file of less than 8192 bytes"),
    ("slot=500\0", "must be a text file of less than 8192 bytes"),
    ("rate=100\ntrickle=100", "--trickle 100: must be below --rate 100"),
])
def test_bad_file_of_options(bed, tmp_path, text, said):
    file = tmp_path / "options"
    file.write_text(text)
    assert said in refused(bed, *GOOD, "--options", str(file))
    assert said in refused(bed, *GOOD, "--options", str(file), "check")
    assert "No such file" in refused(bed, *GOOD, "--options", str(tmp_path / "none"))
    assert "Is a directory" in refused(bed, *GOOD, "--options", str(tmp_path))


def test_good_file_of_options(bed, tmp_path):
    file = tmp_path / "options"
    file.write_text("# all of it\nrate=12000\nmode=paper\n\nactive=7\nslot=900\nalways=%s\nexempt-voice\nverbose" % mac(1))
    assert bed.box(WIFIRRD, "--device", "dl0", "--options", str(file), "check").returncode == 0
    daemon = bed.daemon("--options", str(file)).ready()
    status = daemon.status()
    assert (status["mode"], status["active_max"], status["slot_ms"]) == ("paper", 7, 900)
    assert daemon.clients()[mac(1)]["always"]
    assert "flowid 5746:3" in bed.box("tc", "filter", "show", "dev", "dl0").stdout  # for voice
    assert daemon.stop() == 0


def test_options_of_0_1_0():
    """An upgrade keeps /etc/config/wifirr, so all of its old options must still be accepted."""
    subprocess.run([WIFIRRD, "--device", "dl0", "--options", os.path.join(HERE, "testdata", "0.1.0.options"), "check"], check=True)


def test_no_device_and_no_rate(bed):
    assert "--device" in refused(bed)
    assert "--control or --device" in refused(bed, "status")
    none = bed.box(WIFIRRD, "--device", "dl0", "status", check=False)
    assert (none.returncode, none.stderr) == (1, "wifirrd: no daemon answers on /var/run/wifirr/dl0.sock: No such file or directory\n")
    assert "--rate" in refused(bed, *GOOD[:4], *GOOD[6:])


def test_no_permission(bed, tmp_path):
    binary = tmp_path / "wifirrd"
    binary.write_bytes(open(WIFIRRD, "rb").read())
    for p in (binary, *binary.parents):
        if str(p).startswith("/tmp/"):
            os.chmod(p, 0o755)
    said = refused(bed, *GOOD[:6], "--control", "/tmp/wifirrd-nobody-%d" % os.getpid(), binary=str(binary),
                   wrapper=("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"))
    assert "must be root" in said


@pytest.mark.parametrize("options, shown", [
    ((), ("backlog", 3, 2400)),  # htb's defaults: there is no airtime backend here
    (("--mode", "paper"), ("paper", 5, 1600)),
    (("--slot", "1000"), ("backlog", 3, 1000)),
])
def test_turns_where_not_given(bed, options, shown):
    daemon = bed.daemon("--rate", "20000", *options).ready()
    status = daemon.status()
    assert (status["mode"], status["active_max"], status["slot_ms"]) == shown
    assert daemon.stop() == 0


def without(tmp_path, kind):
    """A copy of the program that requests a qdisc or filter of a kind that no kernel has."""
    data = open(WIFIRRD, "rb").read()
    data, found = re.subn(rb"(?<![A-Za-z0-9_])" + kind + rb"\0", b"x" * len(kind) + b"\0", data)
    assert found
    binary = tmp_path / "wifirrd"
    binary.write_bytes(data)
    binary.chmod(0o755)
    return str(binary)


@pytest.mark.skipif("asan" in WIFIRRD, reason="needs the plain binary")
def test_kernel_without_htb(bed, tmp_path):
    said = refused(bed, *GOOD[:2], *GOOD[4:], binary=without(tmp_path, b"htb"))
    assert "kernel without sch_htb" in said


@pytest.mark.skipif("asan" in WIFIRRD, reason="needs the plain binary")
def test_kernel_without_classifiers(bed, tmp_path):
    if bed.box("tc", "qdisc", "add", "dev", "dl0", "root", "handle", "1:", "htb", check=False).returncode == 0:
        has_fw = bed.box("tc", "filter", "add", "dev", "dl0", "parent", "1:", "protocol", "all", "fw", check=False).returncode == 0
        bed.box("tc", "qdisc", "del", "dev", "dl0", "root")
        if has_fw:
            pytest.skip("this kernel has the fw filter")
    said = refused(bed, *GOOD, binary=without(tmp_path, b"u32"))
    assert "neither" in said


def test_own_qdisc_of_the_user_is_not_replaced(bed):
    bed.box("tc", "qdisc", "add", "dev", "dl0", "root", "handle", "9:", "tbf", "rate", "50mbit", "burst", "10k", "limit", "10k")
    try:
        assert "already has a root qdisc, tbf 9:" in refused(bed, *GOOD)
    finally:
        bed.box("tc", "qdisc", "del", "dev", "dl0", "root")


def test_second_daemon_on_the_device(bed):
    daemon = bed.daemon("--rate", "20000").ready()
    p = bed.box(WIFIRRD, *GOOD, check=False)
    assert p.returncode == 2 and "another wifirrd" in p.stderr
    p = bed.box(WIFIRRD, *GOOD, "--control", daemon.control, check=False)
    assert p.returncode == 2
    assert daemon.status()["backend"] == "htb"
    assert daemon.stop() == 0


def test_help_names_every_option_and_the_documents_too():
    text = subprocess.run([WIFIRRD, "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout
    flags = set(re.findall(r"^  --([a-z-]+)", text, re.M))
    source = open(os.path.join(HERE, "..", "src", "options.c")).read()
    known = set(re.findall(r'"([a-z-]+)"', re.search(r"options\[\] = \{(.*?)\};", source, re.S)[1]))
    assert flags == known
    doc = open(os.path.join(ROOT, "docs", "scheduler.md")).read()
    assert set(re.findall(r"^\| `--([a-z-]+)", doc, re.M)) == known
    uci = open(os.path.join(ROOT, "files", "etc", "config", "wifirr")).read()
    named = {o.replace("_", "-") for o in re.findall(r"^\s*#?\s*(?:option|list) ([a-z_]+)", uci, re.M)}
    assert named - {"enabled"} == known - {"help", "version", "control", "options"}
    # each default in the text of --help is also in the document
    for flag, default in re.findall(r"^  --([a-z-]+).*?\((\d+)[^)]*\)$", text, re.M):
        row = re.search(rf"^\| `--{flag}[^|]*\|([^|]*)\|([^|]*)\|", doc, re.M)
        assert default in row.group(2), (flag, default, row.group(0))
    # and in the configuration file of the package, whose comments show the first of several
    told = {h.split()[0]: re.search(r"\((?:airtime )?(\d[\d,]*)[^()]*\)\s*\Z", h) for h in re.split(r"^  --", text, flags=re.M)[1:]}
    shown = {o.replace("_", "-"): value for o, value in re.findall(r"^\t#option ([a-z_]+) '([^']*)'", uci, re.M)}
    compared = [(flag, told[flag].group(1).rstrip(","), shown[flag]) for flag in shown if told[flag]]
    assert len(compared) >= 7, compared
    assert [c for c in compared if c[1] != c[2]] == []


def test_documents_name_every_field_of_the_answers():
    source = open(os.path.join(HERE, "..", "src", "control.c")).read()
    answers = source[source.index("static void put_gain("):source.index("static void put_history(")]
    fields = set(re.findall(r'\\"(\w+)\\":', answers)) | set(re.findall(r'put_(?:text|gain|permille)\(t, "(\w+)"', answers))
    assert {"engaged", "backend", "without_wmm", "rts_gain", "busy_permille", "neighbour"} <= fields
    doc = open(os.path.join(ROOT, "docs", "scheduler.md")).read()
    status = doc[doc.index("\n## Status"):doc.index("\n## Life")]
    assert fields - set(re.findall(r"\w+", " ".join(re.findall(r"`(.*?)`", status)))) == {"client", "in_ms"}  # of the client itself


def test_check_where_there_is_no_access_point(bed):
    p = bed.box(WIFIRRD, "check", "dl0", check=False)
    assert p.returncode == 1 and "only turns by htb" in p.stdout and p.stderr == ""
    assert "check nosuch0: No such device" in refused(bed, "check", "nosuch0")
    assert "one command at a time" in refused(bed, "check", "dl0", "status")


def test_version():
    p = subprocess.run([WIFIRRD, "--version"], stdout=subprocess.PIPE, text=True, check=True)
    assert re.fullmatch(r"wifirrd \S+\n", p.stdout)


def test_metrics_are_prometheus_text(bed):
    daemon = bed.daemon("--rate", "20000").ready()
    wait_for(lambda: daemon.status()["clients"] >= 1, "a client")
    text = bed.box(WIFIRRD, "--control", daemon.control, "metrics").stdout
    seen = set()
    for line in text.splitlines():
        if line.startswith("#"):
            assert re.fullmatch(r"# (HELP wifirr_\w+ .+|TYPE wifirr_\w+ (gauge|counter))", line)
            continue
        name, value = re.fullmatch(r'(wifirr_\w+)\{device="dl0"\} (\d+)', line).groups()
        assert name not in seen
        seen.add(name)
    assert {"wifirr_engaged", "wifirr_clients", "wifirr_turns_total"} <= seen
    assert daemon.stop() == 0


def test_a_late_command_is_answered(bed):
    """A busy router may stop a client between its connection and its command. Silent connections keep nobody out."""
    daemon = bed.daemon("--rate", "20000").ready()
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(20)]
        for c in connections:
            c.connect(daemon.control)
            c.settimeout(PATIENCE)
        assert "version" in daemon.status()  # so it has taken all of them
        connections[-1].send(b"status\n")
        assert '"version"' in connections[-1].recv(1 << 16).decode()
    assert "version" in daemon.status()
    assert daemon.stop() == 0


def test_nobody_waits_for_a_daemon_that_takes_no_connection(bed, tmp_path):
    """As one that waits for nft while a router boots, and that LuCI has asked before."""
    path = str(tmp_path / "control")
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(path)
        listener.listen(0)
        with pytest.raises(BlockingIOError):
            while True:
                asking = stack.enter_context(socket.socket(socket.AF_UNIX))
                asking.setblocking(False)
                asking.connect(path)
        p = subprocess.run([WIFIRRD, "--control", path, "status"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False)
        assert (p.returncode, p.stdout) == (1, "") and f"no daemon answers on {path}: " in p.stderr
        assert f"--control {path}: in use by another wifirrd" in refused(bed, *GOOD[:6], "--control", path)


def test_restore_takes_no_socket_for_a_lease():
    """A device may be named phy9-ap0, and its control socket is in the directory of the leases."""
    path = "/var/run/wifirr/phy9-ap0-%d.sock" % os.getpid()
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(path)
        try:
            p = subprocess.run([WIFIRRD, "restore"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False)
        finally:
            os.unlink(path)
    assert (p.returncode, p.stdout, p.stderr) == (0, "", "")
