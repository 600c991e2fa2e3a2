"""Queries of each stateful operator and provider, over input that gives a batch the same rows at any time."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.storage.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from airflow_flinkstyle.storage.base import ObjectStore
    from tests.golden.stateful import Case

    Rows = dict[int, list[str]]

LAST = 8
"""Batch up to which queries are compared: windows and sessions have closed twice by then."""


@dataclass(frozen=True)
class OperatorLab:
    """A case's query over the input."""

    spark: SparkSession
    case: Case
    given: Callable[[DataFrame], DataFrame] = lambda rows: rows
    """From the rows of the source, with the number of their ``batch``, to those that the query reads."""

    def read(self, name: str) -> DataFrame:
        from pyspark.sql import functions as F

        reader = self.spark.readStream
        if self.case.named_sources:
            reader = reader.name(name)
        options = {"rowsPerBatch": 12, "startTimestamp": 1_699_999_920_000, "advanceMillisPerBatch": 60_000}
        rows = reader.format("rate-micro-batch").options(**options).load()
        seconds = F.unix_timestamp("timestamp")
        found = rows.select(
            (F.col("value") % 5).cast("int").alias("k"),
            (F.col("value") % 30).cast("int").alias("v"),  # comes again in the third batch
            F.timestamp_seconds(seconds - seconds % 180).alias("ts"),  # moves on every third batch
            F.expr("value div 12").alias("batch"),
        )
        return self.given(found).select("k", "v", "ts")

    def start(
        self,
        checkpoint: str,
        rows: Rows,
        fail_in: int | None = None,
        during: Callable[[int], None] = lambda batch: None,
    ) -> StreamingQuery:
        """Start the query; each batch's rows are written down in text, sorted.

        ``during`` is called with each batch's number, before that is committed.
        """

        def sink(frame: DataFrame, batch: int) -> None:
            rows[batch] = sorted(json.dumps(row.asDict()) for row in frame.collect())
            during(batch)
            if batch == fail_in:
                raise RuntimeError("its state is written, its commit is not")

        self.spark.conf.set("spark.sql.shuffle.partitions", self.case.partitions)
        writer = self.case.build(self.read).writeStream.outputMode(self.case.mode).foreachBatch(sink)
        if self.case.named_sink:
            writer._jwrite = writer._jwrite.name("out")
        return writer.option("checkpointLocation", checkpoint).start()


def lab_of(spark: SparkSession, case: Case) -> OperatorLab:
    """Return the case's lab, with a session of its own."""
    session = spark.newSession()
    for name, value in case.confs.items():
        session.conf.set(name, value)
    return OperatorLab(session, case)


def run_until(query: StreamingQuery, rows: Rows, batch: int) -> None:
    deadline = time.monotonic() + 180
    while max(rows, default=-1) < batch:
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, "the query did not get ahead"
        time.sleep(0.02)


def take_while_it_runs(
    lab: OperatorLab,
    location: str,
    checkpoint: ObjectStore,
    repository: SavepointRepository,
    first: int = 3,
    last: int = LAST,
) -> tuple[Manifest, Rows]:
    """Take a savepoint of the running query while it is in batch ``first`` or later, and let that run on."""
    rows: Rows = {}
    query = lab.start(location, rows)
    try:
        run_until(query, rows, first)
        label = SavepointLabel(
            savepoint_id="sp-1", taken_at_ms=1, spark_version="4.2.0", taken_from_generation=1
        )
        manifest = take_savepoint(repository, [QuerySource(name="q", checkpoint=checkpoint, kafka={})], label)
        run_until(query, rows, last)
    finally:
        query.stop()
    return manifest, rows


def take_behind(
    lab: OperatorLab, live: Path, repository: SavepointRepository, batches: Sequence[int]
) -> tuple[list[Manifest], Rows]:
    """Take a savepoint behind each of these batches while the query is in the next one, and let it run on."""
    taken: list[Manifest] = []

    def take(batch: int) -> None:
        if batch - 1 in batches:
            number, source = len(taken) + 1, QuerySource(name="q", checkpoint=LocalStore(live), kafka={})
            label = SavepointLabel(
                savepoint_id=f"sp-{number}",
                taken_at_ms=number,
                spark_version=lab.spark.version,
                taken_from_generation=1,
            )
            before = taken[-1] if taken else None
            taken.append(take_savepoint(repository, [source], label, previous=before))

    rows: Rows = {}
    query = lab.start(str(live), rows, during=take)
    try:
        run_until(query, rows, LAST)
    finally:
        query.stop()
    assert [manifest.queries[0].batch_id for manifest in taken] == list(batches)
    return taken, rows


def as_between_batches(manifest: Manifest) -> Manifest:
    """Return a savepoint as if no batch had been planned when it was taken: the next one gets that number."""
    bare = tuple(replace(query, planned_offsets=None) for query in manifest.queries)
    return replace(manifest, queries=bare)


def assert_goes_on(
    lab: OperatorLab, manifest: Manifest, location: str, unbroken: Rows, last: int = LAST, shift: int = 0
) -> None:
    """Run the restored query as far as the unbroken one ran, and compare what they wrote.

    ``shift`` is by how much the savepoint's batch ids are ahead of the unbroken query's.
    """
    taken = manifest.queries[0].batch_id
    last += shift
    rows: Rows = {}
    query = lab.start(location, rows)
    try:
        run_until(query, rows, last)
    finally:
        query.stop()
    assert taken < last - 1
    assert min(rows) == taken + 1
    expected = {batch: unbroken[batch - shift] for batch in range(taken + 1, last + 1)}
    assert any(expected.values())
    assert {batch: rows[batch] for batch in expected} == expected
