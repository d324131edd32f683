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


@pytest.mark.parametrize("command", [["build-packages", "--out"], ["release", "--keys"]])
def test_a_checkout_of_another_user(command: list[str], tmp_path: pathlib.Path) -> None:
    """As one of the host in a container: git says what to do, and a traceback hid it."""
    environment = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    environment |= {"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}
    done = subprocess.run([sys.executable, REPO / "scripts" / command[0], command[1], tmp_path], env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "dubious ownership" in done.stderr
    assert done.stderr.endswith(f"\n{command[0]}: git failed, as it says above\n") and "Traceback" not in done.stderr


def test_a_later_commit_is_an_upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of the same version: opkg and apk compare the release's number."""
    numbers = []
    for time in ("1767225599", "1767225600", "1767225601"):  # a new year
        monkeypatch.setenv("SOURCE_DATE_EPOCH", time)
        numbers.append(int(Recipe(REPO / "luci-app-bquic/Makefile").release.rpartition("-r")[2]))
    assert numbers == sorted(set(numbers))
