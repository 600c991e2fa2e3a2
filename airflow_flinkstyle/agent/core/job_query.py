"""One query of the job, over all the times its script starts it, and where it writes."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.checkpoint.inventory import list_batches
from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.protocol.query_records import (
    MOST_SERVERS_CHARACTERS,
    QueryStatus,
    Reading,
    SinkLineage,
    Sinks,
    Writing,
)
from airflow_flinkstyle.sinks import resume

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from airflow_flinkstyle.agent.core.declared import Declaration
    from airflow_flinkstyle.agent.core.spark import Spark, SparkQuery, SparkStart, StreamingSource
    from airflow_flinkstyle.errors import FlinkstyleError
    from airflow_flinkstyle.protocol.query_records import Loss, Pace, SourceIdentity
    from airflow_flinkstyle.sinks.resume import SinkState
    from airflow_flinkstyle.storage.base import ObjectStore
    from airflow_flinkstyle.types import BatchId

FIRST_PLAN_S = 30.0
"""How long after its start a query may be expected to plan its first batch; without input it plans none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """What a script's writer leads to."""

    name: str | None = None
    """Spark's name of it; None if it is not known."""
    path: str | None = None
    """Where its files go; None for a sink without."""
    table: str | None = None
    """Its name in a catalog, if the script names it so."""
    lineage: str | None = None
    """Of a transactional sink, as the script names it; empty for the query's id; None for another sink, or if
    it is not known."""
    may_remember: bool = False
    """Whether it gets batch ids, and may skip those that it has seen: only its author knows."""
    servers: str | None = None
    """Of a Kafka sink."""
    topic: str | None = None
    """Of a Kafka sink; None if each record names its own."""
    commits_offsets: bool = False
    """A transactional sink that commits offsets for a consumer group with its batches."""

    def writing(self) -> Writing | None:
        """Return it for the heartbeat, without what is very long."""
        places = {"servers": self.servers, "topic": self.topic, "path": self.path}
        short = {name: text for name, text in places.items() if text and len(text) <= MOST_SERVERS_CHARACTERS}
        return Writing(**short) if short else None


@dataclass(slots=True, kw_only=True)
class JobQuery:
    """One query of the job, over all the times its script starts it."""

    name: str
    start: SparkStart
    """As the script asks for it."""
    checkpoint: ObjectStore
    location: str
    """Where the checkpoint is, as Spark writes it."""
    sources: Sequence[StreamingSource]
    declared: Declaration
    """How the script declares it at this start."""
    ran: Declaration | None = None
    """How it was declared at the last start that Spark accepted in this process; None before the first."""
    starting: bool = True
    """Between the script's call and Spark's answer."""
    admitted: bool = False
    """It has passed the guard for the start at hand."""
    identities: Mapping[str, SourceIdentity] = field(default_factory=dict)
    """By source, from the newest guard."""
    own_location: str | None = None
    """Where its script keeps its checkpoint in plain Spark, whole; None if it names no place."""
    own_location_checked: bool = False
    """It was checked whether plain Spark has run it; a checkpoint that was found is left behind."""
    lost: Mapping[str, Loss] = field(default_factory=dict)
    """By source, what could not be read any more when it started."""
    known_id: str = ""
    """Its id in the checkpoint that it is about to start from; empty if there is none yet."""
    schema_logs: dict[str, Mapping[str, bytes]] = field(default_factory=dict)
    """By name, the logs of schemas by which the script has read its tables of Delta."""
    trigger: Mapping[str, Any] = field(default_factory=dict)
    """As the script set it; empty for Spark's default."""
    output_mode: str = "append"
    sink: Sink = field(default_factory=Sink)
    carried: Sinks | None = None
    """What its transactional sinks had written before this process began; None if it was not recorded."""
    thread: Any = None
    """What it took from the thread that started it, like ``spark.scheduler.pool``."""
    query: SparkQuery | None = None
    """What Spark made of its last start; None until it was started."""
    held_runs: set[str] = field(default_factory=set)
    """Ids of runs that the agent ended and continued under other ids."""
    quiet: bool = False
    """The agent runs it by itself, or starts it again: the script's listeners get no events of it."""
    is_bounded: bool = False
    """The agent runs its planned batches only, one by one: a hold does not start it again."""
    silenced_runs: set[str] = field(default_factory=set)
    """Ids of runs that the agent ends."""
    before: BatchId | None = None
    """Newest committed batch when it was started."""
    started_s: float = 0.0
    """When that was, by the monotonic clock."""
    started_at_ms: int | None = None
    """The same as epoch milliseconds."""
    committed: BatchId | None = None
    committed_at_ms: int | None = None
    pace: Pace | None = None
    """The newest that Spark reported; kept when the agent ends the query and starts it again."""

    @property
    def failure(self) -> Exception | None:
        """Return the exception that ended the query, if one did."""
        return None if self.query is None else self.query.failure

    @property
    def started(self) -> SparkQuery:
        """What Spark made of its last start, for callers that know that there was one."""
        assert self.query is not None  # noqa: S101  # for mypy
        return self.query

    @property
    def refusal(self) -> FlinkstyleError | None:
        """Return a sink's error that ended the query: Spark passes on its text only."""
        return resume.failure(self.started.id) if self.failure is not None else None

    def identity(self, source: StreamingSource, log_version: int) -> SourceIdentity:
        """Return what was recorded of a source: by its position if there was no offset log yet."""
        key = source.key(log_version)
        return self.identities[key if key in self.identities else str(source.position)]

    @property
    def session(self) -> Spark:
        """The session that it is started in: a script may have several, each with settings of its own."""
        return self.start.session

    @property
    def is_active(self) -> bool:
        """Whether Spark runs it now."""
        return self.started.is_active

    @property
    def nears_first_batch(self) -> bool:
        """Whether it runs its first batch, or has just been started and may plan it any moment."""
        if not self.is_active or self.read_committed() is not None:
            return False
        is_young = time.monotonic() - self.started_s < FIRST_PLAN_S
        return is_young or bool(list_batches(self.checkpoint, "offsets"))

    def start_again(self, *, once: bool = False) -> None:
        """Start it again under the script's handle; with ``once``, for the batch that is planned."""
        self.held_runs.add(self.started.run_id)
        self.quiet = True
        try:
            self.start.run_again(self.started, trigger=self.trigger, once=once, thread=self.thread)
        finally:
            self.quiet = once  # a run for one batch ends by itself

    def read_committed(self) -> BatchId | None:
        """Read the newest committed batch from the commit log, and note when it was committed."""
        newest = max(list_batches(self.checkpoint, "commits"), default=None)
        if newest != self.committed:
            self.committed, self.committed_at_ms = newest, self._commit_time(newest)
        return newest

    def _commit_time(self, batch: BatchId | None) -> int | None:
        if batch is None:
            return None
        path = self.checkpoint.local_path(f"commits/{batch}")
        if path is not None:
            with contextlib.suppress(FileNotFoundError):
                return path.stat().st_mtime_ns // 1_000_000
        if self.query is None:
            return None
        ended_at_ms = self.query.ended_at_ms(batch)
        return now_ms() if ended_at_ms is None else ended_at_ms

    def written(self) -> Sinks | None:
        """Return where its sinks are: as they reported; before that, as recorded where it continues from."""
        states = resume.states(self.query.id) if self.query is not None else ()
        if states:
            return Sinks(lineages=tuple(map(recorded, states)))
        if self.carried is not None and self.carried.under_way and self.read_committed() != self.before:
            self.carried = replace(self.carried, under_way=False)  # it has committed that batch
        return self.carried

    def status(self) -> QueryStatus:
        """Return the query's status for the heartbeat."""
        self.read_committed()
        if self.query is not None:
            self.pace = self.query.pace() or self.pace
        return QueryStatus(
            query_id=self.query.id if self.query is not None else self.known_id or None,
            batch_id=self.committed,
            batch_committed_at_ms=self.committed_at_ms,
            sources=self.identities,
            lost=self.lost,
            providers={source.name or str(source.position): source.provider for source in self.sources},
            sink=self.sink.name,
            sinks=self.written(),
            declared=self.declared.recorded(),
            pace=self.pace,
            started_at_ms=self.started_at_ms,
            output_mode=self.output_mode,
            failed=self.failure is not None,
            reads=readings(self.sources, self.identities),
            writes=self.sink.writing(),
            own_location=self.own_location,
        )


def readings(sources: Sequence[StreamingSource], recorded: Collection[str]) -> dict[str, Reading]:
    """Return how the Kafka sources read, under the names they are recorded by. Pure."""
    found = {}
    for source in sources:
        key = source.name if source.name and source.name in recorded else str(source.position)
        servers = source.option("kafka.bootstrap.servers") or ""
        if source.is_kafka and key in recorded and 0 < len(servers) <= MOST_SERVERS_CHARACTERS:
            isolation = source.option("kafka.isolation.level") or "read_uncommitted"
            found[key] = Reading(
                servers=servers,
                isolation=isolation,
                follows_pattern=source.follows_pattern,
                accepts_loss=source.accepts_loss,
            )
    return found


def recorded(state: SinkState) -> SinkLineage:
    """Return the record of a sink for heartbeats and savepoints. Pure."""
    return SinkLineage(
        lineage=state.lineage,
        shards=state.shards,
        control_topic=state.control_topic,
        cluster_id=state.cluster_id,
        completed_batch=state.completed_batch,
        # A marker of no batch only notes the run.
        markers={shard: batch for shard, batch in state.markers.items() if batch >= 0},
    )
