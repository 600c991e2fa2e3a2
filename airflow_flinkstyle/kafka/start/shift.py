"""Positions by time, and the position so far moved by a time or by records: of what a reader sees.

Transaction markers, aborted records and the gaps of compaction have offsets and no records, so they can only
be read, in ranges that grow where few records are found. The cost is that of the records passed, however many
partitions there are.

Also what every kind of start is resolved from (``StartContext``).
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka.cluster import first_offsets_since
from airflow_flinkstyle.kafka.positions import validate_position
from airflow_flinkstyle.kafka.reading import ReadRange, scan
from airflow_flinkstyle.kafka.start.kinds import AtTimestamp, Shifted
from airflow_flinkstyle.kafka.verdict import Refused
from airflow_flinkstyle.python_versions import UTC
from airflow_flinkstyle.types import NextOffset, TopicPartition

if TYPE_CHECKING:
    from airflow_flinkstyle.kafka.cluster import ClusterView, LogRange
    from airflow_flinkstyle.kafka.reading import KafkaMessage
    from airflow_flinkstyle.kafka.settings import Isolation, KafkaCluster
    from airflow_flinkstyle.offsets import Offsets

Found = Mapping[TopicPartition, NextOffset | Refused]
"""An offset per partition, not validated yet, or why there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartContext:
    """What every kind of start needs to know."""

    cluster: KafkaCluster
    view: ClusterView
    """With every partition asked for."""
    before: Offsets
    """The position so far, where it counts in the same log."""
    isolation: Isolation

    def log(self, partition: TopicPartition) -> LogRange:
        """Return the range of one partition."""
        return self.view.topics[partition[0]].partitions[partition[1]]

    def end(self, partition: TopicPartition) -> NextOffset:
        """Return where the job's reader would find nothing more to read now."""
        log = self.log(partition)
        return log.last_stable if self.isolation == "read_committed" else log.end


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
    """The log ended before that many records."""

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
        """Return the outcome, or None if the next range has to be read."""
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
        """Check the next record; the first at or after the moment is ``found``."""
        if self.found is None and timestamp_ms >= self.since_ms:
            self.found = offset

    @property
    def outcome(self) -> NextOffset | TooFar | None:
        """Return the record's offset; None if the log holds no such record."""
        if self.found is None and self.answer + self._read < self.end:
            return TooFar(self.answer, self._read)
        return self.found


def look_up_timestamps(
    context: StartContext, since_ms: Mapping[TopicPartition, int]
) -> dict[TopicPartition, NextOffset | TooFar | None]:
    """Return per partition the first record, in the log's order, whose timestamp is no less; or None.

    A broker answers with the first offset whose timestamp is no less. That may be the marker of a
    transaction, which carries the time at which it was written (on a copy that is written exactly once, the
    time of mirroring, while records keep their own), or a record of a transaction that was aborted. No record
    before it is at or after the moment, so the log is read from there on until one is that the job's reader
    sees. Mostly the answer is one, and a few offsets are read; behind markers it can be many.
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


def at_timestamps(context: StartContext, wanted: Mapping[TopicPartition, AtTimestamp]) -> Found:
    """Return the offset of the first record at or after a moment, by ``AtTimestamp``'s rules."""
    empty = {tp for tp in wanted if context.log(tp).start == context.log(tp).end}
    asked = {tp: start for tp, start in wanted.items() if tp not in empty}
    found: dict[TopicPartition, NextOffset | Refused] = {tp: context.log(tp).end for tp in empty}
    late = {}
    for tp, outcome in look_up_timestamps(context, {tp: start.ms for tp, start in asked.items()}).items():
        if isinstance(outcome, TooFar):
            found[tp] = _too_far(outcome, asked[tp].ms)
        elif outcome is not None:
            found[tp] = outcome
        elif asked[tp].after_last == "latest":
            found[tp] = context.end(tp)
        else:
            late[tp] = asked[tp].ms
    return {**found, **_too_late(context, late)}


def _too_far(outcome: TooFar, ms: int) -> Refused:
    return Refused(
        f"the first record at or after {_utc(ms)} is not among the {outcome.offsets} offsets from "
        f"{outcome.offset} on, the broker's answer (a transaction's marker); give an offset instead",
        None,
    )


def _too_late(context: StartContext, moments_ms: Mapping[TopicPartition, int]) -> Found:
    """Refuse, naming the last record; a log without one for a reader starts at its end, as an empty one."""
    seeks = {tp: Seek(at=context.end(tp), records=-1, limit=context.log(tp).start) for tp in moments_ms}
    last = seek_by_records(context.cluster, seeks, context.isolation)
    return {
        tp: Refused(f"no record is at or after {_utc(ms)}; the last one is of {_utc(one.timestamp_ms)}", None)
        if isinstance(one := last[tp], Reached)
        else context.end(tp)
        for tp, ms in moments_ms.items()
    }


def _utc(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def shifted(context: StartContext, wanted: Mapping[TopicPartition, Shifted]) -> Found:
    """Return the positions so far, moved.

    By records: back to the offset of the N-th record before the position, or on behind the N-th record
    from it. By a time: to the first record at or after the moved timestamp of the record at the position;
    at the log's end the last record before it counts. A log without records keeps its position.
    """
    found: dict[TopicPartition, NextOffset | Refused] = {}
    by_records: dict[TopicPartition, int] = {}
    by_time: dict[TopicPartition, int] = {}
    for tp, start in wanted.items():
        refusal = _unmovable(context, tp)
        if refusal is not None:
            found[tp] = refusal
        elif start.records:
            by_records[tp] = start.records
        elif start.ms:
            by_time[tp] = start.ms
        else:
            found[tp] = context.before[tp]
    return {**found, **_by_records(context, by_records), **_by_time(context, by_time)}


def _unmovable(context: StartContext, tp: TopicPartition) -> Refused | None:
    """Return why there is no position to move."""
    position, end = context.before.get(tp), context.end(tp)
    if position is None:
        return Refused("there is no position so far in this log that could be shifted", None)
    outside = validate_position(position, context.log(tp), position)
    if isinstance(outside, Refused):
        return outside
    if position > end:
        return Refused(
            f"the position so far, {position}, lies behind {end}, where a transaction is open", None
        )
    return None


def _seek(context: StartContext, tp: TopicPartition, records: int) -> Seek:
    limit = context.log(tp).start if records < 0 else context.end(tp)
    return Seek(at=context.before[tp], records=records, limit=limit)


def _by_records(context: StartContext, wanted: Mapping[TopicPartition, int]) -> Found:
    seeks = {tp: _seek(context, tp, records) for tp, records in wanted.items()}
    found: dict[TopicPartition, NextOffset | Refused] = {}
    for tp, outcome in seek_by_records(context.cluster, seeks, context.isolation).items():
        back = wanted[tp] < 0
        if isinstance(outcome, Reached):
            found[tp] = NextOffset(outcome.offset if back else outcome.offset + 1)
        else:
            side = f"{'before' if back else 'behind'} position {context.before[tp]}"
            reason = f"only {outcome.records} of {abs(wanted[tp])} records stand {side}"
            found[tp] = Refused(reason, None)
    return found


def _by_time(context: StartContext, wanted: Mapping[TopicPartition, int]) -> Found:
    ahead = seek_by_records(context.cluster, {tp: _seek(context, tp, 1) for tp in wanted}, context.isolation)
    at_end = {tp: _seek(context, tp, -1) for tp, outcome in ahead.items() if not isinstance(outcome, Reached)}
    nearest = {**ahead, **seek_by_records(context.cluster, at_end, context.isolation)}
    moments = {
        tp: AtTimestamp(outcome.timestamp_ms + wanted[tp])
        for tp, outcome in nearest.items()
        if isinstance(outcome, Reached)
    }
    empty = {tp: context.before[tp] for tp in wanted.keys() - moments.keys()}
    found = {**empty, **at_timestamps(context, moments)}
    return {tp: _in_order(context, tp, wanted[tp], offset) for tp, offset in found.items()}


def _in_order(
    context: StartContext, tp: TopicPartition, ms: int, offset: NextOffset | Refused
) -> NextOffset | Refused:
    """Refuse a forward shift that leads back: producers set timestamps as they like."""
    position = context.before[tp]
    if isinstance(offset, Refused) or ms < 0 or offset >= position:
        return offset
    return Refused(
        f"timestamps are not in order: {ms} ms behind position {position} lies offset {offset}", None
    )
