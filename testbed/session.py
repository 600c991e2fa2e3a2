"""A Spark session inside the test's process, in a JVM that runs one after the other."""

from __future__ import annotations

import atexit
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from testbed.spark import SparkPaths

_OF_THE_JVM = ("spark.driver.extraClassPath", "spark.driver.extraJavaOptions", "spark.driver.memory")
"""Settings that a JVM keeps from its first session: another one is started for others."""
_gateways: dict[tuple[str | None, ...], Any] = {}
"""JVMs of sessions that have ended, by those settings."""


@contextmanager
def local_session(spark: SparkPaths, confs: Mapping[str, str], *, threads: int = 2) -> Iterator[SparkSession]:
    """Start a session with the connectors' jars, and end it; the next one like it finds its JVM."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    settings = {**spark.conf, **confs}
    kind = tuple(settings.get(name) for name in _OF_THE_JVM)
    builder = SparkSession.builder.master(f"local[{threads}]").config("spark.ui.enabled", "false")
    for name, value in settings.items():
        builder = builder.config(name, value)
    if (gateway := _gateways.pop(kind, None)) is not None:
        SparkContext._gateway, SparkContext._jvm = gateway, gateway.jvm  # noqa: SLF001
    with mock.patch.dict("os.environ", spark.env):
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        try:
            yield session
        finally:
            session.stop()
            gateway = _gateways[kind] = SparkContext._gateway  # noqa: SLF001
            for name in confs.keys() - set(_OF_THE_JVM):  # a new JVM has them as properties, for all sessions
                gateway.jvm.System.clearProperty(name)
            SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001  # PySpark takes it for any session


@atexit.register
def _end() -> None:
    """End the JVMs with this process, before it warns of each."""
    for gateway in _gateways.values():
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(30)
