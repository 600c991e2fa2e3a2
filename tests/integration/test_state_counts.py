"""How many keys changed, where each has one row: the same as a look at every change finds."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from airflow_flinkstyle.state.changes import (
    Counts,
    can_be_counted,
    counts_of,
    digest_of,
    state_changes,
)
from testbed.session import local_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from testbed.spark import SparkPaths

pytestmark = [pytest.mark.integration, pytest.mark.spark]

AT = datetime(2026, 11, 28, 1, 2, 3, 456789, tzinfo=UTC)
VALUE: dict[str, Any] = {
    "n": 1,
    "d": 0.5,
    "t": AT,
    "m": {"a": 1},
    "l": [1, None],
    "p": Decimal("1.50"),
    "b": bytearray(b"x"),
}
KIND = (
    "key STRUCT<k: INT, s: STRING>, value STRUCT<n: BIGINT, d: DOUBLE, t: TIMESTAMP, m: MAP<STRING, INT>, "
    "l: ARRAY<INT>, p: DECIMAL(10,2), b: BINARY>"
)


def counted(before: DataFrame, after: DataFrame) -> Counts:
    return counts_of(before, after, F.lit(False))[0]


@pytest.fixture(scope="module")
def spark(spark_paths: SparkPaths) -> Iterator[SparkSession]:
    with local_session(spark_paths, {"spark.sql.session.timeZone": "UTC"}) as session:
        yield session


def a_state(spark: SparkSession, **values: object) -> DataFrame:
    rows = [({"k": 1, "s": name}, value) for name, value in values.items()]
    return spark.createDataFrame(rows, KIND)


def test_a_key_is_counted_as_it_is_shown(spark: SparkSession):
    others = {
        "n": 2,
        "d": float("nan"),
        "t": AT.replace(microsecond=456788),
        "m": {"a": 2},
        "l": [1, 2],
        "p": Decimal("1.51"),
        "b": bytearray(b"y"),
    }
    names = {*others, "zero", "null", "none", "same"}
    old = dict.fromkeys(names, VALUE) | {
        "zero": {**VALUE, "d": 0.0},
        "nan": {**VALUE, "d": float("nan")},
        "gone": VALUE,
    }
    new = {name: {**VALUE, name: value} for name, value in others.items()} | {
        "zero": {**VALUE, "d": -0.0},
        "null": {**VALUE, "n": None},
        "none": None,
        "same": VALUE,
        "nan": {**VALUE, "d": float("nan")},
        "new": VALUE,
        "more": VALUE,
    }
    before, after = a_state(spark, **old), a_state(spark, **new)
    shown = Counter(row["change"] for row in state_changes(before, after).collect())
    assert shown == {"added": 2, "removed": 1, "changed": len(others) + 3}
    assert can_be_counted(before, after)
    assert counted(before, after) == Counts(added=2, removed=1, changed=len(others) + 3, kept=2)
    assert counted(after, after) == Counts(added=0, removed=0, changed=0, kept=len(new))


def test_something_null_that_may_not_be_is_found_by_the_look_that_counts(spark: SparkSession):
    one, is_null = a_state(spark, a=VALUE, b=VALUE), F.col("value").isNull()
    assert counts_of(one, one, is_null) == (Counts(added=0, removed=0, changed=0, kept=2), False)
    assert counts_of(one, a_state(spark, a=VALUE, b=None), is_null)[1] is True
    assert counts_of(one, one.limit(0), is_null) == (Counts(added=0, removed=2, changed=0, kept=0), False)


def test_digest_is_of_all_rows_in_any_order_and_as_often_as_they_are_there(spark: SparkSession):
    one = a_state(spark, a=VALUE, b={**VALUE, "n": 2})
    assert digest_of(one) == digest_of(one.orderBy(F.desc("key")).repartition(3, "key"))
    assert digest_of(one.limit(0)) == digest_of(a_state(spark, a=VALUE).limit(0))
    others = {
        "less": one.limit(1),
        "twice": one.union(one.limit(1)),
        "swapped": a_state(spark, a={**VALUE, "n": 2}, b=VALUE),
        "a key": a_state(spark, a=VALUE, c={**VALUE, "n": 2}),
        "a value": a_state(spark, a=VALUE, b={**VALUE, "n": 3}),
        "a null": a_state(spark, a=VALUE, b={**VALUE, "n": None}),
        "one for another": a_state(spark, a=VALUE, b=VALUE),
    }
    for name, other in others.items():
        assert digest_of(other) != digest_of(one), name
    pairs = [a_state(spark, a=VALUE).union(a_state(spark, a=VALUE)) for _ in range(2)]
    others_twice = a_state(spark, b=VALUE).union(a_state(spark, b=VALUE))
    assert digest_of(pairs[0]) == digest_of(pairs[1])
    assert digest_of(pairs[0]) != digest_of(others_twice)  # two of a kind do not cancel each other out


def test_a_null_in_another_field_is_a_change(spark: SparkSession):
    """Spark's hash of a row leaves nulls out."""
    pair = "STRUCT<a: INT, b: INT>"
    kind = f"key {pair}, value STRUCT<a: INT, b: INT, l: ARRAY<INT>, r: {pair}>"
    value = {"a": 1, "b": None, "l": [1, None], "r": {"a": 1, "b": None}}
    others = [{"a": None, "b": 1}, {"l": [None, 1]}, {"r": {"a": None, "b": 1}}, {"r": None}]
    key = {"a": 1, "b": None}
    one = spark.createDataFrame([(key, value)], kind)
    for other in others:
        after = spark.createDataFrame([(key, value | other)], kind)
        assert counted(one, after) == Counts(added=0, removed=0, changed=1, kept=0), other
    moved = spark.createDataFrame([({"a": None, "b": 1}, value)], kind)
    assert counted(one, moved) == Counts(added=1, removed=1, changed=0, kept=0)


def test_values_of_other_types_are_compared_by_what_they_show(spark: SparkSession):
    one = a_state(spark, a=VALUE, b=VALUE)
    wider = one.withColumn("value", F.col("value").withField("p", F.col("value.p").cast("decimal(12,2)")))
    assert counted(one, wider) == Counts(added=0, removed=0, changed=0, kept=2)
    more = one.withColumn("value", F.col("value").withField("more", F.lit(1)))
    assert counted(one, more) == Counts(added=0, removed=0, changed=2, kept=0)


def test_keys_of_other_types_or_that_spark_takes_for_equal_are_not_counted(spark: SparkSession):
    state = a_state(spark, a=VALUE)
    wider = state.withColumn("key", F.col("key").withField("k", F.col("key.k").cast("bigint")))
    assert not can_be_counted(state, wider)
    floating = state.withColumn("key", F.struct(F.lit(0.5).alias("k")))
    assert not can_be_counted(floating, floating)
