# SPDX-License-Identifier: Apache-2.0
"""LuCI's binary form of translations."""

import re
import struct


def sfh(data: bytes) -> int:
    """Paul Hsieh's SuperFastHash, LuCI's key for translations."""
    def signed(byte: int) -> int:
        return byte - 256 if byte > 127 else byte

    if not data:
        return 0
    mask = 0xffffffff
    h = len(data)
    whole = len(data) & ~3
    for i in range(0, whole, 4):
        low, high = struct.unpack_from("<HH", data, i)
        h = (h + low) & mask
        h = ((h << 16) ^ (high << 11) ^ h) & mask
        h = (h + (h >> 11)) & mask
    rest = data[whole:]
    if len(rest) == 3:
        h = (h + int.from_bytes(rest[:2], "little")) & mask
        h = (h ^ (h << 16)) & mask
        h = (h ^ (signed(rest[2]) << 18)) & mask
        h = (h + (h >> 11)) & mask
    elif len(rest) == 2:
        h = (h + int.from_bytes(rest, "little")) & mask
        h = (h ^ (h << 11)) & mask
        h = (h + (h >> 17)) & mask
    elif len(rest) == 1:
        h = (h + signed(rest[0])) & mask
        h = (h ^ (h << 10)) & mask
        h = (h + (h >> 1)) & mask
    for left, right in ((3, 5), (4, 17), (25, 6)):
        h = (h ^ (h << left)) & mask
        h = (h + (h >> right)) & mask
    return h


def lmo(po: str) -> bytes:
    """LuCI's binary form of a .po: values, index sorted by the keys' hashes, offset of the index."""
    entries: list[tuple[int, int, int, int]] = []
    values = b""

    def put(key: int, kind: int, value: bytes) -> None:
        nonlocal values
        entries.append((key, kind, len(values), len(value)))
        values += value + bytes(-len(value) % 4)

    message: dict[str, str] = {}
    field = ""
    for line in po.splitlines() + ['msgid ""']:
        start = re.match(r'(msgctxt|msgid_plural|msgid|msgstr(?:\[\d\])?) "', line)
        if start:
            field = start[1]
            if message.get("msgstr", message.get("msgstr[0]")) is not None and field in ("msgctxt", "msgid"):
                forms = [(int(k[7:-1] if "[" in k else 0), v) for k, v in message.items() if k.startswith("msgstr")]
                if message["msgid"]:
                    for n, value in forms:
                        key = (message["msgctxt"] + "\1" if "msgctxt" in message else "") + message["msgid"]
                        key += f"\2{n}" if "msgid_plural" in message else ""
                        # As LuCI's own tool, leave out texts that are equal to their translation.
                        if value and sfh(key.encode()) != sfh(value.encode()):
                            put(sfh(key.encode()), len(forms), value.encode())
                else:
                    plural = re.search(r"Plural-Forms: (.*?)\\n", forms[0][1])
                    if plural:
                        put(0, 0, plural[1].encode())
                message = {}
            message[field] = ""
        text = re.search(r'"(.*)"\s*$', line)
        if field and text and not line.startswith("#"):
            # \n and the like stay escaped: LuCI writes them into JavaScript strings.
            message[field] += re.sub(r'\\(["\\])', r"\1", text[1])
    return values + b"".join(struct.pack(">4I", *e) for e in sorted(entries)) + struct.pack(">I", len(values))
