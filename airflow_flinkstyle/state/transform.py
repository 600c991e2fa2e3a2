"""Change a savepoint's state: a function per operator, written by Spark and proved, as a new savepoint.

What the function returns is kept. Spark writes it into a copy, which is read back, every key being compared
with what was kept. Only then is there a savepoint: of the same batch, so that no sink sees a gap, every
other file as it was.
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
from airflow_flinkstyle.savepoint.manifest import KafkaLog
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.state.changes import changes_of_any_key, state_changes
from airflow_flinkstyle.state.edits import DropOperatorState, as_change, described
from airflow_flinkstyle.state.errors import (
    STATE_READ_STATELESS,
    STATE_TRANSFORM_DIFFERS,
    STATE_TRANSFORM_NOT_CONVERTED,
    STATE_TRANSFORM_PROVIDER,
    STATE_TRANSFORM_SEVERAL_STORES,
    STATE_TRANSFORM_SPARK_TOO_OLD,
    state_read_operator_unknown,
)
from airflow_flinkstyle.state.kept import COLUMNS, PREFIX, Kept
from airflow_flinkstyle.state.query_copy import LATEST, copy_to, find_savepoint, scratch_for, the_query
from airflow_flinkstyle.state.reader import every_state, variables_of
from airflow_flinkstyle.state.repartition import require_all_told
from airflow_flinkstyle.state.rewriter import write_stores
from airflow_flinkstyle.storage.open import open_store
from airflow_flinkstyle.types import BatchId

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyspark.sql import DataFrame, Row, SparkSession

    from airflow_flinkstyle.savepoint.manifest import Manifest, QuerySnapshot
    from airflow_flinkstyle.state.edits import Change
    from airflow_flinkstyle.state.query_copy import QueryCopy
    from airflow_flinkstyle.state.scratch import OpenPlace
    from airflow_flinkstyle.storage.s3_settings import S3Settings

_SINCE: Final = (4, 2)
_STORE: Final = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What a change did to an operator's keys."""

    added: int
    removed: int
    changed: int
    kept: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformed:
    """What came of a transformation."""

    savepoint: Manifest
    """The new savepoint; its parent is the old one."""
    counts: Mapping[int, Counts]
    """By operator."""


def transform_state(
    spark: SparkSession,
    root: str,
    job: str,
    changes: Mapping[int, Change | Sequence[Change]],
    savepoint: str = LATEST,
    query: str | None = None,
    *,
    asked_by: str | None = None,
    scratch: str | None = None,
    s3: S3Settings | None = None,
) -> Transformed:
    """Publish a savepoint whose operators hold what functions make of their state.

    Each function is called once, with a DataFrame of ``key`` and ``value``, and returns one of the same
    types; a ready-made change of the schema, or a function in ``NewSchema``, of those that the new version
    has. The old savepoint and the job are not touched.

    Args:
        spark: A session of Spark 4.2 or newer, without a query that runs.
        root: Savepoint root: ``s3://bucket/prefix``, ``file:///path`` or ``/path``.
        job: The job's name.
        changes: By number of the operator, from 0 (``savepoint_operators`` lists them): its function, or
            several, done one after the other.
        savepoint: Its id, or ``latest``.
        query: The query's name; may be left out if the savepoint has one query.
        asked_by: Who asked, for the record; None for the account that runs this.
        scratch: Location for the copies, reached by driver and executors, which is left there; None for a
            temporary folder of this machine, which goes when this process ends.
        s3: Endpoint and keys for locations on S3; None for boto3's standard environment variables.

    Raises:
        FlinkstyleError: ``STATE_TRANSFORM`` if an operator cannot be written, a function returns what is no
            state of it, or what Spark wrote is not what the function returned; no savepoint is made then.
        FlinkstyleError: ``STATE_READ`` if there is no such query or operator, or this Spark reads no state.
        SavepointMissingError: If there is no such savepoint.
    """
    work = Work.of(spark, root, job, savepoint, query, scratch, s3)
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
    work = Work.of(spark, root, job, savepoint, query, scratch, s3)
    if not is_in_default_provider(work.query.pinned_confs):
        raise STATE_TRANSFORM_NOT_CONVERTED.error(
            query=work.query.name, provider=_provider(work.query).rpartition(".")[2]
        )
    if not work.before.has_state:
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
        repository: Where the savepoint is, and the new ones go; what an earlier try has made is found again.
        manifest: The savepoint.
        scratch: Location for the copies, reached by driver and executors.
        open_place: Opens the store at a location.
    """
    for name in [query.name for query in manifest.queries]:
        query = next(one for one in manifest.queries if one.name == name)
        has_state = any(file.path.startswith("state/") for file in query.files)
        if has_state and is_in_default_provider(query.pinned_confs):
            found = repository.find(converted_id(manifest.savepoint_id, name))
            if found is None:
                work = Work.on(spark, repository, manifest, query, f"{scratch}/{name}", open_place)
                found = work.moved(None).savepoint
            manifest = found
    return manifest


def _as_it_is(state: DataFrame) -> DataFrame:
    return state


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A query of a savepoint, copied where Spark reads it, and what makes another savepoint of it."""

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
    ) -> Work:
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
    ) -> Work:
        """Copy the query."""
        if tuple(int(part) for part in spark.version.split(".")[:2]) < _SINCE:
            raise STATE_TRANSFORM_SPARK_TOO_OLD.error(version=spark.version)
        return cls(
            repository=repository,
            manifest=manifest,
            query=query,
            before=copy_to(spark, repository, manifest, query, f"{place}/before", open_place),
            place=place,
            open_place=open_place,
        )

    def moved(self, asked_by: str | None) -> Transformed:
        """Move the state of every operator to RocksDB as it is."""
        numbers = {int(row["operatorId"]) for row in self.before.operators().collect()}
        require_all_told(self.query, numbers)
        new_id = converted_id(self.manifest.savepoint_id, self.query.name)
        changes = dict.fromkeys(sorted(numbers), _as_it_is)
        return self.publish(new_id, changes, {PROVIDER: ROCKSDB_CLASS}, asked_by, {})

    def changed(
        self,
        new_id: str,
        changes: Mapping[int, Change | Sequence[Change]],
        asked_by: str | None,
        evidence: Mapping[str, str],
    ) -> Transformed:
        """Change the state of some operators."""
        wanted = {number: as_change(change) for number, change in changes.items()}
        provider = _provider(self.query)
        if provider != ROCKSDB_CLASS and not all(map(_drops, wanted.values())):
            raise STATE_TRANSFORM_PROVIDER.error(query=self.query.name, provider=provider.rpartition(".")[2])
        return self.publish(new_id, wanted, {}, asked_by, evidence)

    def publish(
        self,
        new_id: str,
        changes: Mapping[int, Change],
        confs: Mapping[str, str],
        asked_by: str | None,
        evidence: Mapping[str, str],
    ) -> Transformed:
        """Change the state of some operators, and settings that Spark takes from the checkpoint."""
        dropped = {number for number, change in changes.items() if _drops(change)}
        stores = {n: _the_store(self.before, n) for n in changes if n not in dropped}
        counts = {number: _dropped(self.before, number) for number in dropped}
        kept = {n: Kept.of(self.before, store, n, changes[n]) for n, store in stores.items()}
        partitions = {number: int(store["numPartitions"]) for number, store in stores.items()}
        after = self._written(kept, partitions, confs) if kept else None
        if after is not None:
            counts.update({n: _proved(self.before, after, n, state.state) for n, state in kept.items()})

        def changed(snapshot: QuerySnapshot) -> QuerySnapshot:
            if snapshot is not self.query:
                return snapshot
            if after is not None:
                found = _captured(after, snapshot, self.repository, kept, self.open_place)
                snapshot = with_confs(found, confs)
            if dropped:
                snapshot = without_operators(snapshot, dropped, self.repository)
                self._require_the_others(snapshot, dropped, after or self.before)
            return snapshot

        published = publish_derived(
            self.manifest,
            self.repository,
            new_id,
            changed,
            evidence={
                **evidence,
                **_evidence(self.query.name, changes, counts, asked_by or getpass.getuser()),
            },
        )
        return Transformed(savepoint=published, counts=counts)

    def _written(
        self, kept: Mapping[int, Kept], partitions: Mapping[int, int], confs: Mapping[str, str]
    ) -> QueryCopy:
        """Have Spark write what was kept into a copy; in format 2 its commit log names what was written."""
        query, batch = self.query, self.query.batch_id
        files = tuple(file for file in query.files if not is_state_data(file.path, set(kept)))
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
        # The source's log was made readable by the partitions of all its state.
        log = offset_log.parse(source.read(f"offsets/{batch}").decode())
        target.write(f"offsets/{batch}", log.with_confs({**log.confs, **confs}).render().encode())
        for number, state in kept.items():
            if state.has_new_schema:  # Spark's writer and reader take it from there
                target.write(schema_path(number), flat_schema(state.key.json(), state.value.json()))
        with after.settings():
            states = {(number, _STORE): state.state for number, state in kept.items()}
            ids = write_stores(after.spark, after.location, batch, states, partitions)
        if after.is_format_2:
            commit = commit_log.parse(target.read(f"commits/{batch}").decode())
            target.write(f"commits/{batch}", commit.with_state_ids(ids).render().encode())
        return after

    def _require_the_others(
        self, snapshot: QuerySnapshot, dropped: Collection[int], before: QueryCopy
    ) -> None:
        """Have Spark read the operators that stay under their new numbers, and compare each key.

        Raises:
            FlinkstyleError: ``STATE_TRANSFORM`` if a key differs.
        """
        if not any(entry.path.startswith("state/") for entry in snapshot.files):
            return
        place = f"{self.place}/without"
        without = copy_to(before.spark, self.repository, self.manifest, snapshot, place, self.open_place)
        for number, which in every_state(before):
            if number in dropped:
                continue
            old, new = before.load(number, which), without.load(number_after(number, dropped), which)
            if (found := state_changes(old, new).head()) is not None:
                raise STATE_TRANSFORM_DIFFERS.error(query=snapshot.name, operator=number, key=str(found[0]))


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


def _drops(change: Change) -> bool:
    return isinstance(change, DropOperatorState)


def _operator(copied: QueryCopy, operator: int) -> list[Row]:
    """Return what Spark tells of an operator, a row for each store.

    Raises:
        FlinkstyleError: ``STATE_READ`` if the query has no such operator with state.
    """
    rows: list[Row] = copied.operators().select("*", PREFIX).collect()
    mine = [row for row in rows if row["operatorId"] == operator]
    if not mine:
        known = sorted({f"{row['operatorId']} ({row['operatorName']})" for row in rows})
        raise state_read_operator_unknown(operator, copied.query.name, known)
    return mine


def _the_store(copied: QueryCopy, operator: int) -> Row:
    """Return what Spark tells of an operator's store, if it is of a kind that can be written.

    Raises:
        FlinkstyleError: ``STATE_READ`` if the query has no such operator with state.
        FlinkstyleError: ``STATE_TRANSFORM`` if its state is in several stores or variables.
    """
    mine = _operator(copied, operator)
    if len(mine) > 1 or mine[0]["stateStoreName"] != _STORE or variables_of(mine[0]):
        raise STATE_TRANSFORM_SEVERAL_STORES.error(
            query=copied.query.name, operator=operator, name=mine[0]["operatorName"]
        )
    return mine[0]


def _dropped(copied: QueryCopy, operator: int) -> Counts:
    """Count the keys of an operator that goes, over all its stores."""
    _ = _operator(copied, operator)
    states = [copied.load(number, which) for number, which in every_state(copied) if number == operator]
    removed = sum(state.select("key").distinct().count() for state in states)
    return Counts(added=0, removed=removed, changed=0, kept=0)


def _proved(before: QueryCopy, after: QueryCopy, operator: int, kept: DataFrame) -> Counts:
    """Compare what Spark reads back with what was kept, and count what changed.

    Raises:
        FlinkstyleError: ``STATE_TRANSFORM`` if a key differs.
    """
    found = state_changes(kept, after.load(operator, {}).select(*COLUMNS)).head()
    if found is not None:
        raise STATE_TRANSFORM_DIFFERS.error(query=after.query.name, operator=operator, key=str(found[0]))
    old = before.load(operator, {}).select(*COLUMNS)
    rows = changes_of_any_key(old, kept).groupBy("change").count().collect()
    number = {row["change"]: row["count"] for row in rows}
    added, changed = number.get("added", 0), number.get("changed", 0)
    return Counts(
        added=added, removed=number.get("removed", 0), changed=changed, kept=kept.count() - added - changed
    )


def _captured(
    after: QueryCopy,
    old: QuerySnapshot,
    repository: SavepointRepository,
    kept: Mapping[int, Kept],
    open_place: OpenPlace,
) -> QuerySnapshot:
    """Return the old snapshot with the new data of some operators; every other file is as it was."""
    logs = {
        source: KafkaLog(cluster_id=at.cluster_id, topic_ids=dict(at.topic_ids), log_range=dict(at.log_range))
        for source, at in old.kafka.items()
    }
    found = capture_query(
        open_place(after.location),
        repository,
        name=old.name,
        kafka=logs,
        previous=old,
        batch_id=BatchId(old.batch_id),
    )
    rewritten = {f"offsets/{old.batch_id}"} if found.pinned_confs != old.pinned_confs else set()
    if after.is_format_2:
        rewritten.add(f"commits/{old.batch_id}")  # it names the stores' files

    rewritten |= {schema_path(number) for number, state in kept.items() if state.has_new_schema}

    def is_new(path: str) -> bool:
        return is_state_data(path, set(kept)) or path in rewritten

    files = [entry for entry in old.files if not is_new(entry.path)]
    files += [entry for entry in found.files if is_new(entry.path)]
    return replace(old, files=tuple(sorted(files, key=lambda entry: entry.path)))


def _evidence(
    query: str, changes: Mapping[int, Change], counts: Mapping[int, Counts], asked_by: str
) -> dict[str, str]:
    """Return what the new savepoint says of itself: who asked, by what source, how many keys."""
    return {
        f"{query}/{number}/state changed": json.dumps(
            {"by": asked_by, "function": described(change), **asdict(counts[number])}
        )
        for number, change in changes.items()
    }
