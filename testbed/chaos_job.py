"""The job that is killed: numbers from one topic through the transactional sink into another."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

WINDOW_S = 10
"""A number is a second of event time."""
RECORD = (
    "cast(id % 16 as string) as key",
    "repeat('x', 20000) as value",  # a task's rows come in several pieces, so that they can break off
    "array(struct('id' as key, binary(cast(id as string)) as value)) as headers",
)


def numbers(spark: SparkSession, args: Mapping[str, Any]) -> DataFrame:
    """Return the source's values, so many per batch."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", args["bootstrap"])
        .option("subscribe", args["source"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", args["rows"])
        # A fetch at the end of an idle log would wait for half a second, and every call behind it.
        .option("kafka.fetch.max.wait.ms", "10")
        .load()
    )
    return records.selectExpr("cast(cast(value as string) as bigint) as id")


def stateless(ids: DataFrame, _: float) -> DataFrame:
    """Write each number as it comes."""
    return ids


def stateful(ids: DataFrame, delay_s: float) -> DataFrame:
    """Drop repeated numbers, gather them in windows, and write each once when its window is closed."""
    from pyspark.sql import functions as F

    at = F.timestamp_seconds(F.col("id") + 1)  # 0 would be late: the first watermark is the epoch
    timed = ids.withColumn("at", at).withWatermark("at", f"{delay_s:g} seconds")
    once = timed.dropDuplicatesWithinWatermark(["id"])
    windows = once.groupBy(F.window("at", f"{WINDOW_S} seconds")).agg(F.collect_list("id").alias("ids"))
    return windows.select(F.explode("ids").alias("id"))


PLANS = {"stateless": stateless, "stateful": stateful}


def teller(pipe: str, incarnation: int, pause_s: Mapping[str, float]) -> Callable[[int, int, str], None]:
    """Return what tells a phase in one write, and then waits in phases that are over too soon to be hit."""

    def tell(batch: int, shard: int, phase: str) -> None:
        line = f"{time.monotonic_ns()} {os.getpid()} {incarnation} {batch} {shard} {phase}\n"
        end = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(end, line.encode())
        finally:
            os.close(end)
        time.sleep(pause_s.get(phase, 0.0))

    return tell


def main() -> None:
    """Run until killed."""
    from pyspark.sql import SparkSession

    from airflow_flinkstyle.sinks import TransactionalKafkaSink

    args = json.loads(sys.argv[1])
    builder = SparkSession.builder.appName("chaos")
    for name, value in args["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    tell = teller(args["pipe"], args["incarnation"], args["pause_s"])
    sink = TransactionalKafkaSink(
        {"bootstrap.servers": args["bootstrap"]},
        topic=args["target"],
        shards=args["shards"],
        lineage=args["target"],
        transaction_timeout_ms=args.get("transaction_timeout_ms", 300_000),
        small_batch_rows=args.get("small_batch_rows", 0),
        on_phase=tell,
    )

    def write(frame: DataFrame, batch: int) -> None:
        sink.foreach_batch(frame, batch)
        done = sink.last_batch
        tell(batch, done.skipped_shards if done else 0, "batch")

    ids = PLANS[args["plan"]](numbers(spark, args), args["delay_s"])
    rows = ids.selectExpr(*RECORD)
    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", args["checkpoint"])
    writer.trigger(processingTime="0 seconds").start().awaitTermination()


if __name__ == "__main__":
    main()
