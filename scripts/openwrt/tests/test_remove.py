# SPDX-License-Identifier: Apache-2.0
"""What a removal leaves: nothing, not even an empty folder or a language on LuCI's menu, on a router of busybox's tools."""

import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).parents[2]), str(pathlib.Path(__file__).parent)]

from openwrt import apk, contents, feed, keys  # noqa: E402
from openwrt.recipe import REPO, Recipe  # noqa: E402
from test_install import Router  # noqa: E402

# /etc/config/luci as lines of KEY='VALUE'.
UCI = """[ "$1" != -q ] || shift
file=/etc/config/luci
case $1 in
set) key=${2%%=*}; sed -i "/^$key=/d" $file; echo "$key='${2#*=}'" >>$file ;;
delete) grep -q "^$2=" $file && sed -i "/^$2=/d" $file ;;
changes) echo "$2" ;;
commit) sort -o $file $file ;;
esac"""
# Folders of OpenWrt and LuCI; the files of a new system's uci-defaults are gone after its first start.
STOCK = ("etc/capabilities/ntpd.json", "etc/hotplug.d/net/00-sysctl", "etc/init.d/boot", "lib/upgrade/keep.d/base-files",
         "usr/bin/env", "usr/sbin/uhttpd", "usr/share/luci/menu.d/luci-base.json", "usr/share/rpcd/acl.d/luci-base.json",
         "www/luci-static/resources/luci.js", "www/luci-static/resources/view/system/system.js", "etc/uci-defaults/", "var/etc/")


class Installed(Router):
    """A router whose packages are unpacked, and removed as by opkg: files, but no folders."""

    def __init__(self, root: pathlib.Path) -> None:
        super().__init__(root, "opkg")
        for path in STOCK:
            file = root / path
            (file if path.endswith("/") else file.parent).mkdir(parents=True, exist_ok=True)
            if not path.endswith("/"):
                file.write_text("")
        (root / "bin/uci").write_text(f"#!/bin/sh\n{UCI}\n")
        (root / "etc/config/luci").write_text("luci.languages.en='English'\n")

    def tree(self) -> dict[str, str | None]:
        folders: dict[str, str | None] = {str(p.relative_to(self.root)): None for p in self.root.rglob("*") if p.is_dir()}
        return folders | self.state()

    def add(self, package: contents.Package) -> None:
        for path, (_, content) in package.tree.files.items():
            file = self.root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content if isinstance(content, bytes) else content.encode())
            if path.startswith("etc/uci-defaults/luci"):
                assert self.shell(f". /{path}").returncode == 0
            if path.startswith("etc/uci-defaults/"):
                file.unlink()

    def script(self, package: contents.Package, how: str) -> None:
        (self.root / "tmp/postrm").write_text(package.postrm)
        done = self.shell(f"sh /tmp/postrm {how}")
        (self.root / "tmp/postrm").unlink()
        assert (done.returncode, done.stdout) == (0, "")

    def remove(self, package: contents.Package) -> None:
        for path in package.tree.files:
            (self.root / path).unlink(missing_ok=True)
        self.script(package, "remove")


def packages() -> list[contents.Package]:
    """All packages in an order in which opkg removes them, without programs."""
    found = contents.luci_packages()
    for name in ("bquic-gateway", "wifirr-sched"):
        recipe = Recipe(REPO / f"package/{name}/Makefile")
        tree = contents.Tree()
        tree.add_dir(recipe.dir / "files")
        found.append(contents.Package(name, recipe, "x", [], [], tree, postrm=recipe.block("postrm")))
    return sorted(found, key=lambda p: not p.name.startswith("luci-i18n-"))


def test_nothing_is_left(tmp_path: pathlib.Path) -> None:
    there = Installed(tmp_path / "router")
    before = there.tree()
    for package in packages():
        there.add(package)
    installed = there.tree()
    assert len(installed) > len(before) + 20
    assert "luci.languages.de='Deutsch (German)'" in (there.root / "etc/config/luci").read_text()

    for package in packages():
        there.script(package, "upgrade 9.9.9-r1")
    assert there.tree() == installed
    for left in ("var/etc/bquic/kernel", "var/etc/wifirr/program"):  # by the init scripts
        (there.root / left).parent.mkdir()
        (there.root / left).write_text("")
    for package in packages():
        there.remove(package)
    assert there.tree() == before


def test_a_language_of_others_stays(tmp_path: pathlib.Path) -> None:
    there = Installed(tmp_path / "router")
    base = there.root / "usr/lib/lua/luci/i18n/base.de.lmo"
    base.parent.mkdir(parents=True)
    base.write_text("")
    (there.root / "etc/config/luci").write_text("luci.languages.de='Deutsch (German)'\nluci.languages.en='English'\n")
    before = there.tree()
    for package in packages():
        there.add(package)
    for package in packages():
        there.remove(package)
    assert there.tree() == before


def test_undo_of_an_installation_that_ended_in_between(tmp_path: pathlib.Path) -> None:
    """opkg or apk has unpacked all, and lost power before it wrote down whose the files are."""
    there = Installed(tmp_path / "router")
    feed.write(there.root / "tmp", ["mips_24kc"], "http://feed.example", keys.Feed(tmp_path / "keys"))
    before = there.state()
    for package in packages():
        for path in [*apk.with_lists(package).files, f"usr/lib/opkg/info/{package.name}.list", "usr/bin/bquic", "usr/sbin/wifirrd", "etc/config/bquic-opkg.backup"]:
            file = there.root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
    assert there.run("--undo", "--yes").returncode == 0
    assert there.state() == before
