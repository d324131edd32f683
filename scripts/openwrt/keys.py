# SPDX-License-Identifier: Apache-2.0
"""A feed's keys: Ed25519 for opkg's index, in usign's format, and ECDSA for apk."""

import base64
import hashlib
import pathlib
import sys
from collections.abc import Callable

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

RAW = serialization.Encoding.Raw, serialization.PublicFormat.Raw


class Feed:
    """The secret keys, in a directory that only their owner can read; created on first use."""

    def __init__(self, directory: pathlib.Path) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        opkg = _kept(directory / "opkg.pem", ed25519.Ed25519PrivateKey.generate)
        apk = _kept(directory / "apk.pem", lambda: ec.generate_private_key(ec.SECP256R1()))
        if not isinstance(opkg, ed25519.Ed25519PrivateKey) or not isinstance(apk, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{directory}: a key of another kind")
        self._opkg, self._apk = opkg, apk
        public = self._opkg.public_key().public_bytes(*RAW)
        # Any eight bytes may be a fingerprint; derived ones need not be stored.
        self._fingerprint = hashlib.sha512(public).digest()[:8]
        self.fingerprint = self._fingerprint.hex()  # the key's file name in /etc/opkg/keys
        # install.sh knows the feed's earlier keys by this comment
        self.opkg_public = _usign_file(f"public key {self.fingerprint} of a bquic feed", b"Ed" + self._fingerprint + public)
        self.apk_public = self._apk.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()
        point = self._apk.public_key().public_bytes(
            serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)
        self.apk_id = hashlib.sha512(point).digest()[:16]

    def usign(self, message: bytes) -> str:
        """The signature file that opkg expects beside its index."""
        return _usign_file(f"signed by key {self.fingerprint}", b"Ed" + self._fingerprint + self._opkg.sign(message))

    def sign_apk(self, message: bytes) -> bytes:
        """A DER signature. The same message has the same signature (RFC 6979)."""
        return self._apk.sign(message, ec.ECDSA(hashes.SHA512(), deterministic_signing=True))


def _usign_file(comment: str, content: bytes) -> str:
    return f"untrusted comment: {comment}\n{base64.b64encode(content).decode()}\n"


def _kept(path: pathlib.Path, generate: Callable[[], ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey]) -> PrivateKeyTypes:
    if not path.exists():
        print(f"{path}: a new key: every router has to run the new install.sh before it trusts this feed", file=sys.stderr)
        pem = generate().private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                       serialization.NoEncryption())
        part = path.with_suffix(".new")
        part.touch(mode=0o600)
        part.write_bytes(pem)
        part.rename(path)
    return serialization.load_pem_private_key(path.read_bytes(), None)
