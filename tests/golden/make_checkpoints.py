"""Make the checkpoint directories that the golden tests read, with the PySpark that runs this script.

    python tests/golden/make_checkpoints.py [CASE ...]

writes ``tests/golden/<spark-version>/<case>/``; with names, only those cases. Run it in an environment of
each Spark version to cover, with pandas, pyarrow and, for ``transformWithState``, protobuf; the case
``kafka``, made only when named, needs the connector (``SP_KAFKA_JARS``, paths with commas between) and a
broker (``SP_KAFKA_BOOTSTRAP``) whose topic ``golden`` has five records in one partition.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

sys.path.insert(0, str(Path(__file__).parent))
from stateful import CASES, STATE, Case

BATCHES = 5
VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])


def write_input(folder: Path) -> None:
    """Write one small file for each batch."""
    folder.mkdir(parents=True)
    for batch in range(BATCHES):
        rows = [{"k": row % 5, "v": batch * 10 + row, "t": 1700000000 + batch * 60} for row in range(10)]
        (folder / f"part-{batch}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def read(spark: SparkSession, folder: Path, case: Case, name: str) -> DataFrame:
    """Read the input one file at a time; Kafka's one record at a time."""
    reader = spark.readStream
    if case.named_sources:
        reader = reader.name(name)
    if case.name == "kafka":
        options = {"kafka.bootstrap.servers": os.environ["SP_KAFKA_BOOTSTRAP"], "subscribe": "golden"}
        records = reader.format("kafka").options(
            **options, startingOffsets="earliest", maxOffsetsPerTrigger=1
        )
        numbered = records.load().select(F.col("offset").cast("int").alias("v"))
        return numbered.select(
            (F.col("v") % 5).alias("k"), "v", F.timestamp_seconds(F.col("v") * 60).alias("ts")
        )
    stream = reader.schema("k int, v int, t long").option("maxFilesPerTrigger", 1).json(str(folder))
    return stream.select("k", "v", F.timestamp_seconds("t").alias("ts"))


def make(case: Case, target: Path, folder: Path) -> None:
    """Run one query over the input in a session of its own."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.jars", os.environ.get("SP_KAFKA_JARS", ""))
        .config("spark.sql.session.timeZone", "UTC")
        .config(f"{STATE}.minDeltasForSnapshot", "2")
        .config(f"{STATE}.maintenanceInterval", "500ms")
        .getOrCreate()
        .newSession()
    )
    spark.conf.set("spark.sql.shuffle.partitions", case.partitions)
    for key, value in case.confs.items():
        spark.conf.set(key, value)
    writer = case.build(lambda name: read(spark, folder, case, name)).writeStream
    if case.named_sink:
        writer._jwrite = writer._jwrite.name("out")  # PySpark 4.2 and 4.3 have no method for it
    query = (
        writer.outputMode(case.mode)
        .format("noop")
        .queryName(case.name.replace("-", "_"))
        .option("checkpointLocation", str(target))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def remove_hidden(folder: Path) -> None:
    """Remove Hadoop's hidden checksum files, which Spark does not need."""
    for path in folder.rglob(".*.crc"):
        path.unlink()


def main(names: list[str]) -> None:
    """Make every case that this Spark version knows."""
    root = Path(__file__).parent / pyspark.__version__
    os.environ["PYSPARK_PYTHON"] = sys.executable  # workers need pandas too
    with tempfile.TemporaryDirectory(prefix="golden-") as temporary:
        folder = Path(temporary) / "input"
        write_input(folder)
        for case in CASES:
            wanted = case.name in names if names else case.name != "kafka"
            if wanted and case.since <= VERSION:
                shutil.rmtree(root / case.name, ignore_errors=True)
                make(case, root / case.name, folder)
    SparkSession.getActiveSession().stop()  # and with it the maintenance of state, which still writes
    for folder in root.iterdir():
        if folder.name != "hdfs":  # one case shows what the hidden checksums look like
            remove_hidden(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
