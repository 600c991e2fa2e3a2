"""What a query failed of, told by Java's own exceptions as Spark hands them to Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.agent.jvm.causes import failure_of
from airflow_flinkstyle.agent.run.reasons import Failure
from testbed.ports import free_port
from testbed.session import local_session
from testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from testbed.spark import SparkPaths

pytestmark = [pytest.mark.integration, pytest.mark.spark]
_KAFKA = "org.apache.kafka.common.errors"


@pytest.fixture(scope="module")
def spark(spark_paths: SparkPaths) -> Iterator[SparkSession]:
    with local_session(spark_paths, {}, threads=1) as session:
        yield session


def test_query_whose_brokers_are_away_may_be_started_again(spark: Any, tmp_path: Path):  # noqa: ANN401
    options = {
        "kafka.bootstrap.servers": f"127.0.0.1:{free_port()}",
        "subscribe": "orders",
        "kafka.default.api.timeout.ms": "2000",
        "kafka.request.timeout.ms": "1000",
        "fetchOffset.numRetries": "1",
    }
    records = spark.readStream.format("kafka").options(**options).load()
    query = records.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    wait_until("the query has failed", lambda: not query.isActive)
    failure = Failure.of(failure_of(query))
    assert (failure.code, failure.transient) == ("SCRIPT_FAILED", True), failure.text


def failed_of(spark: Any, name: str) -> Failure:  # noqa: ANN401
    """Return how a run ends whose query failed of this exception, two causes deep."""
    jvm = spark._jvm
    from pyspark.errors.exceptions.captured import StreamingQueryException

    package = jvm
    for part in name.split("."):
        package = getattr(package, part)
    inner = jvm.java.util.concurrent.ExecutionException(package("the text says a lot"))
    return Failure.of(StreamingQueryException(origin=jvm.java.lang.RuntimeException(inner)))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "transient"),
    [
        (f"{_KAFKA}.TimeoutException", True),
        (f"{_KAFKA}.DisconnectException", True),
        (f"{_KAFKA}.NotLeaderOrFollowerException", True),
        (f"{_KAFKA}.UnknownTopicOrPartitionException", False),
        (f"{_KAFKA}.TopicAuthorizationException", False),
        (f"{_KAFKA}.OffsetOutOfRangeException", False),
        ("java.lang.IllegalStateException", False),
    ],
)
def test_query_that_kafka_failed_may_be_started_again_if_kafka_says_so(
    spark: Any,  # noqa: ANN401
    name: str,
    *,
    transient: bool,
):
    failure = failed_of(spark, name)
    assert (failure.code, failure.transient) == ("SCRIPT_FAILED", transient)


def test_error_of_the_script_alone_lasts():
    error = ValueError("org.apache.kafka.common.errors.TimeoutException")
    error.__cause__ = error
    assert not Failure.of(error).transient
