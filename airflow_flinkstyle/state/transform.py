"""Change a savepoint's state: a function per operator, written by Spark and proved, as a new savepoint.

What the function returns is kept. Spark writes it into a copy, which is read back, every key being compared
with what was kept. Only then is there a savepoint: of the same batch, so that no sink sees a gap, every
other file as it was.
"""

from __future__ import annotations

import getpass
import hashlib
import inspect
import json
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.checkpoint import commit_log
from airflow_flinkstyle.checkpoint.state_files import is_state_data
from airflow_flinkstyle.savepoint.capture.query import capture_query
from airflow_flinkstyle.savepoint.files.derive import publish_derived
from airflow_flinkstyle.savepoint.manifest import KafkaLog
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.state.changes import state_changes
from airflow_flinkstyle.state.errors import StateReadError, TransformError
from airflow_flinkstyle.state.query_copy import LATEST, copy_to, find_savepoint, scratch_for, the_query
from airflow_flinkstyle.state.reader import variables_of
from airflow_flinkstyle.state.rewriter import write_stores
from airflow_flinkstyle.storage.open import open_store
from airflow_flinkstyle.types import BatchId

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql import DataFrame, Row, SparkSession

    from airflow_flinkstyle.savepoint.manifest import Manifest, QuerySnapshot
    from airflow_flinkstyle.state.query_copy import QueryCopy
    from airflow_flinkstyle.state.scratch import OpenPlace
    from airflow_flinkstyle.storage.s3_settings import S3Settings

Change = Callable[["DataFrame"], "DataFrame"]
"""From an operator's state to its new one: columns ``key`` and ``value``, structs that keep their types."""
_SINCE: Final = (4, 2)
_STORE: Final = "default"
_COLUMNS: Final = ["key", "value"]
_PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB: Final = "RocksDBStateStoreProvider"


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
    changes: Mapping[int, Change],
    savepoint: str = LATEST,
    query: str | None = None,
    *,
    asked_by: str | None = None,
    scratch: str | None = None,
    s3: S3Settings | None = None,
) -> Transformed:
    """Publish a savepoint whose operators hold what functions make of their state.

    Each function is called once, with a DataFrame of ``key`` and ``value``, and returns one of the same
    types. The old savepoint and the job are not touched.

    Args:
        spark: A session of Spark 4.2 or newer, without a query that runs.
        root: Savepoint root: ``s3://bucket/prefix``, ``file:///path`` or ``/path``.
        job: The job's name.
        changes: By number of the operator, from 0 (``savepoint_operators`` lists them): its function.
        savepoint: Its id, or ``latest``.
        query: The query's name; may be left out if the savepoint has one query.
        asked_by: Who asked, for the record; None for the account that runs this.
        scratch: Location for the copies, reached by driver and executors, which is left there; None for a
            temporary folder of this machine, which goes when this process ends.
        s3: Endpoint and keys for locations on S3; None for boto3's standard environment variables.

    Raises:
        TransformError: If an operator cannot be written, a function returns what is no state of it, or what
            Spark wrote is not what the function returned; no savepoint is made then.
        StateReadError: If there is no such query or operator, or this Spark reads no state.
        SavepointMissingError: If there is no such savepoint.
    """
    if tuple(int(part) for part in spark.version.split(".")[:2]) < _SINCE:
        raise TransformError.spark_too_old(spark.version)
    repository = SavepointRepository(open_store(root, s3), job)
    manifest = find_savepoint(repository, savepoint)
    wanted = the_query(manifest, query)
    _require_writable(wanted)
    new_id = f"sp-transform-{uuid.uuid4().hex[:20]}"
    place = f"{scratch_for(spark, scratch)}/{new_id}"
    open_place: OpenPlace = lambda location: open_store(location, s3)  # noqa: E731

    before = copy_to(spark, repository, manifest, wanted, f"{place}/before", open_place)
    partitions = {number: _partitions(before, number) for number in changes}
    kept = {number: _kept(before, number, change) for number, change in changes.items()}
    trimmed = replace(wanted, files=tuple(f for f in wanted.files if not is_state_data(f.path, set(changes))))
    after = copy_to(spark, repository, manifest, trimmed, f"{place}/after", open_place)
    _write(before, after, kept, partitions, open_place)
    counts = {number: _proved(before, after, number, state) for number, state in kept.items()}

    def changed(snapshot: QuerySnapshot) -> QuerySnapshot:
        return _captured(after, wanted, repository, changes, open_place) if snapshot is wanted else snapshot

    evidence = _evidence(wanted.name, changes, counts, asked_by or getpass.getuser())
    published = publish_derived(manifest, repository, new_id, changed, evidence=evidence)
    return Transformed(savepoint=published, counts=counts)


def _require_writable(query: QuerySnapshot) -> None:
    provider = query.pinned_confs.get(_PROVIDER, "").rpartition(".")[2]
    if provider != _ROCKSDB:
        raise TransformError.provider(query.name, provider or "Spark's default, HDFSBackedStateStoreProvider")


def _partitions(copied: QueryCopy, operator: int) -> int:
    """Return how many partitions an operator's state has, if it is of a kind that can be written.

    Raises:
        StateReadError: If the query has no such operator with state.
        TransformError: If its state is in several stores or variables.
    """
    rows: list[Row] = copied.operators().collect()
    mine = [row for row in rows if row["operatorId"] == operator]
    if not mine:
        known = sorted({f"{row['operatorId']} ({row['operatorName']})" for row in rows})
        raise StateReadError.operator_unknown(operator, copied.query.name, known)
    if len(mine) > 1 or mine[0]["stateStoreName"] != _STORE or variables_of(mine[0]):
        raise TransformError.several_stores(copied.query.name, operator, mine[0]["operatorName"])
    return int(mine[0]["numPartitions"])


def _kept(before: QueryCopy, operator: int, change: Change) -> DataFrame:
    """Call a function once, and keep what it returns: what is written and what is compared must be one."""
    state = before.load(operator, {}).select(*_COLUMNS)
    new = change(state)
    where = before.query.name, operator
    if sorted(new.columns) != _COLUMNS or any(
        new.schema[name].dataType.simpleString() != state.schema[name].dataType.simpleString()
        for name in _COLUMNS
    ):
        raise TransformError.schema(*where, state.schema.simpleString(), new.schema.simpleString())
    try:
        # A block that is lost fails the job, where a plan that is run again could give other rows.
        kept = new.select(*_COLUMNS).localCheckpoint(eager=True)
    except Exception as error:  # what Spark makes of an error in a user's function depends on its kind
        raise TransformError.failed(*where, str(error)) from error
    _require_keys(kept, *where)
    _require_no_null(state, kept, *where)
    return kept


def _types(state: DataFrame) -> list[str]:
    """Return the types of key and value, whatever may be null."""
    return [state.schema[name].dataType.simpleString() for name in _COLUMNS]


def _require_keys(kept: DataFrame, query: str, operator: int) -> None:
    if (nothing := kept.where("key IS NULL OR value IS NULL").head()) is not None:
        raise TransformError.null(query, operator, "key and value", str(nothing))
    if (twice := kept.groupBy("key").count().where("count > 1").head()) is not None:
        raise TransformError.twice(query, operator, str(twice["key"]), twice["count"])


def _require_no_null(state: DataFrame, kept: DataFrame, query: str, operator: int) -> None:
    from pyspark.sql import functions as F

    for column in _COLUMNS:
        for field in state.select(f"{column}.*").schema.fields:
            if field.nullable or field.dataType.typeName() == "void":
                continue
            found = kept.where(F.col(column).getField(field.name).isNull()).head()
            if found is not None:
                raise TransformError.null(query, operator, f"{column}.{field.name}", str(found["key"]))


def _write(
    before: QueryCopy,
    after: QueryCopy,
    kept: Mapping[int, DataFrame],
    partitions: Mapping[int, int],
    open_place: OpenPlace,
) -> None:
    """Have Spark write what was kept; in format 2 the commit log names what it wrote."""
    batch = after.query.batch_id
    source, target = open_place(before.location), open_place(after.location)
    target.write(f"offsets/{batch}", source.read(f"offsets/{batch}"))  # made readable by the state of all
    with after.settings():
        states = {(number, _STORE): state for number, state in kept.items()}
        ids = write_stores(after.spark, after.location, batch, states, partitions)
    if after.is_format_2:
        log = commit_log.parse(target.read(f"commits/{batch}").decode())
        target.write(f"commits/{batch}", log.with_state_ids(ids).render().encode())


def _proved(before: QueryCopy, after: QueryCopy, operator: int, kept: DataFrame) -> Counts:
    """Compare what Spark reads back with what was kept, and count what changed.

    Raises:
        TransformError: If a key differs.
    """
    found = state_changes(kept, after.load(operator, {}).select(*_COLUMNS)).head()
    if found is not None:
        raise TransformError.differs(after.query.name, operator, str(found[0]))
    old = before.load(operator, {}).select(*_COLUMNS)
    rows = state_changes(old, kept).groupBy("change").count().collect()
    number = {row["change"]: row["count"] for row in rows}
    added, changed = number.get("added", 0), number.get("changed", 0)
    return Counts(
        added=added, removed=number.get("removed", 0), changed=changed, kept=kept.count() - added - changed
    )


def _captured(
    after: QueryCopy,
    old: QuerySnapshot,
    repository: SavepointRepository,
    operators: Collection[int],
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
    commit = f"commits/{old.batch_id}"  # in format 2 it names the stores' files

    def is_new(path: str) -> bool:
        return is_state_data(path, set(operators)) or (after.is_format_2 and path == commit)

    files = [entry for entry in old.files if not is_new(entry.path)]
    files += [entry for entry in found.files if is_new(entry.path)]
    return replace(old, files=tuple(sorted(files, key=lambda entry: entry.path)))


def _evidence(
    query: str, changes: Mapping[int, Change], counts: Mapping[int, Counts], asked_by: str
) -> dict[str, str]:
    """Return what the new savepoint says of itself: who asked, by what source, how many keys."""
    return {
        f"{query}/{number}/state changed": json.dumps(
            {"by": asked_by, "function": _described(change), **asdict(counts[number])}
        )
        for number, change in changes.items()
    }


def _described(change: Change) -> str:
    """Return a ready-made change as it is written, or a function's name and the digest of its source."""
    if not inspect.isfunction(change):
        return repr(change)
    try:
        source = inspect.getsource(change)
    except (OSError, TypeError):  # typed into a shell
        return change.__qualname__
    return f"{change.__qualname__} sha256:{hashlib.sha256(source.encode()).hexdigest()}"
