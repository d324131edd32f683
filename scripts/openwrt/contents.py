# SPDX-License-Identifier: Apache-2.0
"""Every package: its metadata, files and scripts, whatever the format."""

import dataclasses
import hashlib
import os
import pathlib

from . import binaries
from .lmo import lmo
from .recipe import REPO, Recipe

# Names of languages for LuCI's language menu (as in luci.mk).
LANGUAGES = {"ca": "Català (Catalan)", "de": "Deutsch (German)", "es": "Español (Spanish)"}

# As in luci.mk: the cached menu is stale, and rpcd must be told to reread ACLs.
LUCI_POSTINST = """\
[ -n "${IPKG_INSTROOT}" ] || {
	rm -f /tmp/luci-indexcache.*
	rm -rf /tmp/luci-modulecache/
	/etc/init.d/rpcd reload 2>/dev/null
	exit 0
}
"""


class Tree:
    """Files: path without leading slash -> (mode, content). A str is a symbolic link's target."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[int, bytes | str]] = {}

    def add(self, path: str, content: bytes, mode: int = 0o644) -> None:
        self.files[path.lstrip("/")] = (mode, content)

    def add_dir(self, root: pathlib.Path, to: str = "") -> None:
        for p in sorted(root.rglob("*")):
            name = f"{to}/{p.relative_to(root)}".lstrip("/")
            if p.is_symlink():
                self.files[name] = (0o777, os.readlink(p))
            elif p.is_file():
                self.add(name, p.read_bytes(), 0o755 if p.stat().st_mode & 0o100 else 0o644)

    def content(self, path: str) -> bytes:
        content = self.files[path.lstrip("/")][1]
        if isinstance(content, str):
            raise ValueError(f"{path} is a symbolic link")
        return content

    def directories(self) -> list[str]:
        """The directories above the files; "" is the root."""
        return sorted({str(parent) if str(parent) != "." else "" for path in self.files
                       for parent in pathlib.PurePosixPath(path).parents})


@dataclasses.dataclass
class Package:
    name: str
    recipe: Recipe
    arch: str  # "all": any architecture
    depends: list[str]
    description: list[str]  # lines
    tree: Tree
    conffiles: list[str] = dataclasses.field(default_factory=list)
    user: str = ""  # USER:GROUP created by the installation
    postinst: str = ""  # shell, after OpenWrt's own
    postrm: str = ""

    @property
    def version(self) -> str:
        return self.recipe.release

    @property
    def source(self) -> str:
        return f"feeds/bquic/{self.recipe.dir.relative_to(REPO)}"

    def conffile_sums(self) -> list[tuple[str, str]]:
        """Each configuration file, with the SHA-256 of the package's version."""
        return [(f, hashlib.sha256(self.tree.content(f)).hexdigest()) for f in self.conffiles]


def luci_packages() -> list[Package]:
    """The LuCI app and its translations, for every architecture."""
    recipe = Recipe(REPO / "luci-app-bquic/Makefile")
    tree = Tree()
    tree.add_dir(recipe.dir / "htdocs", "www")
    tree.add_dir(recipe.dir / "root")
    found = [Package(recipe.name, recipe, "all", recipe.depends(), recipe.description.splitlines(), tree,
                     postinst=LUCI_POSTINST, postrm=recipe.block("postrm"))]
    base = recipe.name.removeprefix("luci-app-")
    for po in sorted((recipe.dir / "po").glob("*/*.po")):
        lang = po.parent.name
        name = f"luci-i18n-{base}-{lang}"
        tree = Tree()
        tree.add(f"usr/lib/lua/luci/i18n/{po.stem}.{lang}.lmo", lmo(po.read_text()))
        tree.add(f"etc/uci-defaults/{name}",
                 f"uci set luci.languages.{lang}='{LANGUAGES[lang]}'; uci commit luci\n".encode())
        found.append(Package(name, recipe, "all", ["libc", recipe.name],
                             [f"Translation for {recipe.name} - {LANGUAGES[lang]}"], tree,
                             postrm=recipe.block("postrm", of=f"luci-i18n-{base}")))
    return found


def packages(arch: str) -> list[Package]:
    """All packages of an architecture, with their programs built."""
    found = luci_packages()
    for name, build, path in (("bquic-gateway", binaries.build_bquic, "usr/bin/bquic"),
                              ("wifirr-sched", binaries.build_wifirrd, "usr/sbin/wifirrd")):
        recipe = Recipe(REPO / f"package/{name}/Makefile")
        program = binaries.WORK / arch / pathlib.Path(path).name
        program.parent.mkdir(parents=True, exist_ok=True)
        build(recipe, arch, program)
        tree = Tree()
        tree.add_dir(recipe.dir / "files")
        conffiles = recipe.block("conffiles").split()
        for conf in conffiles:
            tree.add(conf, (REPO / "files" / conf.lstrip("/")).read_bytes(), 0o600)  # as INSTALL_CONF: it may contain secrets
        tree.add(path, program.read_bytes(), 0o755)
        found.append(Package(recipe.name, recipe, arch, recipe.depends(), recipe.description.splitlines(), tree,
                             conffiles, recipe.vars.get("USERID", ""), recipe.block("postinst"), recipe.block("postrm")))
    return sorted(found, key=lambda p: p.name)
