"""What a heartbeat says of one query: its batches, its sources and their groups, and how fast it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.protocol.sink_records import Sinks
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
    """What ``batch_ms`` consists of, by Spark's names (``durationMs``), at most 12."""

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


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class SourceIdentity:
    """Which log a Kafka source reads: names and numbers alone do not tell two clusters apart."""

    cluster_id: str
    topic_ids: Mapping[str, str]


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStatus:
    """One query as its agent last saw it."""

    query_id: str
    batch_id: BatchId | None
    """Newest committed batch, from the commit log; None before the first."""
    batch_committed_at_ms: int | None
    """When the agent saw that commit's file (its modification time), epoch milliseconds."""
    sources: Mapping[str, SourceIdentity]
    """By position (offset log v1) or name (v2), as recorded when the query started."""
    sink: str | None = None
    """Spark's name of the sink; None if unknown."""
    sinks: Sinks | None = None
    """What its transactional sinks have written, in this run or before it; None if unknown."""
    groups: Mapping[str, GroupStatus] = field(default_factory=dict)
    """By source, as in ``sources``; empty unless offsets are committed back."""
    declared: Declared | None = None
    """None if unknown."""
    waiting: bool = False
    """The run continues it, and its script has not started it yet."""
    pace: Pace | None = None
    """What Spark says of its newest batch; None before the first."""
    started_at_ms: int | None = None
    """When Spark was told to start it last, epoch milliseconds; None if it was not."""
    output_mode: str | None = None
    """``append``, ``update`` or ``complete``; None while the query waits."""
    failed: bool = False
    """An error has ended it, and its script has not ended the run for that: it may await another query."""
    reads: Mapping[str, Reading] = field(default_factory=dict)
    """How its Kafka sources read, by source as in ``sources``."""
    writes: Writing | None = None
    """None if its script does not tell."""
