"""The ranges of both logs of many partitions, read together and made longer where they do not decide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.grouping import groups_within
from airflow_flinkstyle.kafka.fingerprints import Fingerprints
from airflow_flinkstyle.kafka.reading import read_fingerprints

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from airflow_flinkstyle.kafka.cluster import LogRange
    from airflow_flinkstyle.kafka.reading import Identity
    from airflow_flinkstyle.kafka.settings import Isolation, KafkaCluster
    from airflow_flinkstyle.kafka.translation.alignment import Side
    from airflow_flinkstyle.types import NextOffset, TopicPartition

_CONTEXT, _CONTEXT_UNDATED = 32, 1024
"""Source offsets before the position that are compared too; more where records carry no time of their own,
so that ones that repeat are noticed."""
_TIMES = 4


@dataclass(slots=True, kw_only=True)
class Pair:
    """Both ranges of one partition."""

    tp: TopicPartition
    """On the source."""
    target_tp: TopicPartition
    position: NextOffset
    identity: Identity
    source: Fingerprints
    target: Fingerprints
    longest: int
    """Offsets above which no range is made longer."""
    deleted: Side | None = None
    """The log that deleted records while they were read."""

    @classmethod
    def around(
        cls,
        tp: TopicPartition,
        target_tp: TopicPartition,
        position: NextOffset,
        logs: tuple[LogRange, LogRange],
        identity: Identity,
        *,
        longest: int,
        same_offsets: bool,
    ) -> Pair:
        """Return empty ``Fingerprints`` that most likely decide about a position.

        Args:
            tp: The source partition.
            target_tp: Its copy.
            position: Next offset to read on the source.
            logs: Both logs.
            identity: What makes two records the same.
            longest: Offsets that a range may always have.
            same_offsets: Records have the same offsets on both sides.
        """
        source, target = logs
        context = _CONTEXT if identity.dated else _CONTEXT_UNDATED
        unread = source.end - position
        low = max(source.start, position - context)
        target_low = low if same_offsets else target.end - unread - 2 * context
        target_low = min(max(target.start, target_low), target.end)
        return cls(
            tp=tp,
            target_tp=target_tp,
            position=position,
            identity=identity,
            source=Fingerprints(low=low, high=source.end, log_start=source.start, keyed=identity.keyed),
            target=Fingerprints(
                low=target_low, high=target.end, log_start=target.start, keyed=identity.keyed
            ),
            longest=max(longest, _TIMES * unread),
        )

    @property
    def size(self) -> int:
        """Offsets of both ranges."""
        return sum(fingerprints.high - fingerprints.low for fingerprints in (self.source, self.target))

    @property
    def exhausted(self) -> frozenset[Side]:
        """Ranges that are as long as they may become."""
        sides: dict[Side, Fingerprints] = {"source": self.source, "target": self.target}
        return frozenset(side for side, w in sides.items() if w.high - w.low >= self.longest)

    def oldest_copy(self, since: int | None, share: int) -> int | None:
        """Return the target offset before which no copy of the source's range is; None if too far back.

        Args:
            since: The first target offset whose timestamp is not older than the range's oldest; the log's
                start where timestamps do not count; None if there is none such.
            share: Offsets that may be read to find first copies, whatever is unread.
        """
        since = self.target.high if since is None else since
        longest = share + _TIMES * (self.source.high - self.position)
        return since if self.target.high - since <= longest else None

    def forget(self) -> None:
        """Free the memory of both ranges."""
        self.source, self.target = self.source.older(self.source.low), self.target.older(self.target.low)

    def older(self, side: Side) -> Fingerprints:
        """Return an empty range for the records that make one side longer."""
        if side == "target":
            span = self.target.high - self.target.low
            return self.target.older(max(self.target.log_start, self.target.high - _TIMES * span))
        span = self.position - self.source.low
        return self.source.older(max(self.source.log_start, self.position - _TIMES * max(span, 1)))


def read_pairs(
    source: KafkaCluster, target: KafkaCluster, pairs: Collection[Pair], isolation: Isolation
) -> None:
    """Fill the ranges of both sides."""
    identities = {pair.tp: pair.identity for pair in pairs}
    gone = read_fingerprints(source, {pair.tp: pair.source for pair in pairs}, isolation, identities)
    _note_deleted("source", pairs, gone)
    identities = {pair.target_tp: pair.identity for pair in pairs}
    gone = read_fingerprints(target, {pair.target_tp: pair.target for pair in pairs}, isolation, identities)
    _note_deleted("target", pairs, gone)


def _note_deleted(side: Side, pairs: Iterable[Pair], gone: Collection[TopicPartition]) -> None:
    for pair in pairs:
        if (pair.tp if side == "source" else pair.target_tp) in gone:
            pair.deleted = side


def lengthen(
    source: KafkaCluster, target: KafkaCluster, sides: Mapping[Side, Collection[Pair]], isolation: Isolation
) -> None:
    """Read what makes one side of each pair longer; nothing is read twice."""
    for side, pairs in sides.items():
        at_source = side == "source"
        older = {pair.tp if at_source else pair.target_tp: pair.older(side) for pair in pairs}
        identities = {pair.tp if at_source else pair.target_tp: pair.identity for pair in pairs}
        gone = read_fingerprints(source if at_source else target, older, isolation, identities)
        _note_deleted(side, pairs, gone)
        for pair in pairs:
            if at_source:
                pair.source = older[pair.tp].followed_by(pair.source)
            else:
                pair.target = older[pair.target_tp].followed_by(pair.target)


def batches(pairs: Collection[Pair], budget: int, growth: int = 1) -> Iterator[list[Pair]]:
    """Return groups of pairs that fit into memory together once they have grown so many times."""
    return groups_within(pairs, lambda pair: growth * pair.size, most=budget)
