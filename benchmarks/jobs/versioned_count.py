"""Count rows per key with a payload beside each count: the job whose versions replace each other.

``versioned_count.py --servers S --topic T --keys N --trigger-ms N [--breaks WHERE]``: the records of a Kafka
topic are numbers, spread over all keys; with ``--breaks`` a version that is broken there.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PAYLOAD_DIGESTS = 8
"""Of 128 characters each, which do not compress."""
MOST_PER_BATCH = 100_000


def main() -> None:
    """Run until somebody stops it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--trigger-ms", type=int, required=True)
    parser.add_argument("--breaks", choices=["import", "batch", "schema"])
    args = parser.parse_args()
    if args.breaks == "import":
        raise RuntimeError("broken at import")
    spark = (
        SparkSession.builder.appName("versioned-count")
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
        .option("maxOffsetsPerTrigger", MOST_PER_BATCH)
        .load()
    )
    rows = records.select(F.col("value").cast("string").cast("long").alias("value"))
    if args.breaks == "batch":
        rows = rows.withColumn("value", F.raise_error(F.lit("broken in its first batch")).cast("long"))
    key = (F.col("value") % args.keys).alias("k")
    digests = [
        F.sha2(F.concat(F.lit(f"{n}-"), F.col("value").cast("string")), 512) for n in range(PAYLOAD_DIGESTS)
    ]
    kept = F.collect_list("value") if args.breaks == "schema" else F.max(F.concat(*digests))
    counts = rows.groupBy(key).agg(F.count("*").alias("n"), kept.alias("kept"))
    writer = counts.writeStream.queryName("counts").outputMode("update").format("noop")
    writer.trigger(processingTime=f"{args.trigger_ms} milliseconds").start().awaitTermination()


if __name__ == "__main__":
    main()
