"""A file sink that goes on in a new place, behind batches that it has not seen there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.agent.core.guards.sinks import begin_log
from airflow_flinkstyle.agent.core.job_query import Sink
from airflow_flinkstyle.agent.spark.session import PySparkSession
from airflow_flinkstyle.types import BatchId

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.nightly]
BEFORE, AFTER = 13, 9


def test_sink_whose_log_was_begun_passes_its_tenth_batches(two_tasks: SparkSession, tmp_path: Path):
    files, out = tmp_path / "in", str(tmp_path / "out")
    files.mkdir()
    for number in range(BEFORE + AFTER):
        (files / f"{number:02}.json").write_text(f'{{"id": {number}}}')
        rows = two_tasks.readStream.schema("id LONG").json(str(files))
        if number == BEFORE:
            begin_log(PySparkSession.of(two_tasks), Sink(name="parquet", path=out), BatchId(BEFORE - 1))
        writer = rows.coalesce(1).writeStream.format("parquet" if number >= BEFORE else "noop")
        options = {"checkpointLocation": str(tmp_path / "checkpoint")}
        options |= {"path": out} if number >= BEFORE else {}
        writer.options(**options).trigger(availableNow=True).start().awaitTermination()
    found = sorted(row.id for row in two_tasks.read.parquet(out).collect())
    assert found == list(range(BEFORE, BEFORE + AFTER))
