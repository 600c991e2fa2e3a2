"""A network between a client and a server that breaks at a byte of one's choosing."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass
from typing import Literal

from testbed.forward import Forward

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


class FaultyLink(Forward):
    """Forwards connections to a port of this machine; good until told to break."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._passed: dict[Direction, int] = {"sent": 0, "answered": 0}
        self._break: Break | None = None
        self.broken = threading.Event()
        self._mended = threading.Event()

    def __exit__(self, *_: object) -> None:
        """Stop accepting and end every connection."""
        super().__exit__()
        self._mended.set()
        self._end_all()

    @property
    def endpoint(self) -> str:
        """URL for S3 clients."""
        return f"http://{self.address}"

    def break_at(self, when: Break) -> None:
        """Count from now on, and break then."""
        with self._lock:
            self._passed = {"sent": 0, "answered": 0}
            self._break = when
            self._mended.clear()

    def mend(self) -> None:
        """Let everything pass again; what hung is cut, as a router that comes back does."""
        with self._lock:
            self._break = None
            self.broken.clear()
        self._mended.set()
        self._end_all()

    def _connect(self, client: socket.socket) -> None:
        if self.broken.is_set() and self._break is not None and self._break.fault == "cut":
            client.close()
        else:
            super()._connect(client)

    def _pump(self, source: socket.socket, target: socket.socket, sent: bool) -> None:
        with self._lock:
            self._sockets.add(source)
        super()._pump(source, target, sent)
        with self._lock:
            self._sockets.discard(source)

    def _pass(self, data: bytes, target: socket.socket, *, sent: bool) -> bool:
        """Pass what the break lets through; a connection that lost bytes passes nothing after them, ever."""
        stalls = self._stalls()
        passing = self._allowed(data, "sent" if sent else "answered")
        target.sendall(passing)
        if len(passing) == len(data):
            return True
        if stalls:
            self._mended.wait()
        return False

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
