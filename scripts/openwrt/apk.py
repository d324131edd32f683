# SPDX-License-Identifier: Apache-2.0
"""apk, the format of apk-tools 3 (OpenWrt from 25.12), its index and signature.

The format is apk-v3(5). The contents of packages follow OpenWrt's
include/package-pack.mk. A file is a header, a block with a tree of values (ADB)
that is signed and contains the hash of every file, and a block with the content of each file,
all compressed.
"""

import hashlib
import pathlib
import stat
import struct

import deflate

from . import keys
from .contents import Package, Tree

PACKAGE, INDEX = b"pckg", b"indx"  # schemas
ADB, SIGNATURE, DATA = range(3)  # types of blocks
SHA512 = 4  # number of the hash algorithm

# Types of values, the upper four bits of a word; the other bits are a small number, or the position of the value.
INT, INT32, INT64, BLOB8, BLOB16, BLOB32, ARRAY, OBJECT = (t << 28 for t in (1, 2, 3, 8, 9, 10, 13, 14))
NULL = 0

# Positions of fields in objects.
INFO = {name: place for place, name in enumerate((
    "name", "version", "hashes", "description", "arch", "license", "origin", "maintainer", "url", "repo_commit",
    "build_time", "installed_size", "file_size", "provider_priority", "depends", "provides", "replaces", "install_if",
    "recommends", "layer", "tags"), 1)}
SCRIPTS = {name: place for place, name in enumerate((
    "trigger", "pre-install", "post-install", "pre-deinstall", "post-deinstall", "pre-upgrade", "post-upgrade"), 1)}

# A package's entry in an index; while the package is written, "hashes" is the word for the value.
Info = dict[str, str | bytes | int | list[str] | None]

FUNCTIONS = """\
[ -s ${IPKG_INSTROOT}/lib/functions.sh ] || exit 0
. ${IPKG_INSTROOT}/lib/functions.sh
export root="${IPKG_INSTROOT}"
"""


class Database:
    """An ADB block under construction. Its methods return the word for a value."""

    def __init__(self) -> None:
        self.data = bytearray(8)  # two versions, 0, and the root's word
        self._written: dict[tuple[int, bytes], int] = {}

    def _put(self, kind: int, data: bytes, alignment: int, shared: bool = True) -> int:
        """Writes each value once, unless it will be changed later."""
        if shared and (kind, data) in self._written:
            return self._written[kind, data]
        self.data += bytes(-len(self.data) % alignment)
        word = kind | len(self.data)
        self.data += data
        if shared:
            self._written[kind, data] = word
        return word

    def integer(self, n: int) -> int:
        if n < 1 << 28:
            return INT | n
        return self._put(INT32, struct.pack("<I", n), 4) if n < 1 << 32 else self._put(INT64, struct.pack("<Q", n), 4)

    def blob(self, value: bytes | str | None, shared: bool = True) -> int:
        if not value:
            return NULL
        data = value.encode() if isinstance(value, str) else value
        for kind, size, limit in ((BLOB8, "<B", 1 << 8), (BLOB16, "<H", 1 << 16), (BLOB32, "<I", 1 << 32)):
            if len(data) < limit:
                return self._put(kind, struct.pack(size, len(data)) + data, struct.calcsize(size), shared)
        raise ValueError("blob of 4 GiB")

    def _slots(self, kind: int, words: list[int]) -> int:
        while words and words[-1] == NULL:
            words.pop()
        return self._put(kind, struct.pack(f"<{len(words) + 1}I", len(words) + 1, *words), 4) if words else NULL

    def array(self, words: list[int]) -> int:
        return self._slots(ARRAY, words)

    def object(self, fields: dict[int, int]) -> int:
        return self._slots(OBJECT, [fields.get(place, NULL) for place in range(1, max(fields) + 1)])

    def finish(self, root: int) -> bytes:
        self.data[4:8] = struct.pack("<I", root)
        return bytes(self.data)


def file_name(package: Package) -> str:
    return f"{package.name}-{package.version}.apk"


def block(kind: int, payload: bytes) -> bytes:
    size = 4 + len(payload)
    return struct.pack("<I", kind << 30 | size) + payload + bytes(-size % 8)


def container(schema: bytes, adb: bytes, data: list[bytes], key: keys.Feed | None) -> bytes:
    """A compressed file made of its blocks."""
    blocks = [block(ADB, adb)]
    if key:
        head = struct.pack("<BB", 0, SHA512) + key.apk_id
        signed = schema + head + hashlib.sha512(adb).digest()
        blocks.append(block(SIGNATURE, head + key.sign_apk(signed)))
    blocks += [block(DATA, d) for d in data]
    return b"ADBd" + deflate.deflate_compress(b"ADB." + schema + b"".join(blocks), 12)


def scripts(package: Package) -> dict[str, str]:
    """The scripts, as in package-pack.mk: apk runs no pre-deinstall before an upgrade."""
    install = ('[ "${IPKG_NO_SCRIPT}" = "1" ] && exit 0\n' + FUNCTIONS + f'export pkgname="{package.name}"\n'
               "add_group_and_user\ndefault_postinst\n" + package.postinst)
    found = {
        "post-install": "#!/bin/sh\n" + install,
        "pre-deinstall": "#!/bin/sh\n" + FUNCTIONS + f'export pkgname="{package.name}"\ndefault_prerm\n',
        "post-upgrade": "#!/bin/sh\nexport PKG_UPGRADE=1\n" + install,
    }
    if package.postrm:
        found["post-deinstall"] = package.postrm
    return found


def with_lists(package: Package) -> Tree:
    """The files, and the lists by which OpenWrt's scripts know them."""
    tree = Tree()
    tree.files = dict(package.tree.files)
    base = f"lib/apk/packages/{package.name}"
    if package.user:
        tree.add(f"{base}.rusers", f"{package.user}\n".encode())
    tree.add(f"{base}.list", "".join(f"/{path}\n" for path in sorted(tree.files)).encode())
    if package.conffiles:
        tree.add(f"{base}.conffiles", "".join(f"{f}\n" for f in package.conffiles).encode())
        tree.add(f"{base}.conffiles_static", "".join(f"{f} {s}\n" for f, s in package.conffile_sums()).encode())
    return tree


def info(package: Package, size: int) -> Info:
    recipe = package.recipe
    return {
        "name": package.name,
        "version": package.version,
        "description": " ".join(" ".join(package.description).split()),
        "arch": "noarch" if package.arch == "all" else package.arch,
        "license": recipe.vars["PKG_LICENSE"],
        "origin": package.source,
        "maintainer": recipe.vars["PKG_MAINTAINER"],
        "url": recipe.vars.get("URL"),
        "installed_size": size,
        "depends": sorted(package.depends),
        "tags": [f"openwrt:section={recipe.section}"],
    }


def put_info(db: Database, fields: Info) -> int:
    words = {}
    for name, value in fields.items():
        if isinstance(value, list):
            word = db.array([db.object({1: db.blob(v)}) if name == "depends" else db.blob(v) for v in value])
        elif isinstance(value, int):
            word = value if name == "hashes" else db.integer(value)
        else:
            word = db.blob(value)
        words[INFO[name]] = word
    return db.object(words)


def build(package: Package, epoch: int, key: keys.Feed | None) -> tuple[bytes, Info]:
    """The bytes of a package and its entry in an index."""
    tree = with_lists(package)
    db = Database()
    paths, data = [], []
    for at, directory in enumerate(tree.directories(), 1):
        files = []
        prefix = f"{directory}/" if directory else ""
        names = sorted(p.removeprefix(prefix) for p in tree.files if p.startswith(prefix))
        for name in (n for n in names if "/" not in n):
            mode, content = tree.files[prefix + name]
            fields = {1: db.blob(name), 2: access(db, mode), 4: db.integer(epoch)}
            if isinstance(content, str):
                fields[3] = db.integer(len(content))
                fields[6] = db.blob(struct.pack("<H", stat.S_IFLNK) + content.encode())
            else:
                fields[3] = db.integer(len(content))
                fields[5] = db.blob(hashlib.sha256(content).digest())
            files.append(db.object(fields))
            if content and isinstance(content, bytes):
                data.append(struct.pack("<II", at, len(files)) + content)
        paths.append(db.object({1: db.blob(directory), 2: access(db, 0o755), 3: db.array(files)}))
    entry = info(package, sum(len(content) for _, content in tree.files.values()))
    # A package's identity is the hash of everything, with zeros in its own place.
    identity = db.blob(bytes(20), shared=False)
    adb = bytearray(db.finish(db.object({
        1: put_info(db, entry | {"hashes": identity}),
        2: db.array(paths),
        3: db.object({SCRIPTS[name]: db.blob(text) for name, text in scripts(package).items()}),
    })))
    at = (identity & ~(0xf << 28)) + 1
    adb[at:at + 20] = hashlib.sha256(adb).digest()[:20]
    file = container(PACKAGE, bytes(adb), data, key)
    return file, entry | {"hashes": hashlib.sha256(adb).digest(), "file_size": len(file)}


def access(db: Database, mode: int) -> int:
    return db.object({1: db.integer(mode & 0o7777), 2: db.blob("root"), 3: db.blob("root")})


def write(directory: pathlib.Path, packages: list[Package], epoch: int, key: keys.Feed | None) -> None:
    """Writes packages and their index, packages.adb; signed if there is a key."""
    db = Database()
    entries = []
    for package in packages:
        data, entry = build(package, epoch, key)
        (directory / file_name(package)).write_bytes(data)
        entries.append(put_info(db, entry))
    index = db.finish(db.object({2: db.array(entries)}))
    (directory / "packages.adb").write_bytes(container(INDEX, index, [], key))
