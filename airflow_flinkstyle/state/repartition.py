"""Give a savepoint's state another number of shuffle partitions, by Spark's own offline repartition (4.2).

Spark spreads the state of batch N over new partitions as a batch N+1 that reads nothing. That is done on a
copy, each key is compared, and the copy becomes a new savepoint beside the old one. Where files have their
batch's number in their names only, it is set back to N: sinks that count batches then see no gap.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.checkpoint.stores_in_use import SHUFFLE_PARTITIONS, shuffle_partitions
from airflow_flinkstyle.savepoint.capture.query import capture_query
from airflow_flinkstyle.savepoint.compat import PROVIDER, note_of_repartition, repartitioned_id
from airflow_flinkstyle.savepoint.errors import RenumberError
from airflow_flinkstyle.savepoint.files.derive import publish_derived
from airflow_flinkstyle.savepoint.files.renumber import renumber
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.state.changes import state_changes
from airflow_flinkstyle.state.errors import (
    REPARTITION_BAD_NUMBER,
    REPARTITION_BY_SPARK,
    REPARTITION_DIFFERS,
    REPARTITION_NOTHING_TO_DO,
    REPARTITION_NUMBERED,
    REPARTITION_PLANNED,
    REPARTITION_PROVIDER,
    REPARTITION_SPARK_TOO_OLD,
    REPARTITION_WITHOUT_KEYS,
    repartition_not_listed,
)
from airflow_flinkstyle.state.query_copy import LATEST, copy_to, find_savepoint, scratch_for
from airflow_flinkstyle.state.reader import every_state
from airflow_flinkstyle.storage.open import open_store
from airflow_flinkstyle.types import BatchId

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from airflow_flinkstyle.savepoint.manifest import Manifest, QuerySnapshot
    from airflow_flinkstyle.state.query_copy import QueryCopy
    from airflow_flinkstyle.state.scratch import OpenPlace
    from airflow_flinkstyle.storage.s3_settings import S3Settings

_SINCE: Final = (4, 2)
_STORE: Final = re.compile(r"state/(\d+)/\d+/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repartitioned:
    """The result of a repartition."""

    savepoint: Manifest
    """The new savepoint; its parent is the old one."""
    keys: int
    """Keys whose state was compared, over all queries and operators."""


def repartition_savepoint(
    spark: SparkSession,
    root: str,
    job: str,
    partitions: int,
    savepoint: str = LATEST,
    *,
    scratch: str | None = None,
    s3: S3Settings | None = None,
) -> Repartitioned:
    """Publish a savepoint whose state is spread over ``partitions``; every key is compared before.

    Args:
        spark: A session of Spark 4.2 or newer, without a query that runs.
        root: Savepoint root: ``s3://bucket/prefix``, ``file:///path`` or ``/path``.
        job: The job's name.
        partitions: Shuffle partitions that the job is to have from then on.
        savepoint: Its id, or ``latest``.
        scratch: Location for the copy, reached by driver and executors, where it stays; None for a temporary
            folder of this machine, which is deleted when this process ends.
        s3: Endpoint and keys for locations on S3; None for boto3's standard environment variables.

    Raises:
        FlinkstyleError: ``REPARTITION`` if Spark cannot, or a key differs afterwards, or a planned batch
            would get another number; no savepoint is made then.
        FlinkstyleError: ``STATE_READ`` if the copy would not be found by Spark's executors.
        SavepointMissingError: If there is no such savepoint.
    """
    if tuple(int(part) for part in spark.version.split(".")[:2]) < _SINCE:
        raise REPARTITION_SPARK_TOO_OLD.error(version=spark.version)
    if partitions < 1:
        raise REPARTITION_BAD_NUMBER.error(partitions=partitions)
    repository = SavepointRepository(open_store(root, s3), job)
    manifest = find_savepoint(repository, savepoint)
    if not to_repartition(manifest, partitions):
        raise REPARTITION_NOTHING_TO_DO.error(savepoint_id=manifest.savepoint_id, partitions=partitions)
    scratch = scratch_for(spark, scratch)
    return repartition(spark, repository, manifest, partitions, scratch, lambda place: open_store(place, s3))


def to_repartition(manifest: Manifest, partitions: int) -> list[QuerySnapshot]:
    """Return the queries whose state is in another number of partitions."""
    return [query for query in manifest.queries if _changes(query, partitions)]


def repartition(
    spark: SparkSession,
    repository: SavepointRepository,
    manifest: Manifest,
    partitions: int,
    scratch: str,
    open_place: OpenPlace,
) -> Repartitioned:
    """Do what ``repartition_savepoint`` does, with a repository that is open.

    Args:
        spark: As there.
        repository: Where the savepoint is, and the new one goes.
        manifest: The savepoint.
        partitions: As there; some query's state is in another number.
        scratch: Location for the copy, reached by driver and executors.
        open_place: Opens the store at a location.
    """
    if tuple(int(part) for part in spark.version.split(".")[:2]) < _SINCE:
        raise REPARTITION_SPARK_TOO_OLD.error(version=spark.version)
    wanted = to_repartition(manifest, partitions)
    for query in wanted:
        _require_possible(query)
    scratch = f"{scratch}/{partitions}-partitions"
    copies = {q.name: copy_to(spark, repository, manifest, q, scratch, open_place) for q in wanted}
    keys = sum(_spread(copied, partitions) for copied in copies.values())

    def change(query: QuerySnapshot) -> QuerySnapshot:
        copied = copies.get(query.name)
        return _captured(copied, repository, partitions, open_place) if copied else query

    published = publish_derived(
        manifest,
        repository,
        repartitioned_id(manifest.savepoint_id, partitions),
        change,
        evidence=note_of_repartition(manifest, copies),
    )
    return Repartitioned(savepoint=published, keys=keys)


def _changes(query: QuerySnapshot, partitions: int) -> bool:
    """Return whether the query has state in another number of partitions."""
    return query.has_state and shuffle_partitions(query.pinned_confs) != partitions


def _require_possible(query: QuerySnapshot) -> None:
    provider = query.pinned_confs.get(PROVIDER, "").rpartition(".")[2]
    if provider != "RocksDBStateStoreProvider":
        raise REPARTITION_PROVIDER.error(
            query=query.name, provider=provider or "Spark's default, HDFSBackedStateStoreProvider"
        )
    if query.sinks is not None and query.sinks.lineages:
        try:
            renumber(query, BatchId(query.batch_id + 1))
        except RenumberError as error:
            raise REPARTITION_NUMBERED.error(query=query.name, what=error.problem) from error


def _spread(copied: QueryCopy, partitions: int) -> int:
    """Have Spark make the new batch, and return how many keys it has; each must be as it was."""
    from py4j.protocol import Py4JJavaError

    try:
        with copied.settings():
            manager = copied.spark._streamingCheckpointManager  # noqa: SLF001 - Spark has no public name yet
            manager.repartition(copied.location, partitions)
    except Py4JJavaError as error:
        why = str(error.java_exception.getMessage() or error.java_exception.toString())
        raise REPARTITION_BY_SPARK.error(query=copied.query.name, why=why) from error
    states = every_state(copied)
    require_all_listed(copied.query, {operator for operator, _ in states})
    return sum(_compared(copied, operator, which) for operator, which in states)


def operators_of(query: QuerySnapshot) -> set[int]:
    """Return the operators that have files of state, also where Spark lists none. Pure."""
    return {int(match[1]) for entry in query.files if (match := _STORE.match(entry.path))}


def require_all_listed(query: QuerySnapshot, operators: Collection[int]) -> None:
    """Require that Spark lists every operator with state: others would not be compared. Pure.

    Raises:
        FlinkstyleError: ``REPARTITION`` naming those that it does not.
    """
    if missing := sorted(operators_of(query) - set(operators)):
        raise repartition_not_listed(query.name, missing)


def require_planned(query: QuerySnapshot, found: QuerySnapshot) -> None:
    """Require that a planned batch, which is to be run again, keeps its number. Pure.

    Raises:
        FlinkstyleError: ``REPARTITION`` if the repartition has taken that number.
    """
    if query.planned_offsets is not None and found.batch_id != query.batch_id:
        raise REPARTITION_PLANNED.error(query=query.name, batch=query.batch_id + 1)


def _compared(copied: QueryCopy, operator: int, which: dict[str, str]) -> int:
    before, after = (
        copied.load(operator, which, BatchId(copied.query.batch_id + late)).cache() for late in (0, 1)
    )
    if not cast("StructType", before.schema["key"].dataType).fields:
        raise REPARTITION_WITHOUT_KEYS.error(query=copied.query.name, operator=operator)
    found = state_changes(before, after).head()
    if found is not None:
        name = next(iter(which.values()), "its only state")
        raise REPARTITION_DIFFERS.error(
            query=copied.query.name, operator=operator, which=name, key=str(found[0])
        )
    keys = after.select("key").distinct().count()
    before.unpersist()
    after.unpersist()
    return int(keys)


def _captured(
    copied: QueryCopy, repository: SavepointRepository, partitions: int, open_place: OpenPlace
) -> QuerySnapshot:
    """Return the old snapshot with the copy's files, under its old number where that is possible."""
    query = copied.query
    found = capture_query(
        open_place(copied.location),
        repository,
        name=query.name,
        kafka={source: at.log for source, at in query.kafka.items()},
        previous=query,
        batch_id=BatchId(query.batch_id + 1),
    )
    with contextlib.suppress(RenumberError):  # then a number is skipped, which only lineages do not allow
        found = renumber(found, query.batch_id)
    require_planned(query, found)
    return replace(
        query,
        batch_id=found.batch_id,
        pinned_confs=found.pinned_confs,
        planned_offsets=_planned(query, partitions),
        files=found.files,
    )


def _planned(query: QuerySnapshot, partitions: int) -> str | None:
    """Return the planned batch with the new number: Spark takes it from the log of the batch that it runs."""
    if query.planned_offsets is None:
        return None
    log = offset_log.parse(query.planned_offsets)
    return log.with_confs({**log.confs, SHUFFLE_PARTITIONS: str(partitions)}).render()
