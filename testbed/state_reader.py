"""Reads the orders job's state out of a checkpoint with Spark's own state reader.

Runs in Spark's virtual environment and stays up, so that several verdicts share one JVM: one JSON line in
(``{"checkpoint": PATH}``), one JSON line out (``{"totals": {customer: [orders, amount, numbers]}}``, the
numbers as hexadecimal bitmap, or ``{"error": TEXT}``).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from testbed.answers import own_output


def read_totals(spark: SparkSession, checkpoint: str) -> dict[str, list[object]]:
    """Return the newest committed state of the job's only stateful operator."""
    rows = spark.read.format("statestore").load(checkpoint).select("key", "value").collect()
    # By position: Spark names the columns of the aggregates' buffers as it likes.
    return {row.key[0]: [row.value[0], row.value[1], bytes(row.value[2]).hex()] for row in rows}


def main() -> None:
    """Answer until standard input ends."""
    from pyspark.sql import SparkSession

    answers = own_output()
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.driver.memory", "512m")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    _ = spark.streams  # the reader looks for the coordinator that only this brings up
    for line in sys.stdin:
        try:
            answer: dict[str, object] = {"totals": read_totals(spark, json.loads(line)["checkpoint"])}
        except Exception as error:  # noqa: BLE001  (told to whoever asked)
            answer = {"error": str(error)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
