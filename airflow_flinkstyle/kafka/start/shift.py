"""Positions by time, and the position so far moved by a time or by records."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka.positions import validate_position
from airflow_flinkstyle.kafka.start.kinds import AtTimestamp, Shifted
from airflow_flinkstyle.kafka.start.seek import Reached, Seek, seek_by_records
from airflow_flinkstyle.kafka.start.timestamp_lookup import TooFar, look_up_timestamps
from airflow_flinkstyle.kafka.verdict import Refused
from airflow_flinkstyle.python_versions import UTC
from airflow_flinkstyle.types import NextOffset

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.kafka.start.context import Found, StartContext
    from airflow_flinkstyle.types import TopicPartition


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
    """Name the last record; a log in which a reader finds none starts at its end, as an empty one."""
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
    there = seek_by_records(context.cluster, {tp: _seek(context, tp, 1) for tp in wanted}, context.isolation)
    at_end = {tp: _seek(context, tp, -1) for tp, outcome in there.items() if not isinstance(outcome, Reached)}
    nearest = {**there, **seek_by_records(context.cluster, at_end, context.isolation)}
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
