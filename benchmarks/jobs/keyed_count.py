"""Count rows per key and keep a payload beside each count: the job that is compared with Flink's.

``keyed_count.py --input FOLDER --payload-bytes N``: files of keys, one per line, read one file per batch.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column

DIGEST_CHARS = 128
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def payload(key: Column, size_bytes: int) -> Column:
    """Return as many characters that do not compress, the same for a key every time."""
    parts = [
        F.sha2(F.concat(F.lit(f"{n}-"), key.cast("string")), 512)
        for n in range(-(-size_bytes // DIGEST_CHARS))
    ]
    return F.substring(F.concat(*parts), 1, size_bytes)


def main() -> None:
    """Run the query until somebody stops it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", required=True)
    parser.add_argument("--payload-bytes", type=int, required=True)
    args = parser.parse_args()
    spark = (
        SparkSession.builder.appName("keyed-count")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .getOrCreate()
    )
    keys = spark.readStream.schema("k BIGINT").option("maxFilesPerTrigger", 1).csv(args.input)
    counts = (
        keys.withColumn("payload", payload(F.col("k"), args.payload_bytes))
        .groupBy("k")
        .agg(F.count("*").alias("n"), F.max("payload").alias("payload"))
    )
    writer = counts.writeStream.queryName("counts").outputMode("update").format("noop")
    writer.trigger(processingTime="1 second").start().awaitTermination()


if __name__ == "__main__":
    main()
