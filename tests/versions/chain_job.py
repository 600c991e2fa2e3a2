"""The queries of the chain: each keeps state in another way.

Arguments: a folder for output, one for input, the state store.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql import GroupedData, SparkSession
from pyspark.sql import functions as F  # as Spark's users write it

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

OUTPUT, INPUT = map(Path, sys.argv[1:3])
spark = SparkSession.builder.getOrCreate()


def read() -> DataFrame:
    return spark.readStream.schema("id long, k long, t timestamp").json(str(INPUT))


def keep(name: str) -> Callable[[DataFrame, int], None]:
    def note(batch: DataFrame, batch_id: int) -> None:
        rows = [list(row) for row in batch.collect()]
        with (OUTPUT / f"{name}.jsonl").open("a") as out:
            out.write(json.dumps({"batch": batch_id, "rows": rows}) + "\n")

    return note


def start(name: str, frame: DataFrame, mode: str) -> None:
    frame.writeStream.queryName(name).outputMode(mode).foreachBatch(keep(name)).start()


def count_rows(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    n = (state.get[0] if state.exists else 0) + sum(map(len, frames))
    state.update((n,))
    yield pd.DataFrame({"k": [key[0]], "n": [n]})


start("aggregation", read().groupBy("k").agg(F.count("*"), F.sum("id")), "complete")
start("deduplication", read().dropDuplicates(["k"]).select("k"), "append")
odd = read().where("id % 2 = 1").select("k", F.col("id").alias("odd"))
start("join", read().where("id % 2 = 0").join(odd, "k").select("id", "odd"), "append")
sessions = read().groupBy(F.session_window("t", "10 seconds").alias("w"), "k").count()
start("session-window", sessions.select(F.col("w.start").cast("long"), "k", "count"), "complete")
counted = (
    read().groupBy("k").applyInPandasWithState(count_rows, "k long, n long", "n long", "update", "NoTimeout")
)
start("applyInPandasWithState", counted, "update")

if hasattr(GroupedData, "transformWithStateInPandas") and "RocksDB" in sys.argv[3]:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Counting(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.n = handle.getValueState("n", "n long")

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Any:
            del timerValues
            n = (self.n.get()[0] if self.n.exists() else 0) + sum(map(len, rows))
            self.n.update((n,))
            yield pd.DataFrame({"k": [key[0]], "n": [n]})

        def close(self) -> None:
            """Keep nothing open."""

    processed = read().groupBy("k").transformWithStateInPandas(Counting(), "k long, n long", "Update", "None")
    start("transformWithState", processed, "update")

spark.streams.awaitAnyTermination()
