"""What drivers of the test bed, and the judge's, are started with."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from airflow_flinkstyle.storage.s3_settings import S3Settings
from testbed import paths
from testbed.judge import StateReader
from testbed.jvm import spark_options
from testbed.spark import jar_sets

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.s3 import S3Server

SPARK_PYTHON = paths.VENV_SPARK / "bin" / "python"


def spark_env() -> dict[str, str]:
    """Return this process's environment with the Java and the Python that drivers need."""
    return {
        **os.environ,
        "JAVA_HOME": str(paths.driver_java_home()),
        "PYSPARK_PYTHON": str(SPARK_PYTHON),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def spark_conf(minor: str = paths.SPARK) -> dict[str, str]:
    """Return the Spark settings that every driver of the test bed gets, on the usual Spark or another."""
    jars = paths.class_path(*jar_sets(minor))
    return {
        "spark.driver.extraClassPath": jars,
        "spark.executor.extraClassPath": jars,
        "spark.driver.extraJavaOptions": spark_options(minor),
        "spark.executor.extraJavaOptions": spark_options(minor),
        "spark.driver.memory": "512m",
        "spark.ui.enabled": "false",
    }


def s3_env(server: S3Server, *, way: str | None = None) -> dict[str, str]:
    """Return what the server's clients find in their environment; ``way`` is another URL of it."""
    return {
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
        "AWS_ENDPOINT_URL_S3": way or server.endpoint,
        "AWS_REGION": server.region,
    }


def s3_settings(server: S3Server, *, way: str | None = None) -> S3Settings:
    """Return the server as the package's own store sees it; ``way`` is another URL of it."""
    return S3Settings(
        endpoint=way or server.endpoint,
        region=server.region,
        access_key=server.access_key,
        secret_key=server.secret_key,
    )


def state_reader(folder: Path) -> StateReader:
    """Return the judge's reader of Spark state."""
    command = [str(SPARK_PYTHON), str(paths.ROOT / "testbed" / "state_reader.py")]
    return StateReader(command=command, env=spark_env(), log=folder / "state-reader.log")
