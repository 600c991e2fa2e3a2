"""What a plan costs, in records, and its verdict in one line. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka.verdict import Bounded, Chosen
from airflow_flinkstyle.rewrite.render import in_words, kinds_of
from airflow_flinkstyle.wording import row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow_flinkstyle.rewrite.rows import PartitionMove


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCount:
    """A number of records, as far as it is known."""

    records: int = 0
    unknown: int = 0
    """Partitions of which nobody knows."""

    def __str__(self) -> str:
        """Return it for a cell."""
        if not self.unknown:
            return f"{self.records:,}"
        known = f"{self.records:,} and " if self.records else ""
        return f"{known}not known for {self.unknown:,} partitions"

    def plus(self, records: int | None) -> RecordCount:
        """Return the sum; None is not known."""
        if records is None:
            return RecordCount(records=self.records, unknown=self.unknown + 1)
        return RecordCount(records=self.records + records, unknown=self.unknown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a migration by a plan repeats and leaves out."""

    again: RecordCount
    """Records that the job reads again, or that it should not read, at most."""
    left_out: RecordCount
    """Unread records that it does not read."""


def cost_of(moves: Iterable[PartitionMove]) -> Cost:
    """Return the cost of all partitions together; those that are exact or refused cost nothing."""
    again, left_out = RecordCount(), RecordCount()
    for move in moves:
        match move.after:
            case Bounded(_, extras, absent):
                again = again.plus(move.after.replayed_records)
                left_out = left_out.plus(extras.get("passed_over", 0) + sum(absent.values()))
            case Chosen(_, skipped, repeated):
                again, left_out = again.plus(repeated), left_out.plus(skipped)
            case _:
                pass
    return Cost(again=again, left_out=left_out)


def verdict_line(moves: Sequence[PartitionMove]) -> str:
    """Return the verdict on a plan as one line: exact, or what is not."""
    kinds = kinds_of(moves)
    if not moves:
        return "**Exact**: no source has read anything yet, so none has a position to find."
    if kinds.keys() <= {"exact"}:
        partitions = f"all {len(moves):,} partitions" if len(moves) != 1 else "the one partition"
        return f"**Exact**: {partitions} continue with their unread records; none lost, none read again."
    word = "Refused" if "refused" in kinds else "Chosen" if "chosen" in kinds else "Bounded"
    others = {kind: count for kind, count in kinds.items() if kind != "exact"}
    cost = cost_of(moves)
    told = f"records read again, at most: {cost.again}; left out: {cost.left_out}"
    return f"**{word}**: {in_words(others)} of {len(moves):,} partitions; {told}."


def choices(moves: Sequence[PartitionMove]) -> list[str]:
    """Return the lines of a table: what each answer to the approval means, in records."""
    cost, nothing = cost_of(moves), RecordCount()
    heads = ("you choose", "then", "read again, at most", "left out")
    return [
        row(heads),
        "|---" * len(heads) + "|",
        row(("Approve", "the job moves", cost.again, cost.left_out)),
        row(("Reject", "the job runs on where it is", nothing, nothing)),
    ]
