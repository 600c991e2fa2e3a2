"""What a heartbeat says of one query beside its batches: its consumer groups, and how fast it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.typed_json import stored
from airflow_flinkstyle.types import BatchId, Count

MOST_SOURCES = 16
"""Of so many sources a heartbeat says how fast they are."""
MOST_PARTS = 12
"""Of a batch's time."""
MOST_CHARACTERS = 120
"""Of a source's description."""
MOST_SERVERS_CHARACTERS = 1000
"""Of a list of servers or a path; a longer one is left out."""


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePace:
    """One source in the newest batch, by Spark's own progress."""

    description: str
    """As Spark names it, ``KafkaV2[Subscribe[orders]]``; at most 120 characters."""
    lag_records: Count | None
    """Records of a Kafka source behind the batch's end, when it was planned; None for other sources."""


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a Kafka source reads, by the options that Spark was given; no login is among them."""

    servers: str
    """``kafka.bootstrap.servers``, after what the start has set over the script's own."""
    isolation: str
    """``kafka.isolation.level``."""


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """Where a query writes, as far as its script says it; for people and lineage, it decides nothing."""

    servers: str | None = None
    """``bootstrap.servers`` of a Kafka sink."""
    topic: str | None = None
    """Of a Kafka sink; None if each record names its own."""
    path: str | None = None
    """Of a sink that writes files or a table."""


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """A query's newest batch, by Spark's own progress (``StreamingQueryProgress``).

    It is of the newest batch that Spark told of: a query without input says nothing new.
    """

    batch_id: BatchId
    begun_at_ms: Count
    """When its trigger began, epoch milliseconds."""
    batch_ms: Count
    """How long it took, ``triggerExecution``."""
    rows: Count
    """Input rows."""
    input_rows_per_s: float | None
    """Rows that arrived per second since the batch before; None if Spark does not say."""
    processed_rows_per_s: float | None
    """Rows per second of ``batch_ms``; None if Spark does not say."""
    watermark_ms: int | None
    """Event time, epoch milliseconds; None without one."""
    state_rows: Count
    """In all stores of state together."""
    sources: tuple[SourcePace, ...]
    """In Spark's order, at most 16."""
    parts_ms: Mapping[str, Count] = field(default_factory=dict)
    """What ``batch_ms`` consists of, by Spark's names (``durationMs``), at most 12; empty from an agent that
    did not say."""

    @property
    def lag_records(self) -> int | None:
        """Of all its Kafka sources together; None if it has none."""
        known = [source.lag_records for source in self.sources if source.lag_records is not None]
        return sum(known) if known else None


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """What was committed to Kafka for the consumer group of a source; nobody resumes from it."""

    group: str
    batch_id: BatchId | None
    """Newest batch whose offsets the cluster has confirmed; None before the first."""
    offsets: Offsets
    """Topic -> partition -> next offset to read, of that batch."""
    lag: Mapping[str, int]
    """Topic -> offsets between those and the logs' ends, a few seconds ago; empty while it is not known."""
    commits_succeeded: int
    commits_failed: int
    commits_superseded: int
    """Commits that a newer one replaced before they were sent."""
    failure: str | None
    """Why the newest commit failed; None if it did not."""


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What a script says of a query, as digests: with them a relaunched driver tells queries apart."""

    location: str | None
    """The script's own ``checkpointLocation``; None if it has none."""
    sink: str
    sources: str
