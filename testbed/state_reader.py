"""Reads the orders job's state out of a checkpoint with Spark's own state reader.

Runs in Spark's virtual environment and stays up, so that several verdicts share one JVM: one JSON line in
(``{"checkpoint": PATH}``), one JSON line out (``{"totals": {customer: [orders, amount, numbers]}}``, the
numbers as hexadecimal bitmap, or ``{"error": TEXT}``). With ``"options"`` for Spark's Kafka source in the
question, plain Spark first goes on from the checkpoint and reads all there is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from testbed import paths
from testbed.answers import own_output
from testbed.jvm import spark_options
from testbed.spark import JAR_SETS


def read_totals(spark: SparkSession, checkpoint: str) -> dict[str, list[object]]:
    """Return the newest committed state of the job's only stateful operator."""
    rows = spark.read.format("statestore").load(checkpoint).select("key", "value").collect()
    # By position: Spark names the columns of the aggregates' buffers as it likes.
    return {row.key[0]: [row.value[0], row.value[1], bytes(row.value[2]).hex()] for row in rows}


def go_on(spark: SparkSession, checkpoint: str, options: dict[str, str]) -> None:
    """Run the job's query from where its checkpoint stands to the end of what the options reach."""
    from orders_job import orders_in, totals_per_customer

    records = spark.readStream.format("kafka").options(**options).load()
    writer = totals_per_customer(orders_in(records)).writeStream.outputMode("update").format("noop")
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writer.start().awaitTermination()


def answer_to(spark: SparkSession, question: dict[str, Any]) -> dict[str, object]:
    """Return the totals."""
    if "options" in question:
        go_on(spark, question["checkpoint"], question["options"])
    return {"totals": read_totals(spark, question["checkpoint"])}


def main() -> None:
    """Answer until standard input ends."""
    sys.path.insert(0, str(paths.ROOT / "examples"))
    from orders_job import ROCKSDB
    from pyspark.sql import SparkSession

    answers = own_output()
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.driver.memory", "512m")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraClassPath", paths.class_path(*JAR_SETS))
        .config("spark.driver.extraJavaOptions", spark_options())
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .getOrCreate()
    )
    _ = spark.streams  # the reader looks for the coordinator that only this brings up
    for line in sys.stdin:
        try:
            answer = answer_to(spark, json.loads(line))
        except Exception as error:  # noqa: BLE001  (told to whoever asked)
            answer = {"error": str(error)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
