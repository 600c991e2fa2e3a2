"""The job of the slices: adds up numbers from files. Arguments: where its batches and the files are."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # as Spark's users write it

from airflow_flinkstyle.sinks.spread import Spread

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

OUT, FILES = Path(sys.argv[1]), sys.argv[2]
ROWS = 20_000
"""Many times the 64 KiB that Spark sends a worker at once."""
spark = SparkSession.builder.getOrCreate()


def tell(**values: object) -> None:
    with OUT.open("a") as file:
        file.write(json.dumps({"spark": spark.version, **values}) + "\n")


def counted(cut_at: int) -> list[int] | str:
    """Count rows in a worker of Python, in a stream that breaks off at one of them."""
    told = OUT.with_name("told")
    told.unlink(missing_ok=True)

    def count(batches: Iterator[pa.RecordBatch], _: range) -> int:
        rows = sum(batch.num_rows for batch in batches)
        told.write_text(str(rows))
        return rows

    value = f"if(id = {cut_at}, raise_error('cut'), repeat('x', 100)) value"
    records = spark.range(0, ROWS, 1, 1).selectExpr(value)
    try:
        return Spread(records=records, tasks=1, shards=1).answers(count)
    except Exception as error:  # noqa: BLE001  # Spark's error is told
        found = told.read_text() if told.exists() else "no"
        return f"{found} rows taken for whole; cut: {'cut' in str(error)}"


def note(batch: DataFrame, batch_id: int) -> None:
    tell(batch=batch_id, totals=sorted(list(row) for row in batch.collect()))


tell(broken=counted(ROWS - 1), whole=counted(ROWS))
numbers = spark.readStream.schema("k long, n long").json(FILES)
totals = numbers.groupBy("k").agg(F.count("*"), F.sum("n"))
totals.writeStream.queryName("totals").outputMode("complete").foreachBatch(note).start().awaitTermination()
