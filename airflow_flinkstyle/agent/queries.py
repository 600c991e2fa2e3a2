"""The queries of the job, by name: where their checkpoints stand, what they read, how far they are."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.agent import lineages
from airflow_flinkstyle.agent.declared import difference, difference_since_relaunch
from airflow_flinkstyle.agent.errors import ONLY_QUERY, QueryNameError
from airflow_flinkstyle.agent.hadoop_store import HadoopStore, needs_hadoop
from airflow_flinkstyle.agent.process import now_ms
from airflow_flinkstyle.agent.sinks import Sink
from airflow_flinkstyle.checkpoint.inventory import list_batches
from airflow_flinkstyle.protocol.board import check_name
from airflow_flinkstyle.protocol.records import QueryBeat
from airflow_flinkstyle.storage.keys import below
from airflow_flinkstyle.storage.open import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_flinkstyle.agent.declared import Declaration
    from airflow_flinkstyle.agent.sources import Source
    from airflow_flinkstyle.agent.untyped import Java, PySpark
    from airflow_flinkstyle.agent.waiting import Waiting
    from airflow_flinkstyle.protocol.records import SourceIdentity
    from airflow_flinkstyle.protocol.sink_records import Sinks
    from airflow_flinkstyle.storage.base import ObjectStore
    from airflow_flinkstyle.types import BatchId

NEWS_S = 60.0
"""How long after its start a query's first commit is looked for often."""
log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class JobQuery:
    """One query of the job, over all the times its script starts it."""

    name: str
    writer: PySpark
    """The script's ``DataStreamWriter``."""
    run: Callable[[], PySpark]
    """Spark's own ``start`` or ``toTable`` with the script's arguments."""
    checkpoint: ObjectStore
    location: str
    """Where the checkpoint stands, as Spark writes it."""
    sources: Sequence[Source]
    declared: Declaration
    """What the script says of it at this start."""
    ran: Declaration | None = None
    """The same of the last start that Spark took in this process; None before the first."""
    starting: bool = True
    """Between the script's call and Spark's answer."""
    admitted: bool = False
    """It has passed the guard for the start at hand."""
    identities: Mapping[str, SourceIdentity] = field(default_factory=dict)
    """By source, from the newest guard."""
    known_id: str = ""
    """Its id in the checkpoint that it is about to start from; empty if there is none yet."""
    trigger: Mapping[str, Any] = field(default_factory=dict)
    """As the script set it; empty for Spark's default."""
    sink: Sink = field(default_factory=Sink)
    carried: Sinks | None = None
    """What its transactional sinks had written before this process began; None if nobody recorded it."""
    local_properties: Java = None
    """Of the thread that started it, like ``spark.scheduler.pool``: the query's jobs inherit them."""
    query: PySpark = None
    """Spark's ``StreamingQuery``, the object that the script holds; None until it was started."""
    held_runs: set[str] = field(default_factory=set)
    """Ids of runs that the agent ended and that went on as others."""
    before: BatchId | None = None
    """Newest committed batch when it was started."""
    started_s: float = 0.0
    """When that was, by the monotonic clock."""
    committed: BatchId | None = None
    committed_at_ms: int | None = None

    @property
    def failure(self) -> PySpark:
        """Return the exception that ended the query, if one did."""
        return None if self.query is None else self.query.exception()

    def identity(self, source: Source, log_version: int) -> SourceIdentity:
        """Return what was recorded of a source: by its position if there was no offset log yet."""
        key = source.key(log_version)
        return self.identities[key if key in self.identities else str(source.position)]

    @property
    def context(self) -> Java:
        """Spark's own context."""
        return self.writer._spark.sparkContext._jsc.sc()  # noqa: SLF001

    @property
    def is_active(self) -> bool:
        """Whether Spark runs it now; ``query.isActive`` is what the script is told."""
        return bool(self.query._jsq.isActive())  # noqa: SLF001

    @property
    def is_in_first_batch(self) -> bool:
        """Whether it runs its first batch: planned, and not committed."""
        return self.is_active and self.look() is None and bool(list_batches(self.checkpoint, "offsets"))

    def start_again(self, *, once: bool = False) -> None:
        """Start it again under the script's handle; with ``once``, for the batch that is planned."""
        usual = self.trigger or {"processingTime": "0 seconds"}
        self.writer.trigger(**({"once": True} if once else usual))
        self.context.setLocalProperties(self.local_properties.clone())
        self.held_runs.add(self.query.runId)
        try:
            self.query._jsq = self.run()._jsq  # noqa: SLF001
        finally:
            self.writer.trigger(**usual)  # the script may start the same writer again

    def look(self) -> BatchId | None:
        """Read the newest committed batch from the commit log, and note when it was seen."""
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
        return _ended_at_ms(self.query.lastProgress, batch) if self.query is not None else None

    def beat(self) -> QueryBeat:
        """Return what the heartbeat says of the query."""
        self.look()
        return QueryBeat(
            query_id=str(self.query.id) if self.query is not None else self.known_id,
            batch_id=self.committed,
            batch_committed_at_ms=self.committed_at_ms,
            sources=self.identities,
            sink=self.sink.name,
            sinks=lineages.written(self),
            declared=self.declared.recorded(),
        )


def _ended_at_ms(progress: PySpark, batch: BatchId) -> int:
    """Return when Spark says the batch ended; now, if it does not speak of that batch yet."""
    if progress is None or progress["batchId"] != batch:
        return now_ms()
    begun = datetime.fromisoformat(progress["timestamp"])
    return int(begun.timestamp() * 1000) + int(progress["durationMs"].get("triggerExecution", 0))


class Queries:
    """Every query that the script has started, or is about to start."""

    def __init__(self, checkpoint_location: str, before: Mapping[str, QueryBeat] | None = None) -> None:
        """Args: ``before``: what an earlier incarnation of this generation said of them last."""
        self._before = before or {}
        self.root = checkpoint_location.rstrip("/")
        self.spark: PySpark = None
        """The session; None until the script has made one."""
        self._lock = threading.Lock()
        self._known: dict[str, JobQuery] = {}
        self._standing: Sequence[Waiting] = ()
        self._is_unnamed = False
        """Whether the script has started a query without a name."""

    def checkpoint(self, query: str) -> ObjectStore:
        """Open a query's checkpoint: it stands in a folder of the query's name."""
        location = below(self.root, query)
        return HadoopStore(self.spark, location) if needs_hadoop(location) else open_store(location)

    def all(self) -> list[JobQuery]:
        """Return the queries that passed the guard and were started, by name."""
        return self.started_and_waiting()[0]

    def has_started(self, query_id: str) -> bool:
        """Return whether Spark's start of the query with this id has returned."""
        return any(str(query.query.id) == query_id for query in self.all())

    def take_over(self, first: JobQuery, standing: Sequence[Waiting]) -> None:
        """Note that the job is this process's now, with the queries that it goes on with."""
        with self._lock:
            first.admitted, self._standing = True, standing

    def started_and_waiting(self) -> tuple[list[JobQuery], list[Waiting]]:
        """Return the queries of one moment: those that were started, and those that wait for it."""
        with self._lock:
            started = {name: query for name, query in sorted(self._known.items()) if query.query is not None}
            return list(started.values()), [one for one in self._standing if one.name not in started]

    def names(self) -> set[str]:
        """Return the names that the script has used so far, those about to start included."""
        with self._lock:
            return set(self._known)

    def note_start(self, query: JobQuery) -> None:
        """Note what the query starts from, in the thread that starts it."""
        query.before, query.started_s = query.look(), time.monotonic()
        query.local_properties = query.context.getLocalProperties().clone()

    def beats(self) -> dict[str, QueryBeat]:
        """Return what the heartbeat says of them."""
        with self._lock:
            known = sorted(self._known.items())
        waiting = {query.name: query.beat for query in self.started_and_waiting()[1]}
        return waiting | {
            name: query.beat() for name, query in known if query.query is not None or query.admitted
        }

    def news(self) -> bool:
        """Return whether a query has committed its first batch since it was started and nobody was told."""
        since_s = time.monotonic() - NEWS_S
        waiting = [q for q in self.all() if q.committed == q.before and q.started_s > since_s]
        return any(query.look() != query.before for query in waiting)

    def register(
        self,
        name: str | None,
        writer: PySpark,
        run: Callable[[], PySpark],
        sources: Sequence[Source],
        declared: Declaration,
    ) -> JobQuery:
        """Note a query before it starts; its checkpoint stands in a folder of its name.

        Raises:
            QueryNameError: If it has no name although the job has several queries, or is another query than
                the one that was started before under its name.
        """
        with self._lock:
            chosen = self._name(name)
            known = self._known.get(chosen)
            self._require_same(chosen, known, declared, is_named=name is not None)
            query = JobQuery(
                name=chosen,
                writer=writer,
                run=run,
                checkpoint=self.checkpoint(chosen),
                location=_as_spark_writes(below(self.root, chosen)),
                sources=sources,
                declared=declared,
                ran=known.ran if known else None,
                identities=known.identities if known else {},
                known_id=known.known_id if known else "",
                carried=known.carried if known else None,
            )
            if known is not None and known.query is not None:
                if known.is_active:
                    return query  # Spark refuses a second one of the name, in its own words
                # Its last run counts until this one has started: no stop and no savepoint may miss the query.
                query.query, query.local_properties = known.query, known.local_properties
            self._known[chosen] = query
            return query

    def settle(self, query: JobQuery, handle: PySpark) -> None:
        """Note what Spark's start of a registered query came to: its handle, or None if it failed."""
        with self._lock:
            query.starting = query.admitted = False
            if handle is not None:
                query.query, query.ran = handle, query.declared
                self._known[query.name] = query

    def _require_same(
        self, name: str, known: JobQuery | None, declared: Declaration, *, is_named: bool
    ) -> None:
        before = self._before.get(name)
        found = None
        if known is not None and known.starting:
            found = "a second one while the first is being started"
        elif known is not None and known.ran is not None:
            found = difference(known.ran, declared)
            if known.is_active and (found is not None or not is_named):
                found = "a second one while the first runs"
        elif before is not None and before.declared is not None:
            found = difference_since_relaunch(before.declared, declared)
        if found is not None:
            raise QueryNameError.ambiguous(name, found)

    def _name(self, name: str | None) -> str:
        if name is None:
            others = self._known.keys() - {ONLY_QUERY}
            self._is_unnamed = True
        elif self._is_unnamed:
            others = {name} - {ONLY_QUERY}
        else:
            others = set()
        if others:
            raise QueryNameError.unnamed_beside(others)
        return ONLY_QUERY if name is None else check_name("query name", name)


def _as_spark_writes(location: str) -> str:
    return "s3a://" + location.removeprefix("s3://") if location.startswith("s3://") else location
