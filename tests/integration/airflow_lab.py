"""The connections of an Airflow, and a job that counts: what the tests of DAGs share."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.jobs.client import JobClient
from airflow_flinkstyle.jobs.deployments.detached import DetachedDeployment
from airflow_flinkstyle.jobs.view import JobView
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.open import open_store
from testbed.drivers import spark_conf
from testbed.keys import SIGNER, SIGNING_KEY

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.spark import SparkPaths

COUNTS = """
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
counts = rows.groupBy((F.col("value") % 7).alias("k")).count()
query = (counts.writeStream.queryName("counts").outputMode("complete").format("memory")
         .trigger(processingTime="1 second").start())
query.awaitTermination()
"""


class Lab:
    """An Airflow's connections, and a script to run."""

    def __init__(self, folder: Path, spark: SparkPaths) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.script = folder / "counts.py"
        self.script.write_text(COUNTS)
        self.settings = {**spark.env, "AIRFLOW__FLINKSTYLE__JOBS": str(folder / "jobs.yaml")}
        """More of the environment of an Airflow."""
        self.connections: dict[str, str] = {}
        """By id."""
        self.connect(
            "flinkstyle_default",
            "flinkstyle",
            {"savepoint_root": str(self.root), "lease_s": 8, "log_dir": str(folder / "logs")},
            password=SIGNING_KEY,
        )
        self.connect(
            "spark_default",
            "spark",
            {
                "python": str(spark.python),
                "spark-home": str(spark.spark_home),
                "conf": {**spark_conf(), "spark.ui.enabled": False, "spark.sql.shuffle.partitions": 2},
            },
            host="local[2]",
        )

    def connect(self, conn_id: str, conn_type: str, extra: dict[str, Any], **fields: str) -> None:
        self.connections[conn_id] = json.dumps({"conn_type": conn_type, "extra": extra, **fields})

    def end_drivers(self) -> None:
        """End every driver of the job."""
        for generation in self.client.view.board.generations():
            self.client.drivers.end_driver(generation)

    @property
    def client(self) -> JobClient:
        store = open_store(str(self.root))
        return JobClient(
            view=JobView(
                board=JobBoard(store, "counts"),
                repository=SavepointRepository(store, "counts"),
                deployment=DetachedDeployment(),
                signer=SIGNER,
            )
        )
