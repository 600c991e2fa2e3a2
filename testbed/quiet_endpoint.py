"""A proxy before a real broker that answers like Azure Event Hubs' Kafka endpoint, or Redpanda before 25.3.

It tells no cluster id, knows no DescribeCluster, and of Metadata only versions without topic ids.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_METADATA, _API_VERSIONS = 3, 18
_HIDDEN: Final = frozenset({60, 75})
"""DescribeCluster and DescribeTopicPartitions, which tell ids."""
_NEWEST_WITHOUT_IDS: Final = 7
_Entry = tuple[int, int, int]
"""What a broker offers of one request: its key, the oldest and the newest version."""


class QuietEndpoint:
    """Stands at ``port`` for a broker; ``tells_ids`` ends its silence, as an upgrade of the brokers does."""

    def __init__(self, broker_port: int, *, tells_cluster: bool = False) -> None:
        self._broker_port, self._tells_cluster = broker_port, tells_cluster
        self.tells_ids = False
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._server.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                broker = socket.create_connection(("127.0.0.1", self._broker_port))
                asked: dict[int, tuple[int, int]] = {}

                def note(frame: bytes, asked: dict[int, tuple[int, int]] = asked) -> bytes:
                    key, version, correlation = struct.unpack(">hhi", frame[:8])
                    asked[correlation] = key, version
                    return frame

                def answer(frame: bytes, asked: dict[int, tuple[int, int]] = asked) -> bytes:
                    (correlation,) = struct.unpack(">i", frame[:4])
                    return frame[:4] + self._quietened(frame[4:], *asked.pop(correlation, (-1, -1)))

                for read, write, change in ((client, broker, note), (broker, client, answer)):
                    threading.Thread(target=_pump, args=(read, write, change), daemon=True).start()

    def _quietened(self, body: bytes, key: int, version: int) -> bytes:
        if key == _API_VERSIONS and not self.tells_ids:
            return self._fewer_versions(body, version)
        if key == _METADATA and 2 <= version <= 8 and not (self._tells_cluster or self.tells_ids):
            return _without_cluster_id(body, version)
        return body

    def _fewer_versions(self, body: bytes, version: int) -> bytes:
        (error,) = struct.unpack(">h", body[:2])
        if error:
            return body
        compact = version >= 3
        count, at = _compact_count(body, 2) if compact else (struct.unpack(">i", body[2:6])[0], 6)
        entries: list[_Entry] = []
        for _ in range(count):
            entries.append(struct.unpack(">hhh", body[at : at + 6]))
            at += 6 + compact  # each has an empty set of tags
        kept = [
            (key, oldest, min(newest, _NEWEST_WITHOUT_IDS) if key == _METADATA else newest)
            for key, oldest, newest in entries
            if key not in _HIDDEN
        ]
        size = _as_compact(len(kept)) if compact else struct.pack(">i", len(kept))
        listed = b"".join(struct.pack(">hhh", *entry) + b"\0" * compact for entry in kept)
        return body[:2] + size + listed + body[at:]


def _pump(read: socket.socket, write: socket.socket, change: Callable[[bytes], bytes]) -> None:
    try:
        while (frame := _frame(read)) is not None:
            changed = change(frame)
            write.sendall(struct.pack(">i", len(changed)) + changed)
    except OSError:
        pass
    finally:
        for one in (read, write):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def _frame(read: socket.socket) -> bytes | None:
    size = _exactly(read, 4)
    return None if size is None else _exactly(read, struct.unpack(">i", size)[0])


def _exactly(read: socket.socket, size: int) -> bytes | None:
    found = bytearray()
    while len(found) < size:
        data = read.recv(min(1 << 16, size - len(found)))
        if not data:
            return None
        found += data
    return bytes(found)


def _compact_count(body: bytes, at: int) -> tuple[int, int]:
    """Return how many entries a compact array has, and where they begin."""
    first = body[at]
    if first & 0x80:
        return ((first & 0x7F) | (body[at + 1] << 7)) - 1, at + 2
    return first - 1, at + 1


def _as_compact(count: int) -> bytes:
    size = count + 1
    return bytes([size]) if size < 0x80 else bytes([(size & 0x7F) | 0x80, size >> 7])


def _without_cluster_id(body: bytes, version: int) -> bytes:
    """Cut the cluster id out of an answer to Metadata, versions 2 to 8: it stands behind the brokers."""
    at = 4 if version >= 3 else 0  # throttle time
    (brokers,) = struct.unpack(">i", body[at : at + 4])
    at += 4
    for _ in range(brokers):
        at += 4  # node id
        at = _behind_text(body, at) + 4  # host, port
        at = _behind_text(body, at)  # rack
    return body[:at] + struct.pack(">h", -1) + body[_behind_text(body, at) :]


def _behind_text(body: bytes, at: int) -> int:
    return at + 2 + max(0, int.from_bytes(body[at : at + 2], "big", signed=True))
