"""A plan for the people who approve it: its verdict and its cost, sums, then what is not exact. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka.verdict import GRAVEST_FIRST, Bounded, Chosen, Exact, Refused, Verdict, describe
from airflow_flinkstyle.python_versions import assert_never
from airflow_flinkstyle.wording import row

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from airflow_flinkstyle.rewrite.rows import PartitionMove

ALL_LISTED = 50
"""Plans with no more partitions are listed whole."""
MOST_LISTED = 200
"""Partitions that are not exact, of a larger plan, before the rest is only counted."""


def kind_of(verdict: Verdict) -> str:
    """Return what partitions are counted by: ``exact``, the gravest class, ``chosen`` or ``refused``."""
    match verdict:
        case Exact():
            return "exact"
        case Bounded():
            return f"bounded: {verdict.extra}"
        case Chosen():
            return "chosen"
        case Refused():
            return "refused"
        case _:
            assert_never(verdict)


KINDS = ("refused", *(f"bounded: {name}" for name in GRAVEST_FIRST), "chosen", "exact")
"""Every kind, the gravest first."""
_BAR = 40
_LETTERS = {kind: "X" if kind == "refused" else "~" for kind in KINDS} | {"chosen": "c", "exact": "#"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSum:
    """The partitions of one topic of one source, counted."""

    query: str
    source: str
    topic: str
    kinds: Mapping[str, int]
    """Partitions by kind, in the order of ``KINDS``."""

    @property
    def partitions(self) -> int:
        """How many there are."""
        return sum(self.kinds.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPartitions:
    """Which partitions are worth a line of their own."""

    moves: Sequence[PartitionMove]
    """The gravest first, else in the plan's order."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """The others by kind."""


def by_topic(moves: Iterable[PartitionMove]) -> list[TopicSum]:
    """Return the sums per topic, in order of their names."""
    counted: dict[tuple[str, str, str], Counter[str]] = {}
    for move in moves:
        counted.setdefault((move.query, move.source, topic_of(move)), Counter())[kind_of(move.after)] += 1
    return [
        TopicSum(query=query, source=source, topic=topic, kinds=_in_order(kinds))
        for (query, source, topic), kinds in sorted(counted.items())
    ]


def listing(moves: Sequence[PartitionMove]) -> ListedPartitions:
    """Choose what is listed, the gravest first: all of a small plan, of a large one what is not exact."""
    rank = {kind: number for number, kind in enumerate(KINDS)}
    gravest_first = sorted(moves, key=lambda move: rank[kind_of(move.after)])
    if len(moves) <= ALL_LISTED:
        return ListedPartitions(moves=gravest_first)
    problems = [move for move in gravest_first if not isinstance(move.after, Exact)]
    rest = (*problems[MOST_LISTED:], *gravest_first[len(problems) :])
    left_out = Counter(kind_of(move.after) for move in rest)
    return ListedPartitions(moves=problems[:MOST_LISTED], left_out=_in_order(left_out))


def in_words(kinds: Mapping[str, int]) -> str:
    """Return ``3 refused, 97 exact``."""
    return ", ".join(f"{count:,} {kind}" for kind, count in _in_order(kinds).items()) or "none"


def total(moves: Iterable[PartitionMove]) -> str:
    """Return one sentence on all partitions."""
    kinds = kinds_of(moves)
    return f"{sum(kinds.values()):,} partitions: {in_words(kinds)}."


def topic_of(move: PartitionMove) -> str:
    """Return the topic's name, with its name on the target if that differs."""
    return move.topic if move.topic == move.target_topic else f"{move.topic} -> {move.target_topic}"


def markdown_table(moves: Sequence[PartitionMove]) -> list[str]:
    """Return the lines of the approval table, with sums per topic in front if not all are listed."""
    chosen = listing(moves)
    lines: list[str] = []
    if chosen.left_out:
        lines += [total(moves), "", "| query | topic | partitions | verdicts |", "|---|---|---|---|"]
        lines += _topic_rows(by_topic(moves))
        lines += ["", f"Not listed one by one: {in_words(chosen.left_out)}.", ""]
    if chosen.moves:
        lines += ["| query | topic | partition | from | to | shift |", "|---|---|---|---|---|---|"]
        lines += [row(cells(move)) for move in chosen.moves]
    return lines


def cells(move: PartitionMove) -> tuple[str, str, str, str, str, str]:
    """Return query, topic, partition, from, to and shift."""
    return (
        move.query,
        topic_of(move),
        str(move.partition),
        "-" if move.before is None else str(move.before),
        describe(move.after),
        "" if move.shift is None else f"{move.shift:+d}",
    )


def _topic_rows(sums: Sequence[TopicSum]) -> list[str]:
    worst = worst_first(sums)
    lines = [
        row([one.query, one.topic, f"{one.partitions:,}", in_words(one.kinds)]) for one in worst[:ALL_LISTED]
    ]
    hidden = worst[ALL_LISTED:]
    if hidden:
        more = sum(one.partitions for one in hidden)
        lines.append(row(["", f"{len(hidden):,} topics more", f"{more:,}", ""]))
    return lines


def worst_first(sums: Sequence[TopicSum]) -> list[TopicSum]:
    """Return the topics with the most refused partitions first, then bounded, then chosen."""
    return sorted(sums, key=lambda one: [-one.kinds.get(kind, 0) for kind in KINDS[:-1]])


def kinds_of(moves: Iterable[PartitionMove]) -> dict[str, int]:
    """Return partitions by kind, the gravest first."""
    return _in_order(Counter(kind_of(move.after) for move in moves))


def _in_order(kinds: Mapping[str, int]) -> dict[str, int]:
    return {kind: kinds[kind] for kind in KINDS if kinds.get(kind)}


def text_plot(moves: Sequence[PartitionMove]) -> str:
    """Return one bar per topic: refused X, bounded ~, chosen c, exact #; every kind that occurs shows."""
    sums = worst_first(by_topic(moves))
    shown, hidden = sums[:ALL_LISTED], sums[ALL_LISTED:]
    names = [f"{one.query}/{one.source} {one.topic}" for one in shown]
    width = max(map(len, names), default=0)
    lines = [f"{total(moves)}  (X refused, ~ bounded, c chosen, # exact)"]
    lines += [
        f"{name:<{width}} |{_bar(one.kinds)}| {one.partitions:,}: {in_words(one.kinds)}"
        for name, one in zip(names, shown, strict=True)
    ]
    if hidden:
        rest: Counter[str] = Counter()
        for one in hidden:
            rest.update(one.kinds)
        lines.append(f"and {len(hidden):,} topics more with {rest.total():,} partitions: {in_words(rest)}")
    return "\n".join(lines)


def _bar(kinds: Mapping[str, int]) -> str:
    """Return a bar of fixed width in which every kind that occurs has at least one letter."""
    everything = sum(kinds.values())
    letters = [_LETTERS[kind] * max(1, round(count * _BAR / everything)) for kind, count in kinds.items()]
    return "".join(letters)[:_BAR].ljust(_BAR, letters[-1][-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCount:
    """A number of records, as far as it is known."""

    records: int = 0
    unknown: int = 0
    """Partitions whose number is not known."""

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
    verdict = "Refused" if "refused" in kinds else "Chosen" if "chosen" in kinds else "Bounded"
    others = {kind: count for kind, count in kinds.items() if kind != "exact"}
    cost = cost_of(moves)
    summary = f"records read again, at most: {cost.again}; left out: {cost.left_out}"
    return f"**{verdict}**: {in_words(others)} of {len(moves):,} partitions; {summary}."


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
