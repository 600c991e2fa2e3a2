"""The outcome of translating one position to another log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.python_versions import assert_never
from airflow_flinkstyle.typed_json import stored
from airflow_flinkstyle.types import NextOffset, TopicPartition

ExtraClass = Literal[
    "duplicate", "copy_before", "phantom_aborted", "superseded", "tombstone", "new", "passed_over"
]
"""What records make a verdict less than exact:

- ``duplicate``: a second copy of an unread record (MirrorMaker was killed and repeated itself).
- ``copy_before``: a second copy of a record that was read already.
- ``phantom_aborted``: an aborted record that a read-uncommitted MirrorMaker made visible.
- ``superseded``: an older version of a key that compaction removed on one side only.
- ``tombstone``: a deletion that compaction removed on the target.
- ``new``: a record that the source does not hold: the target's own producers wrote it. (Or the source
  has deleted the original of a second copy: the two cannot be told apart then.)
- ``passed_over``: such a record before the position: it is never read.
"""

GRAVEST_FIRST: tuple[ExtraClass, ...] = (
    "passed_over",
    "tombstone",
    "phantom_aborted",
    "copy_before",
    "duplicate",
    "new",
    "superseded",
)


@stored
@dataclass(frozen=True, slots=True)
class Exact:
    """From this offset on, the target holds all unread source records, in order, and nothing else."""

    kind: ClassVar[str] = "exact"

    offset: NextOffset


@stored
@dataclass(frozen=True, slots=True)
class Bounded:
    """Every unread source record is on the target from this offset on, but for the records counted here."""

    kind: ClassVar[str] = "bounded"

    offset: NextOffset
    extras: Mapping[ExtraClass, int]
    """Target records from there on that are no unread source records, by class."""
    absent: Mapping[ExtraClass, int] = field(default_factory=dict)
    """Compacted topics only: unread source records that the target's compaction has removed, by class."""

    @property
    def replayed_records(self) -> int:
        """How many records are read, at most, that should not be."""
        return sum(count for name, count in self.extras.items() if name != "passed_over")

    @property
    def extra(self) -> ExtraClass:
        """The gravest class."""
        return next(name for name in GRAVEST_FIRST if name in self.counts)

    @property
    def counts(self) -> dict[ExtraClass, int]:
        """Records by class, whichever log holds them."""
        names = self.extras.keys() | self.absent.keys()
        return {
            name: self.extras.get(name, 0) + self.absent.get(name, 0)
            for name in GRAVEST_FIRST
            if name in names
        }


@stored
@dataclass(frozen=True, slots=True)
class Chosen:
    """A position a person asked for, with what it skips and what it repeats."""

    kind: ClassVar[str] = "chosen"

    offset: NextOffset
    skipped_records: int | None
    """Offsets passed over; None where the old position counts in another log."""
    repeated_records: int | None


@stored
@dataclass(frozen=True, slots=True)
class Refused:
    """No safe offset is known."""

    kind: ClassVar[str] = "refused"

    reason: str
    source_range: tuple[NextOffset, NextOffset] | None
    """The source records that could not be found on the target, end exclusive."""


Verdict = Exact | Bounded | Chosen | Refused


def describe(verdict: Verdict) -> str:
    """Return the verdict as one cell of the approval table."""
    match verdict:
        case Exact(offset):
            return f"{offset} exact"
        case Bounded(offset):
            return f"{offset} bounded: {_classes(verdict)}"
        case Chosen(offset, skipped_records, repeated_records):
            return f"{offset} chosen: skips {_count(skipped_records)}, repeats {_count(repeated_records)}"
        case Refused(reason, source_range):
            where = f" (source offsets {source_range[0]} to {source_range[1] - 1})" if source_range else ""
            return f"refused: {reason}{where}"
        case _:
            assert_never(verdict)


def offsets_of(verdicts: Mapping[TopicPartition, Verdict]) -> Offsets:
    """Return where reading continues, for each partition that is not refused."""
    return Offsets({tp: at for tp, verdict in verdicts.items() if (at := offset_of(verdict)) is not None})


def offset_of(verdict: Verdict) -> NextOffset | None:
    """Return the target offset, or None for a refusal."""
    match verdict:
        case Exact(offset) | Bounded(offset) | Chosen(offset):
            return offset
        case Refused():
            return None
        case _:
            assert_never(verdict)


def _classes(verdict: Bounded) -> str:
    once = ("new", "passed_over")
    parts = [f"at most {n} {name} records again" for name, n in verdict.extras.items() if name not in once]
    parts += [f"{n} {name} records" for name, n in verdict.extras.items() if name in once]
    parts += [f"{n} {name} records compacted away" for name, n in verdict.absent.items()]
    return ", ".join(parts)


def _count(records: int | None) -> str:
    return "unknown" if records is None else str(records)
