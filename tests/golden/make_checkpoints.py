"""Make the checkpoint directories that the golden tests read, with the PySpark that runs this script.

    python tests/golden/make_checkpoints.py

writes ``tests/golden/<spark-version>/<case>/``. Run it in an environment of each Spark version to cover.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

BATCHES = 5
PROVIDERS = "org.apache.spark.sql.execution.streaming.state"
STATE = "spark.sql.streaming.stateStore"
CASES = {
    "hdfs": {f"{STATE}.providerClass": f"{PROVIDERS}.HDFSBackedStateStoreProvider"},
    "rocksdb": {f"{STATE}.providerClass": f"{PROVIDERS}.RocksDBStateStoreProvider"},
    "rocksdb-changelog": {
        f"{STATE}.providerClass": f"{PROVIDERS}.RocksDBStateStoreProvider",
        f"{STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    },
    "format-v2": {
        f"{STATE}.providerClass": f"{PROVIDERS}.RocksDBStateStoreProvider",
        f"{STATE}.checkpointFormatVersion": "2",
    },
    "stateless": {},
    "join": {},
    "named-sources": {
        "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
        "spark.sql.streaming.offsetLog.formatVersion": "2",
    },
}
SINCE = {"format-v2": (4, 0), "named-sources": (4, 2)}


def write_input(folder: Path) -> None:
    """Write one small file for each batch."""
    folder.mkdir(parents=True)
    for batch in range(BATCHES):
        rows = [{"k": row % 5, "v": batch * 10 + row, "t": 1700000000 + batch * 60} for row in range(10)]
        (folder / f"part-{batch}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def read(spark: SparkSession, folder: Path, name: str | None = None) -> DataFrame:
    """Read the input one file at a time."""
    reader = spark.readStream.schema("k int, v int, t long").option("maxFilesPerTrigger", 1)
    if name is not None:
        reader = reader.name(name)
    stream = reader.json(str(folder))
    return stream.withColumn("ts", F.timestamp_seconds("t")).withWatermark("ts", "1 minute")


def frame(spark: SparkSession, folder: Path, case: str) -> DataFrame:
    """Build the query of a case."""
    if case == "stateless":
        return read(spark, folder).select("k", "v")
    if case == "join":
        left, right = read(spark, folder).alias("l"), read(spark, folder).alias("r")
        return left.join(right, F.expr("l.v = r.v AND l.ts = r.ts")).select("l.k", "l.v")
    if case == "named-sources":
        union = read(spark, folder, "zeta").unionByName(read(spark, folder, "alpha"))
        return union.groupBy("k").agg(F.sum("v").alias("s"))
    return read(spark, folder).groupBy("k").agg(F.sum("v").alias("s"))


def make(case: str, confs: dict[str, str], target: Path, folder: Path) -> None:
    """Run one query over the input in a session of its own."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config(f"{STATE}.minDeltasForSnapshot", "2")
        .config(f"{STATE}.maintenanceInterval", "500ms")
        .getOrCreate()
        .newSession()
    )
    for key, value in confs.items():
        spark.conf.set(key, value)
    if case == "join":  # it has four stores in each partition
        spark.conf.set("spark.sql.shuffle.partitions", "1")
    query = (
        frame(spark, folder, case)
        .writeStream.outputMode("append" if case in {"stateless", "join"} else "update")
        .format("noop")
        .option("checkpointLocation", str(target))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def remove_hidden(folder: Path) -> None:
    """Remove Hadoop's hidden checksum files, which Spark does not need."""
    for path in folder.rglob(".*.crc"):
        path.unlink()


def main() -> None:
    """Make every case that this Spark version knows."""
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    root = Path(__file__).parent / pyspark.__version__
    shutil.rmtree(root, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="golden-") as temporary:
        folder = Path(temporary) / "input"
        write_input(folder)
        for case, confs in CASES.items():
            if version >= SINCE.get(case, (0, 0)):
                make(case, confs, root / case, folder)
                if case != "hdfs":  # one case shows what the hidden checksums look like
                    remove_hidden(root / case)


if __name__ == "__main__":
    main()
