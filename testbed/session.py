"""A Spark session inside the test's process, in a JVM of its own."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest import mock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from testbed.spark import SparkPaths


@contextmanager
def local_session(spark: SparkPaths, confs: Mapping[str, str], *, threads: int = 2) -> Iterator[SparkSession]:
    """Start a session with the connectors' jars, and end it together with its JVM.

    A JVM keeps the class path of the first session that was opened in it, and that session's memory:
    with one JVM for all modules, whether a module finds its jars would depend on who ran before.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{threads}]").config("spark.ui.enabled", "false")
    for name, value in {**spark.conf, **confs}.items():
        builder = builder.config(name, value)
    with mock.patch.dict("os.environ", spark.env):
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        try:
            yield session
        finally:
            session.stop()
            gateway = SparkContext._gateway  # noqa: SLF001  # PySpark has no other way to end its JVM
            SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
            if gateway is not None:
                gateway.shutdown()
                gateway.proc.stdin.close()
                gateway.proc.wait(30)
