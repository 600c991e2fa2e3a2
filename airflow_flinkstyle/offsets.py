"""Positions in Kafka's logs as one value, from Spark's offset log to Spark's offset log. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from airflow_flinkstyle.typed_json import Check, stored_as
from airflow_flinkstyle.types import NextOffset, TopicPartition

ByTopic = Mapping[str, Mapping[int, NextOffset]]
"""Topic -> partition -> next offset to read."""
_OfTopic = Annotated[Mapping[int, NextOffset], Check("the offset of at least one partition", bool)]


@stored_as(Mapping[str, _OfTopic])
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Offsets(Mapping[TopicPartition, NextOffset]):
    """The next offset to read per partition, of any number of topics.

    A mapping by topic and partition, in the order in which it was made: Spark writes an offset log in no
    fixed one. Stored by topic (``by_topic``), as Spark has it.
    """

    _at: Mapping[TopicPartition, NextOffset] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Keep a copy: what the caller has may change."""
        object.__setattr__(self, "_at", dict(self._at))

    @classmethod
    def of(cls, by_topic: ByTopic) -> Offsets:
        """Return what is given by topic; a topic without a partition is left out."""
        return cls(
            {(topic, number): at for topic, numbers in by_topic.items() for number, at in numbers.items()}
        )

    from_stored = of

    @property
    def by_topic(self) -> dict[str, dict[int, NextOffset]]:
        """The same by topic, then partition."""
        found: dict[str, dict[int, NextOffset]] = {}
        for (topic, number), offset in self._at.items():
            found.setdefault(topic, {})[number] = offset
        return found

    def to_stored(self) -> ByTopic:
        """Return what ``from_stored`` makes this of."""
        return self.by_topic

    @property
    def topics(self) -> frozenset[str]:
        """The topics with at least one partition."""
        return frozenset(topic for topic, _ in self._at)

    def in_topics(self, topics: Collection[str]) -> Offsets:
        """Return those of these topics."""
        return Offsets({tp: at for tp, at in self._at.items() if tp[0] in topics})

    def in_order(self) -> Offsets:
        """Return them sorted by topic and partition."""
        return Offsets(dict(sorted(self._at.items())))

    def __getitem__(self, partition: TopicPartition) -> NextOffset:
        """Return the next offset of one partition."""
        return self._at[partition]

    def __iter__(self) -> Iterator[TopicPartition]:
        """Go through the partitions."""
        return iter(self._at)

    def __len__(self) -> int:
        """Count the partitions."""
        return len(self._at)

    def __or__(self, newer: Mapping[TopicPartition, NextOffset]) -> Offsets:
        """Return both; where both have a partition, the other one's offset counts."""
        return Offsets({**self._at, **newer})

    def __repr__(self) -> str:
        """Show them by topic."""
        return f"Offsets.of({self.by_topic})"
