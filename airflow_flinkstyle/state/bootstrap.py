"""A first savepoint for a job that has never run: its state from tables, its positions chosen.

Everything is made in a root of its own in the scratch; the job gets the savepoint once it is whole and
proved.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.exchange.export import export_savepoint
from airflow_flinkstyle.savepoint.exchange.importing import import_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.state.edits import FromTable
from airflow_flinkstyle.state.errors import BOOTSTRAP_NOT_FIRST, BOOTSTRAP_TABLE
from airflow_flinkstyle.state.held_starts import HeldStarts
from airflow_flinkstyle.state.query_copy import scratch_for, the_query
from airflow_flinkstyle.state.transform import CopiedQuery, require_writer
from airflow_flinkstyle.storage.open import open_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from airflow_flinkstyle.savepoint.manifest import KafkaPosition, Manifest
    from airflow_flinkstyle.state.changes import Counts
    from airflow_flinkstyle.state.edits import Change, OperatorChange
    from airflow_flinkstyle.storage.s3_settings import S3Settings

    Table = DataFrame | Change
    """Rows as ``FromTable`` takes them; or a function that returns them, given the empty state."""
    OperatorTables = Table | Mapping[str, Table]
    """Of its only state; or by the side of a join, or the variable of a transformWithState."""
    Tables = Mapping[int, OperatorTables] | Mapping[str, Mapping[int, OperatorTables]]
    """By number of the operator; with the query's name around it, where the script has several queries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrapped:
    """The result of a bootstrap."""

    savepoint: Manifest
    """The job's first; each query has run batch 0, which read nothing."""
    counts: Mapping[str, Mapping[int, Counts]]
    """By query and operator; none for operators without a table, whose state is empty."""


def bootstrap_savepoint(
    spark: SparkSession,
    root: str,
    job: str,
    script: str,
    tables: Tables,
    positions: Mapping[str, KafkaPosition] | None = None,
    args: Sequence[str] = (),
    *,
    asked_by: str | None = None,
    scratch: str | None = None,
    s3: S3Settings | None = None,
) -> Bootstrapped:
    """Publish the first savepoint of a job that has never run; ``start_job`` can start from it.

    The script is run in this process, with this session; in the place of each query's start, Spark runs the
    plan for one batch that reads nothing and writes nothing. The rest of the script runs as it is written.

    Args:
        spark: A session of Spark 4.2 or newer, with the settings that the job is to have: the number of
            shuffle partitions stays. State goes to RocksDB.
        root: Savepoint root: ``s3://bucket/prefix``, ``file:///path`` or ``/path``.
        job: The job's name.
        script: Path of the job's script.
        tables: The state: for each operator a DataFrame with a column for each field of key and value.
            ``savepoint_state`` shows the fields, of a savepoint made without tables.
        positions: Where each Kafka source is to begin, by its place or name, with its query in front where
            there are several: ``0``, ``totals/0``. Others begin where the script says.
        args: The script's arguments.
        asked_by: Who asked, for the record; None for the account that runs this.
        scratch: As in ``transform_state``.
        s3: As there.

    Raises:
        FlinkstyleError: ``BOOTSTRAP`` if the job has run before, or the script does not start its queries.
        FlinkstyleError: ``STATE_TRANSFORM`` if an operator cannot be written, a table is no state of it, or
            what Spark wrote is not what the table has; no savepoint is made then.
        FlinkstyleError: ``STATE_READ`` if there is no such query or operator.
    """
    require_writer(spark)
    repository = SavepointRepository(open_store(root, s3), job)
    _require_first(repository)
    place = f"{scratch_for(spark, scratch)}/{uuid.uuid4().hex}"

    def open_place(location: str) -> Any:  # noqa: ANN401 - mypy knows it as OpenPlace
        return open_store(location, s3)

    starts = HeldStarts(place=place, open_place=open_place, positions=positions or {})
    starts.run(script, args)
    scratch_repository = SavepointRepository(open_place(f"{place}/root"), job)
    manifest = _taken(scratch_repository, starts, spark.version)
    counts: dict[str, Mapping[int, Counts]] = {}
    for name, given in _by_query(tables, manifest).items():
        query = the_query(manifest, name)
        work = CopiedQuery.on(spark, scratch_repository, manifest, query, f"{place}/{name}", open_place)
        changes = {number: _from_tables(one) for number, one in given.items()}
        done = work.changed(_new_id(), changes, asked_by, {})
        manifest, counts[name] = done.savepoint, done.counts
    whole = open_place(f"{place}/whole")
    export_savepoint(scratch_repository, manifest.savepoint_id, whole)
    return Bootstrapped(savepoint=import_savepoint(whole, repository), counts=counts)


def _require_first(repository: SavepointRepository) -> None:
    runs = JobBoard(repository.store, repository.job).generations()
    saved = repository.ids()
    if runs or saved:
        found = f"run (generation {runs[-1]})" if runs else f"savepoints ({saved[-1]})"
        raise BOOTSTRAP_NOT_FIRST.error(job=repository.job, found=found)


def _taken(repository: SavepointRepository, starts: HeldStarts, version: str) -> Manifest:
    label = SavepointLabel(
        savepoint_id=_new_id(), taken_at_ms=now_ms(), spark_version=version, taken_from_generation=None
    )
    queries = [
        QuerySource(
            name=name,
            checkpoint=starts.open_place(first.location),
            kafka={source: position.log for source, position in first.positions.items()},
        )
        for name, first in starts.found.items()
    ]
    return take_savepoint(repository, queries, label)


def _by_query(tables: Any, manifest: Manifest) -> dict[str, Mapping[int, OperatorTables]]:  # noqa: ANN401
    """Return the tables by query; without a name they are for the only query."""
    if tables and all(isinstance(number, int) for number in tables):
        tables = {the_query(manifest, None).name: tables}
    return dict(tables)


def _from_tables(given: OperatorTables) -> OperatorChange:
    if isinstance(given, Mapping):
        return {name: _from_table(table) for name, table in given.items()}
    return _from_table(given)


def _from_table(given: Table) -> Change:
    from pyspark.sql import DataFrame

    return FromTable(given) if isinstance(given, DataFrame) else given


def read_table(spark: SparkSession, sql: str) -> DataFrame:
    """Return what a query in SQL selects, such as from parquet.`/data/totals`; raises ``BOOTSTRAP``."""
    from pyspark.errors import PySparkException

    try:
        return spark.sql(sql)
    except PySparkException as error:
        raise BOOTSTRAP_TABLE.error(sql=sql, why=str(error).partition("\n")[0]) from error


def _new_id() -> str:
    return f"sp-bootstrap-{uuid.uuid4().hex[:20]}"
