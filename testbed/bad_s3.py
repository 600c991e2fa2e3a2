"""A proxy before an S3 server that has bad minutes: by a seeded plan it stalls, cuts, refuses, answers late.

It knows HTTP, so a fault hits one request, before or after the server has carried it out.
"""

from __future__ import annotations

import contextlib
import random
import socket
import socketserver
import struct
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

if TYPE_CHECKING:
    from io import BufferedIOBase

Fault = Literal["reset", "stall", "slow-down", "internal", "kms", "slow", "late", "held", "cut"]
"""Not carried out: ``reset`` (the connection ends), ``stall`` (no answer), ``slow-down`` (503), ``internal``
(500), ``kms`` (400 with KMS's limit). Carried out: ``slow`` (answered within the client's time-out), ``late``
(answered behind it, so that the client cannot know), ``held`` (carried out behind it, perhaps after the
client has tried again), ``cut`` (the answer ends in the middle)."""
FAULTS: tuple[Fault, ...] = get_args(Fault)
CARRIED_OUT = frozenset({"slow", "late", "held", "cut"})
_ANSWERS = {
    "slow-down": (503, "SlowDown", "Please reduce your request rate."),
    "internal": (500, "InternalError", "We encountered an internal error. Please try again."),
    "kms": (400, "KMS.ThrottlingException", "The rate of requests exceeds the limit of the key."),
}
_RATES = (0.1, 0.3, 0.6, 1.0)


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


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def handle_error(self, *_: Any) -> None:
        """Say nothing: clients that gave up are what this is for."""


@dataclass(frozen=True, slots=True)
class _Message:
    """A request or an answer: only what a proxy must know of it is read."""

    head: list[bytes]
    """Its lines, the first one and the headers."""
    length: int
    """Of the content that follows, unless it is told of only."""

    @staticmethod
    def read(stream: BufferedIOBase) -> _Message | None:
        """Read a head; None if the connection has ended."""
        head, length = [], 0
        while (line := stream.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
            head.append(line)
        return _Message(head, length) if head and line else None

    def says(self, header: bytes) -> bool:
        return any(line.lower().startswith(header) for line in self.head)

    def without(self, *headers: bytes) -> bytes:
        return b"".join(line for line in self.head if not line.lower().startswith(headers)) + b"\r\n"


class _Handler(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True
    proxy: BadS3

    def handle(self) -> None:
        """Serve requests until either side ends the connection."""
        with contextlib.suppress(OSError):
            while (request := _Message.read(self.rfile)) is not None and self._serve(request):
                pass

    def _serve(self, request: _Message) -> bool:
        """Serve one; False ends the connection."""
        if request.says(b"expect:"):
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = self.rfile.read(request.length)
        fault = self.proxy.weather.hits()
        self.proxy.note(fault)
        is_head = request.head[0].startswith(b"HEAD ")
        if fault in _ANSWERS:
            self.wfile.write(_refusal(*_ANSWERS[fault], is_head=is_head))
            return True
        if fault in ("reset", "stall"):
            time.sleep(self.proxy.late_s if fault == "stall" else 0)
            return self._reset()
        if fault == "held":
            time.sleep(self.proxy.late_s)
        answer, content = self._forward(request, body, is_head=is_head)
        if fault in ("slow", "late"):
            time.sleep(self.proxy.late_s if fault == "late" else self.proxy.late_s / 8)
        whole = answer.without(b"connection:") + content
        self.wfile.write(whole[: len(whole) - len(content) // 2 - 1] if fault == "cut" else whole)
        return fault != "cut" or self._reset()

    def _forward(self, request: _Message, body: bytes, *, is_head: bool) -> tuple[_Message, bytes]:
        with socket.create_connection(("127.0.0.1", self.proxy.upstream), timeout=30) as up:
            up.sendall(request.without(b"expect:", b"connection:") + body)
            with up.makefile("rb") as answers:
                answer = _Message.read(answers)
                if answer is None:
                    raise ConnectionError("the server ended the connection")
                empty = is_head or answer.head[0].split()[1] in (b"204", b"304")
                return answer, b"" if empty else answers.read(answer.length)

    def _reset(self) -> bool:
        """End the connection without a goodbye."""
        with contextlib.suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.shutdown(socket.SHUT_RDWR)
        return False


def _refusal(status: int, code: str, text: str, *, is_head: bool) -> bytes:
    content = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{text}</Message></Error>".encode()
    head = (
        f"HTTP/1.1 {status} {code}\r\nContent-Type: application/xml\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + (b"" if is_head else content)
