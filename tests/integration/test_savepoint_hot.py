"""Savepoints of a running query: each restored copy is started by Spark and compared key by key."""

from __future__ import annotations

import json
import random
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.savepoint.capture.query import capture_query
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, compose, take_savepoint
from airflow_flinkstyle.savepoint.files.restore import restore_query
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.local import LocalStore
from testbed.session import local_session
from tests.nightly import nightly_but

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from testbed.spark import SparkPaths

    Sink = Callable[[DataFrame, int], object]

pytestmark = [pytest.mark.integration, pytest.mark.spark]

STATE = "spark.sql.streaming.stateStore"
PROVIDERS = "org.apache.spark.sql.execution.streaming.state"
ROWS_PER_BATCH = 400
KEYS = 97
CASES = {
    "hdfs": ("HDFSBackedStateStoreProvider", "false"),
    "rocksdb": ("RocksDBStateStoreProvider", "false"),
    "rocksdb-changelog": ("RocksDBStateStoreProvider", "true"),
}
SAVEPOINTS = 4


@pytest.fixture(scope="module")
def spark(spark_paths: SparkPaths) -> Iterator[SparkSession]:
    confs = {
        "spark.sql.shuffle.partitions": "2",
        f"{STATE}.maintenanceInterval": "300ms",
        f"{STATE}.minDeltasForSnapshot": "3",
        "spark.sql.streaming.minBatchesToRetain": "4",
    }
    with local_session(spark_paths, confs) as session:
        yield session


def start(spark: SparkSession, checkpoint: Path, sink: Sink, **trigger: Any) -> StreamingQuery:
    """Count and sum per key; the source gives row N the value N, so offsets tell the truth."""
    from pyspark.sql import functions as F

    rows = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS_PER_BATCH)
        .option("numPartitions", 2)
        .load()
    )
    totals = rows.groupBy((F.col("value") % KEYS).alias("k")).agg(
        F.count("*").alias("n"), F.sum("value").alias("s")
    )
    return (
        totals.writeStream.outputMode("complete")
        .foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(**trigger)
        .start()
    )


def truth(rows: int) -> dict[int, tuple[int, ...]]:
    totals = defaultdict(lambda: [0, 0])
    for value in range(rows):
        totals[value % KEYS][0] += 1
        totals[value % KEYS][1] += value
    return {key: tuple(total) for key, total in totals.items()}


def run_one_batch(spark: SparkSession, checkpoint: Path):
    """Start Spark on a restored checkpoint; returns the batch it ran, what it counted, what is true."""
    seen = {}

    def sink(frame: DataFrame, batch: int) -> None:
        seen[batch] = {row.k: (row.n, row.s) for row in frame.collect()}

    query = start(spark, checkpoint, sink, once=True)
    assert query.awaitTermination(60)
    assert query.exception() is None
    (batch,) = seen
    log = offset_log.parse((checkpoint / "offsets" / str(batch)).read_text())
    return batch, seen[batch], truth(json.loads(log.sources["0"])["offset"])


def about(savepoint_id: str) -> SavepointLabel:
    return SavepointLabel(
        savepoint_id=savepoint_id,
        taken_at_ms=time.time_ns() // 1_000_000,
        spark_version="4.2.0",
        taken_from_generation=1,
    )


def wait_for_batch(query: StreamingQuery, batch: int):
    deadline = time.monotonic() + 60
    while (query.lastProgress or {"batchId": -1})["batchId"] < batch:
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, "the query did not get ahead"
        time.sleep(0.05)


@pytest.mark.parametrize("case", nightly_but("rocksdb-changelog".__eq__, CASES, matrix="rocksdb".__eq__))
def test_hot_savepoints_restore_to_the_true_state(spark: SparkSession, tmp_path: Path, case: str):
    provider, changelog = CASES[case]
    spark.conf.set(f"{STATE}.providerClass", f"{PROVIDERS}.{provider}")
    spark.conf.set(f"{STATE}.rocksdb.changelogCheckpointing.enabled", changelog)
    seed = random.SystemRandom().randrange(1_000_000)
    moments = random.Random(seed)  # noqa: S311 - moments, not secrets
    print("seed", seed)  # noqa: T201 - shown when the test fails
    repository = SavepointRepository(LocalStore(tmp_path / "root"), "orders")
    live = tmp_path / "live"
    query = start(spark, live, lambda frame, batch: frame.count(), processingTime="100 milliseconds")
    manifests = []
    try:
        wait_for_batch(query, 6)
        for number in range(SAVEPOINTS):
            time.sleep(moments.uniform(0, 0.9))
            source = QuerySource(name="totals", checkpoint=LocalStore(live), kafka={})
            previous = manifests[-1] if manifests else None
            manifests.append(take_savepoint(repository, [source], about(f"sp-{number}"), previous=previous))
            wait_for_batch(query, manifests[-1].queries[0].batch_id + 2)
    finally:
        query.stop()
    assert len({manifest.queries[0].batch_id for manifest in manifests}) == SAVEPOINTS
    for manifest in manifests:
        (snapshot,) = manifest.queries
        verify_savepoint(manifest, repository, level="full")
        copy = tmp_path / manifest.savepoint_id
        restore_query(manifest, snapshot, repository, LocalStore(copy))
        batch, counted, expected = run_one_batch(spark, copy)
        assert batch == snapshot.batch_id + 1
        assert counted == expected


@pytest.mark.nightly
def test_capture_starts_over_when_the_query_replaces_its_files(spark: SparkSession, tmp_path: Path):
    """The state listed for batch K is purged before it is copied, as with a very slow copy."""
    spark.conf.set(f"{STATE}.providerClass", f"{PROVIDERS}.RocksDBStateStoreProvider")
    spark.conf.set(f"{STATE}.rocksdb.changelogCheckpointing.enabled", "false")
    live = tmp_path / "live"
    query = start(spark, live, lambda frame, batch: frame.count(), processingTime="0 seconds")
    waited = []

    class Slow(LocalStore):
        def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
            if not waited and key.endswith(".zip"):  # the listing is done: let Spark purge what it named
                waited.append(int(key.rpartition("/")[2].removesuffix(".zip")))
                deadline = time.monotonic() + 60
                while self.local_path(key).exists() and time.monotonic() < deadline:
                    time.sleep(0.05)
            return super().read(key, start=start, length=length)

    repository = SavepointRepository(LocalStore(tmp_path / "root"), "orders")
    try:
        wait_for_batch(query, 6)
        snapshot = capture_query(Slow(live), repository, name="totals", kafka={})
    finally:
        query.stop()
    assert waited
    assert snapshot.batch_id + 1 > waited[0]
    manifest = compose("orders", [snapshot], about("sp-1"))
    verify_savepoint(manifest, repository, level="full")
    copy = tmp_path / "copy"
    restore_query(manifest, snapshot, repository, LocalStore(copy))
    _, counted, expected = run_one_batch(spark, copy)
    assert counted == expected


def test_spark_refuses_to_start_from_an_unfinished_restore(spark: SparkSession, tmp_path: Path):
    live, copy = tmp_path / "live", tmp_path / "copy"
    run_one_batch(spark, live)
    repository = SavepointRepository(LocalStore(tmp_path / "root"), "orders")
    source = QuerySource(name="totals", checkpoint=LocalStore(live), kafka={})
    manifest = take_savepoint(repository, [source], about("sp-1"))
    restore_query(manifest, manifest.queries[0], repository, LocalStore(copy), complete=False)
    batches = []
    query = start(spark, copy, lambda frame, batch: batches.append(batch), once=True)
    with pytest.raises(Exception, match=r"(?i)version"):
        query.awaitTermination(60)
    assert batches == []
    restore_query(manifest, manifest.queries[0], repository, LocalStore(copy))
    batch, counted, expected = run_one_batch(spark, copy)
    assert (batch, counted) == (1, expected)
