"""A savepoint's query, copied to where Spark reads it, and Spark's own state reader on the copy."""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.savepoint.repository.summary import newest_savepoint
from airflow_flinkstyle.state.errors import (
    STATE_READ_SCRATCH_NEEDED,
    STATE_READ_SPARK_TOO_OLD,
    state_read_query_unknown,
)
from airflow_flinkstyle.state.scratch import copy_query, temporary_scratch
from airflow_flinkstyle.storage.open import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from airflow_flinkstyle.savepoint.manifest import Manifest, QuerySnapshot
    from airflow_flinkstyle.state.scratch import OpenPlace
    from airflow_flinkstyle.state.steps import Tasks
    from airflow_flinkstyle.storage.s3_settings import S3Settings
    from airflow_flinkstyle.types import BatchId

LATEST: Final = "latest"
_OLDEST_MAJOR: Final = 4
_FORMAT: Final = "spark.sql.streaming.stateStore.checkpointFormatVersion"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryCopy:
    """A query of a savepoint, copied where Spark reads it."""

    spark: SparkSession
    savepoint_id: str
    query: QuerySnapshot
    location: str
    """As Spark writes it."""
    is_format_2: bool
    """Its state is of checkpoint format 2."""

    def operators(self) -> DataFrame:
        """Return the stateful operators; none where Spark 3.5 wrote the state."""
        return self.spark.read.format("state-metadata").option("path", self.location).load()

    def load(self, operator: int, which: Mapping[str, str], batch: BatchId | None = None) -> DataFrame:
        """Return one of an operator's states after a batch, by the reader's options; None for the newest.

        Fields of one name are numbered (``sum``, ``sum_2``): Spark names them after functions.
        """
        options = {"path": self.location, "operatorId": str(operator), **which}
        if batch is not None:
            options["batchId"] = str(batch)
        with self.settings():
            return with_numbered_fields(self.spark.read.format("statestore").options(**options).load())

    @contextmanager
    def settings(self) -> Iterator[None]:
        """Set the session to the copy's format for a while: Spark's reader takes the format from there."""
        with setting(self.spark, _FORMAT, "2" if self.is_format_2 else "1"):
            yield


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Give a session another setting for a while."""
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


def tasks_of(spark: SparkSession) -> Tasks:
    """Return a function that counts the done and all tasks of the stages that the session runs."""

    def found() -> tuple[int, int]:
        tracker = spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
        running = [stage for stage in stages if stage is not None]
        return sum(one.numCompletedTasks for one in running), sum(one.numTasks for one in running)

    return found


def with_numbered_fields(state: DataFrame) -> DataFrame:
    """Return a DataFrame in whose structs every field has a name of its own: ``sum``, ``sum_2``."""
    from pyspark.sql import functions as F

    kinds = number_fields(state.schema)
    columns = [
        F.col(old.name).cast(new.dataType).alias(old.name)
        if new.dataType != old.dataType
        else F.col(old.name)
        for old, new in zip(state.schema.fields, kinds.fields, strict=True)
    ]
    return state.select(*columns)


def number_fields(kind: StructType) -> StructType:
    """Return a struct whose fields of one name are numbered, also in inner structs."""
    from pyspark.sql import types

    seen: set[str] = set()
    fields = []
    for field in kind.fields:
        names = itertools.chain([field.name], (f"{field.name}_{number}" for number in itertools.count(2)))
        name = next(one for one in names if one.lower() not in seen)
        seen.add(name.lower())
        inner = (
            number_fields(field.dataType) if isinstance(field.dataType, types.StructType) else field.dataType
        )
        fields.append(types.StructField(name, inner, field.nullable, field.metadata))
    return types.StructType(fields)


def open_copy(
    spark: SparkSession,
    root: str,
    job: str,
    savepoint: str,
    query: str | None,
    scratch: str | None,
    s3: S3Settings | None,
) -> QueryCopy:
    """Find the savepoint's query and copy it; arguments as of ``savepoint_state``.

    Raises:
        FlinkstyleError: ``STATE_READ`` if this Spark cannot read state, or there is no such query.
        SavepointMissingError: If there is no such savepoint.
    """
    scratch = scratch_for(spark, scratch)
    repository = SavepointRepository(open_store(root, s3), job)
    manifest = find_savepoint(repository, savepoint)
    return copy_to(
        spark, repository, manifest, the_query(manifest, query), scratch, lambda place: open_store(place, s3)
    )


def reads_state(spark: SparkSession) -> bool:
    """Return whether this Spark has a reader of state."""
    return int(spark.version.partition(".")[0]) >= _OLDEST_MAJOR


def scratch_for(spark: SparkSession, scratch: str | None) -> str:
    """Return where to copy to.

    Raises:
        FlinkstyleError: ``STATE_READ`` if this Spark reads no state, or its executors would not find the
            copy.
    """
    if not reads_state(spark):
        raise STATE_READ_SPARK_TOO_OLD.error(version=spark.version)
    master = spark.sparkContext.master
    if scratch is None and not master.startswith("local"):
        raise STATE_READ_SCRATCH_NEEDED.error(master=master)
    return scratch or temporary_scratch()


def copy_to(
    spark: SparkSession,
    repository: SavepointRepository,
    manifest: Manifest,
    query: QuerySnapshot,
    scratch: str,
    open_place: OpenPlace,
) -> QueryCopy:
    """Copy one query below ``scratch``."""
    _ = (
        spark.streams.active
    )  # starts the endpoint that stores report to: Spark 4.2's reader expects it and does not start it
    location, is_format_2 = copy_query(manifest, query, repository, scratch, open_place)
    return QueryCopy(
        spark=spark,
        savepoint_id=manifest.savepoint_id,
        query=query,
        location=location,
        is_format_2=is_format_2,
    )


def find_savepoint(repository: SavepointRepository, savepoint: str) -> Manifest:
    """Return a savepoint by its id, or the newest for ``latest``."""
    newest = newest_savepoint(repository) if savepoint == LATEST else None
    return newest or repository.read(savepoint)


def the_query(manifest: Manifest, name: str | None) -> QuerySnapshot:
    """Return a query by its name, or the only one.

    Raises:
        FlinkstyleError: ``STATE_READ`` if there is none of that name, or several without one.
    """
    named = {query.name: query for query in manifest.queries}
    if name is None and len(named) == 1:
        return manifest.queries[0]
    if name is None or name not in named:
        raise state_read_query_unknown(name, named, manifest.savepoint_id)
    return named[name]
