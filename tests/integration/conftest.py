"""What integration tests share beside the brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testbed.session import local_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from testbed.spark import SparkPaths


@pytest.fixture(scope="module")
def two_tasks(spark_paths: SparkPaths) -> Iterator[SparkSession]:
    """Yield a session that splits work in two and does one half at a time: shard 0 commits before shard 1."""
    confs = {"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2"}
    with local_session(spark_paths, confs, threads=1) as session:
        yield session
