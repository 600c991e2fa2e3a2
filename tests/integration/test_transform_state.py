"""A savepoint whose state was changed: the query goes on as if it had always had these values."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.savepoint.files.restore import restore_query
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.state import (
    AddColumn,
    DropColumn,
    DropKeys,
    DropOperatorState,
    FromTable,
    NewSchema,
    RenameColumn,
    SetValues,
    WidenColumn,
    convert_savepoint,
    savepoint_operators,
    savepoint_state,
    transform,
    transform_state,
)
from airflow_flinkstyle.state.errors import STATE_READ, STATE_TRANSFORM
from airflow_flinkstyle.state.transform import Counts
from airflow_flinkstyle.storage.local import LocalStore
from testbed import paths
from testbed.refusals import refuses
from testbed.session import local_session
from tests.golden.stateful import (
    CASES,
    CHANGELOG,
    DELAY,
    FORMAT_V2,
    ROCKSDB,
    STATE,
    Case,
    timed,
    two_operators,
    variables,
)
from tests.integration.operator_lab import (
    LAST,
    assert_goes_on,
    lab_of,
    run_until,
    take_while_it_runs,
)
from tests.nightly import matrix_but, nightly_but

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.state.edits import Change, Given
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
OF_HDFS = ("dedup", "pandas-state", "without-keys", "join")
WRITTEN = [
    *(BY_NAME[name] for name in ("rocksdb", "rocksdb-changelog", "format-v2", "format-v2-changelog")),
    *(BY_NAME[name] for name in ("session-window", "dedup-within-watermark", "two-operators")),
    *(BY_NAME[name] for name in ("join-format-v2", "join-one-store")),
    *(BY_NAME[name] for name in ("transform-with-state", "transform-with-state-v2")),
    *(replace(BY_NAME[name], name=f"{name}-in-rocksdb", confs=CHANGELOG) for name in OF_HDFS),
]
AT_NIGHT = {"transform-with-state-v2", "dedup-in-rocksdb"}
"""`make matrix` runs the others, `make test-versions` all."""


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

    def state(self, savepoint: str = "sp-1", **which: str) -> DataFrame:
        return savepoint_state(self.lab.spark, str(self.root), "job", savepoint, **which)

    def operators(self, savepoint: str = "sp-1") -> DataFrame:
        return savepoint_operators(self.lab.spark, str(self.root), "job", savepoint)

    def changed(self, change: Given, operator: int = 0) -> tuple[Manifest, Counts]:
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
@pytest.mark.parametrize(
    "case", matrix_but(lambda case: case.name in AT_NIGHT, WRITTEN), ids=lambda case: case.name
)
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


CONVERTED = [
    *(BY_NAME[name] for name in ("hdfs", "dedup", "pandas-state", "join")),
    # Spark reads their partition 0 alone; of 5 the hash of no fields would lead to another.
    replace(BY_NAME["without-keys"], partitions=5),
]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "case",
    matrix_but(lambda case: case.name in ("hdfs", "without-keys"), CONVERTED),
    ids=lambda case: case.name,
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


@pytest.mark.nightly
@pytest.mark.parametrize("before", [True, False], ids=["off", "on"])
def test_changelog_is_switched_at_a_start(spark: SparkSession, tmp_path: Path, before: bool):
    """So that nothing has to convert it."""
    confs = CHANGELOG if before else {**ROCKSDB, f"{STATE}.rocksdb.changelogCheckpointing.enabled": "false"}
    other = {**ROCKSDB, f"{STATE}.rocksdb.changelogCheckpointing.enabled": str(not before).lower()}
    taken = Taken(spark, replace(BY_NAME["rocksdb"], name=f"changelog-{before}", confs=confs), tmp_path)
    lab = lab_of(spark, replace(taken.lab.case, confs=other))
    assert_goes_on(lab, taken.manifest, taken.restored(taken.manifest), taken.unbroken)
    kinds = {path.suffix for path in (tmp_path / "sp-1/state/0").rglob(f"{LAST + 1}.*")}
    assert (".changelog" in kinds) is not before


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
def test_query_begins_with_what_a_table_holds(spark: SparkSession, tmp_path: Path):
    taken = Taken(spark, replace(BY_NAME["rocksdb"], name="from-table"), tmp_path)
    before = {row.key.k: row.value.asDict() for row in taken.state().collect()}
    table = taken.lab.spark.createDataFrame(
        [(k, 100 * k, 7) for k in range(1, 6)], "k int, sum int, count int"
    )
    manifest, counts = taken.changed(FromTable(table))
    assert counts == Counts(added=1, removed=1, changed=4, kept=0)
    assert "FromTable(struct<k:int" in manifest.evidence["q/0/state changed"]
    expected = {}
    for batch, texts in taken.unbroken.items():
        rows = [json.loads(text) for text in texts]
        for row in rows:
            had = before[row["k"]]
            row["n"] += (7 if row["k"] else 0) - had["count"]
            row["s"] += 100 * row["k"] - had["sum"]
        expected[batch] = sorted(map(json.dumps, rows))
    assert_goes_on(taken.lab, manifest, taken.restored(manifest), expected)
    in_structs = table.selectExpr("struct(k) AS key", "struct(count, sum) AS value")
    _, again = taken.changed(FromTable(in_structs))
    assert again == counts
    with refuses(STATE_TRANSFORM, match="for each field of the state, count, k, sum, found k, sum"):
        taken.changed(FromTable(table.drop("count")))
    cents = table.selectExpr("k", "sum + 0.5D AS sum", "count")
    with refuses(STATE_TRANSFORM, match=r"sum of the table, double \d+\.5, is no bigint"):
        taken.changed(FromTable(cents))


def joined(batch: int, missing: Callable[[int, int], bool]) -> list[dict[str, int]]:
    """Return what the join of the lab writes in a batch, without rows of the left side that are missing.

    Both sides have the numbers from 12 x batch on; equal ones modulo 30 join, if they are of the same three
    batches.
    """
    rows = []
    for left in range(12 * (batch + 1)):
        for right in range(12 * (batch + 1)):
            batches = left // 12, right // 12
            near = batches[0] // 3 == batches[1] // 3 and left % 30 == right % 30
            if near and max(batches) == batch and not missing(left % 5, batches[0]):
                at = 1_699_999_920 + 180 * (batches[1] // 3)
                rows.append({"k": left % 5, "v": left % 30, "t": at})
    return rows


@pytest.mark.nightly
@pytest.mark.parametrize("name", matrix_but("join-one-store".__eq__, ["join-format-v2", "join-one-store"]))
def test_rows_that_a_join_waits_with_are_dropped_on_one_side(spark: SparkSession, tmp_path: Path, name: str):
    taken = Taken(spark, BY_NAME[name], tmp_path)
    at = taken.manifest.queries[0].batch_id

    def in_text(rows: list[dict[str, int]]) -> list[str]:
        return sorted(map(json.dumps, rows))

    assert taken.unbroken == {
        batch: in_text(joined(batch, lambda *_: False)) for batch in range(len(taken.unbroken))
    }
    manifest, counts = taken.changed({"left": DropKeys("value.k < 3 OR value.matched IS NULL")})
    assert counts.removed
    assert counts.changed == 0
    expected = {
        batch: in_text(joined(batch, lambda k, of: k < 3 and of <= at)) for batch in range(at + 1, LAST + 1)
    }
    assert_goes_on(taken.lab, manifest, taken.restored(manifest), expected)
    nothing_left, _ = taken.changed(DropKeys("key.index >= 0"))
    assert taken.state(nothing_left.savepoint_id, join_side="right").count() == 0


@pytest.mark.nightly
def test_variables_of_transform_with_state_are_changed_together_or_each(spark: SparkSession, tmp_path: Path):
    taken = Taken(spark, BY_NAME["transform-with-state-v2"], tmp_path)
    at = taken.manifest.queries[0].batch_id
    before = {row.key.k: row.value.s for row in taken.state(variable="total").collect()}
    entries = taken.state(variable="counts").where("key.k = 1").collect()
    known = {row.user_map_key.r: row.user_map_value.n for row in entries}
    manifest, counts = taken.changed(DropKeys("key.k = 1"))
    assert counts.removed == 1 + 1 + len(known), "its total, its list, its map"
    more = {"total": SetValues({"s": "value.s + 1000"}, where="key.k = 2"), "counts": as_it_is}
    done = transform_state(taken.lab.spark, str(taken.root), "job", {0: more}, manifest.savepoint_id)
    assert done.counts[0].changed == 1
    rows: dict[int, list[str]] = {}
    query = taken.lab.start(taken.restored(done.savepoint), rows)
    try:
        run_until(query, rows, at + 2)
    finally:
        query.stop()
    for batch in (at + 1, at + 2):
        expected = [json.loads(row) for row in taken.unbroken[batch]]
        for row in expected:
            if row["k"] == 1:
                row["s"] -= before[1]
                had = {int(r): int(n) for r, n in (one.split(":") for one in row["counts"].split(","))}
                left = {r: n - known.get(r, 0) for r, n in had.items() if n > known.get(r, 0)}
                row["counts"] = ",".join(f"{r}:{n}" for r, n in sorted(left.items()))
            elif row["k"] == 2:
                row["s"] += 1000
        assert [json.loads(row) for row in rows[batch]] == expected


@pytest.mark.matrix
def test_values_that_expire_go_on_with_what_spark_finds_them_by(spark: SparkSession, tmp_path: Path):
    taken = Taken(spark, Case("expires", variables(3_600_000), CHANGELOG), tmp_path)
    manifest, counts = taken.changed(as_it_is)
    assert counts.kept > 0
    assert (counts.added, counts.removed, counts.changed) == (0, 0, 0)
    assert_goes_on(taken.lab, manifest, taken.restored(manifest), taken.unbroken)
    later = SetValues({"value.ttlExpirationMs": "value.ttlExpirationMs + 1000"}, where="key.k = 2")
    changed, counts = taken.changed({"total": later, "last": DropKeys("key.k = 1")})
    assert (counts.removed, counts.changed) == (1, 1)
    assert {row.key.k for row in taken.state(changed.savepoint_id, variable="last").collect()} == {0, 2, 3, 4}


@pytest.mark.matrix
def test_timers_go_on_and_go_with_their_keys(spark: SparkSession, tmp_path: Path):
    taken = Taken(spark, Case("timers", timed, CHANGELOG), tmp_path)
    told = [json.loads(row) for rows in taken.unbroken.values() for row in rows]
    assert any(row["at"] for row in told), "timers expired"
    manifest, counts = taken.changed(as_it_is)
    assert (counts.added, counts.removed, counts.changed) == (0, 0, 0)
    assert_goes_on(taken.lab, manifest, taken.restored(manifest), taken.unbroken)
    without, counts = taken.changed(DropKeys("key.k = 1"))
    assert counts.removed > 1
    left = savepoint_state(
        taken.lab.spark, str(taken.root), "job", without.savepoint_id, timers=True
    ).collect()
    assert {row.key.k for row in left} == {0, 2, 3, 4}


@pytest.mark.matrix
def test_what_several_states_cannot_be_given_is_refused(spark: SparkSession, tmp_path: Path):
    taken = Taken(spark, BY_NAME["transform-with-state"], tmp_path)
    refused: list[tuple[Given, str]] = [
        ({"sum": as_it_is}, "a state of operator 0, total, last, counts, found 'sum'"),
        ({"total": WidenColumn("s", "DECIMAL(38,0)")}, "to keep its schema, since it is one of several"),
        ({"counts": lambda state: state.union(state)}, "each key once"),
        ({"last": lambda state: state.select("key")}, "expected to return .*list_element"),
    ]
    for change, found in refused:
        with refuses(STATE_TRANSFORM, match=found):
            taken.changed(change)
    assert taken.repository.ids() == ("sp-1",)


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
        [WidenColumn("max", "BIGINT")],
        {"max": "bigint"},
    ),
    Evolved(
        "key-widened",
        FORMAT_V2,
        (per_key(COUNT, SUM), per_key(COUNT, SUM, key="CAST(k AS DECIMAL(30,0))")),
        [WidenColumn("key.k", "DECIMAL(30,0)")],
        {"k": "decimal(30,0)"},
    ),
    Evolved(
        "column-renamed-in-a-struct",
        CHANGELOG,
        (per_group("total", "int"), per_group("amount", "long")),
        [RenameColumn("groupState.total", "amount"), WidenColumn("groupState.amount", "BIGINT")],
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
    "evolved",
    nightly_but(
        lambda one: one.name == "column-added",
        EVOLVED,
        matrix=lambda one: one.name not in ("column-added", "key-widened"),
    ),
    ids=lambda one: one.name,
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
@pytest.mark.parametrize(
    "name", matrix_but("two-operators".__eq__, ["two-operators", "two-operators-format-v2"])
)
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

    refused: list[tuple[Any, str]] = [
        (lambda _: None, "expected to return a DataFrame of two structs, key and value, found None"),
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
        (WidenColumn("sum", "INT"), "a type for sum that holds every bigint, found int"),
        (WidenColumn("key.k", "DECIMAL(9,0)"), "holds every int, found decimal"),
        (NewSchema(lambda state: state.select("key", "value.sum")), "of two structs, key and value, found"),
    ]
    for change, found in refused:
        with refuses(STATE_TRANSFORM, match=found):
            taken.changed(change)
    with refuses(STATE_READ, match="Expected a condition in SQL"):
        taken.changed(WidenColumn("sum", "NUMBER"))
    sessions = Taken(spark, replace(BY_NAME["session-window"], name="no-prefix"), tmp_path / "sessions")
    with refuses(STATE_TRANSFORM, match="looks keys up by the first 1 of them"):
        sessions.changed(WidenColumn("key.k", "BIGINT"))
    assert {*taken.repository.ids(), *sessions.repository.ids()} == {"sp-1"}


@pytest.mark.nightly
def test_two_transformations_at_once_make_a_savepoint_each(spark: SparkSession, tmp_path: Path):
    taken = Taken(spark, replace(BY_NAME["rocksdb"], name="at-once"), tmp_path)
    both = threading.Barrier(2, timeout=300)

    def dropping(k: int) -> Callable[[DataFrame], DataFrame]:
        def drop(state: DataFrame) -> DataFrame:
            both.wait()
            return state.where(f"key.k <> {k}")

        return drop

    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda k: taken.changed(dropping(k)), (1, 2)))
    for k, (manifest, counts) in zip((1, 2), done, strict=True):
        assert counts == Counts(added=0, removed=1, changed=0, kept=4)
        assert {row.key.k for row in taken.state(manifest.savepoint_id).collect()} == {0, 1, 2, 3, 4} - {k}
    assert len(taken.repository.ids()) == 3


@pytest.mark.nightly
def test_what_was_not_written_as_it_was_returned_makes_no_savepoint(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Nothing is known that makes Spark write anything else: what it is given is changed on the way."""
    taken = Taken(spark, replace(BY_NAME["rocksdb"], name="otherwise"), tmp_path)
    write, is_one = transform.write_stores, F.col("key.k") == 1
    counted = F.col("value").withField("count", F.when(is_one, 77).otherwise(F.col("value.count")))
    moved = F.col("key").withField("k", F.when(is_one, 78).otherwise(F.col("key.k")))
    swapped = F.col("key").withField("k", F.expr("CASE key.k WHEN 1 THEN 2 WHEN 2 THEN 1 ELSE key.k END"))
    others: list[Change] = [
        lambda rows: rows.where(~is_one),
        lambda rows: rows.withColumn("value", counted),
        lambda rows: rows.withColumn("key", moved),
        lambda rows: rows.withColumn("key", swapped),  # two values in each other's place
    ]
    for other in others:

        def otherwise(*of: Any, other: Change = other) -> dict[str, list[list[str]]]:
            session, location, batch, states, partitions = of
            given = {place: other(rows) for place, rows in states.items()}
            return write(session, location, batch, given, partitions)

        monkeypatch.setattr(transform, "write_stores", otherwise)
        with refuses(STATE_TRANSFORM, match=r"found a difference, first at key Row\("):
            taken.changed(as_it_is)
    assert taken.repository.ids() == ("sp-1",)


@pytest.mark.nightly
def test_what_cannot_be_read_or_written_makes_no_savepoint(spark: SparkSession, tmp_path: Path):
    taken = Taken(spark, replace(BY_NAME["rocksdb"], name="bad-places"), tmp_path)
    (tmp_path / "file").write_text("no folder")
    with refuses(STATE_READ, match="a location that the state can be copied to"):
        transform_state(
            taken.lab.spark,
            str(taken.root),
            "job",
            {0: as_it_is},
            "sp-1",
            scratch=str(tmp_path / "file" / "below"),
        )
    blob = next(entry.blob for entry in taken.manifest.queries[0].files if entry.path.endswith(".sst"))
    taken.repository.delete_blob(blob)
    with pytest.raises(FlinkstyleError, match="sp-1"):
        taken.changed(as_it_is)
    assert taken.repository.ids() == ("sp-1",)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("hdfs", "keeps its in HDFSBackedStateStoreProvider"),
        ("named-sink", "Spark would not write the new state: .*FORMAT_VERSION_MISMATCH"),
    ],
)
def test_operator_that_cannot_be_written_is_refused_by_name(
    spark: SparkSession, tmp_path: Path, name: str, found: str
):
    taken = Taken(spark, BY_NAME[name], tmp_path)
    with refuses(STATE_TRANSFORM, match=found):
        taken.changed(as_it_is)
