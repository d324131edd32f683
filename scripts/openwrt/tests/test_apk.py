# SPDX-License-Identifier: Apache-2.0
"""The writer of .apk and of feeds against a reader of its own, and mutations of both."""

import base64
import dataclasses
import hashlib
import os
import pathlib
import random
import subprocess
import sys
import zlib

import pytest

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[2])]

import reader  # noqa: E402
from openwrt import apk, ipk, keys  # noqa: E402
from openwrt.contents import Package, Tree  # noqa: E402
from openwrt.recipe import REPO, Recipe  # noqa: E402

EPOCH = 1790000000
MUTATIONS = 10_000


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> keys.Feed:
    return keys.Feed(tmp_path_factory.mktemp("keys") / "feed")


class Example(Recipe):
    """Of no Makefile."""

    def __init__(self, name: str) -> None:
        self.name, self.release, self.dir = name, "1.2.3-r4", REPO / "package/example"
        self.vars = {"PKG_LICENSE": "Apache-2.0", "PKG_MAINTAINER": "somebody", "URL": "https://example.org", "SECTION": "net"}


def package(name: str = "example") -> Package:
    tree = Tree()
    tree.add("etc/config/example", b"config example\n", 0o600)
    tree.add("usr/bin/example", os.urandom(7) * 9973, 0o755)
    tree.add("usr/share/a-b", b"a directory is between them in the order of names\n")
    tree.add("usr/share/a/b", b"")
    tree.files["usr/bin/link"] = (0o777, "example")
    return Package(name, Example(name), "mips_24kc", ["zlib", "libc"], ["A thing", "  of two lines, ä."], tree,
                   ["/etc/config/example"], "user:group", "echo postinst\n", "echo postrm\n")


def test_a_package_read_back(key: keys.Feed) -> None:
    made = package()
    file, entry = apk.build(made, EPOCH, key)
    found = reader.read(file, key.apk_public)
    assert found.fields == {
        "name": "example", "version": "1.2.3-r4", "hashes": found.fields["hashes"], "license": "Apache-2.0",
        "description": "A thing of two lines, ä.", "arch": "mips_24kc", "origin": "feeds/bquic/package/example",
        "maintainer": "somebody", "url": "https://example.org", "installed-size": entry["installed_size"],
        "depends": ["libc", "zlib"], "tags": ["openwrt:section=net"]}
    assert set(found.scripts) == {"post-install", "pre-deinstall", "post-upgrade", "post-deinstall"}
    assert found.scripts["post-upgrade"].startswith("#!/bin/sh\nexport PKG_UPGRADE=1\n")
    nodes = {name: node for name, node in found.nodes.items() if not name.endswith("/")}
    lists = {name: (node.content or b"").decode() for name, node in nodes.items() if name.startswith("lib/apk/")}
    files = {name: (node.mode, node.link or node.content) for name, node in nodes.items() if name not in lists}
    assert files == made.tree.files
    base = "lib/apk/packages/example"
    config = hashlib.sha256(b"config example\n").hexdigest()
    assert lists[f"{base}.conffiles"] == "/etc/config/example\n"
    assert lists[f"{base}.conffiles_static"] == f"/etc/config/example {config}\n"
    assert lists[f"{base}.rusers"] == "user:group\n"
    assert lists[f"{base}.list"].split() == sorted(["/" + f for f in files] + [f"/{base}.rusers"])
    assert {(n.owner, n.group) for n in found.nodes.values()} == {("root", "root")}
    assert {n.mtime for n in nodes.values()} == {EPOCH}
    assert hashlib.sha256(found.adb).digest() == entry["hashes"]


def test_the_signature_is_openssls(key: keys.Feed, tmp_path: pathlib.Path) -> None:
    """By the openssl command, with the message put together by hand."""
    file, _ = apk.build(package(), EPOCH, key)
    data = zlib.decompress(file[4:], -15)
    adb, signature = reader.blocks(data)[0][1], reader.blocks(data)[1][1]
    (tmp_path / "key").write_text(key.apk_public)
    (tmp_path / "sig").write_bytes(signature[18:])
    message = b"pckg" + signature[:18] + hashlib.sha512(adb).digest()
    said = subprocess.run(["openssl", "dgst", "-sha512", "-verify", tmp_path / "key", "-signature", tmp_path / "sig"],
                          input=message, capture_output=True, check=False)
    assert said.stdout == b"Verified OK\n"


def test_keys_stay_as_they_are_and_secret(tmp_path: pathlib.Path) -> None:
    first, again = keys.Feed(tmp_path / "k"), keys.Feed(tmp_path / "k")
    made = package()
    assert apk.build(made, EPOCH, first) == apk.build(made, EPOCH, again)
    assert (first.usign(b"x"), first.opkg_public, first.apk_public) == (again.usign(b"x"), again.opkg_public, again.apk_public)
    assert keys.Feed(tmp_path / "other").fingerprint != first.fingerprint
    for path in (tmp_path / "k", *(tmp_path / "k").iterdir()):
        assert path.stat().st_mode & 0o077 == 0
    comment, encoded = first.opkg_public.splitlines()
    assert comment == f"untrusted comment: public key {first.fingerprint} of a bquic feed"
    assert base64.b64decode(encoded)[:10] == b"Ed" + bytes.fromhex(first.fingerprint)


def test_who_did_not_sign_is_refused(key: keys.Feed, tmp_path: pathlib.Path) -> None:
    file, _ = apk.build(package(), EPOCH, key)
    unsigned, _ = apk.build(package(), EPOCH, None)
    other = keys.Feed(tmp_path / "other").apk_public
    reader.read(unsigned, None)
    for wrong, public in ((file, other), (unsigned, key.apk_public), (file, None)):
        with pytest.raises(reader.Bad):
            reader.read(wrong, public)


def mutant(rng: random.Random, data: bytes) -> bytes:
    """Some bytes changed, cut out, doubled or swapped."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        at, size = rng.randrange(len(changed)), rng.choice((1, 1, 4, 8, 64))
        kind = rng.randrange(6)
        if kind == 0:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            changed[at] = rng.randrange(256)
        elif kind == 2 and len(changed) > size + 16:
            del changed[at:at + size]
        elif kind == 3:
            changed[at:at] = changed[at:at + size]
        elif kind == 4:
            to = rng.randrange(len(changed))
            changed[at:at + size], changed[to:to + size] = changed[to:to + size], changed[at:at + size]
        else:
            changed[at:at + size] = bytes(size)
    return bytes(changed)


def deflated(data: bytes) -> bytes:
    stream = zlib.compressobj(1, zlib.DEFLATED, -15)
    return b"ADBd" + stream.compress(data) + stream.flush()


@pytest.mark.parametrize("what", ["package", "index", "unsigned"])
def test_mutants_are_refused_or_the_same(key: keys.Feed, what: str, tmp_path: pathlib.Path) -> None:
    """Half of them in what is compressed. Of an unsigned package the index has the hash."""
    rng = random.Random(what)
    made = package()
    made.tree.add("usr/bin/example", rng.randbytes(200) * 3, 0o755)
    public = None if what == "unsigned" else key.apk_public
    if what == "index":
        apk.write(tmp_path, [package("a"), package("b")], EPOCH, key)
        file = (tmp_path / "packages.adb").read_bytes()
    else:
        file, entry = apk.build(made, EPOCH, None if what == "unsigned" else key)
    good = reader.read(file, public)
    plain = zlib.decompress(file[4:], -15)
    refused = 0
    for turn in range(MUTATIONS):
        mutated = deflated(mutant(rng, plain)) if turn % 2 else mutant(rng, file)
        try:
            found = reader.read(mutated, public)
            if what == "unsigned":
                reader.need(hashlib.sha256(found.adb).digest() == entry["hashes"], "not as in the index")
        except reader.Bad:
            refused += 1
        else:
            assert dataclasses.asdict(found) == dataclasses.asdict(good)
    assert refused > 0.9 * MUTATIONS


def test_opkgs_index_is_signed_as_usign_does(key: keys.Feed, tmp_path: pathlib.Path) -> None:
    """And names each package's hash: no byte of the index or of a package can be another."""
    ipk.write(tmp_path, [package("a"), package("b")], EPOCH, key)
    index = (tmp_path / "Packages").read_bytes()
    comment, encoded = (tmp_path / "Packages.sig").read_text().splitlines()
    raw = base64.b64decode(encoded)
    public = base64.b64decode(key.opkg_public.splitlines()[1])
    assert comment == f"untrusted comment: signed by key {key.fingerprint}" and raw[:10] == public[:10]
    # DER of RFC 8410, for openssl
    (tmp_path / "key").write_bytes(bytes.fromhex("302a300506032b6570032100") + public[10:])
    (tmp_path / "sig").write_bytes(raw[10:])
    for message, want in ((index, 0), (mutant(random.Random(1), index), 1)):
        (tmp_path / "message").write_bytes(message)
        said = subprocess.run(["openssl", "pkeyutl", "-verify", "-pubin", "-keyform", "DER", "-inkey", tmp_path / "key",
                               "-rawin", "-in", tmp_path / "message", "-sigfile", tmp_path / "sig"],
                              capture_output=True, check=False)
        assert said.returncode == want, said
    for name in ("a", "b"):
        file = (tmp_path / f"{name}_1.2.3-r4_mips_24kc.ipk").read_bytes()
        assert f"SHA256sum: {hashlib.sha256(file).hexdigest()}\n".encode() in index


def test_new_keys_are_told(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No router knows them. sudo, and another machine, have another home than that of the feed's keys."""
    keys.Feed(tmp_path / "feed")
    said = capsys.readouterr().err
    assert f"{tmp_path}/feed/opkg.pem: a new key" in said and f"{tmp_path}/feed/apk.pem: a new key" in said
    (tmp_path / "feed/opkg.pem").unlink()
    keys.Feed(tmp_path / "feed")
    said = capsys.readouterr().err
    assert "opkg.pem: a new key" in said and "apk.pem" not in said
    keys.Feed(tmp_path / "feed")
    assert capsys.readouterr().err == ""


def test_a_full_disk_leaves_no_empty_key(tmp_path: pathlib.Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "full", tmp_path], check=True)
    try:
        (tmp_path / "rest").write_bytes(bytes(8192))
        with pytest.raises(OSError):
            keys.Feed(tmp_path / "feed")
        (tmp_path / "rest").unlink()
        keys.Feed(tmp_path / "feed")
    finally:
        subprocess.run(["umount", tmp_path], check=True)
