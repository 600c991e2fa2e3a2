"""Read a savepoint's state with Spark's own state reader (``statestore``, ``state-metadata``; Spark 4.0)."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.savepoint.repository.summary import newest_savepoint
from airflow_flinkstyle.state.errors import StateReadError
from airflow_flinkstyle.state.scratch import copy_query, temporary_scratch
from airflow_flinkstyle.storage.open import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, Row, SparkSession

    from airflow_flinkstyle.savepoint.manifest import Manifest, QuerySnapshot
    from airflow_flinkstyle.storage.s3_settings import S3Settings

LATEST: Final = "latest"
_OLDEST_MAJOR: Final = 4
_FORMAT: Final = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_JOIN: Final = "symmetricHashJoin"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copy:
    """A query of a savepoint, copied where Spark reads it."""

    spark: SparkSession
    savepoint_id: str
    query: str
    has_state: bool
    location: str
    is_format_2: bool

    def operators(self) -> DataFrame:
        return self.spark.read.format("state-metadata").option("path", self.location).load()


def savepoint_state(
    spark: SparkSession,
    root: str,
    job: str,
    savepoint: str = LATEST,
    query: str | None = None,
    operator: int = 0,
    *,
    store: str | None = None,
    join_side: Literal["left", "right"] | None = None,
    variable: str | None = None,
    timers: bool = False,
    scratch: str | None = None,
    s3: S3Settings | None = None,
) -> DataFrame:
    """Return keys and values of one stateful operator, as they were at the savepoint.

    Args:
        spark: A session of Spark 4.0 or newer.
        root: Savepoint root: ``s3://bucket/prefix``, ``file:///path`` or ``/path``.
        job: The job's name.
        savepoint: Its id, or ``latest``.
        query: The query's name; may be left out if the savepoint has one query.
        operator: Number of the operator, from 0; ``savepoint_operators`` lists them.
        store: One of an operator's stores by name, as Spark keeps it; a join has four.
        join_side: For a join: the rows that it keeps of this side.
        variable: For ``transformWithState``: the state variable.
        timers: For ``transformWithState``: its registered timers instead of a variable.
        scratch: Location to copy the query's files to, reached by driver and executors; what is there of the
            same savepoint is used again, and it is left there. None for a temporary folder of this machine,
            which goes when this process ends.
        s3: Endpoint and keys for locations on S3; None for boto3's standard environment variables. Spark
            reads ``scratch`` with its own settings.

    Returns:
        A DataFrame with the columns ``key``, ``value`` and ``partition_id`` (of a map variable ``key``,
        ``user_map_key``, ``user_map_value``; of a list ``key``, ``list_element``), as the version of Spark
        has them.

    Raises:
        StateReadError: If the query, operator, side or variable is not one of the savepoint's, or this Spark
            cannot read state.
        SavepointMissingError: If there is no such savepoint.
    """
    copied = _copied(spark, root, job, savepoint, query, scratch, s3)
    options = {"path": copied.location, "operatorId": str(operator)}
    options |= _which_state(copied, operator, store, join_side, variable, timers=timers)
    with _set(spark, _FORMAT, "2" if copied.is_format_2 else "1"):
        return spark.read.format("statestore").options(**options).load()


def savepoint_operators(
    spark: SparkSession,
    root: str,
    job: str,
    savepoint: str = LATEST,
    query: str | None = None,
    *,
    scratch: str | None = None,
    s3: S3Settings | None = None,
) -> DataFrame:
    """Return a query's stateful operators: number, name, stores, partitions; arguments as above."""
    return _copied(spark, root, job, savepoint, query, scratch, s3).operators()


def _copied(
    spark: SparkSession,
    root: str,
    job: str,
    savepoint: str,
    name: str | None,
    scratch: str | None,
    s3: S3Settings | None,
) -> _Copy:
    if int(spark.version.partition(".")[0]) < _OLDEST_MAJOR:
        raise StateReadError.spark_too_old(spark.version)
    master = spark.sparkContext.master
    if scratch is None and not master.startswith("local"):
        raise StateReadError.scratch_needed(master)
    repository = SavepointRepository(open_store(root, s3), job)
    manifest = _manifest(repository, savepoint)
    query = _query(manifest, name)
    _ = (
        spark.streams.active
    )  # starts what stores report to, which Spark 4.2's reader expects and does not start
    location, is_format_2 = copy_query(manifest, query, repository, scratch or temporary_scratch(), s3)
    return _Copy(
        spark=spark,
        savepoint_id=manifest.savepoint_id,
        query=query.name,
        has_state=any(entry.path.startswith("state/") for entry in query.files),
        location=location,
        is_format_2=is_format_2,
    )


def _manifest(repository: SavepointRepository, savepoint: str) -> Manifest:
    newest = newest_savepoint(repository) if savepoint == LATEST else None
    return newest or repository.read(savepoint)


def _query(manifest: Manifest, name: str | None) -> QuerySnapshot:
    named = {query.name: query for query in manifest.queries}
    if name is None and len(named) == 1:
        return manifest.queries[0]
    if name is None or name not in named:
        raise StateReadError.query_unknown(name, named, manifest.savepoint_id)
    return named[name]


def _which_state(
    copied: _Copy,
    operator: int,
    store: str | None,
    join_side: str | None,
    variable: str | None,
    *,
    timers: bool,
) -> dict[str, str]:
    """Return the reader's options for one of an operator's states."""
    if not copied.has_state:
        raise StateReadError.stateless(copied.query, copied.savepoint_id)
    rows = copied.operators().collect()  # none where Spark 3.5 wrote the state
    mine = [row for row in rows if row["operatorId"] == operator]
    if rows and not mine:
        known = sorted({f"{row['operatorId']} ({row['operatorName']})" for row in rows})
        raise StateReadError.operator_unknown(operator, copied.query, known)
    if store is not None:
        return {"storeName": store}
    if join_side is not None:
        return {"joinSide": join_side}
    if mine and mine[0]["operatorName"] == _JOIN:
        stores = sorted(row["stateStoreName"] for row in mine)
        raise StateReadError.side_needed(copied.query, operator, stores)
    variables = _variables(mine[0]) if mine else []
    if timers:
        return {"readRegisteredTimers": "true"}
    if variables and variable not in variables:
        raise StateReadError.variable_needed(copied.query, operator, variable, variables)
    return {"stateVarName": variable} if variable is not None else {}


def _variables(operator: Row) -> list[str]:
    """Return the state variables of a ``transformWithState``; none for any other operator."""
    properties = json.loads(operator["operatorProperties"] or "{}")
    return [variable["stateName"] for variable in properties.get("stateVariables", ())]


@contextmanager
def _set(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Set one of the session's settings for a while: the reader takes it while it loads."""
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)
