"""One query in a heartbeat: its batches, its sources and their groups, and how fast it is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Final

from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.typed_json import Check, stored
from airflow_flinkstyle.types import BatchId, Count, KafkaId, Text

Shards = Annotated[int, Check("a number of shards", lambda shards: shards > 0)]
BatchOrNone = Annotated[int, Check("a batch, or -1", lambda batch: batch >= -1)]


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class SinkLineage:
    """One sink's lineage: a numbering of batches of which each is written once."""

    lineage: Text
    shards: Shards
    """Transactions that share a batch."""
    control_topic: Text
    """Holds its markers and completions, on the same cluster."""
    cluster_id: Text
    """The cluster of the newest write, by the id that it gives itself."""
    completed_batch: BatchOrNone
    """-1 before the first; ahead of the query's batch while that is being committed."""
    markers: Mapping[int, int]
    """Shard -> the newest batch that it has written; shards that have written none are left out."""


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class Sinks:
    """All transactional sinks of one query; empty if its sinks are of other kinds."""

    lineages: tuple[SinkLineage, ...] = ()
    """By name."""
    begins: str = ""
    """Suffix of new lineages that a rewind chose, and that no batch has begun yet; empty: none."""
    under_way: bool = False
    """The batch after the query's last one was planned by a run that died: a part of it may be in the
    output. True until a sink has checked its output."""


def left_by(sinks: Sinks | None, *, planned: bool) -> Sinks | None:
    """Return the sinks as a run left them after a batch; ``planned``: the next batch was planned."""
    return replace(sinks, under_way=True) if sinks is not None and planned else sinks


IDLE_S: Final = 60.0
"""A query without a new batch for so long, and for twice its batch's time, has rates of 0."""
MOST_SOURCES = 16
"""How many sources a heartbeat describes at most."""
MOST_PARTS = 12
"""How many parts of a batch's time are named at most."""
MOST_CHARACTERS = 120
"""Length of a source's description."""
MOST_SERVERS_CHARACTERS = 1000
"""Length of a list of servers or a path; a longer one is left out."""


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
    follows_pattern: bool = False
    """Whether topics come and go by themselves (``subscribePattern``)."""
    accepts_loss: bool = False
    """``failOnDataLoss`` is false: Spark leaves out what is deleted before it is read."""


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """Where a query writes, as far as its script names it; for people and lineage: no decision uses it."""

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

    Of the newest batch that Spark reported: for a query without input Spark reports no new one.
    """

    batch_id: BatchId
    begun_at_ms: Count
    """When its trigger began, epoch milliseconds."""
    batch_ms: Count
    """How long it took, ``triggerExecution``."""
    rows: Count
    """Input rows."""
    input_rows_per_s: float | None
    """Rows that arrived per second since the batch before; None if Spark does not report it."""
    processed_rows_per_s: float | None
    """Rows per second of ``batch_ms``; None if Spark does not report it."""
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

    def at(self, now_ms: int, *, runs: bool = True) -> Pace:
        """Return how fast the query is now, from its newest reported batch.

        It is idle if it reported no new batch for longer than one may take, or if its job does not run. Its
        rates and the time of its batch are 0 then; its lag stays.
        """
        ended_ms = self.begun_at_ms + self.batch_ms
        if runs and now_ms - ended_ms <= max(IDLE_S * 1000, 2 * self.batch_ms):
            return self
        return replace(
            self,
            batch_ms=0,
            input_rows_per_s=None if self.input_rows_per_s is None else 0.0,
            processed_rows_per_s=None if self.processed_rows_per_s is None else 0.0,
        )


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedGroup:
    """What was committed to Kafka for the consumer group of a source; no run resumes from it."""

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
    """How a script declares a query, as digests: by them a relaunched driver tells queries apart."""

    location: str | None
    """The script's own ``checkpointLocation``; None if it has none."""
    sink: str
    sources: str

    @property
    def key(self) -> str:
        """One text for all three."""
        return f"{self.location}.{self.sink}.{self.sources}"


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class SourceIdentity:
    """Which log a Kafka source reads: names and numbers alone do not tell two clusters apart."""

    cluster_id: KafkaId | None
    """None if the cluster gives no id."""
    topic_ids: Mapping[str, KafkaId | None]
    """None for a topic whose id the cluster does not give, or that was not asked for yet."""

    @property
    def blind_spot(self) -> str | None:
        """Return which changes of this log are not noticed, and why; None if all ids are known."""
        unknown = sorted(topic for topic, topic_id in self.topic_ids.items() if topic_id is None)
        hidden = ["that another cluster answers"] if self.cluster_id is None else []
        if unknown:
            some = "" if len(unknown) == len(self.topic_ids) else f" ({', '.join(unknown[:8])})"
            hidden.append(f"that a topic was deleted and created again{some}")
        if not hidden:
            return None
        lacking = [*(["cluster id"] if self.cluster_id is None else []), *(["topic ids"] if unknown else [])]
        return (
            f"no {' and no '.join(lacking)} known: it is not noticed {' or '.join(hidden)}, unless the "
            "positions do not fit into the logs"
        )

    def of(self, topics: Collection[str]) -> SourceIdentity:
        """Return the same for the topics that are read now; those that joined meanwhile are not known."""
        return SourceIdentity(
            cluster_id=self.cluster_id,
            topic_ids={topic: self.topic_ids.get(topic) for topic in sorted(topics)},
        )


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Records that were deleted before a source read them, found at starts of its query.

    Only with ``failOnDataLoss`` false: its script accepts that Spark skips them with a warning.
    """

    offsets: Count
    """Offsets between the positions and the begin of the logs then."""
    topics: tuple[str, ...]
    """Topics that were gone, with what was unread in them."""
    batch_id: BatchId | None
    """Newest committed batch at the newest of these starts."""

    def __str__(self) -> str:
        """Describe it for people."""
        gone = f"topics {', '.join(self.topics)} deleted" if self.topics else ""
        lost = f"{self.offsets:,} offsets deleted before they were read" if self.offsets else ""
        return f"{' and '.join(filter(None, (lost, gone)))} (accepted by failOnDataLoss=false)"


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStatus:
    """One query, as its agent saw it last."""

    query_id: Text | None
    """Spark's id of it; None until a checkpoint of it is known."""
    batch_id: BatchId | None
    """Newest committed batch, from the commit log; None before the first."""
    batch_committed_at_ms: int | None
    """When the agent saw that commit's file (its modification time), epoch milliseconds."""
    sources: Mapping[str, SourceIdentity]
    """The Kafka sources, by position (offset log v1) or name (v2), with the topics of the newest batch."""
    sink: str | None = None
    """Spark's name of the sink; None if unknown."""
    sinks: Sinks | None = None
    """What its transactional sinks have written, in this run or before it; None if unknown."""
    groups: Mapping[str, CommittedGroup] = field(default_factory=dict)
    """By source, as in ``sources``; empty unless offsets are committed back."""
    declared: Declared | None = None
    """None if unknown."""
    waiting: bool = False
    """The run continues it, and its script has not started it yet."""
    pace: Pace | None = None
    """Spark's progress report of its newest batch; None before the first."""
    started_at_ms: int | None = None
    """When its newest start was requested of Spark, epoch milliseconds; None before the first."""
    output_mode: str | None = None
    """``append``, ``update`` or ``complete``; None while the query waits."""
    failed: bool = False
    """An error has ended it, and its script has not ended the run for that: it may await another query."""
    reads: Mapping[str, Reading] = field(default_factory=dict)
    """How its Kafka sources read, by source as in ``sources``."""
    writes: Writing | None = None
    """None if its script does not name it."""
    providers: Mapping[str, str] | None = None
    """Spark's name of what each source reads from, by name or position; None if no driver reported it.
    Kafka's are in ``sources``; offsets of other sources are not read as Kafka's, even if they look alike."""
    lost: Mapping[str, Loss] = field(default_factory=dict)
    """Records deleted before it read them, by source."""
    own_location: Text | None = None
    """The ``checkpointLocation`` that its script names, whole; None if it names none, or none was reported.
    This package writes nothing there: plain Spark would continue there."""

    def notes(self) -> list[str]:
        """Return what people should know of its sources: which changes go unnoticed, and what was lost."""
        blind = {source: seen.blind_spot for source, seen in sorted(self.sources.items())}
        found = [f"source {source}: {spot}" for source, spot in blind.items() if spot is not None]
        return [*found, *(f"source {source}: {loss}" for source, loss in sorted(self.lost.items()))]
