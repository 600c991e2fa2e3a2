"""Every operator in every store: changed state goes on as in a run that had these values from the start.

That run's input is another one up to a batch: it has no row of key 1, key 7 for key 2, and negative values
for key 3. The state of a run over the plain input is changed to what that input would have made of it.

`make test-versions` runs all of these, and puts what came of them into docs/state.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from airflow_flinkstyle.savepoint.files.restore import restore_query
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.state import DropKeys, SetValues, convert_savepoint, transform_state
from airflow_flinkstyle.state.errors import STATE_TRANSFORM
from airflow_flinkstyle.storage.local import LocalStore
from testbed import paths
from testbed.refusals import refuses
from testbed.session import local_session
from tests.golden.stateful import (
    CHANGELOG,
    FORMAT_V2,
    FORMAT_V2_CHANGELOG,
    HDFS,
    ROCKSDB,
    STATE,
    Case,
    dedup,
    dedup_within_watermark,
    join,
    pandas_state,
    sessions,
    timed,
    totals,
    variables,
)
from tests.integration.operator_lab import LAST, assert_goes_on, lab_of, run_until, take_behind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from airflow_flinkstyle.state.edits import Given
    from testbed.spark import SparkPaths
    from tests.golden.stateful import Read
    from tests.integration.operator_lab import Rows

    FromTheStart = Callable[[str], Rows]

VERSION = tuple(int(part) for part in (paths.SPARK or "4.2").split("."))
pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

CUT = 4
"""Batch up to which the input is another one: windows, sessions and rows that a join waits with are open."""
GONE = DropKeys("key.k = 1")
SEVEN = SetValues({"key.k": "7"}, where="key.k = 2")


def negative(*fields: str, where: str = "key.k = 3") -> SetValues:
    return SetValues({field: f"-{field}" for field in fields}, where)


def variables_changed(value: str) -> Given:
    """Return the changes of ``variables``, whose columns have a value inside or as they are."""
    rests = SetValues({"user_map_key.r": "pmod(-user_map_key.r, 3)"}, where="key.k = 3")
    return {
        "total": [GONE, SEVEN, negative(f"value.{value}s")],
        "last": [GONE, SEVEN, negative(f"list_element.{value}v")],
        "counts": [GONE, SEVEN, rests],
    }


def as_that_input(rows: DataFrame) -> DataFrame:
    """Return the rows of the run that had other values from the start."""
    before = F.col("batch") <= CUT
    return (
        rows.where(~before | (F.col("k") != 1))
        .withColumn("v", F.when(before & (F.col("k") == 3), -F.col("v")).otherwise(F.col("v")))
        .withColumn("k", F.when(before & (F.col("k") == 2), F.lit(7)).otherwise(F.col("k")))
    )


@dataclass(frozen=True, kw_only=True)
class Operator:
    """An operator, and what makes of its state what the other input would have made."""

    build: Callable[[Read], DataFrame]
    changes: Given
    mode: str = "update"
    confs: Mapping[str, str] | None = None
    in_default_provider: bool = True
    """Whether Spark has it there too."""
    in_avro: bool = False
    """Whether Spark writes it so."""
    is_known: bool = True
    """Whether its state can be changed."""
    since: tuple[int, int] = (4, 2)


MOVED, AVRO = "HDFS-backed, moved to RocksDB", "RocksDB with changelog, Avro"
STORES = {
    MOVED: HDFS,
    "RocksDB": ROCKSDB,
    "RocksDB with changelog": CHANGELOG,
    "RocksDB, format 2": FORMAT_V2,
    "RocksDB with changelog, format 2": FORMAT_V2_CHANGELOG,
    AVRO: {**CHANGELOG, f"{STATE}.encodingFormat": "avro"},
}
OF_JOIN: Given = {
    "left": [
        DropKeys("value.k = 1"),
        SetValues({"value.k": "7"}, where="value.k = 2"),
        negative("key.field0", "value.v", where="value.k = 3"),
    ],
    "right": [DropKeys("value.v % 5 = 1"), negative("key.field0", "value.v", where="value.v % 5 = 3")],
}


def join_in(state_format: int, since: tuple[int, int] = (4, 2)) -> Operator:
    return Operator(
        build=join,
        changes=OF_JOIN,
        mode="append",
        confs={"spark.sql.streaming.join.stateFormatVersion": str(state_format)},
        in_default_provider=state_format < 3,
        is_known=state_format < 4,
        since=since,
    )


OPERATORS = {
    "aggregation": Operator(build=totals, changes=[GONE, SEVEN, negative("value.sum")]),
    "deduplication": Operator(build=dedup, changes=[GONE, SEVEN], mode="append"),
    "deduplication within watermark": Operator(
        build=dedup_within_watermark, changes=[GONE, SEVEN], mode="append"
    ),
    "session window": Operator(
        build=sessions,
        changes=[GONE, SetValues({"key.k": "7", "value.k": "7"}, where="key.k = 2")],
        mode="append",
    ),
    "join (state format 2)": join_in(2),
    "join (state format 3)": join_in(3),
    "join (state format 4)": join_in(4, since=(4, 3)),
    "`applyInPandasWithState`": Operator(
        build=pandas_state, changes=[GONE, SEVEN, negative("value.groupState.total")]
    ),
    "`transformWithState`: value/list/map": Operator(
        build=variables(None), changes=variables_changed(""), in_default_provider=False, in_avro=True
    ),
    "`transformWithState`: value/list/map with TTL": Operator(
        build=variables(3_600_000),
        changes=variables_changed("value."),
        in_default_provider=False,
        in_avro=True,
    ),
    "`transformWithState`: timers": Operator(
        build=timed, changes=[GONE, SEVEN], in_default_provider=False, in_avro=True
    ),
}
IN_EACH_STORE = [
    (name, store)
    for name, operator in OPERATORS.items()
    for store in STORES
    if operator.since <= VERSION
    and (operator.in_default_provider or store != MOVED)
    and (operator.in_avro or store != AVRO)
]
FEW = [("deduplication", MOVED), ("session window", "RocksDB")]
"""What `make nightly` runs of them."""


def cases(*, known: bool) -> list[object]:
    """Return the parameters of a test; none on a Spark that has no writer."""
    return [
        pytest.param(
            *one,
            id=" in ".join(one),
            marks=pytest.mark.nightly if one in FEW else pytest.mark.versions,
        )
        for one in IN_EACH_STORE
        if VERSION >= (4, 2) and OPERATORS[one[0]].is_known is known
    ]


def case_of(name: str, store: str) -> Case:
    operator = OPERATORS[name]
    confs = {**STORES[store], **(operator.confs or {})}
    partitions = 1 if operator.build is join else 2
    return Case(f"{name} in {store}", operator.build, confs, operator.mode, partitions=partitions)


@pytest.fixture(scope="module")
def spark(spark_paths: SparkPaths) -> Iterator[SparkSession]:
    confs = {"spark.sql.session.timeZone": "UTC", f"{STATE}.minDeltasForSnapshot": "2"}
    with local_session(spark_paths, confs) as session:
        yield session


@pytest.fixture(scope="module")
def from_the_start(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> FromTheStart:
    """Return what an operator's query writes whose input was the other one from the start, in RocksDB."""

    @cache
    def run(name: str) -> Rows:
        rows: Rows = {}
        lab = replace(lab_of(spark, case_of(name, "RocksDB")), given=as_that_input)
        query = lab.start(str(tmp_path_factory.mktemp("from-the-start")), rows)
        try:
            run_until(query, rows, LAST)
        finally:
            query.stop()
        return rows

    return run


@pytest.mark.parametrize(("name", "store"), cases(known=True))
def test_changed_state_goes_on_as_in_a_run_that_had_it_from_the_start(
    spark: SparkSession, from_the_start: FromTheStart, tmp_path: Path, name: str, store: str
):
    lab, root = lab_of(spark, case_of(name, store)), str(tmp_path / "root")
    repository = SavepointRepository(LocalStore(tmp_path / "root"), "job")
    [manifest], unchanged = take_behind(lab, tmp_path / "live", repository, [CUT])
    (tmp_path / "live").rename(tmp_path / "away")
    changes = {0: OPERATORS[name].changes}
    if store == MOVED:
        with refuses(STATE_TRANSFORM, match="keeps its in HDFSBackedStateStoreProvider"):
            transform_state(lab.spark, root, "job", changes, "sp-1")
        manifest = convert_savepoint(lab.spark, root, "job", "sp-1").savepoint
        lab = lab_of(spark, case_of(name, "RocksDB"))
    done = transform_state(lab.spark, root, "job", changes, manifest.savepoint_id)
    assert done.counts[0].removed > 0
    verify_savepoint(done.savepoint, repository, level="full")
    copy = tmp_path / "copy"
    restore_query(done.savepoint, done.savepoint.queries[0], repository, LocalStore(copy))
    expected = from_the_start(name)
    assert any(expected[batch] != unchanged[batch] for batch in range(CUT + 1, LAST + 1))
    assert_goes_on(lab, done.savepoint, str(copy), expected)


@pytest.mark.versions
@pytest.mark.parametrize(("name", "store"), cases(known=False))
def test_state_that_cannot_be_changed_is_refused_by_name(
    spark: SparkSession, tmp_path: Path, name: str, store: str
):
    lab = lab_of(spark, case_of(name, store))
    repository = SavepointRepository(LocalStore(tmp_path / "root"), "job")
    take_behind(lab, tmp_path / "live", repository, [CUT])
    with refuses(STATE_TRANSFORM, match="stores that are known here, found .* of operator 0 of query q"):
        transform_state(lab.spark, str(tmp_path / "root"), "job", {0: OPERATORS[name].changes}, "sp-1")
    assert repository.ids() == ("sp-1",)
