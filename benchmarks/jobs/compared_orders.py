"""Lines and totals of the numbers in a Kafka topic: the job whose two versions are compared.

``compared_orders.py --servers S --topic T --keys N --rows N [--refactored]``: N rows a batch; refactored it
computes the same by other expressions.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def main() -> None:
    """Run until somebody stops it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--refactored", action="store_true")
    args = parser.parse_args()
    spark = (
        SparkSession.builder.appName("compared-orders")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .getOrCreate()
    )
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", args.servers)
        .option("subscribe", args.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", args.rows)
        .load()
    )
    number = F.col("value").cast("string").cast("long")
    digest = F.sha2(F.col("id").cast("string"), 256)
    if args.refactored:
        customer, cents = F.pmod("id", F.lit(args.keys)), F.pmod(F.xxhash64("id"), F.lit(100_000))
    else:
        hashed = F.xxhash64("id") % 100_000
        customer = F.col("id") % args.keys
        cents = F.when(hashed < 0, hashed + 100_000).otherwise(hashed)
    lines = records.select(number.alias("id")).select(
        "id", customer.alias("customer"), cents.alias("cents"), digest.alias("receipt")
    )
    totals = lines.groupBy("customer").agg(F.count("*").alias("lines"), F.sum("cents").alias("cents"))
    for name, frame, mode in (("lines", lines, "append"), ("totals", totals, "update")):
        frame.writeStream.queryName(name).outputMode(mode).format("noop").start()
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
