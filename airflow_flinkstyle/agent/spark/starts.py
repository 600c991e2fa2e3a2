"""A start of a query by PySpark's writer, and the query that it starts (``core.spark.SparkStart``)."""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.agent.core.errors import UNSUPPORTED_MODE
from airflow_flinkstyle.agent.core.stream_options import SCHEMA_OPTIONS, schema_locations
from airflow_flinkstyle.agent.spark.compare.rows import kept_rows
from airflow_flinkstyle.agent.spark.session import PySparkSession
from airflow_flinkstyle.agent.spark.sources import sources_of
from airflow_flinkstyle.kafka.login import scrub
from airflow_flinkstyle.protocol.query_records import (
    MOST_CHARACTERS,
    MOST_PARTS,
    MOST_SOURCES,
    Pace,
    SourcePace,
)
from airflow_flinkstyle.python_versions import moment_of
from airflow_flinkstyle.spark_versions import engine_states, streaming_leaves
from airflow_flinkstyle.types import BatchId

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_flinkstyle.agent.core.spark import Handle, SparkQuery, StreamingSource
    from airflow_flinkstyle.agent.spark.untyped import Java, PySpark


_IN_BATCH, _PLANS, _RUNS = ".executeOneBatch(", ".constructNextBatch(", ".runBatch("
_SLEEPS = ".waitTillTime("
_LOCKED_OUT = ("ReentrantLock.lock(", ".withProgressLocked(")
"""Methods that show in the stack of the engine's thread where it is."""
_PATIENCE_MS = 50


class EngineFlag:
    """The stop flag of one run of a query, set between two batches; for one thread, which may hold a lock.

    The engine reads the flag before and after each batch, and once within it, between the batch's plan and
    its run. There it interrupts its own thread while the batch's tasks run on: what they write into a sink
    that promises each row at least once is written again when the batch is completed. So the flag is set only
    where the engine does not reach that place again. It cannot plan or commit a batch while another thread
    holds its lock on the query's progress: this one takes the lock for that moment.
    """

    def __init__(self, jvm: Java, execution: Java) -> None:
        """Take a run; sets nothing yet.

        Args:
            jvm: The driver's.
            execution: Spark's ``StreamExecution``.
        """
        self._jvm, self._state = jvm, execution.state()
        self._thread, self._lock = execution.queryExecutionThread(), execution.awaitProgressLock()
        self._active, self._terminated = engine_states(jvm, self._state.get())
        self._holds = False

    def try_set(self) -> bool:
        """Set the flag if the engine is where it may be; returns whether it is set, and the lock free."""
        if not _keeps_threads(self._jvm):
            log.warning("PYSPARK_PIN_THREAD is off: a batch that is about to run may be interrupted")
            self._state.set(self._terminated)
            return True
        if not self._holds:
            self._take_lock()
        if not self._holds:
            return False  # it plans a batch, or commits one
        where = self._stack()
        if _IN_BATCH not in where and self._set_between():
            self.let_go()
            return True
        if not _is_locked_out(where):
            return False  # it has yet to reach the lock
        if _PLANS not in where:
            self._state.set(self._terminated)
            self.let_go()
            return True
        self.let_go()
        self._take_lock()  # after the engine, before its next round: it may find nothing to do
        return False

    def sleeps(self) -> bool:
        """Return whether the engine waits for its next trigger: with the flag set it begins no batch then."""
        return _SLEEPS in self._stack()

    def _set_between(self) -> bool:
        """Set the flag where no batch was begun; take it back if one is begun in that very moment."""
        self._state.set(self._terminated)
        while _IN_BATCH in (where := self._stack()):
            locked_out = _is_locked_out(where)
            if _RUNS in where or (locked_out and _PLANS in where):
                if not self._thread.isInterrupted():  # else the script stops it as well
                    self._state.set(self._active)
                return False
            if locked_out:
                break
        return True

    def _take_lock(self) -> None:
        unit = self._jvm.java.util.concurrent.TimeUnit.MILLISECONDS
        self._holds = bool(self._lock.tryLock(_PATIENCE_MS, unit))  # without a time it would not queue up

    def let_go(self) -> None:
        """Give the lock back if it is held."""
        if self._holds:
            self._lock.unlock()
            self._holds = False

    def _stack(self) -> str:
        where = self._jvm.java.lang.Throwable()  # py4j prints no arrays
        where.setStackTrace(self._thread.getStackTrace())
        return str(self._jvm.py4j.Protocol.getThrowableAsString(where))


def _is_locked_out(stack: str) -> bool:
    """Return whether the engine waits for the lock that is held here."""
    return all(method in stack for method in _LOCKED_OUT)


def _keeps_threads(jvm: Java) -> bool:
    """Return whether a thread of Python is one of the JVM, as PySpark does: a thread holds a lock."""
    return type(jvm._gateway_client).__name__ == "JavaClient"  # noqa: SLF001 - it was "GatewayClient"


_DEFAULT_TRIGGER = {"processingTime": "0 seconds"}


class PySparkQuery:
    """A ``StreamingQuery`` of PySpark."""

    def __init__(self, handle: Handle, jvm: Java) -> None:
        self.handle, self._jvm = handle, jvm

    @property
    def id(self) -> str:
        """Its id: that of its checkpoint."""
        return str(self.handle.id)

    @property
    def run_id(self) -> str:
        """Id of its run."""
        return str(self.handle.runId)

    @property
    def is_active(self) -> bool:
        """Whether Spark runs it now; ``isActive`` of the handle is what the script sees."""
        return bool(self._java.isActive())

    @property
    def has_thread(self) -> bool:
        """Whether the thread of its run lives: a while longer than it is active."""
        return bool(self._java.streamingQuery().queryExecutionThread().isAlive())

    @property
    def is_triggered(self) -> bool:
        """Whether it is in a batch, or checks for new data."""
        return bool(self.handle.status["isTriggerActive"])

    @property
    def failure(self) -> Exception | None:
        """The exception that ended it, if one did."""
        error: Exception | None = self.handle.exception()
        if error is not None and getattr(error, "_origin", error) is None:
            # Spark keeps Java's exception in those that it raises, and not in those that it returns.
            error._origin = self._java.exception().get()  # type: ignore[attr-defined]  # noqa: SLF001
        return error

    @property
    def _java(self) -> Java:
        return self.handle._jsq  # noqa: SLF001

    def stop_flag(self) -> EngineFlag:
        """Return what stops its run between two batches."""
        return EngineFlag(self._jvm, self._java.streamingQuery())

    def stop(self) -> None:
        """Stop it at once, and wait for its end."""
        self._java.stop()

    def await_end(self, timeout_ms: int) -> bool:
        """Wait for its end; returns whether it has ended, and raises its failure."""
        return bool(self._java.awaitTermination(timeout_ms))

    def pace(self) -> Pace | None:
        """Return the pace of its newest batch, by Spark's progress; None before the first."""
        return newest_pace(self.handle)

    def ended_at_ms(self, batch: BatchId) -> int | None:
        """Return when a batch ended by Spark's progress; None if its newest batch is another one."""
        progress = self.handle.lastProgress
        if progress is None or progress["batchId"] != batch:
            return None
        begun = moment_of(progress["timestamp"])
        return int(begun.timestamp() * 1000) + int(progress["durationMs"].get("triggerExecution", 0))

    def progress(self) -> Sequence[Mapping[str, Any]]:
        """Return Spark's progress of its last batches, the newest last."""
        return list(self.handle.recentProgress)

    def stand_for(self, handle: Handle) -> None:
        """Let another handle of the script lead to the run of this one."""
        handle._jsq = self._java  # noqa: SLF001


class PySparkStart:
    """A ``DataStreamWriter`` of the script, and Spark's own ``start`` or ``toTable`` with its arguments."""

    def __init__(self, writer: PySpark, run: Callable[[], PySpark]) -> None:
        self.session = PySparkSession.of(writer._spark)  # noqa: SLF001
        self._writer, self._run = writer, run

    def sources(self) -> tuple[StreamingSource, ...]:
        """Return its streaming sources, in the offset log's order."""
        return sources_of(self._writer._df)  # noqa: SLF001

    def place(self, name: str, location: str) -> None:
        """Give it its name and its checkpoint."""
        # Not through the wrappers: they keep what the script sets, for its next start.
        named = self._writer._jwrite.queryName(name)  # noqa: SLF001
        self._writer._jwrite = named.option("checkpointLocation", location)  # noqa: SLF001

    def follow_schema(self, source: StreamingSource, location: str) -> None:
        """Let one source of Delta follow its schema elsewhere; raises ``UNSUPPORTED_MODE``."""
        move_schema_location(self._writer._df, source, location)  # noqa: SLF001

    def run(self, under: Handle = None, *, once: bool = False) -> PySparkQuery:
        """Let Spark start it, as the script would; ``once`` for the batch that is planned only.

        ``under`` a handle that the script has already.
        """
        if once:
            self._writer.trigger(once=True)
        started = self._run()
        if under is None:
            return PySparkQuery(started, self.session.jvm)
        under._jsq = started._jsq  # noqa: SLF001
        return PySparkQuery(under, self.session.jvm)

    def run_again(
        self,
        query: SparkQuery,
        *,
        trigger: Mapping[str, Any],
        once: bool,
        thread: Any,  # noqa: ANN401  # Java's
    ) -> None:
        """Let Spark start it once more, under its handle; ``once`` for the batch that is planned only."""
        usual = trigger or _DEFAULT_TRIGGER
        self._writer.trigger(**({"once": True} if once else usual))
        self._context.setLocalProperties(thread.clone())
        try:
            self.run(query.handle)
        finally:
            self._writer.trigger(**usual)  # the script may start the same writer again

    def thread_settings(self) -> Java:
        """Return what a start takes from the calling thread, like ``spark.scheduler.pool``."""
        return self._context.getLocalProperties().clone()

    def try_out(
        self, name: str, location: str, output_mode: str, *, once: bool, rows: str | None = None
    ) -> PySparkQuery:
        """Start its plan under another name and checkpoint; its rows go nowhere, or to ``rows``."""
        from pyspark.sql.streaming.query import StreamingQuery

        triggers = self.session.jvm.org.apache.spark.sql.streaming.Trigger
        trigger = triggers.Once() if once else triggers.ProcessingTime("0 seconds")
        # Not through PySpark's writer, whose start is the agent's.
        frame: PySpark = self._writer._df  # noqa: SLF001
        if rows is None:
            writer = frame._jdf.writeStream().format("noop")  # noqa: SLF001
        else:
            writer = frame.writeStream.foreachBatch(kept_rows(rows))._jwrite  # noqa: SLF001
        writer = writer.outputMode(output_mode).trigger(trigger)
        named = writer.queryName(name).option("checkpointLocation", location)
        return PySparkQuery(StreamingQuery(named.start()), self.session.jvm)

    @property
    def _context(self) -> Java:
        return self.session.spark.sparkContext._jsc.sc()  # noqa: SLF001


_FIELDS: Final = ("options", "caseInsensitiveOptions")
"""Of Spark's ``DataSource``: what is shown and checked, and what the source is made with."""


def move_schema_location(df: PySpark, source: StreamingSource, location: str) -> None:
    """Let one source of a data frame follow its schema elsewhere.

    A data frame does not change, and by the time that its query has a name it is too late to make another:
    the writer holds it. So the options are replaced in the description from which Spark makes the source.

    Raises:
        FlinkstyleError: ``UNSUPPORTED_MODE`` if Spark has no such description of the source.
    """
    leaf = streaming_leaves(df)[source.position]
    if leaf.getClass().getSimpleName() != "StreamingRelation":
        raise UNSUPPORTED_MODE.error(
            mode="schemaTrackingLocation with a source that Spark makes of "
            f"{leaf.getClass().getSimpleName()}",
            remedy="Read the table by its path, with format('delta').",
        )
    described = leaf.dataSource()
    for name in _FIELDS:
        _replace(described, name, location)
    (moved,) = (one for one in sources_of(df) if one.position == source.position)
    if set(schema_locations(moved.options, moved.provider).values()) != {location}:
        raise RuntimeError(f"Spark {df.sparkSession.version} did not take another schemaTrackingLocation.")


def _replace(described: Java, name: str, location: str) -> None:
    field = described.getClass().getDeclaredField(name)
    field.setAccessible(True)
    options = field.get(described)
    keys = options.keySet().iterator()
    names = []
    while keys.hasNext():
        names.append(keys.next())
    for key in names:
        if key.lower() in SCHEMA_OPTIONS:
            options = options.updated(key, location)
    field.set(described, options)


log = logging.getLogger(__name__)
_WITHOUT_WATERMARK_MS = 0
"""Spark's watermark before it has seen an event."""


def newest_pace(query: PySpark) -> Pace | None:
    """Return the pace of a query's newest batch; None before the first, or if it cannot be read.

    Args:
        query: PySpark's ``StreamingQuery``; its own ``lastProgress`` makes dozens of calls to the JVM, so the
            JVM's is read, as one text.
    """
    try:
        progress = query._jsq.lastProgress()  # noqa: SLF001
        return None if progress is None else pace_of(json.loads(progress.json()))
    except Exception:  # nothing of the job depends on it
        log.debug("Spark's progress cannot be read", exc_info=True)
        return None


def pace_of(progress: Mapping[str, Any]) -> Pace:
    """Return the pace that a heartbeat holds, from a progress as Spark renders it to JSON.

    Raises:
        KeyError: And ``TypeError``, ``ValueError``, ``AttributeError``: if it is none.
    """
    watermark = (progress.get("eventTime") or {}).get("watermark")
    watermark_ms = _epoch_ms(watermark) if watermark else _WITHOUT_WATERMARK_MS
    parts = dict(progress.get("durationMs", {}))
    whole = int(parts.pop("triggerExecution", 0))
    return Pace(
        batch_id=BatchId(int(progress["batchId"])),
        begun_at_ms=_epoch_ms(progress["timestamp"]),
        batch_ms=whole,
        parts_ms={name: max(0, int(parts[name])) for name in sorted(parts)[:MOST_PARTS]},
        rows=int(progress.get("numInputRows", 0)),
        input_rows_per_s=_rate(progress, "inputRowsPerSecond"),
        processed_rows_per_s=_rate(progress, "processedRowsPerSecond"),
        watermark_ms=watermark_ms if watermark_ms != _WITHOUT_WATERMARK_MS else None,
        state_rows=sum(int(one.get("numRowsTotal", 0)) for one in progress.get("stateOperators", ())),
        sources=tuple(_source(one) for one in progress.get("sources", ())[:MOST_SOURCES]),
    )


def _source(source: Mapping[str, Any]) -> SourcePace:
    described = scrub(str(source.get("description", "")), os.environ)
    return SourcePace(description=described[:MOST_CHARACTERS], lag_records=_lag(source))


def _lag(source: Mapping[str, Any]) -> int | None:
    """Return how many records the batch left unread; None unless offsets are by topic and partition."""
    end, latest = source.get("endOffset"), source.get("latestOffset")
    if not isinstance(end, dict) or not isinstance(latest, dict) or not latest:
        return None
    behind = 0
    for topic, partitions in latest.items():
        read: Any = end.get(topic)
        if not isinstance(partitions, dict) or not isinstance(read, dict):
            return None
        behind += sum(
            max(0, int(at) - int(read[number])) for number, at in partitions.items() if number in read
        )
    return behind


def _rate(progress: Mapping[str, Any], name: str) -> float | None:
    """Return a rate to a tenth; Spark leaves out, or writes as a text, what it cannot divide."""
    rate = progress.get(name)
    return round(float(rate), 1) if isinstance(rate, int | float) and rate >= 0 else None


def _epoch_ms(moment: str) -> int:
    return int(moment_of(moment).timestamp() * 1000)
