"""The rows of a rewrite's plan: which source moves, how, and where each of its partitions goes. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from airflow_flinkstyle.kafka.verdict import Verdict, describe, offset_of
from airflow_flinkstyle.storage.keys import Name
from airflow_flinkstyle.typed_json import stored
from airflow_flinkstyle.types import NextOffset

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.types import TopicPartition


MigrationStrategy = Literal["proved", "new_identity", "producers_first"]
"""How a source gets its position on the target:

- ``proved``: where its unread records are there, by comparing both logs (also under a new name).
- ``new_identity``: a position that a person picks; the old one is dropped.
- ``producers_first``: the source is read to its fenced end, then the target from its start.
"""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SourceRef:
    """One Kafka source of one query."""

    query: str
    source: str
    """Source name (offset log v2) or position in the query (v1)."""

    def __str__(self) -> str:
        return f"{self.query}/{self.source}"


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStrategy:
    """How one source moves, for the people who approve it."""

    query: Name
    source: str
    """Source name (offset log v2) or position in the query (v1)."""
    strategy: MigrationStrategy
    precondition: str
    """What must hold, and is checked."""
    consequence: str
    """What is read again, left out or dropped if it is done."""


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMove:
    """One row of the approval table."""

    query: Name
    source: str
    """Source name (offset log v2) or position in the query (v1)."""
    topic: str
    target_topic: str
    partition: int
    before: NextOffset | None
    """None for a partition that the savepoint did not read."""
    after: Verdict

    @property
    def ref(self) -> SourceRef:
        """The source it belongs to."""
        return SourceRef(query=self.query, source=self.source)

    @property
    def shift(self) -> int | None:
        """How far the offset moves: target minus source; None if there is no pair."""
        after = offset_of(self.after)
        return None if after is None or self.before is None else after - self.before

    def describe(self) -> str:
        """Return the row for a message."""
        return (
            f"{self.topic}-{self.partition} of query {self.query} from {self.before}: {describe(self.after)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceVerdicts:
    """What was found out about one source."""

    verdicts: Mapping[TopicPartition, Verdict]
    """By source topic and partition."""
    chosen: Mapping[TopicPartition, Verdict] = field(default_factory=dict)
    """By target topic and partition: where topics begin whose old positions are dropped."""
    planned: Mapping[TopicPartition, Verdict] = field(default_factory=dict)
    """For the end of a planned batch."""
    evidence: Mapping[TopicPartition, str] = field(default_factory=dict)
    """JSON per partition, kept in the new savepoint."""
    settled: bool = True
    strategy: SourceStrategy | None = None
    """For the people who approve it."""
