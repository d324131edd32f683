# SPDX-License-Identifier: Apache-2.0
"""Malformed requests, and what reaches an origin of them: one well-formed request, or nothing (request smuggling)."""

import asyncio
import dataclasses

import pytest

from cases import REFUSED, Case, name_of
from conftest import ORIGIN
from harness import Authority, Gateway
from http2_client import Http2, data, headers, http1
from http3_client import DATA, HEADERS, client, frame, section
from recorder import Recorder


@dataclasses.dataclass
class Message:
    """A request of HTTP/2 and 3."""

    fields: list[tuple[bytes, bytes]]
    body: bytes = b""
    trailers: list[tuple[bytes, bytes]] = dataclasses.field(default_factory=list)


def fields(*more: tuple[bytes, bytes], without: bytes = b"", method: bytes = b"GET", scheme: bytes = b"https", path: bytes = b"/",
           host: bytes = b"", body: bytes = b"", trailers: tuple[tuple[bytes, bytes], ...] = ()):
    """A good request, but for the arguments."""
    def message(authority: bytes) -> Message:
        pseudo = [(b":method", method), (b":scheme", scheme), (b":authority", host or authority), (b":path", path)]
        return Message([f for f in pseudo if f[0] != without] + list(more), body, list(trailers))
    return message


def exactly(*pairs: tuple[bytes, bytes]):
    """These fields; AUTHORITY stands for the gateway's name and port."""
    return lambda authority: Message([(name, authority if value == b"AUTHORITY" else value) for name, value in pairs])


GOOD = ((b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"AUTHORITY"), (b":path", b"/"))
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
PSEUDO, NAMES, LENGTH = "RFC 9114 4.3, 9113 8.3", "RFC 9114 4.2, 9113 8.2", "RFC 9114 4.1.2, 9113 8.1.1"

PSEUDO_FIELDS = [
    Case("a good request", PSEUDO, "GET /", fields()),
    *(Case(f"without {name.decode()}", PSEUDO, REFUSED, fields(without=name)) for name in (b":method", b":path")),
    Case("without :scheme", PSEUDO, REFUSED, fields(without=b":scheme"), "HTTP/2: refused; HTTP/3: GET /",
         "the gateway serves everything as https, whatever :scheme says"),
    Case("without :authority or Host", PSEUDO, REFUSED, fields(without=b":authority")),
    Case("Host instead of :authority", PSEUDO, "GET /", exactly(GOOD[0], GOOD[1], GOOD[3], (b"host", b"AUTHORITY"))),
    *(Case(f"{pair[0].decode()} twice", PSEUDO, REFUSED, exactly(*GOOD, pair)) for pair in GOOD),
    Case("a pseudo-header field after another field", PSEUDO, REFUSED, exactly(GOOD[0], GOOD[1], GOOD[2], (b"x", b"y"), GOOD[3])),
    Case("an unknown pseudo-header field", PSEUDO, REFUSED, exactly(*GOOD, (b":unknown", b"x"))),
    Case(":status in a request", PSEUDO, REFUSED, exactly(*GOOD, (b":status", b"200"))),
    Case("an empty :path", PSEUDO, REFUSED, fields(path=b"")),
    Case("a :path without slash", PSEUDO, REFUSED, fields(path=b"x")),
    Case("a :path with scheme and host", PSEUDO, REFUSED, fields(path=b"http://other.test/x"),
         "HTTP/2: GET /x; HTTP/3: refused", ":authority decides on the site, and on the Host that the origin sees"),
    Case("an empty :method", PSEUDO, REFUSED, fields(method=b"")),
    Case("a :method that is a request line", PSEUDO, REFUSED, fields(method=b"GET /smuggled HTTP/1.1\r\nx: ")),
    Case("a :path that is a request line", PSEUDO, REFUSED, fields(path=b"/ HTTP/1.1\r\nHost: x\r\n\r\n" + SMUGGLED)),
    Case("a :path with a space", PSEUDO, REFUSED, fields(path=b"/x HTTP/1.1"),
         "GET /x%20HTTP/1.1", "the space reaches the origin percent-encoded"),
    Case("a :path with NUL", PSEUDO, REFUSED, fields(path=b"/x\0")),
    Case("a :scheme that is a request line", PSEUDO, REFUSED, fields(scheme=b"https://x/smuggled HTTP/1.1\r\n")),
    Case(":authority and another Host", PSEUDO, REFUSED, fields((b"host", b"other.test"))),
    Case(":authority and two Host fields", PSEUDO, REFUSED, exactly(*GOOD, (b"host", b"AUTHORITY"), (b"host", b"other.test"))),
    Case(":authority with user information", PSEUDO, REFUSED, fields(host=b"user@" + ORIGIN.encode())),
    Case(":authority with a path", PSEUDO, REFUSED, fields(host=ORIGIN.encode() + b"/x")),
    Case(":authority with a line break", PSEUDO, REFUSED, fields(host=ORIGIN.encode() + b"\r\nx: y")),
    Case(":authority with a space", PSEUDO, REFUSED, fields(host=ORIGIN.encode() + b" x")),
    Case(":authority that names no site", "RFC 9110 7.4", REFUSED, fields(host=b"other.test")),
]

FIELDS = [
    Case("a name in upper case", NAMES, REFUSED, fields((b"X-Upper", b"y"))),
    *(Case(f"a name with {what}", NAMES, REFUSED, fields((b"x" + char + b"y", b"z")))
      for what, char in (("a space", b" "), ("a line break", b"\r\n"), ("NUL", b"\0"), ("a colon", b":"), ("a byte above 127", b"\xe4"))),
    Case("an empty name", NAMES, REFUSED, fields((b"", b"x"))),
    *(Case(f"a value with {what}", NAMES, REFUSED, fields((b"x", b"y" + chars)))
      for what, chars in (("CR LF and a field", b"\r\nsmuggled: 1"), ("CR LF CR LF and a request", b"\r\n\r\n" + SMUGGLED), ("LF", b"\nz"), ("CR", b"\rz"), ("NUL", b"\0z"))),
    *(Case(f"{name.decode()}: {value.decode()}", NAMES, REFUSED, fields((name, value)))
      for name, value in ((b"connection", b"close"), (b"transfer-encoding", b"chunked"), (b"upgrade", b"h2c"), (b"keep-alive", b"1"),
                          (b"proxy-connection", b"close"), (b"te", b"gzip"))),
    Case("te: trailers", NAMES, "GET /", fields((b"te", b"trailers"))),
    Case("transfer-encoding: chunked with a body", NAMES, REFUSED,
         fields((b"transfer-encoding", b"chunked"), method=b"POST", body=b"0\r\n\r\n" + SMUGGLED)),
]

LENGTHS = [
    Case("a body without content-length", LENGTH, "POST / with 5 bytes", fields(method=b"POST", body=b"hello")),
    Case("a body that is a request", LENGTH, f"POST / with {len(SMUGGLED)} bytes", fields(method=b"POST", body=SMUGGLED)),
    Case("the right content-length", LENGTH, "POST / with 5 bytes", fields((b"content-length", b"5"), method=b"POST", body=b"hello")),
    Case("content-length below the body's length", LENGTH, REFUSED,
         fields((b"content-length", b"0"), method=b"POST", body=SMUGGLED), "POST /, or refused",
         "the body goes nowhere"),
    Case("content-length 3 of a body of 5", LENGTH, REFUSED, fields((b"content-length", b"3"), method=b"POST", body=b"hello")),
    Case("content-length above the body's length", LENGTH, REFUSED, fields((b"content-length", b"50"), method=b"POST", body=b"hello")),
    Case("content-length above an empty body", LENGTH, REFUSED, fields((b"content-length", b"50"), method=b"POST")),
    Case("two different content-length fields", LENGTH, REFUSED,
         fields((b"content-length", b"5"), (b"content-length", b"0"), method=b"POST", body=b"hello")),
    *(Case(f"content-length: {value.decode()}", LENGTH, REFUSED,
           fields((b"content-length", value), method=b"POST", body=b"hello"))
      for value in (b"+5", b"-5", b"0x5", b"5, 5", b"5 5", b"99999999999999999999", b"five")),
    Case("content-length and transfer-encoding in trailers", "RFC 9110 6.5.1", "POST / with 5 bytes",
         fields(method=b"POST", body=b"hello", trailers=((b"content-length", b"0"), (b"transfer-encoding", b"chunked"))),
         "HTTP/2: POST / with 5 bytes; HTTP/3: refused", "stricter than required"),
    Case("a pseudo-header field in trailers", "RFC 9114 4.3, 9113 8.1", REFUSED,
         fields(method=b"POST", body=b"hello", trailers=((b":path", b"/smuggled"),))),
]

SEMANTICS = [*PSEUDO_FIELDS, *FIELDS, *LENGTHS]


def raw(*lines: bytes, body: bytes = b"", host: bytes | None = b"AUTHORITY"):
    """A request of HTTP/1.1, followed by another one, /last."""
    def act(authority: bytes) -> bytes:
        first, *rest = lines
        head = [first] + ([b"Host: " + host.replace(b"AUTHORITY", authority)] if host is not None else []) + rest
        return b"\r\n".join(head) + b"\r\n\r\n" + body + b"GET /last HTTP/1.1\r\nHost: " + authority + b"\r\nConnection: close\r\n\r\n"
    return act


def bytes_of(text: bytes):
    return lambda authority: text.replace(b"AUTHORITY", authority)


POST = b"POST / HTTP/1.1"
GET = b"GET / HTTP/1.1"
LAST = "GET /last"
CHUNKED = b"Transfer-Encoding: chunked"
SMUGGLED_CHUNK = b"0\r\n\r\n" + SMUGGLED
FRAMING, CODING, SYNTAX = "RFC 9112 6.3", "RFC 9112 6.1, 7", "RFC 9112 2.2, 3, 5"
CLOSED = "refused, or by chunks and then closed"
GOES_ON = "the chunks count, but the connection goes on: TLS ends at the gateway, so nothing in front of it can have read another length"

HTTP1 = [
    Case("two requests in a row", "RFC 9112 9.3", f"GET /, {LAST}", raw(GET)),
    Case("Content-Length", FRAMING, f"POST / with 5 bytes, {LAST}", raw(POST, b"Content-Length: 5", body=b"hello")),
    Case("chunked", CODING, f"POST / with 5 bytes, {LAST}", raw(POST, CHUNKED, body=b"5\r\nhello\r\n0\r\n\r\n")),
    Case("Content-Length, and chunked with nothing in it (CL.TE)", FRAMING, CLOSED,
         raw(POST, b"Content-Length: 5", CHUNKED, body=b"0\r\n\r\n"), f"POST /, {LAST}", GOES_ON),
    Case("chunked, and a Content-Length that ends before the chunks do (TE.CL)", FRAMING, CLOSED,
         raw(POST, CHUNKED, b"Content-Length: 3", body=b"5\r\nhello\r\n0\r\n\r\n"), f"POST / with 5 bytes, {LAST}", GOES_ON),
    Case("Content-Length with a request after the last chunk (CL.TE)", FRAMING, CLOSED,
         raw(POST, b"Content-Length: %d" % len(SMUGGLED_CHUNK), CHUNKED, body=SMUGGLED_CHUNK), f"POST /, {LAST}",
         GOES_ON + "; what follows the chunks is a request of its own, and its host names no site"),
    # A field line that begins with a space goes on with the one before (RFC 9112, section 5.2).
    Case("Transfer-Encoding, obfuscated: its value on a line of its own", CODING, CLOSED,
         raw(POST, b"Content-Length: 5", b"Transfer-Encoding:\r\n chunked", body=b"0\r\n\r\n"), f"POST /, {LAST}", GOES_ON),
    Case("Transfer-Encoding, obfuscated: behind a space", CODING, f"POST / with 5 bytes, {LAST}",
         raw(POST, b"Content-Length: 5", b"X: y\r\n Transfer-Encoding: chunked", body=b"0\r\n\r\n")),
    *(Case(f"Transfer-Encoding, obfuscated: {field!r}"[:-1].replace("b'", ""), CODING, REFUSED,
           raw(POST, b"Content-Length: 5", field, body=b"0\r\n\r\n"))
      for field in (b"Transfer-Encoding: xchunked", b"Transfer-Encoding : chunked", b"Transfer-Encoding: chunked, identity",
                    b"Transfer-Encoding: identity, chunked", b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: \x0bchunked",
                    b"Transfer-Encoding: chunked;q=1", 
                    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", b"Transfer-Encoding: ", b"Transfer-Encoding\t: chunked",
                    b"Transfer\xc4\x8dEncoding: chunked", b"Transfer-Encoding: \"chunked\"")),
    *(Case(f"Content-Length: {value.decode()}", FRAMING, REFUSED, raw(POST, b"Content-Length: " + value, body=b"hello"))
      for value in (b"+5", b"-5", b"0x5", b"5 5", b"5, 6", b"99999999999999999999", b"")),
    Case("two different Content-Length fields", FRAMING, REFUSED, raw(POST, b"Content-Length: 5", b"Content-Length: 0", body=b"hello")),
    *(Case(f"a chunk whose size is {size!r}"[:-1].replace("b'", ""), CODING, REFUSED, raw(POST, CHUNKED, body=size + b"\r\nhello\r\n0\r\n\r\n"))
      for size in (b"0x5", b"+5", b"-5", b"5 5", b"", b"fffffffffffffffff", b"five")),
    Case("a chunk extension", CODING, f"POST / with 5 bytes, {LAST}", raw(POST, CHUNKED, body=b"5;a=b\r\nhello\r\n0\r\n\r\n")),
    Case("a chunk longer than its size", CODING, REFUSED, raw(POST, CHUNKED, body=b"3\r\nhello\r\n0\r\n\r\n")),
    Case("LF alone after a chunk size", CODING, REFUSED, raw(POST, CHUNKED, body=b"5\nhello\r\n0\r\n\r\n")),
    Case("LF alone in a chunk extension", CODING, REFUSED, raw(POST, CHUNKED, body=b"5;x\nhello\r\n0\r\n\r\n")),
    Case("Content-Length in trailers", "RFC 9110 6.5.1", f"POST / with 5 bytes, {LAST}", raw(POST, CHUNKED, body=b"5\r\nhello\r\n0\r\nContent-Length: 50\r\n\r\n")),
    Case("HTTP/1.0 with chunked", CODING, REFUSED, raw(b"POST / HTTP/1.0", b"Connection: keep-alive", CHUNKED, body=SMUGGLED_CHUNK)),
    Case("lines that end in LF alone", SYNTAX, "GET /",
         bytes_of(b"GET / HTTP/1.1\nHost: AUTHORITY\nConnection: close\n\n")),
    *(Case(f"{what} in a value", SYNTAX, REFUSED, raw(GET, b"X: y" + chars + b"z"))
      for what, chars in (("CR", b"\r"), ("NUL", b"\0"), ("CR and a request", b"\rGET /smuggled HTTP/1.1\r"))),
    Case("a space in a name", SYNTAX, REFUSED, raw(GET, b"X y: z")),
    Case("a space before the colon", SYNTAX, REFUSED, raw(GET, b"X : z")),
    Case("an empty name", SYNTAX, REFUSED, raw(GET, b": z")),
    Case("a line without colon", SYNTAX, REFUSED, raw(GET, b"smuggled")),
    Case("a space before the first field", SYNTAX, REFUSED, bytes_of(b"GET / HTTP/1.1\r\n Host: AUTHORITY\r\n\r\n")),
    Case("a folded field", "RFC 9112 5.2", f"GET /, {LAST}", raw(GET, b"X: y\r\n z")),
    Case("a space in the target", SYNTAX, REFUSED, raw(b"GET /x y HTTP/1.1")),
    Case("NUL in the target", SYNTAX, REFUSED, raw(b"GET /x\0 HTTP/1.1")),
    Case("a method that is not a token", SYNTAX, REFUSED, raw(b"GE(T / HTTP/1.1")),
    Case("HTTP/1.2", "RFC 9110 2.5", f"GET /, {LAST}", raw(b"GET / HTTP/1.2")),
    Case("HTTP/2.0 in a request line", "RFC 9112 2.3", REFUSED, raw(b"GET / HTTP/2.0")),
    Case("HTTP/0.9", "RFC 9112 2.3", REFUSED, bytes_of(b"GET /\r\n\r\n")),
    Case("the preface of HTTP/2", "RFC 9113 3.4", REFUSED, bytes_of(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")),
    Case("without Host", "RFC 9112 3.2", REFUSED, raw(GET, host=None)),
    Case("two Host fields", "RFC 9112 3.2", REFUSED, raw(GET, b"Host: other.test")),
    Case("Host with user information", "RFC 9112 3.2", REFUSED, raw(GET, host=b"user@AUTHORITY")),
    Case("Host with a path", "RFC 9112 3.2", REFUSED, raw(GET, host=b"AUTHORITY/x")),
    Case("Host that names no site", "RFC 9110 7.4", REFUSED, raw(GET, b"Connection: close", host=b"other.test")),
    Case("a target with scheme and host, another Host", "RFC 9112 3.2.2", f"GET /x, {LAST}",
         lambda authority: raw(b"GET https://" + authority + b"/x HTTP/1.1", host=b"other.test")(authority)),
    Case("a target whose host names no site", "RFC 9112 3.2.2", REFUSED, raw(b"GET https://other.test/x HTTP/1.1", b"Connection: close")),
    Case("a target of two slashes", "RFC 9112 3.2.1", f"GET //other.test/x, {LAST}", raw(b"GET //other.test/x HTTP/1.1")),
    Case("CONNECT", "RFC 9110 9.3.6", REFUSED, raw(b"CONNECT 192.0.2.1:80 HTTP/1.1", b"Connection: close")),
    Case("Upgrade: h2c", "RFC 9113 3.1", f"GET /, {LAST}",
         raw(GET, b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA")),
    Case("Connection names Host and fields that the gateway sets", "RFC 9110 7.6.1", f"GET /, {LAST}",
         raw(GET, b"Connection: Host, X-Forwarded-For, Content-Length")),
    Case("an unknown Expect", "RFC 9110 10.1.1", REFUSED, raw(GET, b"Expect: 100-continue-x", b"Connection: close")),
    Case("a header of 1 MiB", "RFC 6585 5", REFUSED, raw(GET, b"X: " + b"y" * (1 << 20))),
]

CASES = {"Requests by HTTP/2 and HTTP/3, to an origin": SEMANTICS, "Requests by HTTP/1.1, to an origin": HTTP1}

# What the gateway itself tells an origin, and no client can take away or make up.
OURS = {"x-forwarded-for": b"127.0.0.1", "x-forwarded-proto": b"https"}


def matches(expected: str, outcome: str, version: str) -> bool:
    """Expected may have alternatives, where it is a race, and be different for HTTP/2 and HTTP/3."""
    for part in expected.split("; "):
        prefix, colon, rest = part.partition(": ")
        if not colon or prefix == f"HTTP/{version}":
            return outcome in (rest or prefix).split(", or ")
    return False


def summary(recorder: Recorder, mark: str, refused: bool, answer: str, authority: str) -> str:
    """What reached the origin of the requests with this mark; when the client was refused, at most one did."""
    own = [request for request in list(recorder.requests) if request.mark == mark]
    for request in own:
        fields = dict(request.fields)
        assert request.all("host") == [authority.encode()]
        assert {name: fields.get(name) for name in OURS} == OURS, fields
        for name in ("upgrade", "http2-settings", "smuggled", "keep-alive", "proxy-connection"):
            assert name not in fields, fields
    assert not recorder.malformed
    if refused and len(own) <= 1:
        return REFUSED
    return ", ".join(map(str, own)) or answer


async def http3_outcome(gateway: Gateway, authority: Authority, message: Message) -> str:
    async with client(gateway, authority) as c:
        frames = [frame(HEADERS, section(message.fields))]
        if message.body:
            frames.append(frame(DATA, message.body))
        if message.trailers:
            frames.append(frame(HEADERS, section(message.trailers)))
        return await c.outcome(c.request(*frames))


def http2_outcome(gateway: Gateway, authority: Authority, message: Message) -> str:
    with Http2(gateway, authority) as c:
        c.send(headers(1, message.fields, end=not message.body and not message.trailers))
        if message.body:
            c.send(data(1, message.body, end=not message.trailers))
        if message.trailers:
            c.send(headers(1, message.trailers))
        return c.outcome()


@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize("case", SEMANTICS, ids=name_of)
def test_message(gateway: Gateway, authority: Authority, recorder: Recorder, case: Case, version: str) -> None:
    name, mark = f"{ORIGIN}:{gateway.port}", f"{version} {case.name}"
    message = case.act(name.encode())
    message.fields.append((b"x-case", mark.encode()))
    if version == "2":
        answer = http2_outcome(gateway, authority, message)
    else:
        answer = asyncio.run(http3_outcome(gateway, authority, message))
    refused = answer.startswith(("status 4", "stream error", "connection error"))
    outcome = summary(recorder, mark, refused, answer, name)
    assert matches(case.expected, outcome, version), f"{outcome} ({answer})"


@pytest.mark.parametrize("case", HTTP1, ids=name_of)
def test_http1(gateway: Gateway, authority: Authority, recorder: Recorder, case: Case) -> None:
    name = f"{ORIGIN}:{gateway.port}"
    recorder.requests.clear()
    statuses = http1(gateway, authority, case.act(name.encode()))
    # 501 is for an unknown transfer coding, 505 for a version (RFC 9112, section 6.1, and RFC 9110, section 15.6.6).
    refused = all(400 <= status < 500 or status in (501, 505) for status in statuses)
    outcome = summary(recorder, "", refused, str(statuses), name)
    assert matches(case.expected, outcome, "1.1"), f"{outcome} ({statuses})"
