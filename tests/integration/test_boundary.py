"""A query is stopped between two batches: none is interrupted and run again, whenever the stop comes."""

from __future__ import annotations

import time
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.agent.core.queries.stopping import stop_at_boundary
from airflow_flinkstyle.agent.spark.starts import PySparkQuery
from testbed.session import local_session

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from testbed.spark import SparkPaths

pytestmark = [pytest.mark.integration, pytest.mark.spark]
STOPS = 12


@pytest.fixture(scope="module")
def spark(spark_paths: SparkPaths) -> Iterator[SparkSession]:
    with local_session(spark_paths, {"spark.sql.shuffle.partitions": "1"}) as session:
        yield session


@pytest.mark.parametrize(
    "trigger",
    [
        pytest.param({}, id="default"),
        pytest.param({"processingTime": "300 milliseconds"}, id="interval", marks=pytest.mark.matrix),
        pytest.param({"availableNow": True}, id="available-now", marks=pytest.mark.nightly),
    ],
)
def test_no_batch_is_begun_twice_whenever_a_stop_comes(
    spark: SparkSession, tmp_path: Path, trigger: dict[str, Any]
):
    for number in range(400):
        (tmp_path / f"{number}.txt").write_text("a\n")
    begun: Counter[int] = Counter()
    rows = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path))
    writer = rows.writeStream.foreachBatch(lambda _, batch_id: begun.update([batch_id]))
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    for stop in range(STOPS):
        before = len(begun)
        query = writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start()
        while len(begun) == before:
            time.sleep(0.005)
        time.sleep(0.2 * stop / STOPS)  # whatever the batch is at by then
        stop_at_boundary([a_query(query, spark)])
        planned, committed = (names(tmp_path / "checkpoint" / log) for log in ("offsets", "commits"))
        assert max(planned) == max(committed)
    assert set(begun.values()) == {1}
    assert len(begun) >= STOPS


def test_several_queries_are_stopped_together_and_one_that_ended_or_sleeps_holds_up_none(
    spark: SparkSession, tmp_path: Path
):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.txt").write_text("a\n")
    triggers = [{"processingTime": "0 seconds"}, {"processingTime": "1 hour"}, {"once": True}]
    queries = []
    for number, trigger in enumerate(triggers):
        rows = spark.readStream.text(str(tmp_path / "in"))
        writer = rows.writeStream.foreachBatch(lambda *_: None).trigger(**trigger)
        queries.append(writer.option("checkpointLocation", str(tmp_path / str(number))).start())
    queries[2].awaitTermination()
    for number in range(2):
        while not names(tmp_path / str(number) / "commits"):
            time.sleep(0.02)
    began_s = time.monotonic()
    stop_at_boundary([a_query(query, spark) for query in queries])
    assert time.monotonic() - began_s < 600  # not the hour
    assert not any(query.isActive for query in queries)
    assert all(query.exception() is None for query in queries)


def a_query(handle: Any, spark: SparkSession) -> Any:  # noqa: ANN401
    started = PySparkQuery(handle, spark._jvm)
    return SimpleNamespace(query=started, started=started, name=handle.id, silenced_runs=set())


def names(log: Path) -> list[int]:
    return [int(path.name) for path in log.glob("*") if path.name.isdigit()] if log.is_dir() else []
