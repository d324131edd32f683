# SPDX-License-Identifier: Apache-2.0
"""ipk, the format of opkg (OpenWrt up to 24.10), its index and signature.

Follows OpenWrt's include/package-pack.mk, scripts/ipkg-build and
scripts/ipkg-make-index.sh.
"""

import functools
import hashlib
import io
import pathlib
import tarfile
import zlib

import deflate

from . import keys
from .contents import Package, Tree

PAGE = 4096  # bytes

# OpenWrt's default_postinst creates users, runs uci-defaults, enables and
# starts services; default_prerm stops and disables them.
POSTINST = """\
#!/bin/sh
[ "${IPKG_NO_SCRIPT}" = "1" ] && exit 0
[ -s ${IPKG_INSTROOT}/lib/functions.sh ] || exit 0
. ${IPKG_INSTROOT}/lib/functions.sh
default_postinst $0 $@
"""
PRERM = """\
#!/bin/sh
[ -s ${IPKG_INSTROOT}/lib/functions.sh ] || exit 0
. ${IPKG_INSTROOT}/lib/functions.sh
default_prerm $0 $@
"""

# Fields that an index entry does not have.
NOT_INDEXED = ("Maintainer", "LicenseFiles", "Source", "SourceName", "Require-User", "SourceDateEpoch")


def file_name(package: Package) -> str:
    return f"{package.name}_{package.version}_{package.arch}.ipk"


@functools.cache  # several architectures have the same program, and all the same pages
def gz(data: bytes) -> bytes:
    """As gzip -n, but a twenty-fifth smaller than by its level 9."""
    return bytes(deflate.gzip_compress(data, 12))


def tar(tree: Tree, epoch: int) -> bytes:
    """A tar file as from tar --format=gnu --numeric-owner --sort=name, owned by root."""
    members: dict[str, tuple[int, bytes | str | None]] = {
        f"./{directory}".rstrip("/"): (0o755, None) for directory in tree.directories()}
    members |= {f"./{path}": entry for path, entry in tree.files.items()}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name in sorted(members, key=lambda n: n.split("/")):
            mode, content = members[name]
            info = tarfile.TarInfo(name)
            info.mode, info.mtime = mode, epoch
            if content is None:
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
            elif isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                archive.addfile(info)
            else:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def on_flash(data: bytes) -> int:
    """The bytes that DATA takes on a file system that compresses each page, as JFFS2 and UBIFS do. opkg installs nothing whose
    Installed-Size is larger than the free flash."""
    return sum(len(zlib.compress(data[at:at + PAGE])) for at in range(0, len(data), PAGE))


def build(package: Package, epoch: int) -> tuple[bytes, tuple[list[str], str]]:
    """The bytes of a package and its index entry: control lines, description."""
    recipe = package.recipe
    data = tar(package.tree, epoch)
    fields = {
        "Package": package.name,
        "Version": package.version,
        "Depends": ", ".join(package.depends),
        "Source": package.source,
        "SourceName": recipe.name,
        "License": recipe.vars["PKG_LICENSE"],
        "Section": recipe.section,
        "Require-User": package.user,
        "SourceDateEpoch": str(epoch),
        "URL": recipe.vars.get("URL"),
        "Maintainer": recipe.vars["PKG_MAINTAINER"],
        "Architecture": package.arch,
        "Installed-Size": str(on_flash(data)),
    }
    description = "Description: " + "\n".join(" " + line.strip() for line in package.description)
    head = [f"{k}: {v}" for k, v in fields.items() if v]

    control = Tree()
    control.add("control", ("\n".join(head + [description]) + "\n").encode())
    control.add("postinst", POSTINST.encode(), 0o755)
    control.add("prerm", PRERM.encode(), 0o755)
    if package.postinst:
        control.add("postinst-pkg", package.postinst.encode(), 0o755)
    if package.postrm:
        control.add("postrm", package.postrm.encode(), 0o755)
    if package.conffiles:
        control.add("conffiles", "".join(f"{f}\n" for f in package.conffiles).encode())

    members = {"debian-binary": b"2.0\n", "data.tar.gz": gz(data), "control.tar.gz": gz(tar(control, epoch))}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(f"./{name}")
            info.size, info.mode, info.mtime = len(content), 0o644, epoch
            archive.addfile(info, io.BytesIO(content))
    entry = [line for line in head if line.split(":")[0] not in NOT_INDEXED]
    return gz(out.getvalue()), (entry, description)


def write(directory: pathlib.Path, packages: list[Package], epoch: int, key: keys.Feed | None) -> None:
    """Writes packages, the index Packages and Packages.gz, and Packages.sig if there is a key."""
    index = ""
    for package in packages:
        data, (lines, description) = build(package, epoch)
        (directory / file_name(package)).write_bytes(data)
        index += "\n".join(lines + [
            f"Filename: {file_name(package)}",
            f"Size: {len(data)}",
            f"SHA256sum: {hashlib.sha256(data).hexdigest()}",
            description]) + "\n\n"
    # usign signs some lengths incorrectly; OpenWrt also pads them (package/Makefile).
    if (64 + len(index.encode())) % 128 in (110, 111):
        index += "\n\n"
    (directory / "Packages").write_text(index)
    (directory / "Packages.gz").write_bytes(gz(index.encode()))
    if key:
        (directory / "Packages.sig").write_text(key.usign(index.encode()))
