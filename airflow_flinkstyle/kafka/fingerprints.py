"""The fingerprints of the newest records of one partition: what the proof compares. Pure."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEAD = Struct(">iii?q")
"""Lengths of key and value (-1: None), number of headers, whether the timestamp counts, timestamp."""
_ABSENT = (-1).to_bytes(4, "big", signed=True)
NO_KEY = 0
"""Key print of a record without a key."""
NO_TIME = (1 << 63) - 1
"""Later than every timestamp."""


def fingerprint(
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
    timestamp_ms: int | None,
) -> int:
    """Return 64 bits that identify a record's content.

    Every part goes in with its length, so that no two records have the same bytes.

    Args:
        key: The record's key.
        value: The record's value; None for a tombstone.
        headers: In the record's order.
        timestamp_ms: None where a broker overwrites timestamps on either side.
    """
    head = _HEAD.pack(
        -1 if key is None else len(key),
        -1 if value is None else len(value),
        len(headers),
        timestamp_ms is not None,
        timestamp_ms or 0,
    )
    parts = [head, key or b"", value or b""]
    for name, content in headers:
        parts += (_sized(name.encode()), _sized(content))
    return int.from_bytes(blake2b(b"".join(parts), digest_size=8).digest(), "big")


def key_print(key: bytes | None) -> int:
    """Return 64 bits that identify a key; ``NO_KEY`` for None."""
    return NO_KEY if key is None else int.from_bytes(blake2b(key, digest_size=8).digest(), "big") | 1


def _sized(content: bytes | None) -> bytes:
    return _ABSENT if content is None else len(content).to_bytes(4, "big") + content


@dataclass(slots=True, kw_only=True)
class Fingerprints:
    """Fingerprints of all records a reader sees in ``[low, high)`` of one partition.

    16 bytes per record, or 25 with keys.
    """

    low: int
    """Offset that reading began at."""
    high: int
    """End of the log when the range was set; exclusive."""
    log_start: int
    """Start of the log then."""
    keyed: bool = True
    """Whether keys and tombstones are kept: they matter where a log is compacted."""
    newest_ms: int = -1
    """Timestamp of the newest record; -1 without one, or if it is no part of the record's identity."""
    oldest_ms: int = NO_TIME
    """Earliest timestamp of a record; -1 if one has none, or if it is no part of its identity."""
    offsets: array[int] = field(default_factory=lambda: array("q"))
    prints: array[int] = field(default_factory=lambda: array("Q"))
    keys: array[int] = field(default_factory=lambda: array("Q"))
    tombstones: bytearray = field(default_factory=bytearray)

    @property
    def whole_log(self) -> bool:
        """True if no older record exists."""
        return self.low <= self.log_start

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, offset: int, record_print: int, record_key: int, *, tombstone: bool) -> None:
        """Append a record; offsets must grow."""
        self.offsets.append(offset)
        self.prints.append(record_print)
        if self.keyed:
            self.keys.append(record_key)
            self.tombstones.append(tombstone)

    def older(self, low: int) -> Fingerprints:
        """Return an empty range for what is between an offset and this one."""
        return Fingerprints(low=low, high=self.low, log_start=self.log_start, keyed=self.keyed)

    def followed_by(self, newer: Fingerprints) -> Fingerprints:
        """Append the records of the range that begins where this one ends, and return this one."""
        self.oldest_ms = min(self.oldest_ms, newer.oldest_ms)
        self.high, self.newest_ms = newer.high, newer.newest_ms if len(newer) else self.newest_ms
        self.offsets.extend(newer.offsets)
        self.prints.extend(newer.prints)
        self.keys.extend(newer.keys)
        self.tombstones.extend(newer.tombstones)
        return self
