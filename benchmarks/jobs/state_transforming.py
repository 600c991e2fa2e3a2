"""Make a savepoint of a state of many keys; write it anew by Spark's repartition and by ``transform_state``.

``state_transforming.py FOLDER --keys N --rounds N``: the answer is the last line, a JSON object of seconds by
way.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.state import SetValues, transform_state
from airflow_flinkstyle.storage.local import LocalStore
from benchmarks.jobs.state_listing import JOB, SAVEPOINT
from testbed.session import local_session
from testbed.spark import spark_paths
from tests.golden.stateful import CHANGELOG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK, OURS = "spark", "ours"
PARTITIONS = 4
CONFS = {**CHANGELOG, "spark.sql.shuffle.partitions": str(PARTITIONS), "spark.driver.memory": "3g"}


def main() -> None:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    args = parser.parse_args()
    with local_session(spark_paths(), {**CONFS, "spark.local.dir": str(args.folder / "local")}) as spark:
        make(spark, args.folder, args.keys)
        seconds: dict[str, list[float]] = {SPARK: [], OURS: []}
        for number in range(args.rounds):
            for way in (SPARK, OURS)[:: -1 if number % 2 else 1]:
                seconds[way].append(timed(spark, args.folder, way, args.keys))
    print(json.dumps(seconds))  # noqa: T201  (its purpose)


def make(spark: SparkSession, folder: Path, keys: int) -> None:
    """Keep a value of 100 bytes for each key of 16, in one batch, and take a savepoint of that."""
    rows = spark.range(keys).selectExpr("lpad(hex(id), 16, '0') AS k", "lpad(hex(id), 100, 'x') AS v")
    rows.write.parquet(str(folder / "input"))
    kept = spark.readStream.schema("k STRING, v STRING").parquet(str(folder / "input"))
    writer = kept.groupBy("k").agg({"v": "max"}).writeStream.outputMode("update").format("noop")
    place = folder / "checkpoint"
    writer.trigger(availableNow=True).option("checkpointLocation", str(place)).start().awaitTermination()
    label = SavepointLabel(
        savepoint_id=SAVEPOINT, taken_at_ms=1, spark_version=spark.version, taken_from_generation=None
    )
    source = QuerySource(name="kept", checkpoint=LocalStore(place), kafka={})
    take_savepoint(SavepointRepository(LocalStore(folder / "root"), JOB), [source], label)


def timed(spark: SparkSession, folder: Path, way: str, keys: int) -> float:
    """Write every key once, and return the seconds from the call to its end.

    Raises:
        RuntimeError: If keys are missing.
    """
    copy = folder / "copy"
    try:
        if way == SPARK:
            shutil.copytree(folder / "checkpoint", copy)
            begun_s = time.monotonic()
            spark._streamingCheckpointManager.repartition(str(copy), PARTITIONS + 1)  # noqa: SLF001
            return time.monotonic() - begun_s
        begun_s = time.monotonic()
        change = SetValues({"max": "upper(value.max)"}, where="key.k LIKE '%7'")
        done = transform_state(spark, str(folder / "root"), JOB, {0: change}, SAVEPOINT, scratch=str(copy))
        took_s = time.monotonic() - begun_s
        if done.counts[0].kept + done.counts[0].changed != keys:
            raise RuntimeError(f"Expected {keys} keys written, found {done.counts[0]}")
        return took_s
    finally:
        shutil.rmtree(copy, ignore_errors=True)


if __name__ == "__main__":
    main()
