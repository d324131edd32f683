# SPDX-License-Identifier: Apache-2.0
"""An emulated router board: MIPS 24Kf, little-endian, on which time is counted in instructions.

QEMU's Malta with Debian's kernel and busybox for mipsel, fetched and unpacked into .cache/router/, never installed. QEMU's
virtual time advances by NS_PER_INSTRUCTION with each instruction, so the process time reported by the kernel is a count of
instructions, and the same on every machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence

from lab import debian
from lab.namespaces import Failed

HERE = pathlib.Path(__file__).resolve().parent
CACHE = HERE.parent.parent / ".cache/router"
NS_PER_INSTRUCTION = 8  # -icount shift=3
PACKAGES = ("busybox-static", "ethtool", "libc6", "libmnl0")
KERNEL = "linux-image-4kc-malta"
MODULES = ("veth", "nf_tables", "nft_chain_nat", "nft_nat", "nft_ct", "nfnetlink_queue", "nft_queue", "e1000")
# Files of the packages in the initial file system. ethtool needs libc.so.6, its loader and libm.so.6.
FILES = ("bin/busybox", "sbin/ethtool", "lib/ld.so.1", "lib/mipsel-linux-gnu/ld.so.1",
         "lib/mipsel-linux-gnu/libc.so.6", "lib/mipsel-linux-gnu/libm.so.6", "usr/lib/mipsel-linux-gnu/libmnl.so.0")


class CannotRun(Exception):
    """This machine cannot emulate the board."""


def _fetch(root: pathlib.Path) -> None:
    with debian.archive("mipsel") as archive:
        depends = archive.depends(KERNEL)
        image = next((word for word in depends if word.startswith("linux-image-") and word != KERNEL), None)
        if not image:
            raise CannotRun(f"no {KERNEL} in Debian {debian.SUITE}")
        archive.unpack(root, image, *PACKAGES)


def _pack(directory: pathlib.Path) -> bytes:
    """The directory as a cpio archive."""
    names = b"\0".join(sorted(os.fsencode(p.relative_to(directory)) for p in directory.rglob("*")))
    return subprocess.run(["cpio", "-o0", "-H", "newc", "--quiet"], cwd=directory, input=names, capture_output=True, check=True).stdout


def _base(root: pathlib.Path) -> bytes:
    """The initial file system without the files of a run."""
    release = next((root / "lib/modules").iterdir()).name
    debian.shell("depmod", "-b", root, release)
    with tempfile.TemporaryDirectory() as temporary:
        tree = pathlib.Path(temporary)
        for directory in ("dev", "proc", "sys", "tmp", "modules", "job", "sbin"):
            (tree / directory).mkdir()
        for file in FILES:
            (tree / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / file, tree / file)
        shutil.copy(HERE / "init", tree / "init")
        order: list[str] = []
        for module in MODULES:
            for line in debian.shell("modprobe", "-d", root, "-S", release, "--show-depends", module).splitlines():
                kind, path = line.split()[:2]
                name = pathlib.Path(path).name
                if kind == "insmod" and name not in order:
                    order.append(name)
                    shutil.copy(path, tree / "modules")
        (tree / "modules/order").write_text("".join(f"{name}\n" for name in order))
        return _pack(tree)


def _prepare() -> tuple[pathlib.Path, pathlib.Path]:
    """The kernel and the base of the initial file system, made on demand."""
    os.environ["PATH"] += ":/sbin:/usr/sbin"
    for tool in ("qemu-system-mipsel", "cpio", "apt-get", "dpkg-deb", "depmod", "modprobe"):
        if not shutil.which(tool):
            raise CannotRun(f"{tool} is not installed")
    CACHE.mkdir(parents=True, exist_ok=True)
    root, base = CACHE / "root", CACHE / "base.cpio"
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            part = CACHE / "root.part"
            shutil.rmtree(part, ignore_errors=True)
            _fetch(part)
            part.rename(root)
        sources = [HERE / "init", HERE / "board.py"]
        if not base.exists() or base.stat().st_mtime < max(source.stat().st_mtime for source in sources):
            (CACHE / "base.part").write_bytes(_base(root))
            (CACHE / "base.part").rename(base)
    return next((root / "boot").glob("vmlinuz-*")), base


@contextlib.contextmanager
def run(
    script: pathlib.Path, arguments: Sequence[str], files: Mapping[str, pathlib.Path], *,
    megabytes: int = 256, seconds: float = 600, counted: bool = True, devices: Sequence[str] = (), within: Sequence[str] = (),
) -> Iterator[Iterator[str]]:
    """Boots the board with SCRIPT as its task and returns the lines that it writes.

    ARGUMENTS have no blanks. FILES are laid into /job under their names, which is on the PATH. DEVICES are flags for QEMU,
    which runs WITHIN a command. Where instructions are not COUNTED, the board's clock is the machine's. Raises CannotRun, and
    Failed when the script fails, is not done within SECONDS or the board dies.
    """
    try:
        kernel, base = _prepare()
    except debian.Unavailable as error:
        raise CannotRun(str(error)) from error
    with tempfile.TemporaryDirectory() as name:
        tmp = pathlib.Path(name)
        job = tmp / "job"
        (job / "job").mkdir(parents=True)
        (job / "job/arguments").write_text(" ".join(arguments))
        for target, file in {**files, "main": script}.items():
            shutil.copy(file, job / "job" / target)
        (tmp / "initrd").write_bytes(base.read_bytes() + _pack(job))
        command = [
            *within, "timeout", "--foreground", "-k", "5", str(seconds),
            "qemu-system-mipsel", "-M", "malta", "-cpu", "24Kf", "-m", str(megabytes),
            "-nodefaults", "-display", "none", "-no-reboot", "-net", "none", *devices,
            *(("-icount", "shift=3", "-rtc", "clock=vm") if counted else ()),
            "-kernel", str(kernel), "-initrd", str(tmp / "initrd"),
            "-append", "console=ttyS0 loglevel=4 panic=-1 nokaslr rdinit=/init rootfstype=ramfs",
            "-serial", f"file:{tmp / 'console'}", "-serial", "stdio",
        ]
        qemu = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert qemu.stdout and qemu.stderr
        status: list[str] = []
        said: list[str] = []

        def lines() -> Iterator[str]:
            assert qemu.stdout
            for line in qemu.stdout:
                line = line.strip()
                if line.startswith("exit "):
                    status.append(line[5:])
                elif line:
                    said.append(line)
                    yield line

        try:
            rest = lines()
            yield rest
            for _ in rest:
                pass
            code = qemu.wait()
        finally:
            if qemu.poll() is None:
                qemu.terminate()
                qemu.wait()
        if status == ["0"]:
            return
        if status:
            raise Failed("\n".join([f"{script.name} {' '.join(arguments)}: exit code {status[0]}", *said[-300:]]))
        console = (tmp / "console").read_text(errors="replace").splitlines() if (tmp / "console").exists() else []
        why = f"not done within {seconds:g} s" if code == 124 else qemu.stderr.read().strip() or "the board died"
        raise Failed("\n".join([f"{script.name}: {why}", *console[-20:]]))
