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
from collections.abc import Callable

Message = tuple[str, int, float]
MOST_PAUSE = 1.0
HYBRID_CLIENT, HYBRID_SERVER = 1216, 1088  # bytes by which the first messages are longer (draft-ietf-tls-ecdhe-mlkem)


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


def soap(source: random.Random) -> list[Message]:
    """XML over HTTP/1.1: long requests, and answers of any size."""
    found: list[Message] = []
    for _ in range(source.choice([1, 1, 2, 4, 10])):
        found += [("c", source.randint(250, 600) + size(source, 700, 0.7, 100, 20_000), source.choice([0.0, 0.05])), ("s", 250 + size(source, 2500, 1.3, 100, 500_000), 0.01)]
    return found


def filesystem(source: random.Random) -> list[Message]:
    """Files over the network: attributes, then reads or writes in blocks."""
    found: list[Message] = [("c", 160, 0), ("s", 250, 0), ("c", 300, 0), ("s", 200, 0)]
    for _ in range(source.randint(1, 8)):
        found += [("c", source.randint(100, 250), 0), ("s", source.randint(120, 700), 0)] * source.randint(1, 5)
        left, block = size(source, 80e3, 1.4, 500, 2_000_000), source.choice([16_384, 65_536])
        reads = source.random() < 0.7
        while left > 0:
            found += [("c", 110, 0), ("s", 90 + min(left, block), 0)] if reads else [("c", 110 + min(left, block), 0), ("s", 80, 0)]
            left -= block
    return found


def replication(source: random.Random) -> list[Message]:
    """A copy of a database gets its changes, and confirms them now and then."""
    found: list[Message] = [("c", 150, 0), ("s", 400, 0), ("c", 80, 0)]
    for _ in range(source.randint(2, 40)):
        found += [("s", size(source, 3000, 1.3, 60, 300_000), source.choice([0.0, 0.01, 0.05]))] * source.randint(1, 3) + [("c", source.choice([34, 40, 60]), 0)]
    return found


def streaming(source: random.Random) -> list[Message]:
    """A request over HTTP/1.1 whose answer comes word by word, and perhaps more of them, each with all that was said before."""
    found: list[Message] = []
    said = size(source, 2500, 0.9, 400, 60_000)
    for _ in range(source.choice([1, 1, 2, 3])):
        found += [("c", 500 + said, 0.05), ("s", source.randint(400, 900), 0.1)]
        words = [source.randint(60, 300) for _ in range(source.randint(10, 90))]
        found += [("s", n, 0.01) for n in words]
        said += 6 * len(words)
    return found


def game(source: random.Random) -> list[Message]:
    """Small updates in both directions, at a steady rate."""
    found: list[Message] = [("c", 200, 0), ("s", size(source, 20e3, 1, 500), 0)]
    for _ in range(source.randint(20, 120)):
        found += source.choice([[("c", source.randint(10, 60), 0.01)], [("s", source.randint(20, 400), 0.01)], [("c", 20, 0), ("s", source.randint(40, 200), 0.01)]])
    return found


def nntp(source: random.Random) -> list[Message]:
    """RFC 3977: the overview of a group, and some articles."""
    found: list[Message] = [("s", 60, 0), ("c", source.randint(20, 60), 0), ("s", 40, 0), ("c", source.randint(15, 40), 0), ("s", 50, 0),
                            ("c", 25, 0), ("s", size(source, 20e3, 1.2, 300), 0)]
    for _ in range(source.choice([0, 1, 3, 8])):
        found += [("c", source.randint(14, 60), 0.02), ("s", size(source, 4000, 0.9, 500), 0)]
    return [*found, ("c", 6, 0), ("s", 20, 0)]


def transfer(source: random.Random) -> list[Message]:
    """FTP's data connection: a file in one direction."""
    whole = size(source, 150e3, 1.6, 200)
    return [("s", whole, 0)] if source.random() < 0.6 else [("c", whole, 0)]


def drawn(number: int) -> Callable[[random.Random], list[Message]]:
    """A protocol that does not exist: messages of sizes, and in an order, that are typical of it."""
    traits = random.Random(f"protocol {number}")

    def between(least: float, most: float) -> float:  # log-uniform
        return float(least * (most / least) ** traits.random())

    request, answer, rounds = between(20, 2500), between(20, 100e3), between(1, 40)
    spread, varied = traits.uniform(0.2, 1), traits.uniform(0.3, 1.5)
    body = between(500, 200e3) if traits.random() < 0.25 else 0
    bodies = traits.uniform(0.1, 1)
    greeted, together, parts = traits.random() < 0.3, traits.choice([1, 1, 1, 2, 4]), traits.choice([1, 1, 1, 3, 20])
    pause = traits.choice([0.0, 0.02, 0.1])

    def make(source: random.Random) -> list[Message]:
        found: list[Message] = [("s", source.randint(20, 200), 0), ("c", source.randint(20, 200), 0)] if greeted else []
        for _ in range(min(80, 1 + int(source.expovariate(1 / rounds)))):
            found += [("c", size(source, request, spread, 8, 20_000), pause * (k == 0)) for k in range(together)]
            if body and source.random() < bodies:
                found += [("c", size(source, body, varied, 100, 1_000_000), 0), ("s", source.randint(10, 300), 0)]
            else:
                found += [("s", size(source, answer, varied, 8, 1_000_000) // parts + 1, 0.01 * (k > 0)) for k in range(parts) for _ in range(together)]
        return found

    return make


def drawn_http(number: int) -> Callable[[random.Random], list[Message]]:
    """A program that does not exist and speaks HTTP/1.1 or HTTP/2: its headers, contents and habits."""
    traits = random.Random(f"HTTP program {number}")

    def between(least: float, most: float) -> float:  # log-uniform
        return float(least * (most / least) ** traits.random())

    http2 = traits.random() < 0.3
    request, paths, answer_head = between(100, 1500), between(5, 200), between(100, 900)
    answer, varied, requests = between(20, 200e3), traits.uniform(0.2, 1.6), between(1, 25)
    body, bodies = between(30, 60e3), traits.choice([0.0, 0.0, 0.2, 0.6, 1.0])
    parts, pause, wait = traits.choice([1, 1, 1, 4, 30]), traits.choice([0.0, 0.02, 0.1]), traits.choice([0.0, 0.01, 0.1])

    def make(source: random.Random) -> list[Message]:
        found: list[Message] = [("c", 24 + 27 + 13, 0), ("s", 36, 0), ("c", 9, 0)] if http2 else []
        for k in range(min(80, 1 + int(source.expovariate(1 / requests)))):
            head, answer_first = (request, answer_head) if k == 0 or not http2 else (30 + request / 8, 30 + answer_head / 8)  # RFC 7541: what was said before is short
            length = int(head) + size(source, paths, 0.5, 1, 800) + (size(source, body, 0.9, 1, 500_000) if source.random() < bodies else 0)
            content = size(source, answer, varied, 1, 1_500_000)
            found += [("c", length, pause), ("s", int(answer_first) + content // parts, wait)] + [("s", content // parts + 1, 0.01)] * (parts - 1)
        return found

    return make


DRAWN = {**{f"drawn_{i}": drawn(i) for i in range(1, 31)}, **{f"drawn_http_{i}": drawn_http(i) for i in range(1, 41)}}


def web_socket(source: random.Random) -> list[Message]:
    """RFC 6455: an upgrade of HTTP/1.1 as a browser asks for it, then messages in both directions."""
    found: list[Message] = [("c", source.randint(420, 700), 0), ("s", source.randint(130, 220), 0)]
    for _ in range(source.randint(3, 60)):
        found += [("c", 6 + size(source, 90, 0.9, 2, 5000), source.choice([0.0, 0.05, 0.2]))] if source.random() < 0.35 else [("s", 4 + size(source, 250, 1.1, 2, 50_000), 0.02)]
    return found


def dns_over_https(source: random.Random) -> list[Message]:
    """RFC 8484 by HTTP/2, as a stub resolver sends it: requests are short, because headers are compressed."""
    found: list[Message] = [("c", 24 + 27 + 13, 0), ("s", 9 + 18 + 9, 0), ("c", 9, 0), ("c", source.randint(190, 260), 0), ("s", source.randint(150, 600), 0.005)]
    for _ in range(min(60, int(source.expovariate(1 / 7)))):
        found += [("c", source.randint(60, 160), source.choice([0.0, 0.05, 0.3])), ("s", source.choice([150, 510]), 0.005)]
    return found


def remote_procedures(source: random.Random) -> list[Message]:
    """JSON over HTTP/1.1, as programs on phones send it."""
    found: list[Message] = []
    for _ in range(source.choice([1, 2, 3, 6, 15])):
        found += [("c", source.randint(220, 420) + (size(source, 300, 1, 20, 10_000) if source.random() < 0.4 else 0), source.choice([0.0, 0.1])),
                  ("s", 200 + size(source, 1800, 1.2, 2, 200_000), 0.01)]
    return found


def private_network(source: random.Random) -> list[Message]:
    """Packets through a tunnel over TLS: another application's, in both directions."""
    found: list[Message] = [("c", 60, 0), ("s", 1500, 0), ("c", 900, 0), ("s", 300, 0)]
    for _ in range(source.randint(5, 60)):
        found += [("c", source.choice([54, 66, 90, 400, 1300]), source.choice([0.0, 0.0, 0.02]))] * source.randint(1, 3)
        found += [("s", source.choice([54, 66, 130, 600, 1350, 1350, 1350]), 0)] * source.randint(1, 8)
    return found


def telemetry(source: random.Random) -> list[Message]:
    """MQTT: a sensor connects and publishes."""
    found: list[Message] = [("c", source.randint(40, 120), 0), ("s", 4, 0)]
    for _ in range(source.randint(1, 40)):
        found += [("c", source.randint(40, 400), source.choice([0.0, 0.1]))] + source.choice([[], [("s", 4, 0)]])
    return [*found, ("c", 2, 0)]


def camera(source: random.Random) -> list[Message]:
    """RTSP in one connection: frames come until the client has seen enough."""
    found: list[Message] = [("c", 130, 0), ("s", 180, 0), ("c", 170, 0), ("s", 800, 0), ("c", 210, 0), ("s", 200, 0), ("c", 180, 0), ("s", 200, 0)]
    each = size(source, 5000, 0.7, 500, 40_000)
    for i in range(source.randint(20, 150)):
        found += [("s", int(each * source.uniform(0.7, 1.4)) * (6 if i % 30 == 0 else 1), 0.01)] + ([("c", 60, 0)] if i % 50 == 49 else [])
    return [*found, ("c", 140, 0)]


def calendar(source: random.Random) -> list[Message]:
    """RFC 4791 over HTTP/1.1: what has changed, and these entries."""
    found: list[Message] = [("c", source.randint(500, 800), 0), ("s", source.randint(500, 1500), 0), ("c", source.randint(550, 900), 0), ("s", size(source, 5000, 1.2, 400), 0)]
    for _ in range(source.choice([0, 1, 1, 2])):
        found += [("c", 600 + 90 * source.randint(1, 40), 0), ("s", size(source, 9000, 1.2, 600), 0)]
    return found


def push(source: random.Random) -> list[Message]:
    """Notifications of a phone: a connection that is kept, and says little."""
    found: list[Message] = [("c", source.randint(150, 600), 0), ("s", source.randint(30, 200), 0)]
    for _ in range(source.randint(0, 25)):
        found += source.choice([[("s", size(source, 600, 0.7, 40, 4000), 0.1), ("c", source.randint(10, 40), 0)], [("c", 12, 0.1), ("s", 12, 0)]])
    return found


def telephony(source: random.Random) -> list[Message]:
    """SIP: registration, and the messages of calls; speech goes elsewhere."""
    found: list[Message] = [("c", source.randint(450, 700), 0), ("s", source.randint(400, 600), 0), ("c", source.randint(650, 900), 0), ("s", source.randint(450, 700), 0)]
    for _ in range(source.choice([0, 0, 1, 2])):
        found += [("c", source.randint(900, 1500), 0.1), ("s", 350, 0), ("s", source.randint(800, 1200), 0.2), ("c", source.randint(400, 600), 0), ("c", source.randint(400, 600), 0.3), ("s", 400, 0)]
    return found + [("c", 4, 0.1), ("s", 2, 0)] * source.randint(0, 6)


def live_upload(source: random.Random) -> list[Message]:
    """RTMP: a camera sends pictures and sound for as long as the stream lasts."""
    found: list[Message] = [("c", 1537, 0), ("s", 3073, 0), ("c", 1536 + 200, 0), ("s", 300, 0), ("c", 150, 0), ("s", 120, 0)]
    each = size(source, 4000, 0.6, 500, 20_000)
    for i in range(source.randint(20, 150)):
        found += [("c", int(each * source.uniform(0.6, 1.5)), 0.01)] + ([("s", 16, 0)] if i % 30 == 29 else [])
    return found


def object_store(source: random.Random) -> list[Message]:
    """Files of a backup, put and got by HTTP/1.1 with signed requests."""
    found: list[Message] = []
    for _ in range(source.choice([1, 1, 2, 4, 8])):
        body = size(source, 90e3, 1.5, 100, 2_000_000)
        found += [("c", source.randint(500, 750), 0), ("s", 350 + body, 0)] if source.random() < 0.4 else [("c", source.randint(550, 850) + body, 0), ("s", source.randint(250, 400), 0.02)]
    return found


def peers(source: random.Random) -> list[Message]:
    """BitTorrent: pieces of 16 KB in both directions, each after its request."""
    found: list[Message] = [("c", 68, 0), ("s", 68 + 200, 0), ("c", 200, 0)]
    share = source.random()
    for _ in range(source.randint(3, 60)):
        ahead = source.randint(1, 6)
        found += [("c", 17 * ahead, 0)] + [("s", 16_397, 0)] * ahead if source.random() < share else [("s", 17, 0), ("c", 16_397, 0)]
    return found


def world(source: random.Random) -> list[Message]:
    """A game whose player walks: parts of the world come as needed, and where everyone is all the time."""
    found: list[Message] = [("c", source.randint(100, 400), 0), ("s", size(source, 3000, 0.6, 500), 0), ("c", 30, 0)]
    for _ in range(source.randint(10, 100)):
        found.append(("c", source.randint(15, 40), source.choice([0.0, 0.02])))
        found.append(source.choice([("s", source.randint(30, 300), 0)] * 4 + [("s", size(source, 9000, 0.5, 1000), 0)]))
    return found


def key_value(source: random.Random) -> list[Message]:
    """A cache: many short commands, and short answers."""
    found: list[Message] = [("c", 40, 0), ("s", 5, 0)]
    for _ in range(source.randint(1, 80)):
        found += [("c", 25 + size(source, 40, 1.2, 5, 20_000), 0), ("s", size(source, 60, 1.4, 4, 50_000), 0)]
    return found


def logs(source: random.Random) -> list[Message]:
    """Syslog over TLS: lines, and no answer but the end."""
    return [("c", size(source, 160, 0.6, 60, 2000) * source.choice([1, 1, 1, 5]), source.choice([0.0, 0.0, 0.1])) for _ in range(source.randint(1, 80))] + [("s", 1, 0)]


def gemini(source: random.Random) -> list[Message]:
    """A page of text, after its address, in each connection."""
    return [("c", source.randint(20, 120), 0), ("s", 20 + size(source, 4000, 1.2, 100, 300_000), 0.01)]


def assistant(source: random.Random) -> list[Message]:
    """Speech goes up while it is spoken, and the answer comes as sound."""
    found: list[Message] = [("c", source.randint(200, 900), 0), ("s", source.randint(60, 200), 0)]
    for _ in range(source.choice([1, 1, 2])):
        found += [("c", source.randint(600, 1300), 0.02)] * source.randint(10, 60) + [("s", source.randint(200, 800), 0.1), ("s", size(source, 30e3, 0.6, 3000), 0.05)]
    return found


def ticker(source: random.Random) -> list[Message]:
    """Quotes and scores come as they change, after one subscription or a few."""
    found: list[Message] = [("c", source.randint(80, 400), 0), ("s", source.randint(60, 300), 0)] * source.randint(1, 3)
    return found + [("s", size(source, 300, 0.8, 30, 8000), source.choice([0.0, 0.02, 0.05])) for _ in range(source.randint(5, 120))]


# The following were for judging a classifier only, until they were judged.


def long_polls(source: random.Random) -> list[Message]:
    """Chat by HTTP/1.1: each request is answered when there is something new."""
    found: list[Message] = []
    for _ in range(source.randint(1, 25)):
        found += [("c", source.randint(280, 480) + (size(source, 120, 0.8, 10, 3000) if source.random() < 0.2 else 0), 0), ("s", 180 + size(source, 300, 1.1, 2, 20_000), source.choice([0.01, 0.1, 0.3]))]
    return found


def mail_by_http(source: random.Random) -> list[Message]:
    """RFC 8620 (JMAP) by HTTP/1.1: methods and their results, in JSON."""
    found: list[Message] = [("c", source.randint(250, 400), 0), ("s", source.randint(1200, 2500), 0)]
    for _ in range(source.choice([1, 2, 2, 3, 6])):
        found += [("c", 300 + size(source, 450, 0.5, 150, 5000), 0.02), ("s", 250 + size(source, 6000, 1.3, 200, 400_000), 0.02)]
    return found


def drive(source: random.Random) -> list[Message]:
    """Files of a cloud by HTTP/2: what has changed, downloads and uploads."""
    found: list[Message] = [("c", 24 + 27 + 13, 0), ("s", 36, 0), ("c", 9, 0), ("c", source.randint(300, 900), 0), ("s", size(source, 1500, 1, 200), 0.01)]
    for _ in range(source.randint(0, 10)):
        body = size(source, 50e3, 1.4, 200, 2_000_000)
        found += [("c", source.randint(60, 200), 0), ("s", 60 + body, 0)] if source.random() < 0.6 else [("c", source.randint(90, 250) + body, 0), ("s", source.randint(80, 300), 0)]
    return found


def blocks(source: random.Random) -> list[Message]:
    """A ledger among peers: announcements in both directions, and what is new."""
    found: list[Message] = [("c", 126, 0), ("s", 126 + 24, 0), ("c", 24, 0)]
    for _ in range(source.randint(3, 50)):
        found += source.choice([[("s", 61, 0.02), ("c", 61, 0), ("s", size(source, 350, 0.6, 150, 5000), 0)]] * 5 + [[("c", 61, 0.02), ("s", 61, 0), ("c", size(source, 350, 0.6, 150, 5000), 0)]]
                               + [[("s", 61, 0), ("c", 40, 0), ("s", size(source, 200e3, 0.8, 2000, 1_500_000), 0)]])
    return found


def call(source: random.Random) -> list[Message]:
    """Speech, and perhaps pictures, through a TURN server over TLS."""
    found: list[Message] = [("c", 40, 0), ("s", 100, 0), ("c", 180, 0), ("s", 110, 0)]
    pictures = source.random() < 0.5
    for _ in range(source.randint(20, 120)):
        found += [("c", source.randint(90, 200) if not pictures else source.randint(300, 1200), 0.01), ("s", source.randint(90, 200) if not pictures else source.randint(300, 1200), 0.0)]
    return found


def terminal(source: random.Random) -> list[Message]:
    """Keys and screens over TLS."""
    found: list[Message] = [("s", 60, 0), ("c", 20, 0), ("s", 30, 0), ("c", 20, 0), ("s", 400, 0)]
    for _ in range(source.randint(3, 60)):
        found += source.choice([[("c", 1, 0.02), ("s", source.randint(1, 8), 0)]] * 5 + [[("c", 2, 0.02), ("s", size(source, 900, 1, 20, 20_000), 0)]])
    return found


def time_keys(source: random.Random) -> list[Message]:
    """RFC 8915: keys and cookies for NTP."""
    return [("c", source.randint(16, 40), 0), ("s", source.choice([8, 7]) * source.randint(104, 128) + 30, 0)]


def queue(source: random.Random) -> list[Message]:
    """Jobs are taken from a queue, and their results put back."""
    found: list[Message] = [("c", 200, 0), ("s", 500, 0), ("c", 300, 0), ("s", 80, 0)]
    for _ in range(source.randint(1, 40)):
        found += [("s", 60 + size(source, 700, 1, 30, 60_000), source.choice([0.0, 0.05])), ("c", 40 + size(source, 200, 1.2, 10, 60_000), 0.01)]
    return found


# The following are for judging a classifier only (lab/experiments/flows.py).


def rooms(source: random.Random) -> list[Message]:
    """Matrix by HTTP/1.1: what is new is asked for, and comes when there is something; messages are sent in between."""
    head = source.randint(380, 620)
    found: list[Message] = [("c", head, 0), ("s", 350 + size(source, 40e3, 1.1, 1500, 1_500_000), 0.05)] if source.random() < 0.4 else []
    for _ in range(source.randint(1, 20)):
        found += [("c", head + source.randint(0, 60), 0), ("s", 330 + size(source, 900, 1.1, 150, 60_000), source.choice([0.02, 0.1, 0.3]))]
        if source.random() < 0.25:
            found += [("c", head + 60 + size(source, 160, 0.8, 60, 4000), 0), ("s", 370, 0.02)]
    return found


def active_sync(source: random.Random) -> list[Message]:
    """Mail of an office on a phone: commands in binary XML by HTTP/1.1."""
    head = source.randint(430, 680)
    found: list[Message] = [("c", head + 13, 0), ("s", 420 + size(source, 900, 0.8, 60), 0.03)]
    for _ in range(source.choice([1, 1, 2, 3, 5])):
        found += [("c", head + size(source, 110, 0.7, 20, 3000), 0.02), ("s", 400 + (size(source, 14e3, 1.4, 200, 900_000) if source.random() < 0.6 else 60), 0.03)]
    if source.random() < 0.5:
        found += [("c", head + source.randint(30, 80), 0), ("s", 430, 0.5)]
    return found


def web_folder(source: random.Random) -> list[Message]:
    """RFC 4918 (WebDAV) by HTTP/1.1: lists of folders, and files in both directions."""
    head = source.randint(240, 480)
    found: list[Message] = [("c", head + 40, 0), ("s", 480, 0)] if source.random() < 0.5 else []
    for _ in range(source.randint(1, 6)):
        found += [("c", head + source.randint(180, 420), 0), ("s", 380 + 700 * size(source, 8, 1, 1, 300), 0.01)]
        for _ in range(source.choice([0, 0, 1, 2, 4])):
            body = size(source, 70e3, 1.6, 200, 2_000_000)
            found += [("c", head, 0), ("s", 360 + body, 0)] if source.random() < 0.6 else [("c", head + 90 + body, 0), ("s", 290, 0.02)]
    return found


def images_of_containers(source: random.Random) -> list[Message]:
    """A registry by HTTP/1.1: a manifest, and the layers that are missing."""
    head = source.choice([180, 1100, 1500])  # with a token or without
    found: list[Message] = [("c", 150, 0), ("s", 420, 0), ("c", head + 220, 0), ("s", 500 + size(source, 1800, 0.5, 500), 0.02)]
    for _ in range(source.choice([0, 1, 2, 4, 7])):
        found += [("c", head + 130, 0), ("s", 420 + size(source, 500e3, 1.5, 300, 3_500_000), 0.01)]
    return found


def onion(source: random.Random) -> list[Message]:
    """Tor: cells of 514 bytes, several in a record where more wait."""
    found: list[Message] = [("c", 11, 0), ("s", 2000 + source.randint(0, 300), 0.01), ("c", 514, 0)]
    for _ in range(source.randint(1, 3)):
        found += [("c", 514, 0.01), ("s", 514, 0.05)] * 3
    for _ in range(source.randint(0, 30)):
        found += [("c", 514 * source.choice([1, 1, 1, 2]), source.choice([0.0, 0.02])), ("s", 514 * size(source, 9, 1.2, 1, 900), 0.05)]
        if source.random() < 0.2:
            found += [("c", 514, 0)] * source.randint(1, 3)  # acknowledgements
    return found


def office_desktop(source: random.Random) -> list[Message]:
    """RDP: capabilities, then pointer and keys up, and changed bitmaps down."""
    found: list[Message] = [("c", source.randint(420, 500), 0), ("s", source.randint(100, 180), 0), ("c", 20, 0), ("s", 11, 0)]
    found += [("c", 12, 0), ("s", 15, 0)] * 4
    found += [("c", source.randint(300, 420), 0), ("s", 34, 0), ("s", source.randint(380, 460), 0), ("c", source.randint(450, 560), 0), ("s", size(source, 120e3, 0.9, 8000, 1_500_000), 0.02)]
    for _ in range(source.randint(5, 90)):
        found += [("c", source.choice([4, 8, 8, 12, 32]), source.choice([0.0, 0.01, 0.03]))] * source.randint(1, 3)
        if source.random() < 0.6:
            found += [("s", size(source, 1400, 1.4, 20, 90_000), 0)]
    return found


def broker(source: random.Random) -> list[Message]:
    """AMQP: a connection, a channel, and messages published or delivered, each confirmed."""
    found: list[Message] = [("c", 8, 0), ("s", source.randint(400, 520), 0), ("c", source.randint(250, 420), 0), ("s", 20, 0), ("c", 36, 0), ("s", 13, 0), ("c", 13, 0), ("s", 16, 0)]
    consumes = source.random() < 0.5
    each = size(source, 900, 1.2, 40, 50_000)
    if consumes:
        found += [("c", source.randint(30, 80), 0), ("s", source.randint(25, 60), 0)]
    for _ in range(source.randint(1, 70)):
        content = 60 + size(source, each, 0.4, 20, 200_000)
        found += [("s", content, source.choice([0.0, 0.02, 0.1])), ("c", 21, 0)] if consumes else [("c", content, source.choice([0.0, 0.02])), ("s", 21, 0)]
    return found


def calls_of_services(source: random.Random) -> list[Message]:
    """gRPC by HTTP/2: calls with one answer, or a stream of them."""
    found: list[Message] = [("c", 24 + 21 + 13, 0), ("s", 21 + 9, 0), ("c", 9, 0)]
    for k in range(source.randint(1, 25)):
        found += [("c", (source.randint(190, 420) if k == 0 else source.randint(40, 110)) + 14 + size(source, 90, 1, 2, 20_000), source.choice([0.0, 0.05]))]
        found += [("s", (120 if k == 0 else 40) + size(source, 400, 1.3, 2, 120_000), 0.01)] * (source.randint(2, 30) if source.random() < 0.15 else 1)
        if source.random() < 0.3:
            found += [("c", 17, 0), ("s", 17, 0)]  # PING
    return found


def certificates(source: random.Random) -> list[Message]:
    """RFC 8555 (ACME) by HTTP/1.1: signed JSON, and in the end a chain of certificates."""
    head = source.randint(170, 260)
    found: list[Message] = [("c", head, 0), ("s", 1200, 0), ("c", head, 0), ("s", 330, 0), ("c", head + source.randint(750, 1300), 0), ("s", 900, 0.02)]
    for _ in range(source.randint(1, 4)):  # names
        found += [("c", head + source.randint(430, 620), 0), ("s", source.randint(900, 1400), 0.02)] * source.choice([2, 3, 4])
    if source.random() < 0.7:
        found += [("c", head + source.randint(1500, 2100), 0), ("s", 1000, 0.05), ("c", head + 450, 0.1), ("s", 1000, 0.02), ("c", head + 450, 0), ("s", source.randint(3800, 6500), 0)]
    return found


def player(source: random.Random) -> list[Message]:
    """Radio in a program of its own: a list by HTTP/1.1, and a segment as each has been played."""
    head = source.randint(140, 260)
    each = source.choice([30e3, 80e3, 160e3, 400e3])
    found: list[Message] = [("c", head, 0), ("s", 300 + source.randint(150, 900), 0.01)]
    for _ in range(source.randint(2, 14)):
        found += [("c", head + 20, source.choice([0.0, 0.1])), ("s", 320 + size(source, each, 0.15, 2000), 0.01)]
        if source.random() < 0.4:
            found += [("c", head, 0.05), ("s", 300 + source.randint(200, 900), 0)]
    return found


def navigation(source: random.Random) -> list[Message]:
    """A map in a program of its own, by HTTP/2: tiles of vectors as the view moves."""
    found: list[Message] = [("c", 24 + 45 + 13, 0), ("s", 40, 0), ("c", 9, 0)]
    for k in range(source.randint(1, 9)):
        together = source.choice([1, 2, 4, 6, 9])
        found += [("c", (260 + source.randint(0, 150) if k == 0 and i == 0 else source.randint(45, 110)), 0.05 if i == 0 else 0) for i in range(together)]
        found += [("s", 60 + size(source, 17e3, 1.0, 80, 250_000), 0) for _ in range(together)]
    return found


def meter(source: random.Random) -> list[Message]:
    """Readings of a device by HTTP/1.1, in JSON or as a form."""
    head, body = source.randint(160, 420), size(source, 350, 0.8, 30, 6000)
    return [m for _ in range(source.choice([1, 1, 1, 2, 6])) for m in (("c", head + body + source.randint(0, 20), 0.05), ("s", source.randint(130, 420), 0.02))]


def patches(source: random.Random) -> list[Message]:
    """A game's new version by HTTP/1.1: what has changed, then its chunks."""
    head = source.randint(190, 420)
    found: list[Message] = [("c", head, 0), ("s", 350 + size(source, 60e3, 0.8, 2000, 600_000), 0)] if source.random() < 0.5 else []
    chunk = source.choice([128e3, 512e3, 1e6])
    for _ in range(source.randint(1, 6)):
        found += [("c", head + source.randint(0, 70), 0), ("s", 380 + int(chunk * source.uniform(0.4, 1)), 0)]
    return found


def mirrored(source: random.Random) -> list[Message]:
    """rsync: a list of files one way, checksums the other, and what differs."""
    found: list[Message] = [("c", 30, 0), ("s", 30, 0), ("c", source.randint(20, 60), 0), ("s", 200, 0), ("c", source.randint(60, 200), 0), ("s", 30 * size(source, 120, 1.2, 2, 20_000), 0.01)]
    for _ in range(source.randint(0, 20)):
        found += [("c", 16 + 20 * size(source, 12, 1.2, 0, 2000), 0), ("s", size(source, 9e3, 1.8, 40, 1_500_000), 0)]
    return [*found, ("c", 4, 0), ("s", source.randint(20, 60), 0), ("c", 4, 0)]


def card_terminal(source: random.Random) -> list[Message]:
    """ISO 8583: a payment, and sometimes the day's total."""
    return [m for _ in range(source.choice([1, 1, 2, 3])) for m in (("c", source.randint(180, 480), 0.1), ("s", source.randint(120, 420), 0.1))]


def access_control(source: random.Random) -> list[Message]:
    """RADIUS over TLS: users of WiFi come, with some rounds of EAP each."""
    found: list[Message] = []
    for _ in range(source.randint(1, 12)):
        found += [("c", source.randint(190, 330), source.choice([0.0, 0.1])), ("s", source.randint(80, 140), 0)]
        for _ in range(source.choice([0, 5, 8])):
            found += [("c", source.randint(220, 420) if source.random() < 0.8 else source.randint(900, 1500), 0), ("s", source.choice([90, 130, 1090, 1090, 180]), 0)]
        found += [("c", source.randint(200, 320), 0), ("s", 20 + source.randint(0, 20), 0)] if source.random() < 0.5 else []
    return found


def routes(source: random.Random) -> list[Message]:
    """RFC 8210: who may announce which prefix, all of it or what has changed."""
    found: list[Message] = [("c", 8 if source.random() < 0.4 else 12, 0), ("s", 8 + 20 * size(source, 4000, 1.8, 0, 150_000) + 24, 0.02)]
    for _ in range(source.randint(0, 8)):
        found += [("s", 12, 0.1), ("c", 12, 0), ("s", 8 + 20 * size(source, 25, 1.1, 0, 2000) + 24, 0)]
    return found


def courier(source: random.Random) -> list[Message]:
    """A messenger's binary protocol: messages and their receipts, and pictures in parts."""
    found: list[Message] = [("c", source.randint(120, 420), 0), ("s", source.randint(140, 900), 0.01), ("c", source.randint(100, 300), 0), ("s", size(source, 2500, 1.1, 100, 200_000), 0.02)]
    for _ in range(source.randint(1, 30)):
        if source.random() < 0.15:
            part = source.choice([32_768, 131_072])
            found += [("c", 120, 0), ("s", part + 80, 0)] * source.randint(1, 6)
        elif source.random() < 0.5:
            found += [("s", size(source, 260, 0.8, 90, 4000), source.choice([0.02, 0.1])), ("c", source.choice([72, 88, 104]), 0)]
        else:
            found += [("c", size(source, 220, 0.6, 90, 3000), source.choice([0.02, 0.1])), ("s", source.choice([88, 104, 136]), 0)]
    return found


def crash_report(source: random.Random) -> list[Message]:
    """A program's last words by HTTP/1.1: a form with a file."""
    found: list[Message] = [("c", source.randint(350, 700) + size(source, 90e3, 1.2, 2000, 1_500_000), 0), ("s", source.randint(200, 500), 0.1)]
    return found * source.choice([1, 1, 2])


def system_update(source: random.Random) -> list[Message]:
    """An operating system asks by HTTP/2 for what is new, and gets it, or nothing."""
    found: list[Message] = [("c", 24 + 33 + 13, 0), ("s", 45, 0), ("c", 9, 0), ("c", source.randint(280, 600) + size(source, 1600, 0.7, 200, 20_000), 0), ("s", 200 + size(source, 5e3, 1.1, 100, 120_000), 0.05)]
    for _ in range(source.choice([0, 0, 1, 2, 5])):
        found += [("c", source.randint(70, 220), 0), ("s", 120 + size(source, 300e3, 1.3, 500, 3_000_000), 0.01)]
    return found


PROTOCOLS = {f.__name__: f for f in (dns_over_tls, imap, pop3, smtp, messaging, desktop, backup, irc, sql, printing, git, directory, soap, filesystem,
                                     replication, streaming, game, nntp, transfer, web_socket, dns_over_https, remote_procedures, private_network,
                                     telemetry, camera, calendar, push, telephony, live_upload, object_store, peers, world, key_value, logs, gemini, assistant, ticker,
                                     long_polls, mail_by_http, drive, blocks, call, terminal, time_keys, queue)}
HELD_OUT = {f.__name__: f for f in (rooms, active_sync, web_folder, images_of_containers, onion, office_desktop, broker, calls_of_services, certificates, player,
                                    navigation, meter, patches, mirrored, card_terminal, access_control, routes, courier, crash_report, system_update)}


def dialogue(protocol: str, seed: int) -> list[Message]:
    return (PROTOCOLS | DRAWN | HELD_OUT)[protocol](random.Random(seed))


def hybrid(seed: int) -> bool:
    """Whether both ends exchange keys as current libraries do, with X25519MLKEM768: that makes their first messages longer."""
    return random.Random(f"hybrid {seed}").random() < 0.4


def talk(connection: ssl.SSLSocket, whose: str, dialogue: list[Message]) -> None:
    for who, length, pause in dialogue:
        if who == whose:
            time.sleep(min(pause, MOST_PAUSE))
            connection.sendall(bytes(length))
        else:
            if not receive(connection, length):
                return


def receive(connection: ssl.SSLSocket, length: int) -> bool:
    while length:
        got = connection.recv(min(length, 1 << 16))
        if not got:
            return False
        length -= len(got)
    return True


def serve(port: int, certificate: str, key: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    names: dict[int, str] = {}

    def named(connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext) -> None:
        names[id(connection)] = name or ""

    context.sni_callback = named
    listener = socket.create_server(("", port))
    print("listens", flush=True)

    def answer(raw: socket.socket) -> None:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with context.wrap_socket(raw, server_side=True) as connection:
            protocol, seed, *_ = names.pop(id(connection)).split(".")
            if hybrid(int(seed)):
                connection.sendall(bytes(HYBRID_SERVER))
            talk(connection, "s", dialogue(protocol.replace("-", "_"), int(seed)))

    while True:
        threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()


def client(address: str, port: int, protocol: str, seed: int) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if hybrid(seed):  # as long as the key
        context.set_alpn_protocols([f"{i}" + "x" * 200 for i in range(HYBRID_CLIENT // 202)])
    with socket.create_connection((address, port)) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with context.wrap_socket(raw, server_hostname=f"{protocol.replace('_', '-')}.{seed}.example") as connection:
            if hybrid(seed):
                receive(connection, HYBRID_SERVER)
            talk(connection, "c", dialogue(protocol, seed))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]), *sys.argv[3:5])
    else:
        client(sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
