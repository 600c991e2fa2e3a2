"""One job with detached drivers in a folder."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.client import JobClient
from airflow_flinkstyle.jobs.deployments.detached import DetachedDeployment
from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget
from airflow_flinkstyle.jobs.status import Closed, Running, Starting
from airflow_flinkstyle.jobs.view import JobView
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.open import open_store
from testbed import paths
from testbed.differential.deployment import WarmDeployment
from testbed.drivers import spark_conf
from testbed.keys import SIGNER
from testbed.spark import spark_paths
from testbed.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_flinkstyle.jobs.status import JobStatus
    from tests.integration.warm_lab import WarmJvms

COUNTS = """
import json, sys
from pyspark.sql import SparkSession, functions as F
out = sys.argv[1]
spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
keyed = rows.withColumn("k", F.col("value") % 7)
counts = keyed.groupBy("k").agg(F.count("*").alias("n"), F.max("value").alias("top"))
def note(batch, batch_id):
    total = batch.agg(F.sum("n").alias("n"), F.max("top").alias("top")).first()
    with open(out, "a") as f:
        f.write(json.dumps({"batch": batch_id, "n": total.n, "top": total.top}) + "\\n")
query = (counts.writeStream.queryName("counts").outputMode("complete").foreachBatch(note)
         .trigger(processingTime="1 second").option("checkpointLocation", "/nonexistent").start())
query.awaitTermination()
"""

FROM_FILES = COUNTS.replace(
    'rows = spark.readStream.format("rate").option("rowsPerSecond", 20).load()',
    """from pathlib import Path
files = spark.readStream.schema("id LONG").option("maxFilesPerTrigger", 1)
rows = files.json(str(Path(out).with_name("in"))).withColumnRenamed("id", "value")""",
)
"""The same of numbered files."""

TIMEOUT_S = 300


def committed(status: JobStatus) -> int:
    """Return the newest batch that the driver says it has committed; -1 if none runs or none is."""
    return status.heartbeat.batches().get("counts", -1) if isinstance(status, Running) else -1


class Lab:
    """One job in a folder."""

    def __init__(
        self, folder: Path, *, warm: WarmJvms | None = None, supervised: bool = False, archives: bool = False
    ) -> None:
        """Describe it; with ``warm`` its drivers run in JVMs that ran others, else each is a spark-submit."""
        self.folder, self.out, self._warm = folder, folder / "out.jsonl", warm
        store = open_store(str(folder / "root"))
        self.client = JobClient(
            view=JobView(
                board=JobBoard(store, "counts"),
                repository=SavepointRepository(store, "counts"),
                deployment=WarmDeployment(jvms=warm)
                if warm is not None
                else DetachedDeployment(supervisor_env={} if supervised else None, class_archives=archives),
                signer=SIGNER,
            )
        )

    def close(self) -> None:
        """End what runs; a test that fails shows what the drivers have logged."""
        print(self.logs())  # noqa: T201
        if self._warm is not None:
            self._warm.end_drivers()
            return
        for generation in self.client.view.board.generations():
            if self.client.view.run(generation).submit is not None:
                self.client.drivers.end_driver(generation)

    def spec(self, text: str = COUNTS, name: str = "counts.py") -> JobSpec:
        (self.folder / name).write_text(text)
        return JobSpec(
            name="counts",
            script=str(self.folder / name),
            args=(str(self.out),),
            conf={"spark.sql.shuffle.partitions": "2"},
            checkpoint_root=str(self.folder / "checkpoints"),
            lease_s=8,
        )

    def target(self, minor: str = paths.SPARK) -> SubmitTarget:
        """Return where a driver starts, on the usual Spark or on another minor version."""
        spark = spark_paths(minor=minor)
        return SubmitTarget(
            master="local[2]",
            python=str(spark.python),
            spark_home=str(spark.spark_home),
            conf=spark_conf(minor),
            working_dir=str(self.folder),
            log_dir=str(self.folder / "logs"),
        )

    def until_committed_beyond(self, batch: int) -> int:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            found = committed(self.client.view.status())
            if found > batch:
                return found
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.2)

    def has_committed_beyond(self, batch: int) -> bool:
        return committed(self.client.view.status()) > batch

    def until_looked_after_beyond(self, batch: int, *, timeout_s: float = TIMEOUT_S) -> None:
        """Look after the job, as a sensor does, until it has committed more than a batch."""

        wait_until(
            "the job commits batches again",
            lambda: committed(self.client.drivers.look_after(follow=self.client.starts.follow)) > batch,
            timeout_s=timeout_s,
        )

    def until_told_to_end_and_again(self) -> None:
        """Wait until the driver has drained, as SIGTERM makes it; start it again, as a sensor does."""
        wait_until("it does not run", lambda: not isinstance(self.client.view.settled_status(), Running))
        told = self.client.view.status()
        assert isinstance(told, Closed), told
        assert told.run.was_told_to_end, told
        again = self.client.drivers.look_after(told, follow=self.client.starts.follow)
        assert isinstance(again, Starting), again
        self.client.drivers.wait_running(again.run.generation, timeout_s=TIMEOUT_S)
        self.until_committed_beyond(told.heartbeat.batches()["counts"] + 1)

    def logs(self) -> str:
        return "\n".join(path.read_text()[-4000:] for path in (self.folder / "logs").glob("*.log"))

    def judge(self) -> None:
        """In every batch the count is the highest number plus one, or rows were lost or doubled."""
        lines = [json.loads(line) for line in self.out.read_text().splitlines()]
        assert lines
        assert [line for line in lines if line["n"] is not None and line["n"] != line["top"] + 1] == []
