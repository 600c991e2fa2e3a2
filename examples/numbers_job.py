"""Count the numbers in a topic: a PySpark streaming job as its author has it, for docs/adopt-a-job.md.

spark-submit examples/numbers_job.py localhost:9092 CHECKPOINT COUNTED
"""

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

servers, checkpoint, counted = sys.argv[1:]
spark = SparkSession.builder.appName("numbers").getOrCreate()
records = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", servers)
    .option("subscribe", "numbers")
    .option("startingOffsets", "earliest")
    .load()
)
numbers = records.select(F.col("value").cast("string").cast("long").alias("n"))


def write(totals: DataFrame, batch: int) -> None:
    """Write how many numbers were counted so far, and their sum."""
    (row,) = totals.collect()
    Path(counted).write_text(json.dumps({"batch": batch, "records": row["records"], "sum": row["sum"]}))


(
    numbers.agg(F.count("*").alias("records"), F.sum("n").alias("sum"))
    .writeStream.queryName("totals")
    .outputMode("complete")
    .foreachBatch(write)
    .option("checkpointLocation", checkpoint)
    .start()
    .awaitTermination()
)
