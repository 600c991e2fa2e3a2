"""Where a query writes, and whether its sink would leave out batches of it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.errors import NOT_STARTED
from airflow_flinkstyle.agent.hadoop_store import HadoopStore
from airflow_flinkstyle.checkpoint.inventory import list_batches
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.savepoint.errors import SinkSkipsError
from airflow_flinkstyle.savepoint.renumber import renumber
from airflow_flinkstyle.savepoint.restore import restore_query
from airflow_flinkstyle.savepoint.sinks import SINK_LOG, newest_logged
from airflow_flinkstyle.types import BatchId

if TYPE_CHECKING:
    from airflow_flinkstyle.agent.queries import JobQuery
    from airflow_flinkstyle.agent.untyped import PySpark
    from airflow_flinkstyle.agent.wrapping import Remembered
    from airflow_flinkstyle.protocol.records import Go
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.savepoint.repository import SavepointRepository
    from airflow_flinkstyle.storage.base import ObjectStore

FOREACH = frozenset({"foreach", "foreachBatch"})
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """What a script's writer leads to."""

    name: str | None = None
    """Spark's name of it; None if it is not known."""
    path: str | None = None
    """Where its files go; None for a sink without."""


def sink_of(spark: PySpark, seen: Remembered) -> Sink:
    """Return where a writer leads, from what the script set on it."""
    name = seen.format or spark.conf.get("spark.sql.sources.default")
    name = name if name in FOREACH else name.lower()
    if seen.table is not None:
        return _sink_of_table(spark, seen.table) or Sink(name=name)
    return Sink(name=name, path=seen.options.get("path"))


def _sink_of_table(spark: PySpark, table: str) -> Sink | None:
    """Return the provider and place of a table that exists."""
    if not spark.catalog.tableExists(table):
        return None
    rows = {row.col_name: row.data_type for row in spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()}
    provider = rows.get("Provider")
    return Sink(name=provider.lower() if provider else None, path=rows.get("Location"))


def newest_batch(spark: PySpark, sink: Sink) -> BatchId | None:
    """Return the newest batch that a file sink remembers; None for a sink that has no log of them."""
    if sink.path is None:
        return None
    try:
        output = HadoopStore(spark, sink.path)
    except BadInputError as error:  # then it is no file sink of Spark: a table with a client of its own
        log.info("Sink %s keeps no log of batches as files: %s", sink.name, error.problem)
        return None
    entries = output.list(f"{SINK_LOG}/")
    newest = newest_logged(info.key.rpartition("/")[2] for info in entries)
    return None if newest is None else BatchId(newest)


def left_out(checkpoint: ObjectStore, newest: BatchId | None) -> range:
    """Return the batches to come that the sink would leave out although it has not seen their rows.

    A batch that is planned may be known to the sink: it was killed before its commit, and is run again with
    the same offsets.
    """
    done = max(list_batches(checkpoint, "commits"), default=-1)
    planned = max(list_batches(checkpoint, "offsets"), default=-1)
    return range(done + 1, newest + 1) if newest is not None and newest > max(done, planned) else range(0)


def counted_on(manifest: Manifest, query: str, newest: BatchId | None) -> Manifest:
    """Return the savepoint with one query's last batch numbered as the newest that its sink remembers."""
    snapshot = manifest.query(query)
    if snapshot is None or newest is None or newest <= snapshot.batch_id:
        return manifest
    log.info("Query %s: batch %d becomes %d, the sink's newest", query, snapshot.batch_id, newest)
    moved = renumber(snapshot, newest)
    return replace(manifest, queries=tuple(moved if q is snapshot else q for q in manifest.queries))


def admit(
    query: JobQuery,
    newest: BatchId | None,
    go: Go,
    manifest: Manifest | None,
    repository: SavepointRepository,
) -> Manifest | None:
    """Check that the sink takes every batch to come; returns the savepoint as it stands now.

    A fork whose query has not run yet is restored under the number that the sink needs.

    Raises:
        SinkSkipsError: If it would leave some out, and nobody accepted that.
    """
    skipped = left_out(query.checkpoint, newest)
    if not skipped:
        return manifest
    snapshot = manifest.query(query.name) if manifest else None
    if go.rewind == "fork" and manifest and snapshot and query.look() == snapshot.batch_id:
        moved = counted_on(manifest, query.name, newest)
        target = moved.query(query.name)
        assert target is not None  # noqa: S101  # renumbered just now
        restore_query(moved, target, repository, query.checkpoint)
        return moved
    found = (
        f"{query.sink.name} of query {query.name} in {query.sink.path}, which has seen batches up to "
        f"{skipped[-1]} and would silently leave out batches {skipped[0]} to {skipped[-1]}"
    )
    if not go.skip_known_batches:
        raise SinkSkipsError.of(found, left=NOT_STARTED)
    log.warning("Accepted: %s", found)
    return manifest
