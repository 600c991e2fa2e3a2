"""What Delta does with batch ids used again; a script, since its jars must be there when the JVM starts.

    python tests/integration/delta_batches.py FOLDER

writes to ``FOLDER/found.json`` how many different rows the table holds at each step.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parents[2]))
from airflow_flinkstyle.jobs.start.rewinds import fork
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.files.restore import restore_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.local import LocalStore
from testbed.delta import delta_settings
from testbed.jvm import spark_options

ROWS_PER_FILE = 10


def a_session(folder: Path) -> SparkSession:
    """Start Spark with Delta, as small as it goes."""
    settings = {
        **delta_settings(),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.extraJavaOptions": spark_options(),
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def feed(folder: Path, files: range) -> None:
    """Write numbered rows, as many to each file."""
    folder.mkdir(exist_ok=True)
    for number in files:
        rows = ({"id": number * ROWS_PER_FILE + row} for row in range(ROWS_PER_FILE))
        (folder / f"{number:03}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def main(folder: Path) -> int:
    """Save after three batches, write three more, and go on from the savepoint in larger batches."""
    spark = a_session(folder)

    def run(checkpoint: str, files_per_batch: int) -> int:
        rows = spark.readStream.schema("id long").option("maxFilesPerTrigger", files_per_batch)
        writer = rows.json(str(folder / "in")).writeStream.format("delta")
        query = writer.option("checkpointLocation", str(folder / checkpoint)).start(str(folder / "out"))
        query.processAllAvailable()
        query.stop()
        return spark.read.format("delta").load(str(folder / "out")).distinct().count()

    repository = SavepointRepository(LocalStore(folder / "root"), "delta")
    feed(folder / "in", range(3))
    run("first", 1)
    source = QuerySource(name="q", checkpoint=LocalStore(folder / "first"), kafka={}, sink="delta")
    label = SavepointLabel(
        savepoint_id="sp-1", taken_at_ms=1, spark_version=spark.version, taken_from_generation=None
    )
    manifest = take_savepoint(repository, [source], label)
    feed(folder / "in", range(3, 6))
    found = {"first": run("first", 1)}
    feed(folder / "in", range(6, 9))
    for name, start in {"re-emit": manifest, "fork": fork(manifest, repository, "test")}.items():
        restore_savepoint(start, repository, lambda _, name=name: LocalStore(folder / name))
        found[name] = run(name, 3)
    (folder / "found.json").write_text(json.dumps(found))
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
