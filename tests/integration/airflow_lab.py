"""An Airflow home without a server, and a job that counts: what the tests of DAGs share."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.jobs.deployments.detached import DetachedDeployment
from airflow_flinkstyle.jobs.running.client import JobClient
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.open import open_store
from testbed import paths
from testbed.drivers import spark_conf
from testbed.keys import SIGNER, SIGNING_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping
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
    """An Airflow home with its connections, and a script to run."""

    def __init__(self, folder: Path, spark: SparkPaths) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.script = folder / "counts.py"
        self.script.write_text(COUNTS)
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")},
            **spark.env,
            "PATH": f"{paths.VENV_AIRFLOW / 'bin'}:{os.environ['PATH']}",
            "AIRFLOW_HOME": str(folder / "airflow"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(paths.ROOT / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__FLINKSTYLE__JOBS": str(folder / "jobs.yaml"),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder / 'airflow.db'}",
        }
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
        value = {"conn_type": conn_type, "extra": extra, **fields}
        self.env[f"AIRFLOW_CONN_{conn_id.upper()}"] = json.dumps(value)

    def airflow(self, *args: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["airflow", *args],
            env={**self.env, **(env or {})},
            cwd=self.folder,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=300,
            check=False,
        )

    def run_dag(self, dag_id: str, conf: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        return self.airflow("dags", "test", dag_id, "--conf", json.dumps(conf))

    def import_errors(self, dags: Path) -> subprocess.CompletedProcess[str]:
        """Parse a folder; without ``--local`` Airflow reads what its server has parsed: nothing."""
        folder = {"AIRFLOW__CORE__DAGS_FOLDER": str(dags)}
        return self.airflow("dags", "list-import-errors", "--local", env=folder)

    @property
    def connections(self) -> dict[str, str]:
        """The connections by id."""
        prefix = "AIRFLOW_CONN_"
        found = (name for name in self.env if name.startswith(prefix))
        return {name.removeprefix(prefix).lower(): self.env[name] for name in found}

    def end_drivers(self) -> None:
        """End every driver of the job."""
        for generation in self.client.board.generations():
            self.client.end_driver(generation)

    @property
    def client(self) -> JobClient:
        store = open_store(str(self.root))
        return JobClient(
            board=JobBoard(store, "counts"),
            repository=SavepointRepository(store, "counts"),
            deployment=DetachedDeployment(),
            signer=SIGNER,
        )
