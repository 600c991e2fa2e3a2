"""One partition on two clusters, whole, and what only the judge may know."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_flinkstyle.kafka.fingerprints import Fingerprints

RECORD: Final = 0
ABORTED: Final = 1
"""A record of an aborted transaction: readers of committed records do not see it."""
MARKER: Final = 2
GONE: Final = 3
"""A record that compaction has removed."""

OTHERS: Final = -1
"""Origin of a record that the target's own producers wrote."""

Entry = tuple[int, int, int, int, bool, int]
"""Kind, value, timestamp, key (0: none), tombstone, origin: the source offset that it copies, or OTHERS.

On the source the origin is the record's own offset. An entry's index is its offset.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Both logs and what holds for them."""

    source: tuple[Entry, ...]
    target: tuple[Entry, ...]
    position: int
    source_start: int = 0
    target_start: int = 0
    dated: bool = True
    sole_writer: bool = False
    in_sync: bool = True
    """MirrorMaker's position is given, and says that all is mirrored."""
    stopped_short: bool = False
    """The mirror has not come to the source's end: only the judge knows."""
    compacted: bool = False
    source_compacted: bool = False
    context: int = 8
    most_context: int = 8192
    longest: int = 1 << 20
    share: int = 1 << 20
    deletions: tuple[tuple[int, Literal["source", "target"], int], ...] = ()
    """Before the read of a number, a log's start moves to an offset."""

    @property
    def target_start_at_last(self) -> int:
        """Where the target's log begins when the position is found: what is before is nobody's any more."""
        starts = [start for _, side, start in self.deletions if side == "target"]
        return max(self.target_start, *starts, 0)

    @property
    def versioned(self) -> bool:
        """Whether either log drops older versions of a key."""
        return self.compacted or self.source_compacted


@dataclass(frozen=True, slots=True)
class Log:
    """What a reader can get from a log, in columns."""

    end: int
    dated: bool
    offsets: array[int] = field(default_factory=lambda: array("q"))
    prints: array[int] = field(default_factory=lambda: array("Q"))
    keys: array[int] = field(default_factory=lambda: array("Q"))
    tombstones: bytearray = field(default_factory=bytearray)
    times: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, entries: tuple[Entry, ...], *, dated: bool, aborted: bool = False) -> Log:
        """Return what readers see; with aborted records if they read uncommitted ones."""
        seen = (RECORD, ABORTED) if aborted else (RECORD,)
        rows = [(at, entry) for at, entry in enumerate(entries) if entry[0] in seen]
        return cls(
            len(entries),
            dated,
            array("q", [at for at, _ in rows]),
            array("Q", prints([entry for _, entry in rows], dated=dated)),
            array("Q", [entry[3] for _, entry in rows]),
            bytearray([entry[4] for _, entry in rows]),
            [entry[2] for _, entry in rows],
        )

    def fill(self, fingerprints: Fingerprints) -> None:
        """Put into an empty range what a broker would."""
        low, high = bisect_left(self.offsets, fingerprints.low), bisect_left(self.offsets, fingerprints.high)
        fingerprints.offsets, fingerprints.prints = self.offsets[low:high], self.prints[low:high]
        if fingerprints.keyed:
            fingerprints.keys, fingerprints.tombstones = self.keys[low:high], self.tombstones[low:high]
        if low < high:
            fingerprints.newest_ms = self.times[high - 1] if self.dated else -1
            fingerprints.oldest_ms = min(self.times[low:high]) if self.dated else -1


def prints(entries: Iterable[Entry], *, dated: bool) -> list[int]:
    """Return for each entry what two equal records have in common."""
    if dated:
        return [value << 29 | key << 21 | tomb << 20 | now for _, value, now, key, tomb, _ in entries]
    return [value << 29 | key << 21 | tomb << 20 for _, value, _, key, tomb, _ in entries]
