"""Delta Lake in the tests' Spark: its jars must be there when the JVM starts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from testbed.paths import jar_set

if TYPE_CHECKING:
    from pathlib import Path


def delta_settings() -> dict[str, str]:
    """Return the settings of a session with Delta, as small as it goes."""
    jars = [str(jar) for jar in jar_set("delta")]
    return {
        "spark.jars": ",".join(jars),
        "spark.driver.extraClassPath": ":".join(jars),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.shuffle.partitions": "1",
    }


def read_delta(table: Path) -> list[dict[str, object]]:
    """Return the rows of a small table by its log, without a JVM."""
    from pyarrow.parquet import read_table

    files: dict[str, None] = {}
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            if "remove" in action:
                files.pop(action["remove"]["path"])
            if "add" in action:
                if action["add"].get("deletionVector"):
                    raise NotImplementedError(
                        f"{table} has deletion vectors, which this reader does not know."
                    )
                files[action["add"]["path"]] = None
    return [row for file in files for row in read_table(table / file).to_pylist()]
