"""Go back or on by a number of records: of what a reader sees, not of offsets.

Transaction markers, aborted records and the gaps of compaction have offsets and no records, so they
can only be read, in ranges that grow where few records are found. The cost is that of the records
passed, however many partitions there are.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka.reading import ReadRange, scan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.kafka.reading import KafkaMessage
    from airflow_flinkstyle.kafka.settings import Isolation, KafkaCluster
    from airflow_flinkstyle.types import NextOffset, TopicPartition

_LEAST_OFFSETS = 16
_GROWTH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Seek:
    """How far to go in one partition."""

    at: NextOffset
    """Where it begins; inside the log."""
    records: int
    """How many to pass; negative goes back. Not 0."""
    limit: NextOffset
    """Where it ends: the log's start going back, its (last stable) end going forward."""


@dataclass(frozen=True, slots=True)
class Reached:
    """The last record that was passed."""

    offset: int
    """Its own, not the next one's."""
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Short:
    """The log ended before."""

    records: int
    """How many there are."""


@dataclass(slots=True, kw_only=True)
class _Scan:
    """One partition's scan, range by range."""

    seek: Seek
    at: int
    passed: int = 0
    width: int = 0
    offsets: array[int] = field(default_factory=lambda: array("q"))
    """Of the records in the range that was read last."""
    timestamps: array[int] = field(default_factory=lambda: array("q"))

    def next_range(self) -> ReadRange:
        """Forget the last range and return the next one."""
        del self.offsets[:], self.timestamps[:]
        self.width = max(self.width * _GROWTH, self._missing, _LEAST_OFFSETS)
        if self.seek.records < 0:
            return ReadRange(low=max(self.seek.limit, self.at - self.width), high=self.at)
        return ReadRange(low=self.at, high=min(self.seek.limit, self.at + self.width))

    def outcome(self, read: ReadRange) -> Reached | Short | None:
        """Return what the range told, or None if the next one has to be read."""
        back = self.seek.records < 0
        if len(self.offsets) >= self._missing:
            index = -self._missing if back else self._missing - 1
            return Reached(self.offsets[index], self.timestamps[index])
        self.passed += len(self.offsets)
        self.at = read.low if back else read.high
        return Short(self.passed) if self.at == self.seek.limit else None

    @property
    def _missing(self) -> int:
        return abs(self.seek.records) - self.passed


def seek_by_records(
    cluster: KafkaCluster, wanted: Mapping[TopicPartition, Seek], isolation: Isolation
) -> dict[TopicPartition, Reached | Short]:
    """Return per partition the last of the records to pass, or how few there are.

    Args:
        cluster: Where to read.
        wanted: How far to go, by partition.
        isolation: The job's own; it decides which records a reader sees.
    """
    scans = {tp: _Scan(seek=seek, at=seek.at) for tp, seek in wanted.items()}
    found: dict[TopicPartition, Reached | Short] = {}

    def add(tp: TopicPartition, record: KafkaMessage) -> None:
        scans[tp].offsets.append(record.offset())
        scans[tp].timestamps.append(record.timestamp()[1])

    while unfinished := scans.keys() - found.keys():
        ranges = {tp: scans[tp].next_range() for tp in unfinished}
        scan(cluster, ranges, add, isolation)
        for tp, read in ranges.items():
            outcome = scans[tp].outcome(read)
            if outcome is not None:
                found[tp] = outcome
    return found
