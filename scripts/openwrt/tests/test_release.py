# SPDX-License-Identifier: Apache-2.0
"""What is built from a release's sources, without git, is what is built from the commit; and so it is with an SDK."""

import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

from openwrt.recipe import REPO, Recipe  # noqa: E402

SDK = "include version.mk\nall:\n\t@echo $(PKG_VERSION)-r$(PKG_RELEASE)\n"
OURS = "from openwrt import recipe; print(recipe.Recipe(recipe.REPO / 'luci-app-bquic/Makefile').release)"


def test_the_sources_have_the_commits_time(tmp_path: pathlib.Path) -> None:
    packed = subprocess.check_output(["git", "archive", "HEAD", "scripts/openwrt", "luci-app-bquic/Makefile", "version.mk"], cwd=REPO)
    subprocess.run(["tar", "-x"], cwd=tmp_path, input=packed, check=True)
    stamp = (tmp_path / "version.mk").stat()
    for file in ("scripts/openwrt/recipe.py", "version.mk"):
        (tmp_path / file).write_bytes((REPO / file).read_bytes())
    os.utime(tmp_path / "version.mk", (stamp.st_atime, stamp.st_mtime))
    environment = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"} | {"TZ": "Pacific/Chatham"}
    told = [subprocess.run(command, cwd=directory / folder, input=SDK, env=environment, capture_output=True, text=True, check=True).stdout
            for directory in (REPO, tmp_path) for command, folder in (([sys.executable, "-c", OURS], "scripts"), (["make", "-sf", "-"], "."))]
    assert len(set(told)) == 1, told


def test_a_later_commit_is_an_upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of the same version: opkg and apk compare the release's number."""
    numbers = []
    for time in ("1767225599", "1767225600", "1767225601"):  # a new year
        monkeypatch.setenv("SOURCE_DATE_EPOCH", time)
        numbers.append(int(Recipe(REPO / "luci-app-bquic/Makefile").release.rpartition("-r")[2]))
    assert numbers == sorted(set(numbers))
