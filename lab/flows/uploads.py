# SPDX-License-Identifier: Apache-2.0
"""An origin that accepts uploads, and sends the requested number of bytes: uploads.py PORT."""

from __future__ import annotations

import http.server
import sys

PIECE = 1 << 16


class Taker(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                self._skip(size + 2)
            self.rfile.readline()
        else:
            self._skip(int(self.headers["Content-Length"]))
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_POST = do_PUT

    def do_GET(self) -> None:
        """Sends as many bytes as the last part of the path says."""
        name = self.path.rpartition("/")[2]
        size = int(name) if name.isdigit() else 2000
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        self.wfile.write(bytes(size))

    def _skip(self, size: int) -> None:
        while size > 0:
            piece = self.rfile.read(min(size, PIECE))
            if not piece:
                raise ConnectionError("the upload broke off")
            size -= len(piece)


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Taker).serve_forever()
