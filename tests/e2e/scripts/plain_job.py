"""A job as its author has it: ``spark-submit plain_job.py SERVERS TOPIC CHECKPOINTS OUT now|on|counted``.

Counts numbered records by their remainder, and writes each of them to a file. Several checkpoints, each with
an output, stand with commas between them.
"""

import json
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

servers, topic, places, outs, until = sys.argv[1:6]
trigger = {"availableNow": True} if until != "on" else {"processingTime": "300 milliseconds"}
spark = SparkSession.builder.appName("plain").getOrCreate()


def numbers() -> DataFrame:
    """Read the topic."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("kafka.fetch.max.wait.ms", "10")
        .load()
    )
    return records.select(F.col("value").cast("string").cast("long").alias("n"))


def run(checkpoints: str, out: str) -> None:
    """Run both queries."""

    def note(frame: DataFrame, batch: int) -> None:
        found = {row.k: [row.c, row.s] for row in frame.collect()}
        with open(f"{out}/totals.jsonl", "a") as file:  # noqa: PTH123  # as its author has it
            file.write(json.dumps({"batch": batch, "totals": found}) + "\n")

    counted = numbers().groupBy((F.col("n") % 7).alias("k"))
    totals = (
        counted.agg(F.count("*").alias("c"), F.sum("n").alias("s"))
        .writeStream.queryName("totals")
        .outputMode("complete")
        .foreachBatch(note)
        .option("checkpointLocation", f"{checkpoints}/totals")
        .trigger(**trigger)
        .start()
    )
    if until == "counted":  # Spark's file sink cannot begin in an empty folder at any batch number
        totals.awaitTermination()
        return
    rows = (
        numbers()
        .writeStream.queryName("rows")
        .format("json")
        .option("path", f"{out}/rows")
        .option("checkpointLocation", f"{checkpoints}/rows")
        .trigger(**trigger)
        .start()
    )
    totals.awaitTermination()
    rows.awaitTermination()


for pair in zip(places.split(","), outs.split(","), strict=True):
    run(*pair)
