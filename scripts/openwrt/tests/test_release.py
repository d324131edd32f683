# SPDX-License-Identifier: Apache-2.0
"""What is built from a release's sources, without git, is what is built from the commit."""

import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

from openwrt.recipe import REPO  # noqa: E402


def test_the_sources_have_the_commits_time(tmp_path: pathlib.Path) -> None:
    packed = subprocess.check_output(["git", "archive", "HEAD", "scripts/openwrt", "version.mk"], cwd=REPO)
    subprocess.run(["tar", "-x"], cwd=tmp_path, input=packed, check=True)
    (tmp_path / "scripts/openwrt/contents.py").write_bytes((REPO / "scripts/openwrt/contents.py").read_bytes())
    environment = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    told = [subprocess.run([sys.executable, "-c", "from openwrt import contents; print(contents.epoch())"], cwd=directory / "scripts",
                           env=environment, capture_output=True, text=True, check=True).stdout for directory in (REPO, tmp_path)]
    assert told[0] == told[1]
