# SPDX-License-Identifier: Apache-2.0
"""The contents of the packages' Makefiles. The SDK reads the same files."""

import os
import pathlib
import re
import subprocess
import sys
import time

REPO = pathlib.Path(__file__).resolve().parent.parent.parent

# ABI versions of libraries. Their packages' names end in them; the SDK also appends them to dependencies.
ABI_VERSIONS = {"libmnl": "0"}


def git(*command: str) -> str:
    """What git says. It refuses a checkout that belongs to another user, as in many containers, and says what to do."""
    done = subprocess.run(["git", *command], cwd=REPO, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{pathlib.Path(sys.argv[0]).name}: git failed, as it says above")
    return done.stdout


def epoch() -> int:
    """The timestamp of all files: the commit's time. The same commit gives the same bytes."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    if not (REPO / ".git").exists():  # a release's sources, whose files have that time
        return int((REPO / "version.mk").stat().st_mtime)
    return int(git("log", "-1", "--format=%ct"))


class Recipe:
    """A package's Makefile: its variables, and the blocks of its define ... endef."""

    def __init__(self, path: pathlib.Path) -> None:
        self.dir = path.parent
        text = re.sub(r"^include (\.\S+)$", lambda m: (path.parent / m[1]).read_text(), path.read_text(), flags=re.M)
        self.vars: dict[str, str] = dict(re.findall(r"^\s*([A-Z_]+):=(.*?)\s*$", text, re.M))
        self.name = self.vars["PKG_NAME"]
        self.version = self.vars["PKG_VERSION"]
        self.release = f"{self.version}-r{time.strftime('%Y%m%d%H%M%S', time.gmtime(epoch()))}"
        self._blocks: dict[str, str] = dict(re.findall(r"^define (\S+)\n(.*?)^endef", text, re.M | re.S))

    def block(self, name: str, of: str = "") -> str:
        """Package/NAME/name, as expanded by make; empty if there is none."""
        return self._blocks.get(f"Package/{of or self.name}/{name}", "").replace("$$", "$")

    @property
    def description(self) -> str:
        return self.block("description") or self.vars["LUCI_DESCRIPTION"]  # LuCI packages have no such block

    @property
    def section(self) -> str:
        return self.vars.get("SECTION", "luci")

    def depends(self) -> list[str]:
        words = re.sub(r"\$\(.*?\)", "", self.vars.get("DEPENDS") or self.vars["LUCI_DEPENDS"]).split()
        names = [w.lstrip("+") for w in words if not w.startswith("@")]
        return ["libc"] + [n + ABI_VERSIONS.get(n, "") for n in names]
