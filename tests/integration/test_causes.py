"""What a query failed of, told by Java's own exceptions as Spark hands them to Python."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.agent.core.causes import FINAL_CLASSES
from airflow_flinkstyle.agent.core.errors import PlannedBatchOpenError
from airflow_flinkstyle.agent.core.queries.stopping import commit_planned
from airflow_flinkstyle.agent.core.run.reasons import Failure
from airflow_flinkstyle.agent.core.spark import StreamingSource
from airflow_flinkstyle.agent.spark.kafka import describe_source
from airflow_flinkstyle.agent.spark.starts import PySparkQuery
from airflow_flinkstyle.errors import FlinkstyleError
from testbed.histories.troubles import JAVA_PASSES
from testbed.java import Thrown
from testbed.ports import free_port
from testbed.session import local_session
from testbed.waiting import wait_until
from tests.unit.agent.job_queries import pending

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from testbed.spark import SparkPaths

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]
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
    failure = Failure.of(PySparkQuery(query, None).failure)
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
        (f"{_KAFKA}.UnknownServerException", True),
        (f"{_KAFKA}.RecordTooLargeException", False),
        ("java.lang.IllegalStateException", True),
        ("java.io.IOException", True),
        ("java.net.UnknownHostException", True),
        ("org.apache.hadoop.security.AccessControlException", False),
        ("java.lang.UnsupportedClassVersionError", False),
        ("java.lang.IllegalArgumentException", False),
    ],
)
def test_query_that_kafka_failed_may_be_started_again_unless_it_is_known_to_last(
    spark: Any,  # noqa: ANN401
    name: str,
    *,
    transient: bool,
):
    failure = failed_of(spark, name)
    assert (failure.code, failure.transient) == ("SCRIPT_FAILED", transient)


def test_wrong_setting_with_an_error_of_the_network_behind_it_passes(spark: Any):  # noqa: ANN401
    """Hadoop calls the name of a server that cannot be resolved at the moment an illegal argument."""
    from pyspark.errors.exceptions.captured import StreamingQueryException

    jvm = spark._jvm
    away = jvm.java.lang.IllegalArgumentException(jvm.java.net.UnknownHostException("namenode"))
    for error in (away, jvm.java.nio.channels.UnresolvedAddressException()):
        assert Failure.of(StreamingQueryException(origin=jvm.java.lang.RuntimeException(error))).transient


def test_error_of_the_script_alone_lasts_if_its_code_is_at_fault():
    error = ValueError("org.apache.kafka.common.errors.TimeoutException")
    error.__cause__ = error
    assert not Failure.of(error).transient
    assert not Failure.of(ModuleNotFoundError("No module named 'orders'")).transient
    assert Failure.of(ConnectionError("the registry of schemas is away")).transient
    assert Failure.of(type("ServerAwayError", (ValueError,), {})("of a library")).transient


def test_error_of_the_code_that_handles_another_one_passes_if_that_does():
    def handled(first: str, then: str) -> Failure:
        try:
            try:
                exec(first)  # noqa: S102
            finally:
                exec(then)  # noqa: S102
        except NameError as error:
            return Failure.of(error)
        raise AssertionError

    assert handled("raise TimeoutError()", "closes_what_is_not_there").transient
    assert not handled("1 // 0", "closes_what_is_not_there").transient
    assert not handled("raise TimeoutError()", "raise NameError() from None").transient


HANDLED = """exec("try:  open('/nowhere')\\nfinally:  not_opened.close()")"""


@pytest.mark.parametrize(
    ("raised", "transient"),
    [
        *(("1 // 0", False), ("int('x')", False), ("open('/nowhere')", True)),
        ("exec('raise OSError()')", True),
        pytest.param(HANDLED, True, id="handled"),
    ],
)
def test_error_of_a_function_of_the_script_passes_unless_its_code_is_at_fault(
    spark: Any,  # noqa: ANN401
    tmp_path: Path,
    raised: str,
    *,
    transient: bool,
):
    from pyspark.sql import functions

    def fail(*_: object) -> None:
        eval(raised)  # noqa: S307

    rows = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
    of_a_value = functions.udf(fail, "long")
    writers = {
        "batch": rows.writeStream.foreachBatch(fail),
        "value": rows.select(of_a_value("value")).writeStream.format("noop"),
    }
    if raised == HANDLED:
        del writers["value"]  # of a worker Spark tells the last error alone
    for name, writer in writers.items():
        query = writer.option("checkpointLocation", str(tmp_path / name)).start()
        wait_until("the query has failed", lambda query=query: not query.isActive)
        failure = Failure.of(PySparkQuery(query, None).failure)
        assert (failure.code, failure.transient) == ("SCRIPT_FAILED", transient), failure.text


class _HashMap(dict[str, str]):
    put = dict.__setitem__


class _Jvm:
    """A JVM in which Kafka's client cannot be made."""

    def __init__(self, name: str) -> None:
        self._error = Thrown("java.util.concurrent.ExecutionException", cause=Thrown(name))
        self.java = SimpleNamespace(util=SimpleNamespace(HashMap=_HashMap))

    def __getattr__(self, _: str) -> Any:  # noqa: ANN401
        return self

    def create(self, _: object) -> None:
        from py4j.protocol import Py4JJavaError

        raise Py4JJavaError("it was told to fail", self._error)


@pytest.mark.parametrize(
    "name", [*(name for name in FINAL_CLASSES if name.startswith("org.apache.kafka.")), *JAVA_PASSES]
)
def test_source_whose_cluster_answers_with_an_error_is_refused_for_good_only_if_the_list_has_it(name: str):
    source = StreamingSource(position=0, name=None, provider="kafka", options={})
    with pytest.raises(FlinkstyleError) as refused:
        describe_source(_Jvm(name), source)
    assert refused.value.retryable == (name not in FINAL_CLASSES)
    assert name.rpartition(".")[2] in refused.value.problem


@pytest.mark.parametrize(
    ("name", "may_pass"),
    [
        ("org.apache.kafka.common.errors.TimeoutException", True),
        ("org.apache.kafka.common.errors.RecordTooLargeException", False),
    ],
)
def test_batch_that_fails_while_its_query_stops_ends_the_run_for_good_only_if_that_lasts(
    name: str, *, may_pass: bool
) -> None:
    from pyspark.errors import PySparkException

    error = PySparkException("the query has failed")
    vars(error)["_origin"] = Thrown("org.apache.spark.SparkException", cause=Thrown(name))
    query, _ = pending(commits=False, error=error)
    with pytest.raises(PlannedBatchOpenError, match="but that failed: the query has failed") as refused:
        commit_planned(query)
    assert refused.value.retryable == may_pass
