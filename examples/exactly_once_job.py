"""Count orders per customer and write to Kafka, each record once: crashes, savepoints and moves included.

Reads the orders of ``orders_job.py`` and writes two topics: ``--receipts``, a record per order, and
``--totals``, the totals of the customers that a batch changed. What is savepoint-safe here is the sink, one
line per query; nothing else of the job knows of savepoints. Consumers read with
``isolation.level=read_committed``.

    spark-submit --master 'local[2,4]' examples/exactly_once_job.py --bootstrap localhost:9092 \
        --topic orders --receipts receipts --totals totals --checkpoint /tmp/exactly-once

Each query keeps its checkpoint in a folder of its own name; run by flinkstyle, it needs no ``--checkpoint``.
``orders_job.py`` must stand beside it.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from orders_job import ROCKSDB, orders_in, totals_per_customer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_flinkstyle.sinks import TransactionalKafkaSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def as_records(rows: DataFrame, *columns: str) -> DataFrame:
    """Return rows as records for Kafka: the customer is the key, the columns are the value, as JSON."""
    return rows.select(F.col("customer").alias("key"), F.to_json(F.struct(*columns)).alias("value"))


def write(records: DataFrame, name: str, sink: TransactionalKafkaSink, args: argparse.Namespace) -> None:
    """Start a query that writes its records through the sink."""
    writer = records.writeStream.queryName(name).outputMode("update").foreachBatch(sink.foreach_batch)
    if args.checkpoint:
        writer = writer.option("checkpointLocation", f"{args.checkpoint}/{name}")
    writer.trigger(processingTime=args.trigger).start()


def main() -> None:
    """Run both queries until somebody stops them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True, help="Kafka servers of the orders")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--sink-bootstrap", help="Kafka servers of the output; default: those of the orders")
    parser.add_argument("--receipts", default="receipts", help="topic with a record per order")
    parser.add_argument("--totals", default="totals", help="topic with the totals that changed")
    parser.add_argument("--shards", type=int, default=2, help="transactions that share a batch")
    parser.add_argument("--checkpoint", help="folder of both checkpoints")
    parser.add_argument("--trigger", default="500 milliseconds", help="time between batches")
    args = parser.parse_args()

    spark = (
        SparkSession.builder.appName("exactly-once")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .getOrCreate()
    )
    orders = orders_in(
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", args.bootstrap)
        .option("subscribe", args.topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    out = {"bootstrap.servers": args.sink_bootstrap or args.bootstrap}
    receipts = TransactionalKafkaSink(out, topic=args.receipts, shards=args.shards)
    write(as_records(orders, "customer", "number"), "receipts", receipts, args)
    totals = TransactionalKafkaSink(out, topic=args.totals, shards=args.shards)
    counted = totals_per_customer(orders).withColumn("different", F.bitmap_count("numbers"))
    write(as_records(counted, "orders", "amount", "different"), "orders", totals, args)
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
