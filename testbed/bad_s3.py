"""A proxy before an S3 server that has bad minutes: by a seeded plan it stalls, cuts, refuses, answers late.

It knows HTTP, so a fault hits one request, before or after the server has carried it out.
"""

from __future__ import annotations

import contextlib
import http.client
import random
import socket
import struct
import threading
import time
from collections import Counter
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self, get_args

Fault = Literal["reset", "stall", "slow-down", "internal", "kms", "slow", "late", "cut"]
"""Not carried out: ``reset`` (the connection ends), ``stall`` (no answer), ``slow-down`` (503), ``internal``
(500), ``kms`` (400 with KMS's limit). Carried out: ``slow`` (within the client's time-out), ``late`` (behind
it, so that the client cannot know), ``cut`` (the answer ends in the middle)."""
FAULTS: tuple[Fault, ...] = get_args(Fault)
CARRIED_OUT = frozenset({"slow", "late", "cut"})
_ANSWERS = {
    "slow-down": (503, "SlowDown", "Please reduce your request rate."),
    "internal": (500, "InternalError", "We encountered an internal error. Please try again."),
    "kms": (400, "KMS.ThrottlingException", "The rate of requests exceeds the limit of the key."),
}
_RATES = (0.1, 0.3, 0.6, 1.0)
_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "expect", "proxy-connection"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Spell:
    """A stretch of time with one kind of fault."""

    until_s: float
    """By the monotonic clock."""
    fault: Fault | None
    """None: all is well."""
    rate: float
    """Part of the requests that it hits."""


class Weather:
    """Spells one after another, by a seed; good until it is let loose."""

    def __init__(self, seed: object, *, most_bad_s: float) -> None:
        """Args: ``most_bad_s``: how long a bad spell lasts at most; a good one half as long."""
        self._random, self._most_bad_s = random.Random(repr(seed)), most_bad_s  # noqa: S311
        self._lock, self._bad = threading.Lock(), False
        self._spell = Spell(until_s=0, fault=None, rate=0)

    def let_loose(self) -> None:
        """Begin with bad spells."""
        with self._lock:
            self._bad, self._spell = True, self._next(bad=True)

    def clear_up(self) -> None:
        """End them."""
        with self._lock:
            self._bad = False

    def hits(self) -> Fault | None:
        """Return what becomes of the next request."""
        with self._lock:
            if not self._bad:
                return None
            if time.monotonic() > self._spell.until_s:
                self._spell = self._next(bad=self._spell.fault is None)
            return self._spell.fault if self._random.random() < self._spell.rate else None

    def _next(self, *, bad: bool) -> Spell:
        most_s = self._most_bad_s if bad else self._most_bad_s / 2
        length_s = self._random.uniform(0.1, most_s)
        fault = self._random.choice(FAULTS) if bad else None
        return Spell(until_s=time.monotonic() + length_s, fault=fault, rate=self._random.choice(_RATES))


class BadS3:
    """One way to the server, with a weather of its own."""

    def __init__(self, port: int, weather: Weather, *, late_s: float) -> None:
        """Put a proxy before a port of this machine.

        Args:
            port: The server's.
            weather: What becomes of requests.
            late_s: How long a late answer takes, and a stalled one is kept open: longer than clients wait.
        """
        self.upstream, self.weather, self.late_s = port, weather, late_s
        self.phase = ""
        """What the client is doing, for the count."""
        self.hits: Counter[tuple[str, Fault]] = Counter()
        self.requests: Counter[str] = Counter()
        """By phase."""
        self._lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        """Start answering."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()

    @property
    def endpoint(self) -> str:
        """URL for S3 clients."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def note(self, fault: Fault | None) -> None:
        """Count a request."""
        with self._lock:
            self.requests[self.phase] += 1
            if fault is not None:
                self.hits[self.phase, fault] += 1


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: Any) -> None:
        """Say nothing: clients that gave up are what this is for."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    proxy: BadS3
    _up: http.client.HTTPConnection | None = None

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def finish(self) -> None:
        if self._up is not None:
            self._up.close()
        with contextlib.suppress(OSError):
            super().finish()

    def handle_expect_100(self) -> bool:
        done = super().handle_expect_100()
        self.wfile.flush()
        return done

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.proxy.weather.hits()
        self.proxy.note(fault)
        if fault in _ANSWERS:
            self._refuse(*_ANSWERS[fault])
        elif fault == "reset":
            self._reset()
        elif fault == "stall":
            time.sleep(self.proxy.late_s)
            self._reset()
        else:
            answer, content = self._forward(body)
            if fault in ("slow", "late"):
                time.sleep(self.proxy.late_s if fault == "late" else self.proxy.late_s / 8)
            self._answer(answer, content, cut=fault == "cut")

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _serve  # their names in http.server

    def _forward(self, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
        if self._up is None:
            self._up = http.client.HTTPConnection("127.0.0.1", self.proxy.upstream, timeout=30)
            self._up.connect()
            self._up.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._up.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in _HOP:
                self._up.putheader(name, value)
        self._up.endheaders(body or None)
        answer = self._up.getresponse()
        content = answer.read()
        if answer.will_close:
            self._up.close()
            self._up = None
        return answer, content

    def _answer(self, answer: http.client.HTTPResponse, content: bytes, *, cut: bool) -> None:
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP | {"content-length"}:
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
        if length is not None and answer.status not in (204, 304):
            self.send_header("Content-Length", length)
        if cut and not content:
            self._reset()  # in the middle of the head: nothing of it was sent
            return
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if cut else content)
        self.wfile.flush()
        if cut:
            self._reset()

    def _refuse(self, status: int, code: str, text: str) -> None:
        content = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{text}</Message></Error>".encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
        self.wfile.flush()

    def _reset(self) -> None:
        """End the connection without a goodbye."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.shutdown(socket.SHUT_RDWR)
