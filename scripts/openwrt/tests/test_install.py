# SPDX-License-Identifier: Apache-2.0
"""install.sh on a router of busybox's tools, where opkg and apk only write down what they are asked for."""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

from openwrt import feed, keys  # noqa: E402

URL = "http://feed.example/bquic"
TOOLS = "sed grep find cut awk mkdir rm cat cp mv tail id sort printf command touch ls rmdir tee gzip zcat chmod".split()
# They also write and remove the packages' programs; half of each, for lack of room.
PROGRAMS = """each() { for p in bin/bquic:bquic-gateway sbin/wifirrd:wifirr-sched; do $1 ${p#*:} /usr/${p%:*}; done; }
there() { ! grep -qx $1 /packages || { echo '#!/bin/sh' >$2; [ ! -e /half ] || echo 'exit 139' >>$2; chmod 755 $2; }; }
gone() { grep -qx $1 /packages || rm -f $2; }
case $1 in install | add | fix) mkdir -p /usr/bin /usr/sbin; trap 'each there' EXIT ;; remove | del) trap 'each gone' EXIT ;; esac
"""
MANAGERS = {
    # They know the packages that they have installed, and nothing of what is in them. Without the feed, opkg keeps its old list. apk also
    # remembers what it should install, and gets it when it can.
    "opkg": """case $1 in
update) [ -e /gone ] || echo Package: bquic-gateway | gzip | tee /tmp/lists/bquic >/tmp/lists/bquic.sig; [ ! -e /portal ] || echo '<html>' >/tmp/lists/bquic; [ ! -e /dead ] ;;
list-installed) sed 's/$/ - 1/' /packages ;;
list-upgradable) [ ! -e /newer ] || echo 'bquic-gateway - 1 - 2' ;;
install) shift; [ ! -e /usr/bin/bquic ] || grep -qx bquic-gateway /packages || { echo 'Only have 3000kb available'; exit 255; }
	printf '%s\\n' "$@" >>/packages; echo 'bquic:x:1:1::/:/bin/false' >>/etc/passwd ;;
remove) for p in "$@"; do sed -i "/^$(echo "$p" | sed 's/\\*/.*/')\\$/d" /packages; done ;;
esac""",
    "apk": """case $* in "update --repositories-file /etc/apk/repositories.d/bquic.list") [ ! -e /gone ]; exit ;; esac
case $1 in
update) [ ! -e /dead ] ;;
version) [ ! -e /newer ] || echo 'bquic-gateway-1 < 2' ;;
info) if [ $# = 1 ]; then cat /packages; else grep -qx "$3" /packages; fi ;;
add) shift; case $1 in --upgrade) echo libc-2 >/others; shift ;; esac; printf '%s\\n' "$@" | tee -a /etc/apk/world >/dev/null; [ ! -e /full ] || exit 1
	printf '%s\\n' "$@" >>/packages; echo 'bquic:x:1:1::/:/bin/false' >>/etc/passwd; [ ! -e /unwell ] ;;
del) shift; for p in "$@"; do grep -qx "$p" /packages /etc/apk/world || { echo "ERROR: No such package: $p"; exit 1; }; done
	for p in "$@"; do sed -i "/^$p\\$/d" /packages /etc/apk/world; done; [ ! -e /unwell ] ;;
fix) rm -f /newer; [ ! -e /unwell ] ;;
esac""",
}


def program(name: str) -> str:
    """Its path on this machine, whatever PATH the router has."""
    path = shutil.which(name)
    assert path, f"no {name}"
    return path


class Router:
    def __init__(self, root: pathlib.Path, manager: str, free: int = 8000, memory: int = 120, radio: bool = True, fs: str = "ubifs") -> None:
        self.root, self.manager = root, manager
        for directory in ("bin", "etc/config", "dev", "proc", "tmp/lists", "overlay", "usr/share/luci"):
            (root / directory).mkdir(parents=True)
        os.mknod(root / "dev/null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        shutil.copy(program("busybox"), root / "bin/busybox")
        for tool in TOOLS:
            (root / "bin" / tool).symlink_to("busybox")
        # Debian's busybox takes its own df for the one in PATH; OpenWrt's and dash do not.
        for name, to in {"dash": "sh", "flock": "flock"}.items():  # Debian's busybox has no flock
            for file in re.findall(r"/\S+", subprocess.run(["ldd", program(name)], capture_output=True, text=True, check=True).stdout):
                (root / file.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, root / file.lstrip("/"))
            shutil.copy(program(name), root / "bin" / to)
        for name, script in {
            manager: f'echo "{manager} $*" >>/calls\n[ ! -e /broken ] || exit 1\n[ "$1" != install ] || [ ! -e /deaf ] || exit 0\n{PROGRAMS}{MANAGERS[manager]}',
            "logger": "cat >/dev/null",
            "sync": "for new in /etc/*.new; do [ ! -s $new ] || echo sync $new >>/calls; done",
            "df": f"echo Filesystem Blocks Used Available; echo /dev/x 1 1 {free} 1% /overlay",
            "uci": "case \"$*\" in '-q get luci.languages.es') ;; '-q show luci.languages') echo \"luci.languages.es='Spanish'\" ;;\n"
                   "-q*) exit 1 ;; *) echo \"uci $*\" >>/calls ;; esac",
        }.items():
            (root / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
            (root / "bin" / name).chmod(0o755)
        (root / "proc/mounts").write_text(f"/dev/root /rom squashfs ro 0 0\n/dev/x /overlay {fs} rw 0 0\noverlayfs:/overlay / overlay rw 0 0\n")
        (root / "proc/meminfo").write_text(f"MemTotal:  {memory * 1024} kB\nMemFree: 1 kB\n")
        (root / "etc/openwrt_release").write_text("DISTRIB_RELEASE='24.10.8'\nDISTRIB_ARCH='mips_24kc'\n")
        (root / "packages").write_text("luci-base\n")
        for file in ("passwd", "group", "shadow"):
            (root / "etc" / file).write_text("root:x:0:\n")
        if manager == "apk":
            (root / "etc/apk").mkdir()
            (root / "etc/apk/world").write_text("luci-base\n")
        if manager == "opkg":
            (root / "etc/opkg").mkdir()
            (root / "etc/opkg/customfeeds.conf").write_text("# mine\nsrc/gz other http://other\n")
            (root / "etc/opkg.conf").write_text("dest root /\nlists_dir ext /tmp/lists\n")
        if radio:
            (root / "sys/class/ieee80211/phy0").mkdir(parents=True)

    def run(self, *args: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program("setsid"), "-w", program("chroot"), self.root, "/bin/sh", "/tmp/install.sh", *args], text=True, check=False,
                              input=stdin or "", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={"PATH": "/bin"})

    def shell(self, script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program("chroot"), self.root, "/bin/sh", "-c", script], text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={"PATH": "/bin"})

    def calls(self) -> list[str]:
        path = self.root / "calls"
        calls = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return [c for c in calls if not c.startswith(("opkg list-", "apk info", "apk version", "apk update --", "sync "))]

    def state(self) -> dict[str, str]:
        return {str(p.relative_to(self.root)): hashlib.sha256(p.read_bytes()).hexdigest()
                for p in sorted(self.root.rglob("*")) if p.is_file() and p.name != "calls"}


@contextlib.contextmanager
def at_work(there: Router) -> Iterator[None]:
    """Another install.sh runs."""
    config = os.open(there.root / "etc/config", os.O_RDONLY)
    fcntl.flock(config, fcntl.LOCK_EX)
    yield
    os.close(config)


Make = Callable[..., tuple[Router, keys.Feed]]


@pytest.fixture
def router(tmp_path: pathlib.Path) -> Make:
    key = keys.Feed(tmp_path / "keys")

    def make(manager: str, **kwargs: Any) -> tuple[Router, keys.Feed]:
        made = Router(tmp_path / manager, manager, **kwargs)
        feed.write(made.root / "tmp", ["mips_24kc", "x86_64"], URL, key)
        return made, key
    return make


@pytest.mark.parametrize("manager", ["opkg", "apk"])
def test_installs_what_fits_and_takes_it_back(router: Make, manager: str) -> None:
    there, key = router(manager)
    before = there.state()
    said = there.run()  # nobody is there to be asked
    assert said.returncode == 1 and "no terminal" in said.stdout
    assert there.calls() == [] and there.state() == before

    said = there.run("--yes")
    assert said.returncode == 0, said.stdout
    words = "bquic-gateway wifirr-sched luci-app-bquic luci-i18n-bquic-es"
    assert there.calls() == {"opkg": ["opkg update", f"opkg install {words}"],  # which upgrades, too
                             "apk": ["apk update", f"apk add {words}", f"apk fix --upgrade {words}"]}[manager]
    assert f"install: {words}." in said.stdout and "uci set bquic.gateway.enabled=1" in said.stdout
    assert "ubus" not in said.stdout  # the objects need rpcd, which only LuCI brings
    etc = there.root / "etc"
    if manager == "opkg":
        assert (etc / "opkg/customfeeds.conf").read_text() == \
            f"# mine\nsrc/gz other http://other\nsrc/gz bquic {URL}/mips_24kc\n"
        assert (etc / "opkg/keys" / key.fingerprint).read_text() == key.opkg_public
    else:
        assert (etc / "apk/repositories.d/bquic.list").read_text() == f"{URL}/mips_24kc/packages.adb\n"
        assert (etc / "apk/keys/bquic.pem").read_text() == key.apk_public
    made = {f"/{name}" for name in there.state() if name not in before and not name.startswith(("tmp/", "usr/"))}
    if manager == "opkg":
        made.remove(f"/etc/opkg/keys/{key.fingerprint}")  # which sysupgrade keeps, as it does customfeeds.conf
    assert made | {"/etc/bquic/"} == set((there.root / "lib/upgrade/keep.d/bquic-feed").read_text().split())

    for other in ("http://other.example", "http://[fd00::1]:8080/bquic"):  # the feed has moved
        said = there.run("--yes", f"{other}/")
        assert said.returncode == 0, said.stdout
        there.calls()
        text = (etc / ("opkg/customfeeds.conf" if manager == "opkg" else "apk/repositories.d/bquic.list")).read_text()
        assert text.count(f"{other}/mips_24kc") == 1 and URL not in text

    (etc / "config/bquic").write_text("config gateway\n")
    for left in ("etc/bquic/key.pem", "var/etc/bquic/kernel", "var/etc/wifirr/program", "var/run/bquic/lock", "var/run/wifirr/phy0"):
        (there.root / left).parent.mkdir(parents=True)
        (there.root / left).touch()
    said = there.run("--undo", "--yes")
    assert said.returncode == 0, said.stdout
    calls = there.calls()
    removed = "luci-i18n-bquic-es luci-app-bquic wifirr-sched bquic-gateway"  # in an order that opkg takes
    assert calls[0] == {"opkg": f"opkg remove --autoremove {removed}", "apk": f"apk del {removed}"}[manager]
    assert there.state() == before


@pytest.mark.parametrize("manager", ["opkg", "apk"])
@pytest.mark.parametrize("feed_too", [True, False])
def test_undoes_what_was_installed_by_hand(router: Make, manager: str, feed_too: bool) -> None:
    """What the packages have left before install.sh ran is not the previous state."""
    there, _ = router(manager)
    before = there.state()
    there.shell(f"{manager} {'install' if manager == 'opkg' else 'add'} bquic-gateway luci-app-bquic luci-i18n-bquic-es")
    assert there.state() != before
    if feed_too:
        assert there.run("--yes").returncode == 0
    there.calls()
    assert there.run("--undo", "--yes").returncode == 0
    assert there.state() == before
    assert not [c for c in there.calls() if c.startswith("uci set luci")]  # the packages' postrm has removed the languages


@pytest.mark.parametrize("manager", ["opkg", "apk"])
@pytest.mark.parametrize("packages", ["bquic-gateway luci-app-bquic luci-i18n-bquic-es", "wifirr-sched"])
def test_undo_by_the_manual(router: Make, manager: str, packages: str) -> None:
    """apk removes nothing where it is asked for something that is not there. A feed that was added by hand goes, too."""
    there, key = router(manager)
    if manager == "apk":
        there.shell("mkdir -p /etc/apk/keys /etc/apk/repositories.d; echo /etc/mine >/etc/sysupgrade.conf")
    before = there.state()
    docs = pathlib.Path(__file__).parents[3] / "docs"
    by_hand = (docs / "packages.md").read_text().split("To add the feed to a router by hand")[1].split("```")[1].split("\n\n")[manager == "apk"]
    said = there.shell(f"wget() {{ cp /tmp/${{3##*/}} $2; }}; usign() {{ echo {key.fingerprint}; }}; mkdir -p /etc/opkg/keys; {by_hand.strip()}; rm -f opkg.pub")
    assert said.stdout == "", said.stdout
    if manager == "apk":
        there.shell("printf '%s\\n' /etc/bquic/ /etc/apk/keys/bquic.pem /etc/apk/repositories.d/bquic.list >>/etc/sysupgrade.conf")
    assert there.state() != before
    commands = (docs / "install.md").read_text().split("\n## Undo\n")[1].split("```")[1]
    there.shell(f"{manager} {'install' if manager == 'opkg' else 'add'} {packages}; mkdir /etc/bquic; : >/etc/config/bquic-opkg")
    said = there.shell("reload_config() { :; }\n" + commands)
    assert "ERROR" not in said.stdout, said.stdout
    assert there.state() == before, said.stdout


@pytest.mark.parametrize("manager", ["opkg", "apk"])
def test_sysupgrade_keeps_the_gateways_key(router: Make, manager: str) -> None:
    """Its pin is the gateway's name. The package's own list is missing after a sysupgrade, and where the package has been removed before one."""
    there, _ = router(manager)
    assert there.run("--yes").returncode == 0
    (there.root / "etc/bquic").mkdir()
    (there.root / "etc/bquic/key.pem").touch()
    kept = there.shell("find $(cat /lib/upgrade/keep.d/*) -type f").stdout.split()  # as sysupgrade does
    assert {"/etc/bquic/key.pem", "/lib/upgrade/keep.d/bquic-feed"} <= set(kept)


@pytest.mark.parametrize("manager", ["opkg", "apk"])
def test_a_node_that_installs_by_itself(router: Make, manager: str) -> None:
    """busybox's ntpd tells of a step, and some seconds later of the stratum, while an installation runs. It is over when the package's service is enabled."""
    there, _ = router(manager)
    (there.root / "etc/sysupgrade.conf").write_text("/etc/mine\n")
    (there.root / "etc/rc.d").mkdir()
    before = there.state()
    recipe = (pathlib.Path(__file__).parents[3] / "docs/fleet.md").read_text().split("\n### After a sysupgrade\n")[1].split("```")[1]
    assert there.shell(f"cd /tmp && {recipe.strip()}").stdout == ""

    def ntp(action: str) -> list[str]:
        said = there.shell(f"ACTION={action}; . /etc/hotplug.d/ntp/*; wait")
        assert (said.returncode, said.stdout) == (0, "")
        return there.calls()

    with at_work(there):
        assert ntp("stratum") == []
    assert ntp("unsync") == []
    (there.root / "usr/bin").mkdir()
    (there.root / "usr/bin/bquic").touch()  # of an installation that ended in between
    assert [call for call in ntp("step") if " bquic-gateway" in call]
    (there.root / "etc/rc.d/S95bquic-gateway").symlink_to("../init.d/bquic-gateway")
    assert ntp("periodic") == []

    (there.root / "etc/rc.d/S95bquic-gateway").unlink()
    assert there.run("--undo", "--yes").returncode == 0
    assert not (there.root / "etc/hotplug.d/ntp/95-bquic-gateway").exists()  # or it would all come back
    assert there.state() == before


def test_a_loss_of_power_empties_no_file(router: Make) -> None:
    """UBIFS may write a new name before the content."""
    for how in ("--undo --yes", "the manual"):
        there, _ = router("opkg")
        (there.root / "etc/passwd").write_text("root:x:0:\nbquic:x:1:\n")
        if how == "the manual":
            there.shell((pathlib.Path(__file__).parents[3] / "docs/install.md").read_text().split("\n## Undo\n")[1].split("```")[1])
        else:
            assert there.run(*how.split()).returncode == 0
        assert (there.root / "etc/passwd").read_text() == "root:x:0:\n"
        assert "sync /etc/passwd.new" in (there.root / "calls").read_text(), how
        shutil.rmtree(there.root)


@pytest.mark.parametrize("manager", ["opkg", "apk"])
def test_an_attended_sysupgrade_by_the_manual(router: Make, manager: str) -> None:
    there, _ = router(manager)
    assert there.run("--yes").returncode == 0
    there.calls()
    manual = (pathlib.Path(__file__).parents[3] / "docs/install.md").read_text()
    [command] = [line for line in manual.splitlines() if line.startswith("owut ") and manager in line]
    assert there.shell('owut() { echo owut $* >>/calls; }\n' + command).stdout == ""
    assert there.calls() == ["owut upgrade --remove bquic-gateway wifirr-sched luci-app-bquic luci-i18n-bquic-es"]


@pytest.mark.parametrize("package", ["bquic-gateway", "wifirr-sched"])
def test_an_image_adds_the_daemons_user(router: Make, package: str) -> None:
    """A sysupgrade keeps /etc/passwd of a system that never had the package. With apk, OpenWrt adds no user at the first start."""
    there, _ = router("apk")
    shutil.copy(pathlib.Path(__file__).parents[3] / f"package/{package}/files/etc/uci-defaults/90-{package}", there.root / "tmp/defaults")
    said = there.shell("add_group_and_user() { echo user of $1; }; . /tmp/defaults")
    assert (said.returncode, said.stdout) == (0, f"user of {package}\n")
    said = there.shell("sh /tmp/defaults")  # where OpenWrt has no such function
    assert (said.returncode, said.stdout) == (0, "")


def test_the_ten_commands_need_no_rpcd() -> None:
    manual = (pathlib.Path(__file__).parents[3] / "docs/install.md").read_text()
    assert "ubus" not in manual.split("\n## Ten commands\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("kwargs, want", [
    ({"free": 3000}, "wifirr-sched luci-app-bquic luci-i18n-bquic-es"),
    ({"memory": 49}, "bquic-gateway wifirr-sched luci-app-bquic luci-i18n-bquic-es"),  # of 64, one with two cores leaves fewer than 56
    ({"memory": 28}, "wifirr-sched luci-app-bquic luci-i18n-bquic-es"),
    ({"radio": False}, "bquic-gateway luci-app-bquic luci-i18n-bquic-es"),
    ({"free": 11000, "fs": "f2fs"}, "wifirr-sched luci-app-bquic luci-i18n-bquic-es"),  # which does not compress
    ({"free": 13000, "fs": "ext4"}, "bquic-gateway wifirr-sched luci-app-bquic luci-i18n-bquic-es"),
    ({"free": 3000, "radio": False}, None),
])
def test_what_does_not_fit_is_not_installed(router: Make, kwargs: dict[str, Any], want: str | None) -> None:
    there, _ = router("opkg", **kwargs)
    before = there.state()
    said = there.run("--yes")
    if want:
        assert there.calls()[-1] == f"opkg install {want}", said.stdout
    else:
        assert said.returncode == 1 and "nothing to install" in said.stdout and there.state() == before
    assert ("does not fit" in said.stdout) == ("bquic-gateway" not in (want or ""))


@pytest.mark.parametrize("manager", ["opkg", "apk"])
def test_an_upgrade_needs_no_room_for_what_is_there(router: Make, manager: str) -> None:
    there, _ = router(manager, free=3000, memory=50)
    (there.root / "packages").write_text("luci-base\nbquic-gateway\n")
    said = there.run("--yes")
    assert said.returncode == 0 and "bquic-gateway wifirr-sched" in there.calls()[-1] and "does not fit" not in said.stdout, said.stdout


@pytest.mark.parametrize("manager", ["opkg", "apk"])
def test_a_scheduler_without_a_radio_is_upgraded_too(router: Make, manager: str) -> None:
    """It may schedule a wire, with htb, or the clients of other access points."""
    there, _ = router(manager, radio=False)
    (there.root / "packages").write_text("luci-base\nwifirr-sched\n")
    said = there.run("--yes")
    assert said.returncode == 0 and "bquic-gateway wifirr-sched luci-app-bquic" in there.calls()[-1], said.stdout


@pytest.mark.parametrize("manager, left", [("opkg", "usr/bin/bquic"), ("apk", "usr/bin/.apk.0123")])
def test_an_installation_that_ended_in_between(router: Make, manager: str, left: str) -> None:
    """The program that has been unpacked, but is in no list, takes the room that it needs."""
    there, _ = router(manager, free=3000)
    before = there.state()
    (there.root / "usr/bin").mkdir(exist_ok=True)
    (there.root / left).touch()
    assert there.run("--undo", "--yes").returncode == 0
    assert there.state() == before
    (there.root / left).touch()
    said = there.run("--yes")
    assert said.returncode == 0 and "does not fit" not in said.stdout, said.stdout
    assert manager == "opkg" or not (there.root / left).exists()  # opkg has written a new one, for which there was no room beside the old one


@pytest.mark.parametrize("package, name", [("bquic-gateway", "bquic"), ("wifirr-sched", "wifirr")])
@pytest.mark.parametrize("now, age, want", [
    ("default", 0, "mine"),
    (None, 0, "mine"),  # between the removal of the old one and the new one
    ("mine", 60, "mine"),  # before the copy was finished
    ("new", -60, "new"),  # somebody has written another one since
])
def test_a_configuration_that_an_interrupted_upgrade_has_replaced(router: Make, package: str, name: str, now: str | None, age: int, want: str) -> None:
    """opkg copies it, unpacks the new default, and puts the copy back at the end. The next upgrade would write the default over the copy."""
    there, _ = router("opkg")
    config, other = there.root / "etc/config" / name, there.root / f"etc/capabilities/{package}.json"
    other.parent.mkdir()
    other.touch()
    built = 1_700_000_000
    os.utime(other, (built, built))
    if now:
        config.write_text(now)
        os.utime(config, (built - age, built - age))
    (there.root / f"etc/config/{name}-opkg.backup").write_text("mi" if now == "mine" else "mine")
    (there.root / "gone").touch()  # it is the operator's again even if the feed does not answer
    assert "nothing was installed" in there.run("--yes").stdout
    assert config.read_text() == want


@pytest.mark.parametrize("arguments", [["--yes"], ["--undo", "--yes"]])
def test_another_opkg_is_at_work(router: Make, arguments: list[str]) -> None:
    """While LuCI's opkg runs, another one says nothing but that. --undo took our packages for removed, and deleted their files."""
    there, _ = router("opkg")
    assert there.run("--yes").returncode == 0
    (there.root / "broken").touch()
    before = there.state()
    said = there.run(*arguments)
    assert said.returncode == 1 and "opkg" in said.stdout, said.stdout
    assert there.state() == before


def test_one_at_a_time(router: Make) -> None:
    """One would remove the list of packages that the other one has just read."""
    there, _ = router("opkg")
    before = there.state()
    for arguments in (["--yes"], ["--undo", "--yes"]):
        with at_work(there):
            said = there.run(*arguments)
        assert said.returncode == 1 and "another install.sh" in said.stdout, said.stdout
        assert there.calls() == [] and there.state() == before


def test_undo_of_an_installation_that_ended_in_between_ends_its_daemons(router: Make) -> None:
    """After a loss of power, the service starts, but no manager knows of it."""
    there, _ = router("opkg")
    before = there.state()
    for service in ("bquic-gateway", "wifirr-sched"):
        script = there.root / "etc/init.d" / service
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"#!/bin/sh\necho {service} $1 >>/calls\n")
        script.chmod(0o755)
    assert there.run("--undo", "--yes").returncode == 0
    assert there.calls() == ["bquic-gateway stop", "wifirr-sched stop"]
    assert there.state() == before


@pytest.mark.parametrize("manager", ["opkg", "apk"])
def test_killed_while_it_replaces_a_file(router: Make, manager: str) -> None:
    """apk trusts whatever is in the directory of the keys, whatever its name."""
    there, _ = router(manager)
    before = there.state()
    sync = there.root / "bin/sync"
    program = sync.read_text()
    for step in range(20):
        sync.write_text(f"#!/bin/sh\necho >>/steps; [ $(grep -c '' /steps) -le {step} ] || kill -9 $PPID\n")
        (there.root / "steps").unlink(missing_ok=True)
        said = there.run("--yes")
        sync.write_text(program)
        (there.root / "steps").unlink(missing_ok=True)
        if said.returncode == 0:
            break
        assert [name for name in there.state() if name.endswith(".new")], said.stdout
        assert there.run("--undo", "--yes").returncode == 0
        assert there.state() == before
    assert step == {"opkg": 3, "apk": 3}[manager]


def test_what_a_manager_says_it_did_is_looked_at(router: Make) -> None:
    there, _ = router("opkg")
    (there.root / "deaf").touch()
    said = there.run("--yes")
    assert said.returncode == 1 and "did not install bquic-gateway. To remove everything again: sh install.sh --undo" in said.stdout


@pytest.mark.parametrize("manager, remove", [("opkg", "opkg remove"), ("apk", "apk del")])
def test_half_of_a_program(router: Make, manager: str, remove: str) -> None:
    """Without room for a new program beside the old one, opkg writes half of it, says nothing, and calls it up to date from then on."""
    there, _ = router(manager)
    (there.root / "half").touch()
    said = there.run("--yes")
    assert said.returncode == 1 and "/usr/bin/bquic does not run" in said.stdout and f"({remove} bquic-gateway)" in said.stdout, said.stdout
    assert "Installed." not in said.stdout
    (there.root / "half").unlink()
    there.shell(f"{remove} bquic-gateway")
    assert there.run("--yes").returncode == 0


def test_refused(router: Make) -> None:
    there, _ = router("opkg")
    before = there.state()
    for args, text in ((["--yes", "http://x/\nhttp://y"], "no address of a feed"), (["--yes", "file:///x"], "say where"),
                       (["--frob"], "sh install.sh")):
        said = there.run(*args)
        assert said.returncode == 1 and text in said.stdout, said.stdout
    (there.root / "etc/openwrt_release").write_text("DISTRIB_ARCH='sparc'\n")
    said = there.run("--yes")
    assert said.returncode == 1 and '"sparc" (it has: mips_24kc x86_64)' in said.stdout
    (there.root / "etc/openwrt_release").write_text("DISTRIB_RELEASE='24.10.8'\nDISTRIB_ARCH='mips_24kc'\n")
    assert there.calls() == [] and there.state() == before


@pytest.mark.parametrize("url", ["feed.example/bquic", "http://feed.example/it's", "http://feed.example/?bquic"])
def test_no_feed_has_an_address_that_install_sh_refuses(tmp_path: pathlib.Path, url: str) -> None:
    said = subprocess.run([sys.executable, pathlib.Path(__file__).parents[2] / "build-packages", "--out", tmp_path / "dist", "--keys", tmp_path / "keys",
                           "--url", url, "x86_64"], capture_output=True, text=True, check=False)
    assert said.returncode == 2 and url in said.stderr and not (tmp_path / "dist").exists(), said.stderr


def test_no_feeds_of_ones_own(router: Make) -> None:
    """Images that somebody built may come without customfeeds.conf."""
    there, _ = router("opkg")
    (there.root / "etc/opkg/customfeeds.conf").unlink()
    before = there.state()
    said = there.run("--yes")
    assert said.returncode == 0, said.stdout
    assert (there.root / "etc/opkg/customfeeds.conf").read_text() == f"src/gz bquic {URL}/mips_24kc\n"
    assert there.run("--undo", "--yes").returncode == 0
    assert there.state() == before


def test_a_list_of_feeds_without_its_last_line_break(router: Make) -> None:
    there, _ = router("opkg")
    feeds = there.root / "etc/opkg/customfeeds.conf"
    feeds.write_text("src/gz other http://other")
    for _ in range(2):
        assert there.run("--yes").returncode == 0
        assert feeds.read_text() == f"src/gz other http://other\nsrc/gz bquic {URL}/mips_24kc\n"


@pytest.mark.parametrize("manager", ["opkg", "apk"])
def test_another_feed_is_dead(router: Make, manager: str) -> None:
    there, _ = router(manager)
    (there.root / "dead").touch()
    said = there.run("--yes")
    assert said.returncode == 0 and "Installed." in said.stdout, said.stdout


@pytest.mark.parametrize("manager", ["opkg", "apk"])
def test_an_upgrade_without_the_feed_is_none(router: Make, manager: str) -> None:
    """The managers call what is installed up to date if the feed does not answer, or has another key."""
    there, _ = router(manager)
    assert there.run("--yes").returncode == 0
    there.calls()
    (there.root / "gone").touch()
    said = there.run("--yes")
    assert said.returncode == 1 and "nothing was installed" in said.stdout and "Installed." not in said.stdout
    assert there.calls() == [f"{manager} update"]


def test_a_portal_in_place_of_the_feed(router: Make) -> None:
    """Without check_signature, opkg takes its page for a list that has no package."""
    there, _ = router("opkg")
    assert there.run("--yes").returncode == 0
    (there.root / "portal").touch()
    said = there.run("--yes")
    assert said.returncode == 1 and "nothing was installed" in said.stdout, said.stdout


@pytest.mark.parametrize("manager", ["opkg", "apk"])
def test_an_upgrade_that_does_not_fit(router: Make, manager: str) -> None:
    """opkg stops in the middle of the new program, while the old one is still running, and calls it up to date then."""
    there, _ = router(manager, free=13000, fs="ext4")
    assert there.run("--yes").returncode == 0
    there.calls()
    (there.root / "bin/df").write_text((there.root / "bin/df").read_text().replace("13000", "9000"))
    assert there.run("--yes").returncode == 0  # nothing is new
    assert "bquic-gateway" in there.calls()[-1]
    (there.root / "newer").touch()
    said = there.run("--yes")
    remove = {"opkg": "opkg remove bquic-gateway", "apk": "apk del bquic-gateway"}[manager]
    assert said.returncode == 1 and "12000 KB" in said.stdout and remove in said.stdout, said.stdout
    assert there.calls() == [f"{manager} update"]


@pytest.fixture
def full(tmp_path: pathlib.Path) -> Iterator[Callable[[Router], None]]:
    """Moves a router's /etc to a file system that is full."""
    mounted = []

    def fill(there: Router) -> None:
        etc, kept = there.root / "etc", tmp_path / "kept"
        shutil.copytree(etc, kept, symlinks=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "full", etc], check=True)
        mounted.append(etc)
        shutil.copytree(kept, etc, symlinks=True, dirs_exist_ok=True)
        with pytest.raises(OSError), open(etc / "rest", "wb", buffering=0) as rest:
            while True:
                rest.write(bytes(4096))
    yield fill
    for etc in mounted:
        subprocess.run(["umount", etc], check=True)


@pytest.mark.parametrize("how", ["--yes", "--undo", "the manual"])
def test_a_full_flash_loses_nothing(router: Make, full: Callable[[Router], None], how: str) -> None:
    """busybox's sed -i empties a short file that it cannot write, and calls that a success: the router had no user left, or no other feed."""
    there, _ = router("opkg")
    files = [there.root / "etc" / name for name in ("passwd", "group", "shadow", "opkg/customfeeds.conf")]
    files[2].chmod(0o600)
    first = [file.read_text() for file in files]
    if how == "--yes":
        assert there.run("--yes").returncode == 0
    for file in files[:3]:
        file.write_text("bquic:x:1:\n" + first[0])
    before = [file.read_text() for file in files]
    full(there)
    if how == "the manual":
        manual = (pathlib.Path(__file__).parents[3] / "docs/install.md").read_text()
        there.shell(manual.split("\n## Undo\n")[1].split("```")[1])
    else:
        assert there.run("--yes", "http://other.example" if how == "--yes" else how).returncode == 1
    assert [file.read_text() for file in files] == before
    (there.root / "etc/rest").unlink()
    assert there.run("--undo", "--yes").returncode == 0
    assert [file.read_text() for file in files] == first
    assert files[2].stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("manager", ["opkg", "apk"])
@pytest.mark.parametrize("again", [False, True])
def test_a_full_flash_loses_no_feed(router: Make, full: Callable[[Router], None], manager: str, again: bool) -> None:
    there, _ = router(manager)
    if again:
        assert there.run("--yes").returncode == 0
        written = {p: p.stat().st_ino for p in there.root.rglob("*") if p.is_file() and str(p).startswith((f"{there.root}/etc", f"{there.root}/lib/upgrade"))}
        assert there.run("--yes").returncode == 0
        assert written == {p: p.stat().st_ino for p in written}  # not again: flash wears out
    full(there)
    before = there.state()
    said = there.run("--yes", "http://other.example")
    assert said.returncode == 1 and "Make room" in said.stdout, said.stdout
    assert there.state() == before


@pytest.mark.parametrize("manager", ["opkg", "apk"])
def test_a_new_key_replaces_the_old_one(router: Make, tmp_path: pathlib.Path, manager: str) -> None:
    """The old one may have been stolen. Keys of others stay."""
    there, old = router(manager)
    folder = there.root / "etc" / ("opkg/keys" if manager == "opkg" else "apk/keys")
    folder.mkdir(parents=True)
    (folder / "ours").write_text("untrusted comment: public key 0123456789abcdef\n")
    before = there.state()
    assert there.run("--yes").returncode == 0
    new = keys.Feed(tmp_path / "new")
    feed.write(there.root / "tmp", ["mips_24kc"], URL, new)
    assert there.run("--yes").returncode == 0
    assert "".join(file.read_text() for file in sorted(folder.iterdir()) if file.name != "ours") == \
        (new.opkg_public if manager == "opkg" else new.apk_public)
    feed.write(there.root / "tmp", ["mips_24kc"], URL, old)
    assert there.run("--undo", "--yes").returncode == 0
    after = there.state()
    assert {name for name in after if name.startswith("etc/")} == {name for name in before if name.startswith("etc/")}


def test_undo_of_what_apk_has_not_installed_yet(router: Make) -> None:
    """Without room for it, apk tries again whenever it installs anything, and installs nothing where the feed is gone."""
    there, _ = router("apk")
    before = there.state()
    (there.root / "full").touch()
    assert there.run("--yes").returncode == 1
    (there.root / "full").unlink()
    assert there.run("--undo", "--yes").returncode == 0
    assert there.state() == before


def test_apk_fails_for_another_package(router: Make) -> None:
    """It does so for good once a script has failed."""
    there, _ = router("apk")
    (there.root / "unwell").touch()
    before = there.state()
    (there.root / "newer").touch()
    said = there.run("--yes")
    assert said.returncode == 0 and "Installed." in said.stdout, said.stdout
    said = there.run("--undo", "--yes")
    assert said.returncode == 0 and there.state() == before, said.stdout


def test_a_failure_says_how_to_go_back(router: Make) -> None:
    there, _ = router("apk")
    before = there.state()
    (there.root / "broken").touch()
    said = there.run("--yes")
    assert said.returncode == 1 and "--undo" in said.stdout
    (there.root / "broken").unlink()
    assert there.run("--undo", "--yes").returncode == 0
    assert there.state() == before
