"""The first record at or after a moment, where the broker's answer may be no record.

A broker answers with the first offset whose timestamp is no less. That may be the marker of a transaction,
which carries the time at which it was written (on a copy that is written exactly once, the time of
mirroring, while records keep their own), or a record of a transaction that was aborted. No record before
it is at or after the moment, so the log is read from there on until one is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka.cluster import first_offsets_since
from airflow_flinkstyle.kafka.reading import ReadRange, scan
from airflow_flinkstyle.types import NextOffset

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.kafka.reading import KafkaMessage
    from airflow_flinkstyle.kafka.start.context import StartContext
    from airflow_flinkstyle.types import TopicPartition

_LEAST_OFFSETS = 16
_GROWTH = 4
MOST_OFFSETS = 20_000_000
"""Read behind the broker's answers at most, all partitions together; each has an equal share."""


@dataclass(frozen=True, slots=True)
class TooFar:
    """All that may be read was read, and no record of it is at or after the moment."""

    offset: int
    """The broker's answer."""
    offsets: int
    """Read from there on."""


@dataclass(slots=True, kw_only=True)
class TimestampSearch:
    """One partition's search from the broker's answer on, range by range. Pure."""

    since_ms: int
    answer: NextOffset
    end: NextOffset
    """Where the job's reader finds nothing more."""
    most: int
    """Offsets to read at most."""
    found: NextOffset | None = None
    _read: int = 0

    @property
    def over(self) -> bool:
        """Whether nothing is left to read."""
        return self.found is not None or self._read >= min(self.most, self.end - self.answer)

    def next_range(self) -> ReadRange:
        """Return what to read next; each range is some times as long as all before it."""
        low = self.answer + self._read
        self._read = min(self.most, max(_LEAST_OFFSETS, _GROWTH * self._read))
        return ReadRange(low=low, high=min(self.end, self.answer + self._read))

    def take(self, offset: NextOffset, timestamp_ms: int) -> None:
        """Look at the next record; the first at or after the moment is the answer."""
        if self.found is None and timestamp_ms >= self.since_ms:
            self.found = offset

    @property
    def outcome(self) -> NextOffset | TooFar | None:
        """Return the record's offset; None if the log holds none such."""
        if self.found is None and self.answer + self._read < self.end:
            return TooFar(self.answer, self._read)
        return self.found


def look_up_timestamps(
    context: StartContext, since_ms: Mapping[TopicPartition, int]
) -> dict[TopicPartition, NextOffset | TooFar | None]:
    """Return per partition the first record, in the log's order, whose timestamp is no less; or None.

    Records are what the job's reader sees: neither markers nor, for a read-committed one, aborted records.
    Mostly the answer is one, and a few offsets are read; behind markers it can be many.
    """
    if not since_ms:
        return {}
    answers = first_offsets_since(context.cluster, since_ms)
    searches = {
        tp: TimestampSearch(
            since_ms=since_ms[tp], answer=answer, end=context.end(tp), most=MOST_OFFSETS // len(answers)
        )
        for tp, answer in answers.items()
        if answer is not None
    }

    def take(tp: TopicPartition, record: KafkaMessage) -> None:
        searches[tp].take(NextOffset(record.offset()), record.timestamp()[1])

    while ranges := {tp: search.next_range() for tp, search in searches.items() if not search.over}:
        scan(context.cluster, ranges, take, context.isolation)
    return {tp: searches[tp].outcome if tp in searches else None for tp in since_ms}
