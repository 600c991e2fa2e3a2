"""Count orders per customer: a plain PySpark streaming job that knows nothing of savepoints.

Reads JSON orders ``{"customer": "c007", "number": 12, "amount": 1999}`` from a Kafka topic and keeps per
customer, in RocksDB state: how many orders, the sum of their amounts (cents), and the set of their numbers
as a bitmap. The set tells a lost order and a doubled one apart; counts and sums alone let them cancel out.

    spark-submit examples/orders_job.py --bootstrap localhost:9092 --topic orders --output /tmp/orders
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def orders_in(records: DataFrame) -> DataFrame:
    """Return the orders that Kafka's records hold."""
    schema = "customer STRING, number BIGINT, amount BIGINT"
    return records.select(F.from_json(F.col("value").cast("string"), schema).alias("o")).select("o.*")


def totals_per_customer(orders: DataFrame) -> DataFrame:
    """Return count, sum and set of order numbers (1 to 32768) per customer."""
    return orders.groupBy("customer").agg(
        F.count("*").alias("orders"),
        F.sum("amount").alias("amount"),
        F.bitmap_construct_agg(F.bitmap_bit_position("number")).alias("numbers"),
    )


def write_batch(totals: DataFrame, batch_id: int, output: str) -> None:
    """Write the totals that a batch changed; the same batch again overwrites its own folder."""
    totals.coalesce(1).write.mode("overwrite").parquet(f"{output}/batch={batch_id}")


def main() -> None:
    """Run the query until somebody stops it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True, help="Kafka servers")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--output", required=True, help="folder for the updated totals, one per batch")
    parser.add_argument("--checkpoint", help="checkpoint folder")
    parser.add_argument("--trigger", default="500 milliseconds", help="time between batches")
    parser.add_argument("--available-now", action="store_true", help="read what is there, then end")
    args = parser.parse_args()

    spark = (
        SparkSession.builder.appName("orders")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .getOrCreate()
    )
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", args.bootstrap)
        .option("subscribe", args.topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    writer = totals_per_customer(orders_in(records)).writeStream.queryName("orders").outputMode("update")
    writer = writer.foreachBatch(lambda totals, batch_id: write_batch(totals, batch_id, args.output))
    if args.checkpoint:
        writer = writer.option("checkpointLocation", args.checkpoint)
    if args.available_now:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=args.trigger)
    writer.start().awaitTermination()


if __name__ == "__main__":
    main()
