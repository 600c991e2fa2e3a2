"""A network between a client and a server that breaks at a byte of one's choosing."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass
from typing import Literal, Self

_CHUNK_BYTES = 16_384

LinkFault = Literal["cut", "stall"]
"""``cut``: connections end, and new ones end at once; ``stall``: they stay open, and nothing passes."""
Direction = Literal["sent", "answered"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """When the link breaks, and how; it stays broken until it is mended."""

    fault: LinkFault
    direction: Direction
    """Whose bytes are counted: the client's, or the server's answers."""
    after_bytes: int


class FaultyLink:
    """Forwards connections to a port of this machine; good until told to break."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._passed: dict[Direction, int] = {"sent": 0, "answered": 0}
        self._break: Break | None = None
        self.broken = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True, name="faulty-link")

    def __enter__(self) -> Self:
        """Start forwarding."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop accepting and end every connection."""
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self._server.close()
        self._end_all()

    @property
    def endpoint(self) -> str:
        """URL for S3 clients."""
        return f"http://127.0.0.1:{self._server.getsockname()[1]}"

    def break_at(self, when: Break) -> None:
        """Count from now on, and break then."""
        with self._lock:
            self._passed = {"sent": 0, "answered": 0}
            self._break = when

    def mend(self) -> None:
        """Let everything pass again; what hung is cut, as a router that comes back does."""
        with self._lock:
            self._break = None
            self.broken.clear()
        self._end_all()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            if self.broken.is_set() and self._break is not None and self._break.fault == "cut":
                client.close()
                continue
            server = socket.create_connection(("127.0.0.1", self._port))
            with self._lock:
                self._sockets |= {client, server}
            for source, target, direction in ((client, server, "sent"), (server, client, "answered")):
                threading.Thread(target=self._pump, args=(source, target, direction), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, direction: Direction) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                passing = self._allowed(data, direction)
                target.sendall(passing)
                if len(passing) < len(data) and not self._stalls():
                    break
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        with self._lock:
            self._sockets -= {source, target}

    def _allowed(self, data: bytes, direction: Direction) -> bytes:
        """Count, and return what still passes."""
        with self._lock:
            if self.broken.is_set():
                return b""
            self._passed[direction] += len(data)
            when = self._break
            if when is None or when.direction != direction or self._passed[direction] < when.after_bytes:
                return data
            self.broken.set()
            return data[: len(data) - (self._passed[direction] - when.after_bytes)]

    def _stalls(self) -> bool:
        return self._break is not None and self._break.fault == "stall"

    def _end_all(self) -> None:
        with self._lock:
            sockets = set(self._sockets)
        for end in sockets:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
