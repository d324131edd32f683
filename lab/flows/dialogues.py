# SPDX-License-Identifier: Apache-2.0
"""Both ends of protocols over TLS, reduced to their messages. Run as
dialogues.py serve PORT CERTIFICATE KEY, or dialogues.py talk ADDRESS PORT PROTOCOL SEED.

A dialogue is a list of messages: sender (c, s), bytes, and the pause before it (s). Both ends make it from the seed, which the
server gets from the name in the client's ClientHello.
"""

from __future__ import annotations

import random
import socket
import ssl
import sys
import threading
import time

Message = tuple[str, int, float]
MOST_PAUSE = 1.0


def size(source: random.Random, median: float, sigma: float, least: int = 1, most: int = 4_000_000) -> int:
    return int(min(most, max(least, source.lognormvariate(0, sigma) * median)))


def dns_over_tls(source: random.Random) -> list[Message]:
    """RFC 7858, with RFC 8467's padding (128 and 468 bytes) or without; a stub keeps the connection for some queries."""
    padded = source.random() < 0.6
    found: list[Message] = []
    for _ in range(min(60, 1 + int(source.expovariate(1 / 6)))):
        together = source.choice([1, 1, 2])  # A, AAAA
        pause = source.choice([0.0, 0.0, 0.05, 0.3])
        found += [("c", 130 if padded else source.randint(40, 75), pause if k == 0 else 0.0) for k in range(together)]
        found += [("s", 470 if padded else size(source, 110, 0.5, 50, 1400), 0.005) for _ in range(together)]
    return found


def imap(source: random.Random) -> list[Message]:
    """RFC 9051: greeting, login, the list of new messages, some of them, and perhaps IDLE."""
    found: list[Message] = [("s", 110, 0), ("c", 16, 0), ("s", 180, 0), ("c", source.randint(35, 90), 0), ("s", 220, 0)]
    for _ in range(source.randint(1, 6)):  # folders
        found += [("c", source.randint(18, 40), 0.01), ("s", source.randint(250, 500), 0)]
        found += [("c", source.randint(35, 60), 0), ("s", size(source, 2500, 1, 40), 0)]
        for _ in range(source.choice([0, 0, 1, 2, 5])):  # messages
            found += [("c", source.randint(30, 45), 0.02), ("s", size(source, 15e3, 1.4, 800), 0)]
    if source.random() < 0.5:
        found += [("c", 12, 0), ("s", 12, 0)] + [("s", 20, 0.2)] * source.randint(0, 4) + [("c", 6, 0.1), ("s", 30, 0)]
    return [*found, ("c", 14, 0.05), ("s", 60, 0)]


def pop3(source: random.Random) -> list[Message]:
    """RFC 1939: the list of messages, and the new ones."""
    found: list[Message] = [("s", 40, 0), ("c", 6, 0), ("s", 90, 0), ("c", source.randint(15, 35), 0), ("s", 6, 0),
                            ("c", source.randint(10, 30), 0), ("s", 25, 0), ("c", 6, 0), ("s", 18, 0), ("c", 6, 0), ("s", size(source, 900, 1, 30), 0)]
    for _ in range(source.choice([0, 0, 1, 1, 2, 4])):
        found += [("c", 9, 0), ("s", size(source, 15e3, 1.4, 800), 0)]
    return [*found, ("c", 6, 0), ("s", 25, 0)]


def smtp(source: random.Random) -> list[Message]:
    """RFC 6409: submission of a message."""
    found: list[Message] = [("s", 50, 0), ("c", source.randint(15, 35), 0), ("s", source.randint(150, 300), 0), ("c", source.randint(40, 80), 0), ("s", 35, 0)]
    for _ in range(source.choice([1, 1, 1, 2])):
        found += [("c", source.randint(30, 60), 0), ("s", 30, 0), ("c", source.randint(30, 50), 0), ("s", 30, 0), ("c", 6, 0), ("s", 40, 0),
                  ("c", size(source, 12e3, 1.6, 700), 0.02), ("s", 50, 0.05)]
    return [*found, ("c", 6, 0), ("s", 35, 0)]


def messaging(source: random.Random) -> list[Message]:
    """XMPP or MQTT: short messages in both directions, at any time, with acknowledgements."""
    found: list[Message] = [("c", source.randint(30, 140), 0), ("s", source.randint(20, 350), 0), ("c", source.randint(40, 150), 0), ("s", source.randint(20, 120), 0)]
    for _ in range(source.randint(3, 60)):
        whose = source.choice("cs")
        found += [(whose, size(source, 180, 0.7, 20, 4000), source.choice([0.0, 0.02, 0.1, 0.3])), ("s" if whose == "c" else "c", source.randint(5, 60), 0)]
    return found


def desktop(source: random.Random) -> list[Message]:
    """A remote desktop: keys and pointer movements up, changed rectangles down."""
    found: list[Message] = [("s", 12, 0), ("c", 12, 0), ("s", 40, 0), ("c", 60, 0), ("s", size(source, 60e3, 0.7, 5000), 0)]
    for _ in range(source.randint(5, 80)):
        found += [("c", source.choice([6, 8, 8, 24]), source.choice([0.0, 0.01, 0.05]))] * source.randint(1, 4) + [("s", size(source, 2500, 1.3, 30), 0)]
    return found


def backup(source: random.Random) -> list[Message]:
    """Files are uploaded in blocks, each of which is confirmed."""
    found: list[Message] = [("s", 60, 0), ("c", 120, 0), ("s", 90, 0)]
    for _ in range(source.randint(1, 30)):
        found += [("c", size(source, 30e3, 1, 1000, 262_144), 0), ("s", 40, 0)]
    return [*found, ("c", 30, 0), ("s", 60, 0)]


def irc(source: random.Random) -> list[Message]:
    """Chat lines, mostly from others, and a ping now and then."""
    found: list[Message] = [("c", source.randint(40, 90), 0), ("s", size(source, 3000, 0.5, 500), 0.05), ("c", source.randint(10, 60), 0)]
    for _ in range(source.randint(2, 50)):
        found += source.choice([[("s", size(source, 90, 0.5, 30, 510), 0.05)]] * 6 + [[("c", size(source, 60, 0.5, 15, 400), 0.1)], [("s", 20, 0), ("c", 20, 0)]])
    return found


def sql(source: random.Random) -> list[Message]:
    """Database queries, and their rows."""
    found: list[Message] = [("c", source.randint(60, 120), 0), ("s", source.randint(20, 40), 0), ("c", source.randint(40, 120), 0), ("s", source.randint(300, 450), 0)]
    for _ in range(source.randint(1, 40)):
        found += [("c", size(source, 160, 0.8, 20, 8000), source.choice([0.0, 0.02])), ("s", size(source, 700, 1.6, 20, 400_000), 0)]
    return [*found, ("c", 5, 0)]


def printing(source: random.Random) -> list[Message]:
    """A document is uploaded in one piece, with a few messages before and after."""
    found: list[Message] = [("c", source.randint(100, 400), 0), ("s", source.randint(30, 200), 0)]
    for _ in range(source.choice([1, 1, 2])):
        found += [("c", size(source, 150e3, 1.3, 2000, 1_000_000), 0), ("s", source.randint(20, 100), 0.05)]
    return found


def git(source: random.Random) -> list[Message]:
    """The list of references, the missing ones, and a pack with these."""
    found: list[Message] = [("c", source.randint(60, 150), 0), ("s", size(source, 8000, 1.2, 300), 0)]
    for _ in range(source.randint(1, 4)):
        found += [("c", source.randint(200, 1700), 0), ("s", source.randint(60, 300), 0)]
    return [*found, ("c", 10, 0), ("s", size(source, 120e3, 1.6, 500), 0.05)]


def directory(source: random.Random) -> list[Message]:
    """LDAP: a bind, and some searches."""
    found: list[Message] = [("c", source.randint(60, 110), 0), ("s", 22, 0)]
    for _ in range(source.randint(1, 8)):
        found += [("c", source.randint(90, 260), 0.01), ("s", size(source, 500, 0.9, 60, 60_000), 0)]
    return [*found, ("c", 7, 0)]


PROTOCOLS = {f.__name__: f for f in (dns_over_tls, imap, pop3, smtp, messaging, desktop, backup, irc, sql, printing, git, directory)}


def talk(connection: ssl.SSLSocket, whose: str, dialogue: list[Message]) -> None:
    for who, length, pause in dialogue:
        if who == whose:
            time.sleep(min(pause, MOST_PAUSE))
            connection.sendall(bytes(length))
        else:
            while length:
                got = connection.recv(min(length, 1 << 16))
                if not got:
                    return
                length -= len(got)


def serve(port: int, certificate: str, key: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    names: dict[int, str] = {}

    def named(connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext) -> None:
        names[id(connection)] = name or ""

    context.sni_callback = named  # type: ignore[assignment]
    listener = socket.create_server(("", port))
    print("listens", flush=True)

    def answer(raw: socket.socket) -> None:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with context.wrap_socket(raw, server_side=True) as connection:
            protocol, seed, *_ = names.pop(id(connection)).split(".")
            talk(connection, "s", PROTOCOLS[protocol.replace("-", "_")](random.Random(int(seed))))

    while True:
        threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()


def client(address: str, port: int, protocol: str, seed: int) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((address, port)) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with context.wrap_socket(raw, server_hostname=f"{protocol.replace('_', '-')}.{seed}.example") as connection:
            talk(connection, "c", PROTOCOLS[protocol](random.Random(seed)))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]), *sys.argv[3:5])
    else:
        client(sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
