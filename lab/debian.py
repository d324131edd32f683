# SPDX-License-Identifier: Apache-2.0
"""Debian's packages of another architecture than this machine's: fetched and unpacked, never installed."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Iterator

SUITE = "bookworm"  # the last one with mipsel


class Unavailable(Exception):
    """The packages are not available here."""


def shell(*command: str | os.PathLike[str], cwd: pathlib.Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"{command[0]}: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")
    return done.stdout


class Archive:
    """The packages of one architecture, with separate package lists."""

    def __init__(self, directory: pathlib.Path, options: list[str]) -> None:
        self._directory, self._options = directory, options

    def depends(self, package: str) -> list[str]:
        """The words of apt-cache's output for a package."""
        return shell("apt-cache", *self._options, "depends", package).split()

    def unpack(self, root: pathlib.Path, *packages: str) -> None:
        shell("apt-get", *self._options, "download", *packages, cwd=self._directory)
        for deb in self._directory.glob("*.deb"):
            shell("dpkg-deb", "-x", deb, root)


@contextlib.contextmanager
def archive(architecture: str) -> Iterator[Archive]:
    """An archive from the system's mirror."""
    site = shell("apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages", f"Codename: {SUITE}").split()
    if not site:
        raise Unavailable(f"no Debian {SUITE} among the package sources")
    with tempfile.TemporaryDirectory() as name:
        tmp = pathlib.Path(name)
        for directory in ("lists/partial", "cache/archives/partial"):
            (tmp / directory).mkdir(parents=True)
        (tmp / "sources").write_text(
            f"deb [arch={architecture} signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {site[0]} {SUITE} main\n")
        options = ["-q"]
        for key, value in {
            "APT::Sandbox::User": "root", "Debug::NoLocking": "1", "Dir::Etc::SourceParts": "/dev/null",
            "Dir::Etc::SourceList": tmp / "sources", "Dir::State::Lists": tmp / "lists", "Dir::Cache": tmp / "cache",
            "APT::Architecture": architecture, "APT::Architectures": architecture,
        }.items():
            options += ["-o", f"{key}={value}"]
        shell("apt-get", *options, "update")
        yield Archive(tmp, options)
