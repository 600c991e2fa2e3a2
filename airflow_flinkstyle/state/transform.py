"""Change a savepoint's state: a function per operator, written by Spark and proved, as a new savepoint.

What the function returns is kept. Spark writes it into a copy, which is read back, and every key is compared
with what was kept. Only then a savepoint is published: of the same batch, so that no sink sees a gap, with
every other file as it was.
"""

from __future__ import annotations

import getpass
import json
import uuid
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.checkpoint import commit_log, offset_log
from airflow_flinkstyle.checkpoint.state_columns import flat_schema, schema_path
from airflow_flinkstyle.checkpoint.state_files import is_state_data
from airflow_flinkstyle.savepoint.capture.query import capture_query
from airflow_flinkstyle.savepoint.compat import (
    HDFS_CLASS,
    PROVIDER,
    ROCKSDB_CLASS,
    converted_id,
    is_in_default_provider,
)
from airflow_flinkstyle.savepoint.files.derive import publish_derived
from airflow_flinkstyle.savepoint.files.operators import number_after, without_operators
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.state.changes import NO_KEYS, Counts, state_changes
from airflow_flinkstyle.state.edited import Edited, as_it_is
from airflow_flinkstyle.state.edits import DropOperatorState, as_operator_change, described
from airflow_flinkstyle.state.errors import (
    STATE_READ_STATELESS,
    STATE_TRANSFORM_DIFFERS,
    STATE_TRANSFORM_NOT_CONVERTED,
    STATE_TRANSFORM_PROVIDER,
    STATE_TRANSFORM_SPARK_TOO_OLD,
)
from airflow_flinkstyle.state.query_copy import (
    LATEST,
    copy_to,
    find_savepoint,
    scratch_for,
    tasks_of,
    the_query,
)
from airflow_flinkstyle.state.reader import every_state
from airflow_flinkstyle.state.repartition import require_all_listed
from airflow_flinkstyle.state.rewriter import write_stores
from airflow_flinkstyle.state.steps import step
from airflow_flinkstyle.state.stores import Operator
from airflow_flinkstyle.storage.open import open_store
from airflow_flinkstyle.types import BatchId

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from airflow_flinkstyle.savepoint.manifest import Manifest, QuerySnapshot
    from airflow_flinkstyle.state.edits import Given, OperatorChange
    from airflow_flinkstyle.state.query_copy import QueryCopy
    from airflow_flinkstyle.state.scratch import OpenPlace
    from airflow_flinkstyle.storage.s3_settings import S3Settings

_SINCE: Final = (4, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformed:
    """The result of a transformation."""

    savepoint: Manifest
    """The new savepoint; its parent is the old one."""
    counts: Mapping[int, Counts]
    """By operator."""


def transform_state(
    spark: SparkSession,
    root: str,
    job: str,
    changes: Mapping[int, Given],
    savepoint: str = LATEST,
    query: str | None = None,
    *,
    asked_by: str | None = None,
    scratch: str | None = None,
    s3: S3Settings | None = None,
) -> Transformed:
    """Publish a savepoint whose operators hold what functions return for their state.

    Each function is called once, with a DataFrame of ``key`` and ``value`` (of a list ``list_element``, of a
    map ``user_map_key`` and ``user_map_value``, as ``savepoint_state`` has them), and returns one of the same
    types; a ready-made change of the schema, or a function in ``NewSchema``, of those that the new version
    has. The old savepoint and the job are not touched.

    Args:
        spark: A session of Spark 4.2 or newer, without a query that runs.
        root: Savepoint root: ``s3://bucket/prefix``, ``file:///path`` or ``/path``.
        job: The job's name.
        changes: By number of the operator, from 0 (``savepoint_operators`` lists them): its function, or
            several, applied one after the other. Of a join, or of ``transformWithState``, a dict of these by
            side or by variable; else it is applied to each side, or each variable.
        savepoint: Its id, or ``latest``.
        query: The query's name; may be left out if the savepoint has one query.
        asked_by: Who asked, for the record; None for the account that runs this.
        scratch: Location for the copies, reached by driver and executors, where they stay; None for a
            temporary folder of this machine, which is deleted when this process ends.
        s3: Endpoint and keys for locations on S3; None for boto3's standard environment variables.

    Raises:
        FlinkstyleError: ``STATE_TRANSFORM`` if an operator cannot be written, a function returns no valid
            state of it, or what Spark wrote is not what the function returned; no savepoint is made then.
        FlinkstyleError: ``STATE_READ`` if there is no such query or operator, or this Spark reads no state.
        SavepointMissingError: If there is no such savepoint.
    """
    work = CopiedQuery.of(spark, root, job, savepoint, query, scratch, s3)
    return work.changed(f"sp-transform-{uuid.uuid4().hex[:20]}", changes, asked_by, {})


def convert_savepoint(
    spark: SparkSession,
    root: str,
    job: str,
    savepoint: str = LATEST,
    query: str | None = None,
    *,
    asked_by: str | None = None,
    scratch: str | None = None,
    s3: S3Settings | None = None,
) -> Transformed:
    """Publish a savepoint whose state is in RocksDB instead of Spark's default provider.

    The keys and values are the same, each of them compared. The query that starts from it uses RocksDB,
    because Spark takes the provider from the checkpoint.

    Args:
        spark: A session of Spark 4.2 or newer, without a query that runs.
        root: Savepoint root: ``s3://bucket/prefix``, ``file:///path`` or ``/path``.
        job: The job's name.
        savepoint: Its id, or ``latest``.
        query: The query's name; may be left out if the savepoint has one query.
        asked_by: As in ``transform_state``.
        scratch: As there.
        s3: As there.

    Raises:
        FlinkstyleError: ``STATE_TRANSFORM`` if the state is in RocksDB already, or an operator cannot be
            written; no savepoint is made then.
        FlinkstyleError: ``STATE_READ`` if there is no such query, it has no state, or this Spark reads
            none.
        SavepointMissingError: If there is no such savepoint.
    """
    work = CopiedQuery.of(spark, root, job, savepoint, query, scratch, s3)
    if not is_in_default_provider(work.query.pinned_confs):
        raise STATE_TRANSFORM_NOT_CONVERTED.error(
            query=work.query.name, provider=_provider(work.query).rpartition(".")[2]
        )
    if not work.query.has_state:
        raise STATE_READ_STATELESS.error(query=work.query.name, savepoint_id=work.manifest.savepoint_id)
    return work.moved(asked_by)


def in_rocksdb(
    spark: SparkSession,
    repository: SavepointRepository,
    manifest: Manifest,
    scratch: str,
    open_place: OpenPlace,
) -> Manifest:
    """Return the savepoint with every query's state in RocksDB, one savepoint for each that is moved.

    Args:
        spark: As in ``convert_savepoint``.
        repository: Where the savepoint is, and the new ones go; those of an earlier try are reused.
        manifest: The savepoint.
        scratch: Location for the copies, reached by driver and executors.
        open_place: Opens the store at a location.
    """
    for name in [query.name for query in manifest.queries]:
        query = next(one for one in manifest.queries if one.name == name)
        if query.has_state and is_in_default_provider(query.pinned_confs):
            found = repository.find(converted_id(manifest.savepoint_id, name))
            if found is None:
                work = CopiedQuery.on(spark, repository, manifest, query, f"{scratch}/{name}", open_place)
                found = work.moved(None).savepoint
            manifest = found
    return manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedQuery:
    """A query of a savepoint, copied where Spark reads it, and how to make another savepoint of it."""

    repository: SavepointRepository
    manifest: Manifest
    query: QuerySnapshot
    before: QueryCopy
    place: str
    """Location for the copies, reached by driver and executors."""
    open_place: OpenPlace

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        root: str,
        job: str,
        savepoint: str,
        query: str | None,
        scratch: str | None,
        s3: S3Settings | None,
    ) -> CopiedQuery:
        """Find the query and copy it; arguments as of ``transform_state``."""
        repository = SavepointRepository(open_store(root, s3), job)
        manifest = find_savepoint(repository, savepoint)
        wanted = the_query(manifest, query)
        place = f"{scratch_for(spark, scratch)}/{uuid.uuid4().hex}"
        return cls.on(spark, repository, manifest, wanted, place, lambda location: open_store(location, s3))

    @classmethod
    def on(
        cls,
        spark: SparkSession,
        repository: SavepointRepository,
        manifest: Manifest,
        query: QuerySnapshot,
        place: str,
        open_place: OpenPlace,
    ) -> CopiedQuery:
        """Copy the query."""
        require_writer(spark)
        with step(f"copying the state of query {query.name}", tasks_of(spark)):
            before = copy_to(spark, repository, manifest, query, f"{place}/before", open_place)
        return cls(
            repository=repository,
            manifest=manifest,
            query=query,
            before=before,
            place=place,
            open_place=open_place,
        )

    def moved(self, asked_by: str | None) -> Transformed:
        """Move the state of every operator to RocksDB as it is."""
        numbers = {int(row["operatorId"]) for row in self.before.operators().collect()}
        require_all_listed(self.query, numbers)
        new_id = converted_id(self.manifest.savepoint_id, self.query.name)
        changes = dict.fromkeys(sorted(numbers), as_it_is)
        return self.publish(new_id, changes, {PROVIDER: ROCKSDB_CLASS}, asked_by, {})

    def changed(
        self,
        new_id: str,
        changes: Mapping[int, Given],
        asked_by: str | None,
        evidence: Mapping[str, str],
    ) -> Transformed:
        """Change the state of some operators."""
        wanted = {number: as_operator_change(change) for number, change in changes.items()}
        provider = _provider(self.query)
        if provider != ROCKSDB_CLASS and not all(map(_drops, wanted.values())):
            raise STATE_TRANSFORM_PROVIDER.error(query=self.query.name, provider=provider.rpartition(".")[2])
        return self.publish(new_id, wanted, {}, asked_by, evidence)

    def publish(
        self,
        new_id: str,
        changes: Mapping[int, OperatorChange],
        confs: Mapping[str, str],
        asked_by: str | None,
        evidence: Mapping[str, str],
    ) -> Transformed:
        """Change the state of some operators, and settings that Spark takes from the checkpoint."""
        dropped = {number for number, change in changes.items() if _drops(change)}
        counts = {number: _dropped(self.before, number) for number in dropped}
        edits = {number: change for number, change in changes.items() if number not in dropped}
        after: QueryCopy | None = None
        if edited := self._edited(edits):
            found = self._counted(edited)
            after = self._written(edited, confs)
            self._prove(edited, after)
            counts |= {number: sum(of.values(), NO_KEYS) for number, of in found.items()}

        def changed(snapshot: QuerySnapshot) -> QuerySnapshot:
            if snapshot is not self.query:
                return snapshot
            if after is not None:
                captured = _captured(after, snapshot, self.repository, edited, self.open_place)
                snapshot = with_confs(captured, confs)
            if dropped:
                snapshot = without_operators(snapshot, dropped, self.repository)
                self._require_others_unchanged(snapshot, dropped, after or self.before)
            return snapshot

        own_evidence = _evidence(self.query.name, changes, counts, asked_by or getpass.getuser())
        with self._step("publishing the savepoint"):
            published = publish_derived(
                self.manifest, self.repository, new_id, changed, evidence={**evidence, **own_evidence}
            )
        return Transformed(savepoint=published, counts=counts)

    def _step(self, what: str) -> AbstractContextManager[None]:
        return step(what, tasks_of(self.before.spark))

    def _edited(self, changes: Mapping[int, OperatorChange]) -> dict[int, Edited]:
        found = {}
        for number, change in changes.items():
            with self._step(f"changing the state of operator {number}"):
                found[number] = Edited.of(self.before, number, change)
        return found

    def _counted(self, edits: Mapping[int, Edited]) -> dict[int, dict[str, Counts]]:
        found = {}
        for number, edited in edits.items():
            with self._step(f"counting what changed of operator {number}"):
                found[number] = edited.counted(self.before)
        return found

    def _prove(self, edits: Mapping[int, Edited], after: QueryCopy) -> None:
        for number, edited in edits.items():
            with self._step(f"comparing what was written of operator {number}"):
                edited.prove(after)

    def _written(self, edits: Mapping[int, Edited], confs: Mapping[str, str]) -> QueryCopy:
        """Have Spark write what was kept into a copy; in format 2 its commit log names the new stores."""
        query, batch = self.query, self.query.batch_id
        files = tuple(file for file in query.files if not is_state_data(file.path, set(edits)))
        trimmed = replace(query, files=files)
        after = copy_to(
            self.before.spark,
            self.repository,
            self.manifest,
            trimmed,
            f"{self.place}/after",
            self.open_place,
        )
        source, target = self.open_place(self.before.location), self.open_place(after.location)
        # Not the copy's log: the source's has the number of partitions, found from all its state.
        log = offset_log.parse(source.read(f"offsets/{batch}").decode())
        target.write(f"offsets/{batch}", log.with_confs({**log.confs, **confs}).render().encode())
        for number, edited in edits.items():
            if (new := edited.new_schema()) is not None:  # Spark's writer and reader take it from there
                target.write(schema_path(number), flat_schema(new["key"].json(), new["value"].json()))
        with after.settings(), self._step("writing the new state"):
            rows = {place: found for edited in edits.values() for place, found in edited.rows().items()}
            partitions = {number: edited.operator.partitions for number, edited in edits.items()}
            ids = write_stores(after.spark, after.location, batch, rows, partitions)
        if after.is_format_2:
            commit = commit_log.parse(target.read(f"commits/{batch}").decode())
            target.write(f"commits/{batch}", commit.with_state_ids(ids).render().encode())
        return after

    def _require_others_unchanged(
        self, snapshot: QuerySnapshot, dropped: Collection[int], before: QueryCopy
    ) -> None:
        """Have Spark read the operators that stay under their new numbers, and compare each key.

        Raises:
            FlinkstyleError: ``STATE_TRANSFORM`` if a key differs.
        """
        if not snapshot.has_state:
            return
        place = f"{self.place}/without"
        without = copy_to(before.spark, self.repository, self.manifest, snapshot, place, self.open_place)
        for number, which in every_state(before):
            if number in dropped:
                continue
            old, new = before.load(number, which), without.load(number_after(number, dropped), which)
            if (found := state_changes(old, new).head()) is not None:
                raise STATE_TRANSFORM_DIFFERS.error(query=snapshot.name, operator=number, key=str(found[0]))


def require_writer(spark: SparkSession) -> None:
    """Refuse a Spark that has no writer of state; raises ``STATE_TRANSFORM``."""
    if tuple(int(part) for part in spark.version.split(".")[:2]) < _SINCE:
        raise STATE_TRANSFORM_SPARK_TOO_OLD.error(version=spark.version)


def with_confs(query: QuerySnapshot, confs: Mapping[str, str]) -> QuerySnapshot:
    """Return a query with other settings, also in the batch that was planned: Spark takes them from there."""
    planned = query.planned_offsets
    if planned is not None:
        log = offset_log.parse(planned)
        planned = log.with_confs({**log.confs, **confs}).render()
    return replace(query, pinned_confs={**query.pinned_confs, **confs}, planned_offsets=planned)


def _provider(query: QuerySnapshot) -> str:
    """Return the class that keeps the query's state."""
    return query.pinned_confs.get(PROVIDER, HDFS_CLASS)


def _drops(change: OperatorChange) -> bool:
    return isinstance(change, DropOperatorState)


def _dropped(copied: QueryCopy, operator: int) -> Counts:
    """Count the keys of an operator that is removed, over all its stores."""
    _ = Operator.of(copied, operator)
    states = [copied.load(number, which) for number, which in every_state(copied) if number == operator]
    removed = sum(state.select("key").distinct().count() for state in states)
    return Counts(added=0, removed=removed, changed=0, kept=0)


def _captured(
    after: QueryCopy,
    old: QuerySnapshot,
    repository: SavepointRepository,
    edits: Mapping[int, Edited],
    open_place: OpenPlace,
) -> QuerySnapshot:
    """Return the old snapshot with the new data of some operators; every other file is as it was."""
    found = capture_query(
        open_place(after.location),
        repository,
        name=old.name,
        kafka={source: at.log for source, at in old.kafka.items()},
        previous=old,
        batch_id=BatchId(old.batch_id),
    )
    rewritten = {f"offsets/{old.batch_id}"} if found.pinned_confs != old.pinned_confs else set()
    if after.is_format_2:
        rewritten.add(f"commits/{old.batch_id}")  # it names the stores' files

    rewritten |= {schema_path(number) for number, edited in edits.items() if edited.new_schema() is not None}

    def is_new(path: str) -> bool:
        return is_state_data(path, set(edits)) or path in rewritten

    files = [entry for entry in old.files if not is_new(entry.path)]
    files += [entry for entry in found.files if is_new(entry.path)]
    return replace(old, files=tuple(sorted(files, key=lambda entry: entry.path)))


def _evidence(
    query: str, changes: Mapping[int, OperatorChange], counts: Mapping[int, Counts], asked_by: str
) -> dict[str, str]:
    """Return the evidence of the new savepoint: who asked, the function's source, how many keys."""
    return {
        f"{query}/{number}/state changed": json.dumps(
            {"by": asked_by, "function": described(change), **asdict(counts[number])}
        )
        for number, change in changes.items()
    }
