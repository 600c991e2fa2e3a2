"""Which savepoints of a job still hold keys that must be deleted: what a deletion request needs to know."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.state.errors import state_read_query_unknown
from airflow_flinkstyle.state.query_copy import copy_to, scratch_for
from airflow_flinkstyle.state.reader import every_state, filtered
from airflow_flinkstyle.state.repartition import operators_of
from airflow_flinkstyle.storage.open import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.state.query_copy import QueryCopy
    from airflow_flinkstyle.storage.s3_settings import S3Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A savepoint whose state has such keys, or may have."""

    savepoint_id: str
    keys: int | None
    """How many, over all operators and their stores; None if that is not known."""
    why: str = ""
    """Why that is not known."""


def savepoints_with(
    spark: SparkSession,
    root: str,
    job: str,
    where: str,
    query: str | None = None,
    *,
    scratch: str | None = None,
    s3: S3Settings | None = None,
) -> list[Holding]:
    """Return the job's savepoints whose state has keys for which a condition is true, oldest first.

    Each savepoint is copied and read, one after the other. The condition is tried on every operator, and
    every store of it; those whose keys and values do not have its fields are passed over. If no
    state of a savepoint has them, or it lacks the named query, its number of keys is not known.

    Args:
        spark: A session of Spark 4.0 or newer.
        root: Savepoint root: ``s3://bucket/prefix``, ``file:///path`` or ``/path``.
        job: The job's name.
        where: Condition in SQL over ``key`` and ``value``, such as ``key.customer = 'c1'``.
        query: The query's name; None for all of a savepoint's queries.
        scratch: As in ``savepoint_state``; what is copied there stays there.
        s3: As in ``savepoint_state``.

    Raises:
        FlinkstyleError: ``STATE_READ`` if this Spark reads no state, the condition is valid for no state, or
            no savepoint has that query.
    """
    repository, found = SavepointRepository(open_store(root, s3), job), []
    searched: list[_Held] = []
    for manifest in sorted(repository.each(), key=lambda one: one.taken_at_ms):
        place = scratch_for(spark, scratch)
        try:
            searched.append(_search(spark, repository, manifest, where, query, place, s3))
        finally:
            if scratch is None:
                shutil.rmtree(place, ignore_errors=True)
        one = searched[-1]
        if one.keys or one.why:
            found.append(Holding(savepoint_id=manifest.savepoint_id, keys=one.keys, why=one.why))
    if searched and all(one.keys is None for one in searched) and any(one.refused for one in searched):
        raise next(one.refused for one in searched if one.refused)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """What the search of one savepoint found."""

    keys: int | None
    why: str
    refused: FlinkstyleError | None
    """Why it was not searched: Spark's error for a condition that is valid for no state, or no such query."""


def _search(
    spark: SparkSession,
    repository: SavepointRepository,
    manifest: Manifest,
    where: str,
    query: str | None,
    place: str,
    s3: S3Settings | None,
) -> _Held:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    if query is not None and manifest.query(query) is None:
        names = [one.name for one in manifest.queries]
        unknown = state_read_query_unknown(query, names, manifest.savepoint_id)
        return _Held(keys=None, why=f"it has no query {query}, but {', '.join(names)}", refused=unknown)
    keys, understood, refused = 0, False, None
    for one in manifest.queries:
        if query not in (None, one.name) or not one.has_state:
            continue
        try:
            copied = copy_to(
                spark, repository, manifest, one, place, lambda location: open_store(location, s3)
            )
            # Spark 3.5 lists no operators; a join's state cannot be read so, which is reported.
            states = every_state(copied) or [(number, {}) for number in sorted(operators_of(one))]
            for operator, which in states:
                try:
                    keys += _count(copied, operator, which, where)
                    understood = True
                except FlinkstyleError as error:
                    refused = refused or error
        except (
            FlinkstyleError,
            PySparkException,
            Py4JJavaError,
        ) as error:  # the other savepoints are searched too
            return _Held(keys=None, why=f"it cannot be read: {str(error).splitlines()[0]}", refused=None)
    if refused is not None and not understood:
        return _Held(keys=None, why=refused.problem, refused=refused)
    return _Held(keys=keys, why="", refused=None)


def _count(copied: QueryCopy, operator: int, which: dict[str, str], where: str) -> int:
    """Return how many keys of a state meet the condition; raises as ``filtered`` does."""
    return filtered(copied.load(operator, which), where).select("key").distinct().count()
