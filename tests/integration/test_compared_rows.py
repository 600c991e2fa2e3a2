"""Rows and states of two runs, compared by a real Spark: what counts as a difference, and what does not."""

# ruff: noqa: ANN401

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.agent.core.spark import RunOfQuery, RunsToCompare
from airflow_flinkstyle.agent.spark.compare.writes import _statement
from airflow_flinkstyle.protocol.comparison_records import Compare
from testbed.session import local_session
from tests.unit.savepoint.manifests import a_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from airflow_flinkstyle.protocol.comparison_records import ComparedQuery
    from testbed.spark import SparkPaths

pytestmark = [pytest.mark.integration, pytest.mark.spark]
(QUERY,) = a_manifest().queries
Batches = list[list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def session(spark_paths: SparkPaths) -> Iterator[SparkSession]:
    with local_session(spark_paths, {"spark.sql.shuffle.partitions": "2"}, threads=1) as session:
        yield session


@pytest.fixture
def compare(session: SparkSession, tmp_path: Path) -> Any:
    from airflow_flinkstyle.agent.spark.compare.rows import compare_rows, kept_rows
    from airflow_flinkstyle.agent.spark.compare.states import compare as compare_all

    def call(
        *runs: Batches, schema: str = "k int, v double", schemas: tuple[str, ...] = (), mode: str = "append",
        states: bool = False, **asked: Any,
    ) -> ComparedQuery:  # fmt: skip
        kept = []
        for number, batches in enumerate(runs):
            keep = kept_rows(str(tmp_path / str(number)))
            for batch, rows in enumerate(batches):
                keep(session.createDataFrame(rows, schemas[number] if schemas else schema), batch + 4)
            kept.append(RunOfQuery(rows=str(tmp_path / str(number)), copy="", is_format_2=False))
        return (compare_all if states else compare_rows)(
            session.newSession(),
            RunsToCompare(
                query=replace(QUERY, name="totals"),
                savepoint_id="sp-1",
                output_mode=mode,
                asked=Compare(part="new", **asked),
                old=kept[0],
                new=kept[1],
                again=kept[2] if len(kept) > 2 else None,
            ),
        )

    return call


def test_order_and_batch_of_a_row_do_not_count_and_how_often_it_occurs_does(compare: Any):
    same = compare([[(1, 1.0), (1, 1.0)], [(2, 2.0)]], [[(2, 2.0), (1, 1.0)], [(1, 1.0)]])
    assert (same.verdict, same.old_rows, same.new_rows, same.equal) == ("same", 3, 3, 3)


def test_rows_without_keys_are_only_here_or_only_there(compare: Any):
    found = compare([[(1, 1.0)], [(2, 2.0), (2, 2.0)]], [[(1, 1.0)], [(2, 2.5)]])
    assert (found.verdict, found.only_old, found.only_new, found.changed) == ("differs", 2, 1, 0)
    assert (found.equal, found.new_rows, found.first_batch) == (1, 2, 5)
    assert [(s.kind, s.old, s.new) for s in found.samples][-1] == ("only in new", None, '{"k":2,"v":2.5}')


def test_keys_tell_changed_rows_and_only_the_last_of_an_update_counts(compare: Any):
    found = compare(
        [[(1, 1.0), (2, 1.0)], [(1, 3.0), (3, 0.0)]], [[(1, 2.0), (2, 1.0)], [(1, 3.5)]],
        mode="update", keys={"totals": ("k",)},
    )  # fmt: skip
    assert (found.old_rows, found.changed, found.only_old, found.only_new) == (3, 1, 1, 0)
    assert dict(found.changed_columns) == {"v": 1}


@pytest.mark.nightly
def test_complete_output_is_that_of_the_last_batch(compare: Any):
    assert compare([[(1, 1.0)], [(1, 2.0)]], [[(1, 9.0)], [(1, 2.0)]], mode="complete").verdict == "same"


@pytest.mark.nightly
def test_complete_output_whose_last_batch_is_empty_is_empty(compare: Any):
    """The rows alone name an earlier batch as the last one."""
    found = compare([[(1, 1.0)], [(1, 1.0)]], [[(1, 1.0)], []], mode="complete")
    assert (found.verdict, found.old_rows, found.new_rows) == ("differs", 1, 0)


def test_rows_of_which_nothing_is_found_are_not_the_same(compare: Any):
    found = compare([], [])
    assert (found.verdict, found.not_comparable) == ("not comparable", "No batch of either is found.")


@pytest.mark.parametrize(
    ("mode", "keys"),
    [
        ("complete", {}),
        pytest.param("update", {"totals": ("k",)}, marks=pytest.mark.nightly),
        pytest.param("append", {}, marks=pytest.mark.nightly),
    ],
)
def test_first_batch_that_differs_is_found_though_later_ones_replace_or_repeat_its_rows(
    compare: Any, mode: str, keys: Any
):
    old = [[(1, 1.0), (2, 0.0)], [(1, 2.0), (2, 0.0)], [(1, 3.0)], [(1, 4.0)]]
    new = [[(1, 1.0), (2, 0.0)], [(1, 2.5), (2, 0.0)], [(1, 3.0)], [(1, 4.0), (2, 0.0)]]
    found = compare(old, new, mode=mode, keys=keys, by_batch=True)
    assert (found.verdict, found.first_batch) == ("differs", 5)
    assert found.changed == (1 if keys else 0)
    repeated = compare([[(1, 1.0)], [(2, 1.0)]], [[(1, 1.0)], [(1, 1.0)]])
    assert repeated.first_batch == 5, "not the batch in which the row occurs first"


def test_null_nan_and_what_is_within_a_tolerance_are_equal(compare: Any):
    nan = float("nan")
    found = compare(
        [[(1, 1.0), (None, None), (2, nan)]], [[(1, 1.004), (None, None), (2, nan)]], tolerance={"v": 0.01}
    )
    assert (found.verdict, found.equal) == ("same", 3)
    assert compare([[(1, 1.0)]], [[(1, 1.02)]], tolerance={"v": 0.01}).changed == 1


def test_ignored_columns_orders_of_arrays_and_maps(compare: Any):
    rows = [(1, 0.1, ["a", "b"], {"x": {"p": 1, "q": 2}, "y": None})]
    others = [(1, 0.2, ["b", "a"], {"y": None, "x": {"q": 2, "p": 1}})]
    schema = "k int, at double, tags array<string>, m map<string, map<string, int>>"
    found = compare([rows], [others], schema=schema, ignore=("at", "tags:order", "none"))
    assert (found.verdict, found.equal) == ("same", 1)
    assert "none" in found.untested[0]


def test_state_that_could_not_be_compared_is_not_the_same_and_hides_no_difference(compare: Any):
    """The runs left no copy of their checkpoints."""
    found = compare([[(1, 1.0)]], [[(1, 1.0)]], states=True)
    assert found.verdict == "not comparable"
    assert found.not_comparable.startswith("Its state: ")
    found = compare([[(1, 1.0)]], [[(1, 2.0)]], states=True)
    assert (found.verdict, len(found.untested)) == ("differs", 1)


@pytest.mark.nightly
def test_columns_that_come_go_or_change_are_a_difference_and_the_others_are_compared(compare: Any):
    found = compare([[(1, 1.0)]], [[(1, 7)]], schemas=("k int, v double", "k int, w long"))
    assert found.columns == ("column v dropped", "column w added")
    assert (found.verdict, found.equal) == ("differs", 1)
    other = compare([[(1, 1.0)]], [[(1, 1)]], schemas=("k int, v double", "k int, v long"))
    assert other.columns == ("column v changed from double to bigint",)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "keys",
    [pytest.param({}, id="rows", marks=pytest.mark.matrix), pytest.param({"totals": ("k",)}, id="keys")],
)
def test_what_differs_between_two_runs_of_the_old_version_is_told_apart(compare: Any, keys: Any):
    schema = "k int, v double, luck double"
    old, new, again = [[(1, 1.0, 0.3)]], [[(1, 1.0, 0.4)]], [[(1, 1.0, 0.5)]]
    found = compare(old, new, again, schema=schema, keys=keys)
    assert (found.verdict, found.not_deterministic) == ("same", ("luck",))
    wrong = compare(old, [[(1, 2.0, 0.4)]], again, schema=schema, keys=keys)
    assert (wrong.verdict, wrong.not_deterministic) == ("differs", ("luck",))


@pytest.mark.nightly
def test_old_version_that_gives_other_rows_each_time_is_not_comparable(compare: Any):
    found = compare([[(1, 1.0)]], [[(2, 1.0)]], [[(1, 1.0), (3, 1.0)]], keys={"totals": ("k",)})
    assert found.verdict == "not comparable"
    assert "Two runs of the old version differ" in found.not_comparable


def test_key_that_is_no_column_is_not_comparable(compare: Any):
    found = compare([[(1, 1.0)]], [[(1, 1.0)]], keys={"totals": ("customer",)})
    assert (found.verdict, "customer" in found.not_comparable) == ("not comparable", True)


def test_types_without_parquet_and_names_that_occur_twice_are_kept_as_text(
    session: SparkSession, tmp_path: Path
):
    from airflow_flinkstyle.agent.spark.compare.rows import kept_rows

    odd = session.sql("SELECT 1 AS a, 2 AS a, NULL AS nothing, make_interval(1) AS span, 3 AS `x y`")
    kept_rows(str(tmp_path))(odd, 0)
    assert session.read.parquet(str(tmp_path)).columns == ["a", "a (2)", "nothing", "span", "x y", "__batch"]


def test_microseconds_count_beside_a_tolerance(session: SparkSession):
    from airflow_flinkstyle.agent.spark.compare.states import compared_state

    def state(at: str) -> Any:
        columns = f"named_struct('k', 1) AS key, named_struct('at', TIMESTAMP'{at}', 'sum', 1d) AS value"
        return session.sql(f"SELECT {columns}, 0 AS partition_id")

    asked = Compare(part="new", tolerance={"v": 0.1})
    found = compared_state(
        state("2026-01-01 00:00:00.000001"), state("2026-01-01 00:00:00"), asked, operator=0
    )
    assert found.changed == 1


def test_state_whose_digits_change_from_run_to_run_is_compared_without_them(session: SparkSession):
    from airflow_flinkstyle.agent.spark.compare.states import _of_three

    schema = "key struct<k: int>, value struct<sum: double, n: long>, partition_id int"

    def state(*values: Any) -> Any:
        return session.createDataFrame([((k,), v, 0) for k, v in enumerate(values)], schema)

    def verdict(new: Any, again: Any) -> Any:
        return _of_three([state((0.3, 1), (1.0, 2)), new, again], Compare(part="again"), 0, "")

    again = state((0.30000000000000004, 1), (1.0, 2))
    same = verdict(state((0.3, 1), (1.0000000000000002, 2)), again)
    assert (same.differs, same.not_deterministic) == (False, True)
    doubled = verdict(state((0.3, 2), (1.0, 4)), again)
    assert (doubled.differs, doubled.changed) == (True, 2)
    assert verdict(state((0.3, 1)), again).removed == 1
    with pytest.raises(ValueError, match="more than digits"):
        verdict(state((0.3, 2), (1.0, 2)), state((0.3, 7), (1.0, 2)))


def test_tolerance_counts_for_floating_point_numbers_of_the_state_and_for_nothing_else(session: SparkSession):
    from airflow_flinkstyle.agent.spark.compare.states import compared_state

    schema = "key struct<k: int>, value struct<sum: double, seen: array<double>, n: long>, partition_id int"

    def state(*values: Any) -> Any:
        return session.createDataFrame([((k,), v, 0) for k, v in enumerate(values)], schema)

    nan = float("nan")
    old = state((1.0, [1.0, nan], 1), (1.0, [1.0], 1), (1.0, [1.0], 1), (None, None, 1), None)
    new = state((1.01, [1.01, nan], 1), (1.0, [1.0, 1.0], 1), (1.0, [1.0], 2), (1.0, None, 1), None)
    asked = Compare(part="new", tolerance={"v": 0.001, "w": 0.1})
    found = compared_state(old, new, asked, operator=0)
    assert (found.changed, found.added, found.removed) == (3, 0, 0)
    assert compared_state(old, new, Compare(part="new"), operator=0).changed == 4


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("SELECT 1", ""),
        ("CREATE TABLE IF NOT EXISTS a (x INT)", ""),
        ("nonsense", ""),
        ("INSERT INTO a SELECT 1", "InsertIntoStatement"),
        ("WITH w AS (SELECT 1) INSERT INTO a SELECT * FROM w", "InsertIntoStatement"),
        ("FROM a INSERT INTO b SELECT x INSERT INTO c SELECT x", "InsertIntoStatement"),
        ("BEGIN SELECT 1; INSERT INTO a SELECT 1; END", "CompoundBody"),
        ("LOAD DATA INPATH '/x' INTO TABLE a", "LoadData"),
        ("ALTER TABLE a DROP PARTITION (p = 1)", "DropPartitions"),
        ("TRUNCATE TABLE a PARTITION (p = 1)", "TruncatePartition"),
        ("DROP SCHEMA s CASCADE", "DropNamespace"),
    ],
)
def test_statement_that_writes_is_known_by_its_name_wherever_it_stands(
    session: SparkSession, text: str, name: str
):
    assert _statement(session, text) == name
