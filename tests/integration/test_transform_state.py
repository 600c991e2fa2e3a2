"""A savepoint whose state was changed: the query goes on as if it had always had these values."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

from airflow_flinkstyle.savepoint.files.restore import restore_query
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.state import (
    AddColumn,
    DropColumn,
    DropKeys,
    DropOperatorState,
    NewSchema,
    RenameColumn,
    SetValues,
    Widen,
    convert_savepoint,
    savepoint_operators,
    savepoint_state,
    transform_state,
)
from airflow_flinkstyle.state.errors import STATE_READ, STATE_TRANSFORM
from airflow_flinkstyle.state.transform import Counts
from airflow_flinkstyle.storage.local import LocalStore
from testbed import paths
from testbed.refusals import refuses
from testbed.session import local_session
from tests.golden.stateful import CASES, CHANGELOG, DELAY, FORMAT_V2, ROCKSDB, STATE, Case, two_operators
from tests.integration.operator_lab import (
    LAST,
    assert_goes_on,
    lab_of,
    run_until,
    take_while_it_runs,
)
from tests.nightly import nightly_but

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.state.edits import Change
    from testbed.spark import SparkPaths
    from tests.golden.stateful import Read, Untyped
    from tests.integration.operator_lab import OperatorLab, Rows

VERSION = tuple(int(part) for part in (paths.SPARK or "4.2").split("."))
pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.skipif(VERSION < (4, 2), reason="Spark 4.2 brought the writer"),
]

BY_NAME = {case.name: case for case in CASES}
OF_HDFS = ("dedup", "pandas-state", "without-keys")
WRITTEN = [
    *(BY_NAME[name] for name in ("rocksdb", "rocksdb-changelog", "format-v2", "format-v2-changelog")),
    *(BY_NAME[name] for name in ("session-window", "dedup-within-watermark", "two-operators")),
    *(replace(BY_NAME[name], name=f"{name}-in-rocksdb", confs=CHANGELOG) for name in OF_HDFS),
]


@pytest.fixture(scope="module")
def spark(spark_paths: SparkPaths) -> Iterator[SparkSession]:
    confs = {"spark.sql.session.timeZone": "UTC", f"{STATE}.minDeltasForSnapshot": "2"}
    with local_session(spark_paths, confs) as session:
        yield session


class Taken:
    """A savepoint of a case's query, and what the query wrote, which ran on."""

    def __init__(self, spark: SparkSession, case: Case, folder: Path) -> None:
        self.lab, self.folder = lab_of(spark, case), folder
        self.root = folder / "root"
        self.repository = SavepointRepository(LocalStore(self.root), "job")
        live = folder / "live"
        self.manifest, self.unbroken = take_while_it_runs(
            self.lab, str(live), LocalStore(live), self.repository
        )
        live.rename(live.with_name("away"))

    def state(self, savepoint: str = "sp-1") -> DataFrame:
        return savepoint_state(self.lab.spark, str(self.root), "job", savepoint)

    def operators(self, savepoint: str = "sp-1") -> DataFrame:
        return savepoint_operators(self.lab.spark, str(self.root), "job", savepoint)

    def changed(self, change: Change | Sequence[Change], operator: int = 0) -> tuple[Manifest, Counts]:
        done = transform_state(
            self.lab.spark, str(self.root), "job", {operator: change}, "sp-1", asked_by="ada"
        )
        verify_savepoint(done.savepoint, self.repository, level="full")
        return done.savepoint, done.counts[operator]

    def restored(self, manifest: Manifest) -> str:
        copy = self.folder / manifest.savepoint_id
        restore_query(manifest, manifest.queries[0], self.repository, LocalStore(copy))
        return str(copy)


def as_it_is(state: DataFrame) -> DataFrame:
    return state


@pytest.mark.nightly
@pytest.mark.parametrize("case", WRITTEN, ids=lambda case: case.name)
def test_state_that_is_written_as_it_was_goes_on_as_the_unbroken_one(
    spark: SparkSession, tmp_path: Path, case: Case
):
    taken = Taken(spark, case, tmp_path)
    manifest, counts = taken.changed(as_it_is)
    assert (counts.added, counts.removed, counts.changed) == (0, 0, 0)
    assert counts.kept > 0
    assert_goes_on(taken.lab, manifest, taken.restored(manifest), taken.unbroken)
    old, new = taken.manifest.queries[0], manifest.queries[0]
    assert (new.batch_id, new.planned_offsets) == (old.batch_id, old.planned_offsets)
    same = {entry.path: entry.digest for entry in old.files if not entry.path.startswith("state/0/")}
    assert {f.path: f.digest for f in new.files if f.path in same and f.path != commit(old.batch_id)} == {
        path: digest for path, digest in same.items() if path != commit(old.batch_id)
    }


def commit(batch: int) -> str:
    """In format 2 it names the state's files."""
    return f"commits/{batch}"


CONVERTED = [BY_NAME[name] for name in ("hdfs", "dedup", "pandas-state", "without-keys")]


@pytest.mark.parametrize(
    "case", nightly_but(lambda case: case.name == "hdfs", CONVERTED), ids=lambda case: case.name
)
def test_state_of_the_default_provider_goes_on_in_rocksdb(spark: SparkSession, tmp_path: Path, case: Case):
    taken = Taken(spark, case, tmp_path)
    done = convert_savepoint(taken.lab.spark, str(taken.root), "job", "sp-1")
    manifest, query = done.savepoint, done.savepoint.queries[0]
    verify_savepoint(manifest, taken.repository, level="full")
    assert all((c.added, c.removed, c.changed) == (0, 0, 0) and c.kept for c in done.counts.values())
    assert query.pinned_confs[f"{STATE}.providerClass"].endswith(".RocksDBStateStoreProvider")
    assert any(file.path.endswith(".zip") for file in query.files)
    assert not any(file.path.endswith((".delta", ".snapshot")) for file in query.files)
    rocksdb = replace(taken.lab, spark=taken.lab.spark.newSession())
    assert_goes_on(rocksdb, manifest, taken.restored(manifest), taken.unbroken)
    with refuses(STATE_TRANSFORM, match="found RocksDBStateStoreProvider"):
        convert_savepoint(taken.lab.spark, str(taken.root), "job", manifest.savepoint_id)


def test_dropped_added_and_changed_keys_are_what_the_query_continues_with(
    spark: SparkSession, tmp_path: Path
):
    def correct(state: DataFrame) -> DataFrame:
        value = state.value.withField(
            "sum", F.when(state.key.k == 1, F.lit(5_000)).otherwise(state.value["sum"])
        )
        kept = state.where("key.k <> 2").withColumn("value", value)
        added = state.where("key.k = 3").withColumn("key", F.struct(F.lit(77).alias("k")))
        return kept.union(added)

    taken = Taken(spark, BY_NAME["rocksdb-changelog"], tmp_path)
    manifest, counts = taken.changed(correct)
    assert counts == Counts(added=1, removed=1, changed=1, kept=3)
    state = {row.key.k: row.value.asDict() for row in taken.state(manifest.savepoint_id).collect()}
    before = {row.key.k: row.value.asDict() for row in taken.state().collect()}
    assert state == {
        0: before[0],
        1: {**before[1], "sum": 5_000},
        3: before[3],
        4: before[4],
        77: before[3],
    }
    taken_at = taken.manifest.queries[0].batch_id
    rows: dict[int, list[str]] = {}
    query = taken.lab.start(taken.restored(manifest), rows)
    try:
        run_until(query, rows, taken_at + 2)
    finally:
        query.stop()
    for batch in (taken_at + 1, taken_at + 2):
        expected = [json.loads(row) for row in taken.unbroken[batch]]
        for row in expected:
            if row["k"] == 1:
                row["s"] += 5_000 - before[1]["sum"]
            elif row["k"] == 2:
                row["s"] -= before[2]["sum"]
                row["n"] -= before[2]["count"]
        assert [json.loads(row) for row in rows[batch]] == expected
    evidence = json.loads(manifest.evidence["q/0/state changed"])
    assert evidence["by"] == "ada"
    assert evidence["function"].startswith("test_dropped_added_and_changed_keys")
    assert (evidence["added"], evidence["removed"], evidence["changed"], evidence["kept"]) == (1, 1, 1, 3)
    assert manifest.parent == "sp-1"


@pytest.mark.nightly
def test_ready_made_changes_do_what_their_names_say(spark: SparkSession, tmp_path: Path):
    taken = Taken(spark, BY_NAME["rocksdb"], tmp_path)
    before = {row.key.k: row.value["sum"] for row in taken.state().collect()}
    dropped, counts = taken.changed(DropKeys("key.k IN (1, 4) OR value.sum IS NULL"))
    assert counts == Counts(added=0, removed=2, changed=0, kept=3)
    assert "DropKeys(where=" in dropped.evidence["q/0/state changed"]
    doubled, counts = taken.changed(SetValues({"sum": "value.sum * 2"}, where="key.k < 2"))
    assert counts == Counts(added=0, removed=0, changed=2, kept=3)
    state = {row.key.k: row.value["sum"] for row in taken.state(doubled.savepoint_id).collect()}
    assert state == {k: total * 2 if k < 2 else total for k, total in before.items()}
    with refuses(STATE_READ, match="Expected a condition in SQL"):
        taken.changed(DropKeys("key.customer = 1"))
    with refuses(STATE_TRANSFORM, match="a field of the values, count, sum, found 'total'"):
        taken.changed(SetValues({"total": "1"}))


def from_the_start(lab: OperatorLab, folder: Path) -> Rows:
    """Return what a query writes that was there from the start."""
    rows: Rows = {}
    query = lab.start(str(folder), rows)
    try:
        run_until(query, rows, LAST)
    finally:
        query.stop()
    return rows


def per_key(*functions: str, key: str = "k") -> Callable[[Read], DataFrame]:
    """Return a query that aggregates per key."""

    def build(read: Read) -> DataFrame:
        found = read("only").groupBy(F.expr(key).alias("k")).agg(*map(F.expr, functions))
        return found.withColumn("k", F.col("k").cast("int"))

    return build


def per_group(field: str, kind: str) -> Callable[[Read], DataFrame]:
    """Return a query that adds up in Python, in a state with one field of this name and type."""

    def build(read: Read) -> DataFrame:
        def add(key: tuple[int], frames: Untyped, state: Untyped) -> Iterator[Untyped]:
            import pandas as pd

            total = state.get[0] if state.exists else 0
            total += sum(int(frame["v"].sum()) for frame in frames)
            state.update((total,))
            yield pd.DataFrame({"k": [key[0]], "s": [total]})

        grouped, timeout = read("only").groupBy("k"), GroupStateTimeout.NoTimeout
        return grouped.applyInPandasWithState(add, "k int, s long", f"{field} {kind}", "update", timeout)

    return build


COUNT, SUM, MORE = "count(*) AS n", "sum(v) AS s", "sum(v + 1) AS m"


@dataclass(frozen=True)
class Evolved:
    """A version of a query, and one whose state has another schema."""

    name: str
    confs: dict[str, str]
    builds: tuple[Callable[[Read], DataFrame], Callable[[Read], DataFrame]]
    changes: list[Change]
    fields: dict[str, str]
    """What the new state is to have, by name: types."""


EVOLVED = [
    Evolved(
        "column-added",
        CHANGELOG,
        (per_key(COUNT, SUM), per_key(COUNT, SUM, MORE)),
        [AddColumn("sum_2", "value.sum + value.count")],
        {"sum_2": "bigint"},
    ),
    Evolved(
        "column-added-before",
        FORMAT_V2,
        (per_key(COUNT, SUM), per_key(MORE, COUNT, SUM)),
        [AddColumn("more", "value.sum + value.count", before="count")],
        {"more": "bigint"},
    ),
    Evolved(
        "column-dropped",
        ROCKSDB,
        (per_key(COUNT, SUM, MORE), per_key(COUNT, MORE)),
        [DropColumn("sum")],
        {"sum_2": "bigint"},
    ),
    Evolved(
        "value-widened",
        ROCKSDB,
        (per_key("max(v) AS x"), per_key("max(CAST(v AS LONG)) AS x")),
        [Widen("max", "BIGINT")],
        {"max": "bigint"},
    ),
    Evolved(
        "key-widened",
        FORMAT_V2,
        (per_key(COUNT, SUM), per_key(COUNT, SUM, key="CAST(k AS DECIMAL(30,0))")),
        [Widen("key.k", "DECIMAL(30,0)")],
        {"k": "decimal(30,0)"},
    ),
    Evolved(
        "column-renamed-in-a-struct",
        CHANGELOG,
        (per_group("total", "int"), per_group("amount", "long")),
        [RenameColumn("groupState.total", "amount"), Widen("groupState.amount", "BIGINT")],
        {"groupState": "struct<amount:bigint>"},
    ),
    Evolved(
        "function",
        ROCKSDB,
        (per_key(COUNT, SUM), per_key(SUM)),
        [NewSchema(lambda state: state.withColumn("value", F.struct("value.sum")))],
        {"sum": "bigint"},
    ),
]


@pytest.mark.parametrize(
    "evolved", nightly_but(lambda one: one.name == "column-added", EVOLVED), ids=lambda one: one.name
)
def test_query_of_another_schema_counts_on_as_if_it_had_been_there_from_the_start(
    spark: SparkSession, tmp_path: Path, evolved: Evolved
):
    old, new = (
        Case(f"{evolved.name}-{number}", build, evolved.confs) for number, build in enumerate(evolved.builds)
    )
    taken = Taken(spark, old, tmp_path)
    manifest, counts = taken.changed(evolved.changes)
    assert counts.kept + counts.changed + counts.removed == 5
    state = taken.state(manifest.savepoint_id).select("key.*", "value.*")
    found = {field.name: field.dataType.simpleString() for field in state.schema}
    assert {name: found[name] for name in evolved.fields} == evolved.fields
    lab = lab_of(spark, new)
    expected = from_the_start(lab, tmp_path / "from-the-start")
    assert_goes_on(lab_of(spark, new), manifest, taken.restored(manifest), expected)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["two-operators", "two-operators-format-v2"])
def test_operator_that_a_version_has_no_more_is_left_behind(spark: SparkSession, tmp_path: Path, name: str):
    confs = CHANGELOG if name == "two-operators" else FORMAT_V2

    def once(read: Read) -> Read:
        return lambda name: read(name).where("v >= 18")  # of these none comes twice

    case = replace(BY_NAME["two-operators"], name=name, confs=confs)
    taken = Taken(spark, replace(case, build=lambda read: two_operators(once(read))), tmp_path)
    rows = {row["operatorId"]: row["operatorName"] for row in taken.operators().collect()}
    dedup = next(number for number, operator in rows.items() if operator == "dedupe")
    manifest, counts = taken.changed(DropOperatorState(), operator=dedup)
    assert counts.removed
    [only] = taken.operators(manifest.savepoint_id).collect()
    assert (only["operatorId"], only["operatorName"]) == (0, "stateStoreSave")

    def without_dedup(read: Read) -> DataFrame:
        rows = once(read)("only").withWatermark("ts", DELAY)
        found = rows.groupBy(F.window("ts", "1 minute"), "k").agg(F.sum("v").alias("s"))
        return found.select("k", F.col("window.start").cast("long").alias("start"), "s")

    lab = lab_of(spark, replace(taken.lab.case, build=without_dedup))
    assert_goes_on(lab, manifest, taken.restored(manifest), taken.unbroken)
    nothing, _ = taken.changed(DropOperatorState(), operator=dedup)
    with refuses(STATE_TRANSFORM, match="only change of its operator"):
        taken.changed([DropOperatorState(), as_it_is], operator=dedup)
    assert nothing.queries[0].batch_id == taken.manifest.queries[0].batch_id


@pytest.mark.nightly
def test_what_is_no_state_is_refused_and_makes_no_savepoint(spark: SparkSession, tmp_path: Path):
    taken = Taken(spark, replace(BY_NAME["rocksdb"], name="refused"), tmp_path)

    def fails(state: DataFrame) -> DataFrame:
        return state.withColumn("value", F.when(F.raise_error(F.lit("row 7")).isNull(), F.col("value")))

    refused: list[tuple[Change, str]] = [
        (lambda state: state.select("key"), "expected to return .*, found "),
        (
            lambda state: state.withColumn("key", F.struct(F.lit("x").alias("k"))),
            r"found struct<key:struct<k:string>",
        ),
        (lambda state: state.union(state), "each key once, found Row.* 2 times"),
        (
            lambda state: state.withColumn("value", F.lit(None).cast(state.schema["value"].dataType)),
            "no null in",
        ),
        (
            lambda state: state.withColumn(
                "value", state.value.withField("count", F.lit(None).cast("bigint"))
            ),
            r"no null in value.count",
        ),
        (fails, "failed: .*row 7"),
    ]
    for change, found in refused:
        with refuses(STATE_TRANSFORM, match=found):
            taken.changed(change)
    with refuses(STATE_READ, match=r"0 \(stateStoreSave\), found 4"):
        taken.changed(as_it_is, operator=4)
    assert taken.repository.ids() == ("sp-1",)


@pytest.mark.nightly
def test_schema_that_cannot_be_is_refused_and_makes_no_savepoint(spark: SparkSession, tmp_path: Path):
    taken = Taken(spark, replace(BY_NAME["rocksdb"], name="no-schema"), tmp_path)
    refused: list[tuple[Change, str]] = [
        (AddColumn("sum", "1"), "a name that no field beside it has, found 'sum'"),
        (AddColumn("more", "1", before="total"), "a field of the values, count, sum, found 'total'"),
        (RenameColumn("count", "sum"), "found 'sum'"),
        (DropColumn("value.total"), "found 'total'"),
        (DropColumn("value.sum.inner"), "found 'value.sum.inner'"),
        (Widen("sum", "INT"), "a type for sum that holds every bigint, found int"),
        (Widen("key.k", "DECIMAL(9,0)"), "holds every int, found decimal"),
        (NewSchema(lambda state: state.select("key", "value.sum")), "two structs, key and value, found"),
    ]
    for change, found in refused:
        with refuses(STATE_TRANSFORM, match=found):
            taken.changed(change)
    with refuses(STATE_READ, match="Expected a condition in SQL"):
        taken.changed(Widen("sum", "NUMBER"))
    sessions = Taken(spark, replace(BY_NAME["session-window"], name="no-prefix"), tmp_path / "sessions")
    with refuses(STATE_TRANSFORM, match="looks keys up by the first 1 of them"):
        sessions.changed(Widen("key.k", "BIGINT"))
    assert {*taken.repository.ids(), *sessions.repository.ids()} == {"sp-1"}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("hdfs", "keeps its in HDFSBackedStateStoreProvider"),
        ("named-sink", "Spark would not write the new state: .*FORMAT_VERSION_MISMATCH"),
        ("join-format-v2", r"operator 0 of query q, symmetricHashJoin, which keeps several"),
        ("transform-with-state", "which keeps several"),
    ],
)
def test_operator_that_cannot_be_written_is_refused_by_name(
    spark: SparkSession, tmp_path: Path, name: str, found: str
):
    taken = Taken(spark, BY_NAME[name], tmp_path)
    with refuses(STATE_TRANSFORM, match=found):
        taken.changed(as_it_is)
