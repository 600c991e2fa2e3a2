"""Whether a tool signs what it sends: asked of the tool, not of its documentation.

A signed payload is hashed by the client and again by the server, so times only compare beside this.
"""

from __future__ import annotations

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def payload_of(send: Callable[[str], object]) -> str:
    """Let a tool send one file to a server of ours, and return how it vouched for the content.

    Args:
        send: Called with the server's endpoint; what the tool makes of the answers does not matter.
    """
    seen: list[str] = []

    class Listener(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            told = self.headers.get("x-amz-content-sha256", "none")
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            if body:
                seen.append(told)
            self.send_response(200)
            self.send_header("ETag", f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            if "list-type" not in self.path and "prefix" not in self.path:
                self.do_HEAD()
                return
            empty = (
                b'<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>'
            )
            self.send_response(200)
            self.send_header("Content-Length", str(len(empty)))
            self.end_headers()
            self.wfile.write(empty)

        def do_HEAD(self) -> None:
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Listener) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            send(f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            thread.join()
    if not seen:
        return "unknown"
    return "unsigned" if "UNSIGNED" in seen[-1] else "streaming" if "STREAMING" in seen[-1] else "signed"
