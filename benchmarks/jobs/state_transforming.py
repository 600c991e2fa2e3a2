"""A state of many keys, written anew by ``transform_state``, or by Spark's own offline repartition.

``state_transforming.py FOLDER make|ours|spark --keys N --partitions N``: the answer is the last line, a JSON
object with the seconds of the whole and, of ours, of each step.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.state import SetValues, steps, transform_state
from airflow_flinkstyle.storage.local import LocalStore
from benchmarks.state_transform import MAKE, OURS, SPARK
from testbed.session import local_session
from testbed.spark import spark_paths

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB, SAVEPOINT, WHOLE = "bench", "sp-1", "all"
STATE = "spark.sql.streaming.stateStore"
PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
MEMORY = "2g"
KEY = "substr(md5(CAST(id AS STRING)), 1, 16)"
VALUE = "concat(sha2(CAST(id AS STRING), 256), substr(sha1(CAST(id AS STRING)), 1, 36))"


class Seconds(logging.Handler):
    """How long each step took."""

    def __init__(self) -> None:
        super().__init__()
        self.by_step: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Take note of a step that has ended."""
        if record.msg == steps.TOOK and isinstance(record.args, tuple):
            what, took_s = record.args
            self.by_step[str(what)] = float(str(took_s))


def main() -> None:
    """Do one of the three, and print what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("what", choices=[MAKE, OURS, SPARK])
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--partitions", type=int, required=True)
    args = parser.parse_args()
    confs = {
        f"{STATE}.providerClass": PROVIDER,
        "spark.sql.shuffle.partitions": str(args.partitions),
        "spark.driver.memory": MEMORY,
        "spark.local.dir": str(args.folder / "local"),
    }
    with local_session(spark_paths(), confs) as spark:
        if args.what == MAKE:
            found = make(spark, args.folder, args.keys)
        elif args.what == OURS:
            found = transformed(spark, args.folder, args.keys)
        else:
            found = repartitioned(spark, args.folder, args.partitions)
    print(json.dumps(found))  # noqa: T201  (its purpose)


def make(spark: SparkSession, folder: Path, keys: int) -> dict[str, float]:
    """Keep a value of 100 bytes for each key of 16, in one batch, and take a savepoint of that."""
    begun_s = time.monotonic()
    spark.range(keys).selectExpr(f"{KEY} AS k", f"{VALUE} AS v").write.parquet(str(folder / "input"))
    rows = spark.readStream.schema("k STRING, v STRING").parquet(str(folder / "input"))
    place = folder / "checkpoint"
    writer = rows.groupBy("k").agg({"v": "max"}).writeStream.outputMode("update").format("noop")
    writer.trigger(availableNow=True).option("checkpointLocation", str(place)).start().awaitTermination()
    shutil.rmtree(folder / "input")
    label = SavepointLabel(
        savepoint_id=SAVEPOINT, taken_at_ms=1, spark_version=spark.version, taken_from_generation=None
    )
    source = QuerySource(name="kept", checkpoint=LocalStore(place), kafka={})
    take_savepoint(SavepointRepository(LocalStore(folder / "root"), JOB), [source], label)
    return {WHOLE: time.monotonic() - begun_s}


def transformed(spark: SparkSession, folder: Path, keys: int) -> dict[str, float]:
    """Change every value, from the savepoint to a new one.

    Raises:
        RuntimeError: If it did not change every key.
    """
    seconds, root = Seconds(), folder / "root"
    steps.log.addHandler(seconds)
    steps.log.setLevel(logging.INFO)
    steps.log_to_stderr()
    copy = folder / "copy"
    change = SetValues({"max": "reverse(value.max)"})
    begun_s = time.monotonic()
    done = transform_state(spark, str(root), JOB, {0: change}, SAVEPOINT, scratch=str(copy))
    took_s = time.monotonic() - begun_s
    if (counts := done.counts[0]).changed != keys:
        raise RuntimeError(f"Expected {keys} keys changed, found {counts}")
    return {WHOLE: took_s, **seconds.by_step}


def repartitioned(spark: SparkSession, folder: Path, partitions: int) -> dict[str, float]:
    """Spread the same state over two more partitions, in a copy of the checkpoint, whose making is left out.

    Raises:
        RuntimeError: If Spark did not commit the batch of it.
    """
    copy = folder / "copy"
    shutil.copytree(folder / "checkpoint", copy)
    _ = spark.streams.active  # starts what stores report to, which Spark 4.2 does not
    begun_s = time.monotonic()
    spark._streamingCheckpointManager.repartition(str(copy), partitions + 2)  # noqa: SLF001 - not public yet
    took_s = time.monotonic() - begun_s
    if not (copy / "commits" / "1").exists():
        raise RuntimeError(f"Expected batch 1 committed, found {sorted(copy.glob('commits/*'))}")
    return {WHOLE: took_s}


if __name__ == "__main__":
    main()
