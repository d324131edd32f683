# SPDX-License-Identifier: Apache-2.0
"""The programs of the packages, built for OpenWrt's architectures without an SDK."""

import importlib.util
import os
import pathlib
import re
import shlex
import shutil
import struct
import subprocess
import sys

from .recipe import REPO, Recipe

WORK = REPO / "build/packages"
ZIG = {"ZIG_GLOBAL_CACHE_DIR": str(REPO / ".cache/zig")}

# OpenWrt's package architecture: Go's target, Zig's target and CPU. The float
# ABI is OpenWrt's: soft on MIPS and ARMs without NEON, hard with VFPv4 and NEON.
ARCHES = {
    "mips_24kc": ("GOARCH=mips GOMIPS=softfloat", "mips-linux-musleabi", "mips32r2+soft_float"),
    "mipsel_24kc": ("GOARCH=mipsle GOMIPS=softfloat", "mipsel-linux-musleabi", "mips32r2+soft_float"),
    "arm_cortex-a7": ("GOARCH=arm GOARM=7,softfloat", "arm-linux-musleabi", "cortex_a7+soft_float"),
    "arm_cortex-a7_neon-vfpv4": ("GOARCH=arm GOARM=7", "arm-linux-musleabihf", "cortex_a7"),
    "arm_cortex-a15_neon-vfpv4": ("GOARCH=arm GOARM=7", "arm-linux-musleabihf", "cortex_a15"),
    "arm_cortex-a9_vfpv3-d16": ("GOARCH=arm GOARM=7", "arm-linux-musleabihf", "cortex_a9-neon-d32"),
    "aarch64_cortex-a53": ("GOARCH=arm64", "aarch64-linux-musl", "cortex_a53"),
    "aarch64_cortex-a72": ("GOARCH=arm64", "aarch64-linux-musl", "cortex_a72"),
    "aarch64_generic": ("GOARCH=arm64", "aarch64-linux-musl", "generic"),
    "x86_64": ("GOARCH=amd64 GOAMD64=v1", "x86_64-linux-musl", "x86_64"),
}


def run(*command: str | pathlib.Path, **env: str) -> None:
    if subprocess.run(command, cwd=REPO, env={**os.environ, **env}).returncode:
        sys.exit(f"build-packages: failed: {' '.join(map(str, command))}")


def build_bquic(recipe: Recipe, arch: str, out: pathlib.Path) -> None:
    run(REPO / "scripts/build-bquic", "--router", out, recipe.version, GOOS="linux",
        **dict(v.split("=") for v in ARCHES[arch][0].split()))


def compiler(arch: str) -> list[str]:
    _, target, cpu = ARCHES[arch]
    zig = importlib.util.find_spec("ziglang")
    if zig is None or zig.origin is None:
        sys.exit("build-packages: no ziglang: scripts/install-deps packages")
    # Not "python -m ziglang": Python would start for each of the sources.
    return [str(pathlib.Path(zig.origin).with_name("zig")), "cc", "-target", target, f"-mcpu={cpu}"]


def stub_of_libmnl(arch: str, directory: pathlib.Path) -> None:
    """A stub to link with instead of OpenWrt's library: it has the library's name and function names."""
    header = pathlib.Path("/usr/include/libmnl/libmnl.h").read_text()
    names = sorted(set(re.findall(r"^extern .*?\b(mnl_\w+)\(", header, re.M)))
    source = directory / "libmnl.c"
    source.write_text("".join(f"void {name}(void) {{}}\n" for name in names))
    run(*compiler(arch), "-shared", "-nostdlib", "-fno-unwind-tables", "-fno-asynchronous-unwind-tables",
        "-Wl,-soname,libmnl.so.0", "-o", directory / "libmnl.so", source, **ZIG)


def build_wifirrd(recipe: Recipe, arch: str, out: pathlib.Path) -> None:
    # Use only this machine's libmnl header, not its libc headers.
    include = WORK / "include"
    include.mkdir(parents=True, exist_ok=True)
    if not (include / "libmnl").is_symlink():
        (include / "libmnl").symlink_to("/usr/include/libmnl")
    # The Makefile builds in place, so a copy keeps this machine's own build unchanged.
    source = out.parent / "src"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(recipe.dir / "src", source, ignore=shutil.ignore_patterns("wifirrd", "*.o"))
    stub_of_libmnl(arch, source)
    # Neither -fPIC nor -flto: either one makes the program for MIPS larger. So do -Oz's inlining, jump threading and shrink wrapping,
    # and strict aliasing makes the package larger.
    run("make", "-s", "-C", source, "wifirrd", f"VERSION={recipe.version}", "PKG_CONFIG=true",
        f"CC={shlex.join([*compiler(arch), f'-I{include}'])}",
        # -Xclang -Oz: Zig turns -Oz into -Os.
        f"CFLAGS=-Os -Xclang -Oz -mllvm -inline-threshold=-100 -mllvm -jump-threading-threshold=0 "
        f"-mllvm -enable-shrink-wrap=false -fno-strict-aliasing -Wno-gnu -ffunction-sections -fdata-sections "
        f"-fno-unwind-tables -fno-asynchronous-unwind-tables {shlex.quote(f'-ffile-prefix-map={recipe.dir}=.')}",
        "LDFLAGS=-dynamic -s -Wl,--gc-sections", "LIBS=-L. -lmnl", **ZIG)
    out.write_bytes(without_sections((source / "wifirrd").read_bytes()))
    out.chmod(0o755)


def without_sections(elf: bytes) -> bytes:
    """An executable without sections that no loader reads, as after OpenWrt's sstrip: on MIPS, -s keeps .pdr."""
    order = ">" if elf[5] == 2 else "<"
    if elf[4] == 1:
        offset, = struct.unpack_from(order + "I", elf, 28)
        count, = struct.unpack_from(order + "H", elf, 44)
        segments = [struct.unpack_from(order + "8I", elf, offset + 32 * n) for n in range(count)]
        end = max(segment[1] + segment[4] for segment in segments)
        sections, counts = slice(32, 36), slice(48, 52)
    else:
        offset, = struct.unpack_from(order + "Q", elf, 32)
        count, = struct.unpack_from(order + "H", elf, 56)
        segments = [struct.unpack_from(order + "2I6Q", elf, offset + 56 * n) for n in range(count)]
        end = max(segment[2] + segment[5] for segment in segments)
        sections, counts = slice(40, 48), slice(60, 64)
    rest = bytearray(elf[:end])
    for field in (sections, counts):
        rest[field] = bytes(field.stop - field.start)
    return bytes(rest)
