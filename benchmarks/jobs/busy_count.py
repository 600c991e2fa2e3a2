"""A stateful job that is as busy as it is told, and notes what each batch took.

``busy_count.py --rows N --keys N --trigger-ms N --notes FILE``: N rows per batch; one JSON line per batch.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Notes(StreamingQueryListener):
    """Writes down when a batch ended, its rows and its duration."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing to note."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Nothing to note."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Note one batch."""
        progress = event.progress
        line = {
            "batch": progress.batchId,
            "started": progress.timestamp,
            "rows": progress.numInputRows,
            "duration_ms": progress.durationMs["triggerExecution"],
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def main() -> None:
    """Run until somebody stops it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--trigger-ms", type=int, required=True)
    parser.add_argument("--notes", required=True)
    args = parser.parse_args()
    spark = (
        SparkSession.builder.appName("busy-count")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .getOrCreate()
    )
    spark.streams.addListener(Notes(args.notes))
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", args.rows)
    key = (F.hash("value") % args.keys).alias("k")
    counts = (
        source.load()
        .groupBy(key)
        .agg(F.count("*").alias("n"), F.max(F.sha2(F.col("value").cast("string"), 512)).alias("filler"))
    )
    writer = counts.writeStream.queryName("counts").outputMode("update").format("noop")
    writer.trigger(processingTime=f"{args.trigger_ms} milliseconds").start().awaitTermination()


if __name__ == "__main__":
    main()
