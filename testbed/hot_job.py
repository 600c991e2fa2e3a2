"""Counts orders per customer several times over, each time with another kind of state: ``hot_job.py``.

One driver for all state stores: every savepoint of it holds one query of each.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
STATE = "spark.sql.streaming.stateStore"
_PROVIDERS = "org.apache.spark.sql.execution.streaming.state"


def _kind(provider: str, *, changelog: bool = False, version: int = 1) -> Mapping[str, str]:
    return {
        f"{STATE}.providerClass": f"{_PROVIDERS}.{provider}StateStoreProvider",
        f"{STATE}.rocksdb.changelogCheckpointing.enabled": str(changelog).lower(),
        f"{STATE}.checkpointFormatVersion": str(version),
    }


KINDS: Mapping[str, Mapping[str, str]] = {
    "hdfs": _kind("HDFSBacked"),
    "rocksdb": _kind("RocksDB"),
    "changelog": _kind("RocksDB", changelog=True),
    "format-v2": _kind("RocksDB", changelog=True, version=2),
}
"""Query name -> the settings that choose its state store."""


def totals(spark: SparkSession, *, bootstrap: str, topic: str) -> DataFrame:
    """Return count, sum and set of order numbers per customer of the topic."""
    sys.path.insert(0, str(EXAMPLES))
    from orders_job import totals_per_customer
    from pyspark.sql import functions as F

    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        # A fetch at the end of an idle log would wait for half a second, and every call behind it.
        .option("kafka.fetch.max.wait.ms", "10")
        .load()
    )
    parsed = F.from_json(F.col("value").cast("string"), "customer STRING, number BIGINT, amount BIGINT")
    return totals_per_customer(records.select(parsed.alias("o")).select("o.*"))


def sessions(conf: Mapping[str, str]) -> dict[str, SparkSession]:
    """Return one session per kind: a query that is started again takes its session's settings anew."""
    from pyspark.sql import SparkSession

    # Two partitions are enough to have several stores.
    builder = SparkSession.builder.appName("hot").config("spark.sql.shuffle.partitions", "2")
    for key, value in conf.items():
        builder = builder.config(key, value)
    first = builder.getOrCreate()
    found = {name: first.newSession() for name in KINDS}
    for name, session in found.items():
        for key, value in {"spark.sql.shuffle.partitions": "2", **KINDS[name]}.items():
            session.conf.set(key, value)
    return found


def main() -> None:
    """Run all queries until somebody stops them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--trigger", default="300 milliseconds")
    args = parser.parse_args()
    queries = []
    for name, spark in sessions({}).items():
        writer = totals(spark, bootstrap=args.bootstrap, topic=args.topic).writeStream.queryName(name)
        writer = writer.outputMode("update").format("noop").trigger(processingTime=args.trigger)
        queries.append(writer.start())
    for query in queries:
        query.awaitTermination()


if __name__ == "__main__":
    main()
