"""What integration tests share beside the brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testbed import paths
from testbed.session import local_session
from tests.integration.warm_lab import WarmJvms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from testbed.spark import SparkPaths


@pytest.fixture(scope="session")
def warm_jvms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmJvms | None]:
    """Yield JVMs for drivers of tests that are not about a driver's processes; none on other Sparks."""
    jvms = None if paths.SPARK else WarmJvms(tmp_path_factory.mktemp("warm"))
    yield jvms
    if jvms is not None:
        jvms.close()


@pytest.fixture(scope="module")
def two_tasks(spark_paths: SparkPaths) -> Iterator[SparkSession]:
    """Yield a session that splits work in two and does one half at a time: shard 0 commits before shard 1."""
    confs = {"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2"}
    with local_session(spark_paths, confs, threads=1) as session:
        yield session
