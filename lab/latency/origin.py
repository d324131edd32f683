# SPDX-License-Identifier: Apache-2.0
"""The far end of the experiment "latency": python3 origin.py

Serves on all addresses:
  TCP SOURCE, OTHERS  send zeros until the other end closes
  TCP SINK    discards what it receives
  TCP ECHO    returns what it receives
  UDP DNS     answers each datagram with ANSWER bytes that begin with the datagram's first 8
  UDP CALL    returns each datagram, with its time of arrival after the first 8 bytes
  UDP COUNT   answers with the number of bytes that SINK has received
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable

SOURCE, SINK, ECHO, CALL, COUNT, OTHERS, DNS = 7000, 7001, 7002, 7003, 7004, 7005, 53
ANSWER = 120  # bytes

taken = 0


def source(conn: socket.socket) -> None:
    while True:
        conn.sendall(bytes(1 << 18))


def sink(conn: socket.socket) -> None:
    global taken
    buffer = bytearray(1 << 18)
    while n := conn.recv_into(buffer):
        taken += n  # there is only one upload at a time


def echo(conn: socket.socket) -> None:
    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := conn.recv(4096):
        conn.sendall(data)


def tcp(port: int, serve: Callable[[socket.socket], None]) -> None:
    def one(conn: socket.socket) -> None:
        with conn:
            try:
                serve(conn)
            except OSError:
                pass  # the other end has closed the connection

    listener = socket.create_server(("", port), backlog=64)
    while True:
        conn, _ = listener.accept()
        threading.Thread(target=one, args=(conn,), daemon=True).start()


def udp(port: int, answer: Callable[[bytes], bytes]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind(("", port))
        while True:
            data, peer = s.recvfrom(2048)
            s.sendto(answer(data), peer)


def main() -> None:
    for port, serve in ((SOURCE, source), (OTHERS, source), (SINK, sink), (ECHO, echo)):
        threading.Thread(target=tcp, args=(port, serve), daemon=True).start()
    threading.Thread(target=udp, args=(DNS, lambda data: data[:8].ljust(ANSWER, b"\0")), daemon=True).start()
    threading.Thread(target=udp, args=(COUNT, lambda _: str(taken).encode()), daemon=True).start()
    udp(CALL, lambda data: data[:8] + struct.pack("!d", time.monotonic()) + data[16:])


if __name__ == "__main__":
    main()
