"""Make a savepoint of a state of many keys, then list it by Spark's own reader and by ``savepoint_state``.

``state_listing.py FOLDER --keys N --rounds N``: the answer is the last line, a JSON object of seconds by way.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.state import savepoint_state
from airflow_flinkstyle.storage.local import LocalStore
from testbed.session import local_session
from testbed.spark import spark_paths

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOB, SAVEPOINT = "bench", "sp-1"
SPARK, OURS = "spark", "ours"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CONFS = {
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.driver.memory": "2g",
}


def main() -> None:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    args = parser.parse_args()
    with local_session(spark_paths(), CONFS) as spark:
        checkpoint = make(spark, args.folder, args.keys)
        seconds: dict[str, list[float]] = {SPARK: [], OURS: []}
        for number in range(-1, args.rounds):  # the first round warms both
            for way in (SPARK, OURS)[:: -1 if number % 2 else 1]:
                took_s = timed(spark, args.folder, checkpoint, way, args.keys)
                if number >= 0:
                    seconds[way].append(took_s)
    print(json.dumps(seconds))  # noqa: T201  (its purpose)


def make(spark: SparkSession, folder: Path, keys: int) -> Path:
    """Count each key once, in one batch, and take a savepoint of that."""
    spark.range(keys).write.parquet(str(folder / "input"))
    counts = spark.readStream.schema("id BIGINT").parquet(str(folder / "input")).groupBy("id").count()
    writer = counts.writeStream.outputMode("update").format("noop").trigger(availableNow=True)
    writer.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()
    label = SavepointLabel(
        savepoint_id=SAVEPOINT, taken_at_ms=1, spark_version=spark.version, taken_from_generation=None
    )
    source = QuerySource(name="counts", checkpoint=LocalStore(folder / "checkpoint"), kafka={})
    take_savepoint(SavepointRepository(LocalStore(folder / "root"), JOB), [source], label)
    return folder / "checkpoint"


def timed(spark: SparkSession, folder: Path, checkpoint: Path, way: str, keys: int) -> float:
    """List every key once, and return the seconds from the call to the last row."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        begun_s = time.monotonic()
        listed = state(spark, folder, checkpoint, way, scratch).selectExpr("sum(value.count) AS n").first()
        took_s = time.monotonic() - begun_s
    if listed is None or listed.n != keys:
        raise RuntimeError(f"Expected {keys} rows counted, found {listed}")
    return took_s


def state(spark: SparkSession, folder: Path, checkpoint: Path, way: str, scratch: str) -> DataFrame:
    """Return the state as one of the two ways opens it."""
    if way == SPARK:
        return spark.read.format("statestore").load(str(checkpoint))
    return savepoint_state(spark, str(folder / "root"), JOB, SAVEPOINT, scratch=scratch)


if __name__ == "__main__":
    main()
