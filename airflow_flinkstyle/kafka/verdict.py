"""The outcome of translating one position to another log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, assert_never

if TYPE_CHECKING:
    from airflow_flinkstyle.types import NextOffset

ExtraClass = Literal["duplicate", "copy_before", "phantom_aborted", "superseded", "tombstone", "foreign"]
"""What records make a verdict less than exact:

- ``duplicate``: a second copy of an unread record (MirrorMaker was killed and repeated itself).
- ``copy_before``: a second copy of a record that was read already.
- ``phantom_aborted``: an aborted record that a read-uncommitted MirrorMaker made visible.
- ``superseded``: an older version of a key that compaction removed on one side only.
- ``tombstone``: a deletion that compaction removed on the target.
- ``foreign``: a record that the source does not hold; somebody else writes to the target.
"""


@dataclass(frozen=True, slots=True)
class Exact:
    """All unread source records, in order, and nothing else, stand on the target from this offset on."""

    offset: NextOffset


@dataclass(frozen=True, slots=True)
class Bounded:
    """Nothing is lost from this offset on that a reader would not lose to compaction anyway.

    At most ``replayed_records`` records come that should not.
    """

    offset: NextOffset
    replayed_records: int
    extra: ExtraClass
    """The gravest class among them."""
    absent_records: int = 0
    """Compacted topics only: unread source records that the target's compaction has removed."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A position a person asked for, with what it skips and what it repeats."""

    offset: NextOffset
    skipped_records: int | None
    """Offsets passed over; None where the old position says nothing about this log."""
    repeated_records: int | None


@dataclass(frozen=True, slots=True)
class Refused:
    """No safe offset is known."""

    reason: str
    source_range: tuple[NextOffset, NextOffset] | None
    """The source records that could not be found on the target, end exclusive."""


Verdict = Exact | Bounded | Chosen | Refused


def describe(verdict: Verdict) -> str:
    """Return the verdict as one cell of the approval table."""
    match verdict:
        case Exact(offset):
            return f"{offset} exact"
        case Bounded(offset, replayed_records, extra, 0):
            return f"{offset} bounded: at most {replayed_records} {extra} records again"
        case Bounded(offset, replayed_records, extra, absent_records):
            return (
                f"{offset} bounded: {absent_records} records compacted away ({extra}), "
                f"at most {replayed_records} again"
            )
        case Chosen(offset, skipped_records, repeated_records):
            return f"{offset} chosen: skips {_count(skipped_records)}, repeats {_count(repeated_records)}"
        case Refused(reason, source_range):
            where = f" (source offsets {source_range[0]} to {source_range[1] - 1})" if source_range else ""
            return f"refused: {reason}{where}"
        case _:
            assert_never(verdict)


def offset_of(verdict: Verdict) -> NextOffset | None:
    """Return the target offset, or None for a refusal."""
    match verdict:
        case Exact(offset) | Bounded(offset) | Chosen(offset):
            return offset
        case Refused():
            return None
        case _:
            assert_never(verdict)


def _count(records: int | None) -> str:
    return "unknown" if records is None else str(records)
