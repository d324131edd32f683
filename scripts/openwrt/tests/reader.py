# SPDX-License-Identifier: Apache-2.0
"""Reads apk v3 files by apk-v3(5) alone, and believes nothing: every byte has to be
accounted for, by a signature, a hash or the format. Shares no code with the writer."""

import dataclasses
import hashlib
import zlib

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

LIMIT = 64 << 20  # bytes, unpacked
Value = str | int | list[str]


class Bad(Exception):
    """This is no file that a router should take."""


def need(ok: bool, why: str) -> None:
    if not ok:
        raise Bad(why)


@dataclasses.dataclass
class Node:
    mode: int
    owner: str
    group: str
    mtime: int = 0
    content: bytes | None = None  # None: directory
    link: str | None = None


@dataclasses.dataclass
class Apk:
    schema: str
    adb: bytes
    fields: dict[str, Value]  # of a package
    scripts: dict[str, str]
    nodes: dict[str, Node]  # in the order of the file, directories with their "/" at the end
    packages: list[dict[str, Value]]  # of an index


STRING, NUMBER, HEX, LIST, DEPENDENCIES = range(5)
PKGINFO = [("name", STRING), ("version", STRING), ("hashes", HEX), ("description", STRING), ("arch", STRING),
           ("license", STRING), ("origin", STRING), ("maintainer", STRING), ("url", STRING), ("repo-commit", HEX),
           ("build-time", NUMBER), ("installed-size", NUMBER), ("file-size", NUMBER), ("provider-priority", NUMBER),
           ("depends", DEPENDENCIES), ("provides", DEPENDENCIES), ("replaces", DEPENDENCIES),
           ("install-if", DEPENDENCIES), ("recommends", DEPENDENCIES), ("layer", NUMBER), ("tags", LIST)]
SCRIPT_NAMES = ["trigger", "pre-install", "post-install", "pre-deinstall", "post-deinstall", "pre-upgrade", "post-upgrade"]


class Values:
    """The tree in an ADB block."""

    def __init__(self, data: bytes) -> None:
        need(len(data) >= 8 and data[:4] == bytes(4), "ADB header")
        self.data = data
        self.root = int.from_bytes(data[4:8], "little")

    def take(self, at: int, size: int) -> bytes:
        need(8 <= at and at + size <= len(self.data), "a value outside of its block")
        return self.data[at:at + size]

    def number(self, word: int) -> int:
        kind, rest = word >> 28, word & 0xfffffff
        if word == 0:
            return 0
        need(kind in (1, 2, 3), f"no number: {word:#x}")
        return rest if kind == 1 else int.from_bytes(self.take(rest, 4 * (kind - 1)), "little")

    def blob(self, word: int) -> bytes:
        if word == 0:
            return b""
        kind, rest = word >> 28, word & 0xfffffff
        need(kind in (8, 9, 10), f"no blob: {word:#x}")
        width = {8: 1, 9: 2, 10: 4}[kind]
        need(rest % width == 0, "a blob out of line")
        return self.take(rest + width, int.from_bytes(self.take(rest, width), "little"))

    def text(self, word: int) -> str:
        try:
            return self.blob(word).decode()
        except UnicodeDecodeError as error:
            raise Bad("text that is none") from error

    def slots(self, word: int, kind: int) -> list[int]:
        """Of an array (13) or object (14), from the first on."""
        if word == 0:
            return []
        need(word >> 28 == kind, f"no {'array' if kind == 13 else 'object'}: {word:#x}")
        at = word & 0xfffffff
        need(at % 4 == 0, "slots out of line")
        count = int.from_bytes(self.take(at, 4), "little")
        need(1 < count < 1 << 16, "number of slots")
        raw = self.take(at, 4 * count)
        words = [int.from_bytes(raw[i:i + 4], "little") for i in range(4, len(raw), 4)]
        need(words[-1] != 0 or kind == 13, "an empty slot at the end")
        return words

    def object(self, word: int, most: int) -> list[int]:
        words = self.slots(word, 14)
        need(len(words) <= most, "unknown fields")
        return words + [0] * (most - len(words))

    def pkginfo(self, word: int) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for (name, kind), value in zip(PKGINFO, self.object(word, len(PKGINFO))):
            if value == 0:
                continue
            if kind == STRING:
                found[name] = self.text(value)
            elif kind == NUMBER:
                found[name] = self.number(value)
            elif kind == HEX:
                found[name] = self.blob(value).hex()
            elif kind == LIST:
                found[name] = [self.text(w) for w in self.slots(value, 13)]
            else:
                dependencies = [self.object(w, 3) for w in self.slots(value, 13)]
                need(all(d[1] == d[2] == 0 for d in dependencies), "a version in a dependency: we have none")
                names = [self.text(d[0]) for d in dependencies]
                need(names == sorted(set(names)), f"{name} out of order")
                found[name] = names
        return found


def inflate(file: bytes) -> bytes:
    need(file[:4] == b"ADBd", "magic")
    stream = zlib.decompressobj(-15)
    try:
        data = stream.decompress(file[4:], LIMIT)
    except zlib.error as error:
        raise Bad(f"deflate: {error}") from error
    need(stream.eof and not stream.unused_data and not stream.unconsumed_tail, "no end, or something after it")
    return data


def blocks(data: bytes) -> list[tuple[int, bytes]]:
    found, at = [], 8
    while at < len(data):
        word = int.from_bytes(data[at:at + 4], "little")
        kind, size = word >> 30, word & 0x3fffffff
        end = at + -(-size // 8) * 8
        need(kind < 3 and 4 <= size and end <= len(data), "a block that is none")
        need(not any(data[at + size:end]), "something in the padding")
        found.append((kind, data[at + 4:at + size]))
        at = end
    need(bool(found) and [k for k, _ in found] == sorted(k for k, _ in found), "blocks out of order")
    need([k for k, _ in found].count(0) == 1, "not one ADB block")
    return found


def signed(schema: bytes, adb: bytes, signature: bytes, key: ec.EllipticCurvePublicKey) -> bool:
    point = key.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)
    head = signature[:18]
    if head != bytes((0, 4)) + hashlib.sha512(point).digest()[:16]:
        return False
    try:
        key.verify(signature[18:], schema + head + hashlib.sha512(adb).digest(), ec.ECDSA(hashes.SHA512()))
    except InvalidSignature:
        return False
    return True


def read(file: bytes, public: str | None) -> Apk:
    """Raises Bad. public is the PEM of the key that must have signed; None: nobody has."""
    data = inflate(file)
    need(data[:4] == b"ADB.", "inner magic")
    schema = data[4:8]
    (_, adb), *rest = blocks(data)
    signatures = [b for kind, b in rest if kind == 1]
    if public is None:
        need(not signatures, "a signature by nobody")
    else:
        key = serialization.load_pem_public_key(public.encode())
        need(isinstance(key, ec.EllipticCurvePublicKey) and len(signatures) == 1 and signed(schema, adb, signatures[0], key),
             "not signed by the key")
    contents = [b for kind, b in rest if kind == 2]
    values = Values(adb)
    if schema == b"indx":
        need(not contents, "an index with files")
        _, array, _ = values.object(values.root, 3)
        packages = [values.pkginfo(w) for w in values.slots(array, 13)]
        names = [str(p.get("name", "")) for p in packages]
        need(names == sorted(set(names)), "packages out of order")
        return Apk("index", adb, {}, {}, {}, packages)
    need(schema == b"pckg", "schema")
    info, paths, scripts, triggers, priority = values.object(values.root, 5)
    need(triggers == priority == 0, "triggers")
    found = Apk("package", adb, values.pkginfo(info), {}, {}, [])
    found.scripts = {n: values.text(w) for n, w in zip(SCRIPT_NAMES, values.object(scripts, len(SCRIPT_NAMES))) if w}
    read_paths(values, paths, contents, found)
    identity(adb, found)
    return found


def read_paths(values: Values, paths: int, contents: list[bytes], found: Apk) -> None:
    def node(acl: int) -> Node:
        mode, owner, group, xattrs = values.object(acl, 4)
        need(xattrs == 0, "attributes: we have none")
        return Node(values.number(mode), values.text(owner), values.text(group))

    def plain(name: str) -> bool:
        return all(part not in ("", ".", "..") for part in name.split("/")) and "\0" not in name

    directories, waiting = [], iter(contents)
    for at, word in enumerate(values.slots(paths, 13), 1):
        name_word, acl, files = values.object(word, 3)
        directory = values.text(name_word)
        need(not directory or plain(directory), f"path {directory!r}")
        directories.append(directory)
        found.nodes[f"{directory}/"] = node(acl)
        names = []
        for number, file in enumerate(values.slots(files, 13), 1):
            name_word, acl, size, mtime, digest, target = values.object(file, 6)
            name = values.text(name_word)
            need(plain(name) and "/" not in name, f"name {name!r}")
            names.append(name)
            entry = node(acl)
            entry.mtime = values.number(mtime)
            if target:
                raw = values.blob(target)
                need(raw[:2] == bytes((0, 0xa0)) and digest == 0 and values.number(size) == len(raw) - 2, "a link that is none")
                entry.link, entry.content = raw[2:].decode(errors="replace"), b""
            else:
                entry.content = b""
                if values.number(size):
                    raw = next(waiting, b"")
                    need(raw[:8] == at.to_bytes(4, "little") + number.to_bytes(4, "little"), f"{name}: not its content")
                    entry.content = raw[8:]
                need(len(entry.content) == values.number(size), f"{name}: size")
                need(hashlib.sha256(entry.content).digest() == values.blob(digest), f"{name}: hash")
            found.nodes[f"{directory}/{name}".lstrip("/")] = entry
        need(names == sorted(set(names)), "files out of order")
    need(directories == sorted(set(directories)), "directories out of order")
    need(next(waiting, None) is None, "content of no file")


def identity(adb: bytes, found: Apk) -> None:
    """A package's own hash is of all, with zeros in its place."""
    own = bytes.fromhex(str(found.fields.get("hashes", "")))
    need(len(own) == 20 and adb.count(own) == 1, "identity")
    need(hashlib.sha256(adb.replace(own, bytes(20))).digest()[:20] == own, "identity")
