"""The columns of state, from the files that each Spark writes, and how two versions differ."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from airflow_flinkstyle.checkpoint.state_columns import (
    difference,
    flat_schema,
    of_text,
    read_columns,
    schema_path,
)

GOLDEN = Path(__file__).parents[2] / "golden"
COUNT_AND_SUM = {"key.k": "integer", "value.count": "long", "value.sum": "long"}


def columns_of(checkpoint: Path) -> dict[str, dict[str, str]]:
    paths = [str(path.relative_to(checkpoint)) for path in checkpoint.rglob("*") if path.is_file()]
    return read_columns(paths, lambda path: (checkpoint / path).read_bytes())


@pytest.mark.parametrize("spark", ["3.5.9", "4.0.5", "4.1.4", "4.2.0", "4.3.0"])
def test_columns_of_an_aggregation_are_those_of_its_key_and_value(spark: str):
    assert columns_of(GOLDEN / spark / "rocksdb") == {"0": COUNT_AND_SUM}
    state = columns_of(GOLDEN / spark / "pandas-state")
    assert state == {"0": {"key.k": "integer", "value.groupState.total": "long"}}
    assert set(columns_of(GOLDEN / spark / "two-operators")) == {"0", "1"}


@pytest.mark.parametrize("spark", ["4.0.5", "4.1.4", "4.2.0", "4.3.0"])
def test_columns_of_column_families_are_told_by_the_familys_name(spark: str):
    found = columns_of(GOLDEN / spark / "transform-with-state")
    assert found["0/counts"] == {"key.key.k": "integer", "key.userKey.r": "integer", "value.n": "long"}
    assert set(found) == {"0/$rowCounter_last", "0/counts", "0/last", "0/total"}


def test_join_that_keeps_one_store_has_a_family_for_each_side():
    joined = columns_of(GOLDEN / "4.2.0" / "join-one-store")
    assert joined["0/left-keyWithIndexToValue"]["value.matched"] == "boolean"


def test_schema_that_is_written_is_the_file_that_spark_writes():
    stored = (GOLDEN / "4.2.0/rocksdb" / schema_path(0)).read_bytes()
    key, value = re.findall(r"\{\"type\":\"struct\".*?\]\}", stored.decode("latin-1"))
    assert flat_schema(key, value) == stored


def test_schema_of_any_length_is_written_in_pieces():
    fields = [{"name": f"\u00e4{n}", "type": "long", "nullable": True, "metadata": {}} for n in range(4_000)]
    text = json.dumps({"type": "struct", "fields": fields}, ensure_ascii=False)
    found = read_columns([schema_path(7)], lambda _: flat_schema(text, text))
    assert len(found["7"]) == 8_000


def test_newest_schema_of_families_counts_and_what_is_no_schema_has_no_columns():
    source = next((GOLDEN / "4.2.0/transform-with-state/state/0/_stateSchema/default").iterdir())
    files = {
        "state/0/_stateSchema/default/9_old": b"garbage",
        "state/0/_stateSchema/default/10_new": source.read_bytes(),
        "state/1/0/_metadata/schema": b'\x00\x02v2{"type":"struct","fields":[{',
    }
    found = read_columns(files, files.__getitem__)
    assert found["1"] == {}
    assert "0/counts" in found


@pytest.mark.parametrize(
    ("now", "says"),
    [
        ({"key.k": "integer", "value.count": "long", "value.sum": "long", "value.top": "string"},
         ["value.top (string) added"]),
        ({"key.k": "integer", "value.count": "long"}, ["value.sum (long) dropped"]),
        ({"key.k": "integer", "value.count": "long", "value.total": "long"},
         ["value.sum renamed value.total"]),
        ({"key.k": "long", "value.count": "long", "value.sum": "long"},
         ["key.k widened from integer to long"]),
        ({"key.k": "integer", "value.count": "integer", "value.sum": "string"},
         ["value.count changed from long to integer", "value.sum changed from long to string"]),
        (COUNT_AND_SUM, []),
    ],
    ids=["added", "dropped", "renamed", "widened", "changed", "same"],
)  # fmt: skip
def test_each_kind_of_change_is_told_apart(now: dict[str, str], says: list[str]):
    assert difference({"0": COUNT_AND_SUM}, {"0": now}) == says


def test_one_of_several_states_is_named_and_a_new_one_is_added():
    before = {"0/last": {"value.n": "integer"}, "0/old": {}}
    now = {"0/last": {"value.n": "long"}, "0/new": {}}
    assert difference(before, now) == [
        "value.n widened from integer to long of state 0/last",
        "state 0/new added",
        "state 0/old dropped",
    ]


def test_schema_in_an_error_of_spark_is_read_as_the_file_is():
    shown = (
        "StructType(StructField(count,LongType,false),StructField(kept,ArrayType(LongType,false),false),"
        "StructField(s,StructType(StructField(a,DecimalType(10,2),true)),true))"
    )
    assert of_text(shown) == {"count": "long", "kept": "array(long)", "s.a": "decimal(10,2)"}
