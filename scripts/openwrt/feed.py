# SPDX-License-Identifier: Apache-2.0
"""The parts of a feed besides its packages: the public keys, and the script that adds it to a router."""

import pathlib
import re

from . import keys

SCRIPT = pathlib.Path(__file__).with_name("install.sh")
ADDRESS = re.compile(r"https?://[][A-Za-z0-9:/._~%@-]+")  # install.sh takes no other


def write(out: pathlib.Path, arches: list[str], url: str, key: keys.Feed) -> None:
    (out / "opkg.pub").write_text(key.opkg_public)
    (out / "apk.pem").write_text(key.apk_public)
    script = SCRIPT.read_text()
    for name, value in {"URL": url.rstrip("/"), "ARCHES": " ".join(arches), "FINGERPRINT": key.fingerprint,
                        "OPKG_KEY": key.opkg_public.rstrip("\n"), "APK_KEY": key.apk_public.rstrip("\n")}.items():
        script = script.replace(f"@{name}@", value)
    (out / "install.sh").write_text(script)
