"""The codec of rows beside Spark's own: the same bytes for the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_flinkstyle.state.rows import decode_rows, encode_rows
from testbed.session import local_session
from tests.rows import INTERVAL, KINDS, SIMPLE, structs_of, values_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from testbed.spark import SparkPaths

pytestmark = [pytest.mark.integration, pytest.mark.spark]
OF_SQL_ONLY = (INTERVAL, pa.null())
"""Types that PySpark takes from no Arrow table."""


@pytest.fixture(scope="module")
def spark(spark_paths: SparkPaths) -> Iterator[SparkSession]:
    confs = {"spark.sql.session.timeZone": "UTC", "spark.sql.execution.arrow.pyspark.enabled": "true"}
    with local_session(spark_paths, confs) as session:
        yield session


def bytes_of(frame: DataFrame) -> list[bytes]:
    """Return the rows as Spark holds them."""
    plan = frame._jdf.queryExecution().executedPlan()
    return [bytes(row.getBytes()) for row in plan.executeCollect()]


def is_taken(kind: pa.DataType) -> bool:
    """Tell whether PySpark takes the type from an Arrow table."""
    if pa.types.is_nested(kind):
        return all(is_taken(kind.field(number).type) for number in range(kind.num_fields))
    return kind not in OF_SQL_ONLY


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
)
@given(st.data())
def test_rows_of_any_type_have_the_bytes_that_spark_gives_them(spark: SparkSession, data: st.DataObject):
    plain = [(f"p{n}", kind) for n, kind in enumerate(SIMPLE) if is_taken(kind)]
    nested = data.draw(structs_of(KINDS.filter(is_taken), 4))
    kind = pa.struct([*plain, *nested])
    values = data.draw(st.lists(values_of(kind, never_null=True), min_size=2, max_size=8))
    rows = pa.array(values, kind)
    table = pa.Table.from_struct_array(rows)
    by_spark = bytes_of(spark.createDataFrame(table).repartition(1))
    assert sorted(encode_rows(rows).to_pylist()) == sorted(by_spark)
    assert decode_rows(encode_rows(rows), kind).to_pylist() == values


def test_intervals_and_null_have_the_bytes_that_spark_gives_them(spark: SparkSession):
    from pyspark.sql import functions as F

    frame = spark.range(1, 12).selectExpr(
        "id",
        "if(id % 3 = 0, NULL, make_interval(0, id - 4, 0, id, 0, 0, id / 7)) AS a",
        "if(id % 4 = 0, NULL, make_ym_interval(0, int(id - 5))) AS b",
        "NULL AS c",
    )
    nested = frame.withColumn("d", F.array("a", "a")).withColumn("e", F.struct(F.col("a").alias("x"), "id"))
    by_spark = bytes_of(nested.repartition(1))
    kind = pa.struct(
        [
            ("id", pa.int64()),
            ("a", INTERVAL),
            ("b", pa.int32()),
            ("c", pa.null()),
            ("d", pa.list_(INTERVAL)),
            ("e", pa.struct([("x", INTERVAL), ("id", pa.int64())])),
        ]
    )
    found = decode_rows(pa.array(by_spark, pa.binary()), kind)
    rows = {row["id"]: row for row in found.to_pylist()}
    assert rows[5]["a"] == pa.MonthDayNano((1, 5, 714_286_000))
    assert rows[5]["d"] == [rows[5]["a"]] * 2
    assert rows[6]["a"] is None
    assert (rows[5]["b"], rows[7]["b"], rows[8]["b"]) == (0, 2, None)
    mine = encode_rows(found)
    assert decode_rows(mine, kind).to_pylist() == found.to_pylist()
    for row, its in zip(mine.to_pylist(), by_spark, strict=True):
        if rows[np.frombuffer(its, np.int64)[1]]["a"] is not None:  # Spark clears no room of a null interval
            assert row == its
