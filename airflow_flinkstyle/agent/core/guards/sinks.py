"""Where a query writes, and whether its sink would, or may, leave out batches of it."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.agent.core.errors import NOT_STARTED
from airflow_flinkstyle.agent.core.job_query import Sink
from airflow_flinkstyle.checkpoint.inventory import list_batches
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.savepoint.errors import RenumberError, SinkSkipsError
from airflow_flinkstyle.savepoint.files.renumber import renumber
from airflow_flinkstyle.savepoint.files.restore import restore_query
from airflow_flinkstyle.savepoint.sinks import SINK_LOG, may_remember, newest_logged
from airflow_flinkstyle.sinks.foreach_batch import TransactionalKafkaSink
from airflow_flinkstyle.types import BatchId

if TYPE_CHECKING:
    from airflow_flinkstyle.agent.core.job_query import JobQuery
    from airflow_flinkstyle.agent.core.spark import Spark
    from airflow_flinkstyle.agent.core.stream_options import StreamOptions
    from airflow_flinkstyle.protocol.records import TakeoverOrder
    from airflow_flinkstyle.savepoint.manifest import Manifest, QuerySnapshot
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from airflow_flinkstyle.storage.base import ObjectStore

FOREACH = frozenset({"foreach", "foreachBatch"})
log = logging.getLogger(__name__)


def sink_of(spark: Spark, settings: StreamOptions) -> Sink:
    """Return where a writer leads, from what the script set on it."""
    name = settings.format or spark.default_format
    name = name if name in FOREACH else name.lower()
    if settings.table is not None:
        return _sink_of_table(spark, settings.table) or Sink(name=name, may_remember=may_remember(name))
    servers, topic = _kafka_of(name, settings)
    return Sink(
        name=name,
        path=settings.options.get("path"),
        lineage=_lineage(settings.function),
        may_remember=_may_remember(name, settings.function),
        servers=servers,
        topic=topic,
        commits_offsets=_commits_offsets(settings.function),
    )


def _kafka_of(name: str, settings: StreamOptions) -> tuple[str | None, str | None]:
    """Return servers and topic of a sink that writes to Kafka, Spark's or ours."""
    if name == "kafka":
        return settings.options.get("kafka.bootstrap.servers"), settings.options.get("topic")
    ours = getattr(settings.function, "__self__", None)
    return ours.place if isinstance(ours, TransactionalKafkaSink) else (None, None)


def _lineage(function: Any) -> str | None:  # noqa: ANN401  # the script's
    """Return what a transactional sink calls its lineage; None for another function."""
    is_sink = getattr(function, "__func__", None) is TransactionalKafkaSink.foreach_batch
    return (function.__self__.named_lineage or "") if is_sink else None


def _commits_offsets(function: Any) -> bool:  # noqa: ANN401  # the script's
    sink = getattr(function, "__self__", None)
    return isinstance(sink, TransactionalKafkaSink) and sink.commits_offsets


def _may_remember(name: str, function: Any) -> bool:  # noqa: ANN401  # the script's
    if name == "foreach":  # Spark hands the batch's id to open(), and to nothing else
        return not callable(function) and hasattr(function, "open")
    if name == "foreachBatch":  # a function around the sink's own may do more than that
        return getattr(function, "__func__", None) is not TransactionalKafkaSink.foreach_batch
    return may_remember(name)


def _sink_of_table(spark: Spark, table: str) -> Sink | None:
    """Return the provider and place of a table that exists."""
    found = spark.table(table)
    if found is None:
        return None
    name = found[0].lower() if found[0] else None
    return Sink(name=name, path=found[1], table=table, may_remember=may_remember(name))


def newest_batch(spark: Spark, sink: Sink) -> BatchId | None:
    """Return the newest batch that a file sink remembers; None for a sink that has no log of them."""
    if sink.path is None:
        return None
    try:
        output = spark.open_by_hadoop(sink.path)
    except BadInputError as error:  # no file sink of Spark, but a table with a client of its own
        log.info("Sink %s keeps no log of batches as files: %s", sink.name, error.problem)
        return None
    entries = output.list(f"{SINK_LOG}/")
    newest = newest_logged(info.key.rpartition("/")[2] for info in entries)
    return None if newest is None else BatchId(newest)


def skipped_batches(checkpoint: ObjectStore, newest: BatchId | None) -> range:
    """Return the batches to come that the sink would leave out although it has not seen their rows.

    A batch that is planned may be known to the sink: it was killed before its commit, and is run again with
    the same offsets.
    """
    done = max(list_batches(checkpoint, "commits"), default=-1)
    planned = max(list_batches(checkpoint, "offsets"), default=-1)
    return range(done + 1, newest + 1) if newest is not None and newest > max(done, planned) else range(0)


def counted_on(manifest: Manifest, query: JobQuery, newest: BatchId | None, order: TakeoverOrder) -> Manifest:
    """Return a fork's savepoint with a query's last batch renumbered, so that its sink takes all later ones.

    Args:
        manifest: The savepoint.
        query: Of the script.
        newest: The newest batch that its file sink remembers.
        order: Names a number above all that other sinks may have seen.

    Raises:
        RenumberError: If its state holds numbers inside, or does not begin with a full version.
        SinkSkipsError: If no number is known to be unused. For a sink that only may remember, the caller can
            accept both.
    """
    snapshot = manifest.query(query.name)
    if snapshot is None:
        return manifest
    if newest is not None:
        moved = renumber(snapshot, max(newest, snapshot.batch_id))
    elif query.sink.may_remember:
        moved = _behind_all(snapshot, query.sink, order)
    else:
        moved = snapshot
    if moved.batch_id == snapshot.batch_id:
        return manifest
    log.info("Query %s: batch %d becomes %d", query.name, snapshot.batch_id, moved.batch_id)
    return replace(manifest, queries=tuple(moved if q is snapshot else q for q in manifest.queries))


def _behind_all(snapshot: QuerySnapshot, sink: Sink, order: TakeoverOrder) -> QuerySnapshot:
    number = order.unused_from.get(snapshot.name)
    try:
        if number is None:
            raise SinkSkipsError.unknown(f"{sink.name} of query {snapshot.name}", state_after=NOT_STARTED)
        return renumber(snapshot, BatchId(number))
    except (RenumberError, SinkSkipsError) as error:
        if not order.skip_known_batches:
            raise
        log.warning("Accepted: %s", error.problem)
        return snapshot


def admit(
    query: JobQuery,
    newest: BatchId | None,
    order: TakeoverOrder,
    manifest: Manifest | None,
    repository: SavepointRepository,
) -> Manifest | None:
    """Check that the sink takes every batch to come; returns the savepoint as it is now.

    A fork whose query has not run yet is restored under the number that the sink needs.

    Raises:
        SinkSkipsError: If it would leave some out, or may, and the order does not accept that.
        RenumberError: If a fork needs another number, and cannot get it.
    """
    snapshot = manifest.query(query.name) if manifest else None
    if query.sink.may_remember and newest is None:
        return _admit_unknown(query, snapshot, order, manifest, repository)
    skipped = skipped_batches(query.checkpoint, newest)
    if not skipped:
        return manifest
    if order.rewind == "fork" and manifest and snapshot and query.read_committed() == snapshot.batch_id:
        return _restored(query, counted_on(manifest, query, newest, order), repository)
    found = (
        f"{query.sink.name} of query {query.name} in {query.sink.path}, which has seen batches up to "
        f"{skipped[-1]} and would silently leave out batches {skipped[0]} to {skipped[-1]}"
    )
    _require_accepted(SinkSkipsError.of(found, state_after=NOT_STARTED), order)
    return manifest


def _admit_unknown(
    query: JobQuery,
    snapshot: QuerySnapshot | None,
    order: TakeoverOrder,
    manifest: Manifest | None,
    repository: SavepointRepository,
) -> Manifest | None:
    """Admit a query whose sink may remember batch ids: it begins above all ids that the job may have used.

    One that has run since was admitted before.
    """
    done = query.read_committed()
    number = order.unused_from.get(query.name)
    if manifest is not None and snapshot is not None and order.rewind == "fork":
        if done == snapshot.batch_id:
            moved = counted_on(manifest, query, None, order)
            return manifest if moved is manifest else _restored(query, moved, repository)
        was_moved = number is not None and done is not None and done >= number
        return counted_on(manifest, query, None, order) if was_moved else manifest
    if query.name in order.unused_from and done == (snapshot.batch_id if snapshot is not None else None):
        _require_unused(query, 0 if done is None else done + 1, number, order)
    return manifest


def _require_unused(query: JobQuery, first: int, number: int | None, order: TakeoverOrder) -> None:
    """Refuse batch ids that the sink may have seen, and may leave out, unless that was accepted."""
    sink = str(query.sink.name)
    if number is None:
        unknown = SinkSkipsError.unknown(f"{sink} of query {query.name}", state_after=NOT_STARTED)
        _require_accepted(unknown, order)
    elif first < number:
        used = SinkSkipsError.used(sink, query.name, range(first, number), state_after=NOT_STARTED)
        _require_accepted(used, order)


def _require_accepted(refusal: SinkSkipsError, order: TakeoverOrder) -> None:
    if not order.skip_known_batches:
        raise refusal
    log.warning("Accepted: %s", refusal.problem)


def _restored(query: JobQuery, manifest: Manifest, repository: SavepointRepository) -> Manifest:
    """Restore one query's checkpoint under its new number, in place of the old one."""
    target = manifest.query(query.name)
    assert target is not None  # noqa: S101  # renumbered just now
    restore_query(manifest, target, repository, query.checkpoint)
    return manifest
