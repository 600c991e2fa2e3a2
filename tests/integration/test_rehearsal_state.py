"""Versions that keep other columns in their state: what Spark accepts, and what is said of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
from airflow_flinkstyle.types import Generation
from testbed import paths
from tests.integration.agent_lab import Lab

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_flinkstyle.protocol.rehearsal_records import Compared
    from tests.integration.warm_lab import WarmJvms

VERSION = tuple(int(part) for part in (paths.SPARK or "4.2").split("."))
pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.nightly,
    pytest.mark.skipif(VERSION < (4, 1), reason="Spark 4.1 brought the evolution of state"),
]

JOB = """
from pyspark.sql import SparkSession, functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
import pandas as pd

FIELDS, VALUE = {fields!r}, {value}

class Counts(StatefulProcessor):
    def init(self, handle):
        self.counts = handle.getValueState("counts", FIELDS)
    def handleInputRows(self, key, rows, timers):
        known = self.counts.get()
        count = int(known[0] if known and known[0] is not None else 0) + sum(len(frame) for frame in rows)
        self.counts.update(VALUE(count))
        yield pd.DataFrame({{"k": [key[0]], "n": [count]}})
    def close(self):
        pass

spark = SparkSession.builder.appName("evolving").getOrCreate()
spark.conf.set("spark.sql.streaming.stateStore.encodingFormat", "avro")
rows = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
keys = rows.select((F.col("value") % 7).alias("k")).groupBy("k")
found = keys.transformWithStateInPandas(Counts(), "k long, n long", "Update", "None")
(found.writeStream.queryName("counts").outputMode("update").format("noop")
    .trigger(processingTime="1 second").start().awaitTermination())
"""
BEFORE = JOB.format(fields="n int, top int", value="lambda n: (n, n)")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, warm_jvms: WarmJvms | None) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("evolving") / "lab", warm=warm_jvms)
    lab.start(1, lab.script(BEFORE))
    lab.until_batch(1, above=1)
    assert lab.end_of(1, lab.ask(1, "savepoint")).outcome == "done"
    yield lab
    lab.close()


def state_row(lab: Lab, generation: int) -> Compared:
    found = lab.board.rehearsal(Generation(generation))
    assert found is not None
    return next(one for one in found.compared if one.what == "state schema")


@pytest.mark.parametrize(
    ("generation", "fields", "value", "says"),
    [
        pytest.param(
            2, "n int, top int, more string", "lambda n: (n, n, 'x')", "value.more (string) added", id="added"
        ),
        pytest.param(
            *(3, "n int", "lambda n: (n,)", "value.top (integer) dropped"),
            id="dropped",
            marks=pytest.mark.matrix,
        ),
        pytest.param(
            *(4, "n long, top int", "lambda n: (n, n)", "value.n widened from integer to long"),
            id="widened",
            marks=pytest.mark.matrix,
        ),
    ],
)
def test_columns_that_spark_accepts_are_named(lab: Lab, generation: int, fields: str, value: str, says: str):
    lab.claim(generation, follows=1, prepare_savepoint_id="sp-1", rehearse=Rehearse(batches=2))
    driver = lab.launch(generation, lab.script(JOB.format(fields=fields, value=value), f"v{generation}.py"))
    lab.until_state(generation, "standby")
    row = state_row(lab, generation)
    assert (row.verdict, row.now) == ("compatible", "changed")
    assert says in row.reason.lower()
    driver.kill()


@pytest.mark.matrix
def test_column_that_spark_refuses_is_named_and_the_job_runs_on(lab: Lab):
    lab.claim(5, follows=1, prepare_savepoint_id="sp-1", rehearse=Rehearse(batches=2))
    text = JOB.format(fields="n string, top int", value="lambda n: (str(n), n)")
    driver = lab.launch(5, lab.script(text, "v5.py"))
    beat = lab.until_state(5, "failed")
    assert beat.error[0] == "REHEARSAL_FAILED"
    row = state_row(lab, 5)
    assert (row.verdict, row.now) == ("incompatible", "refused")
    assert "n changed from integer to string" in row.reason
    assert driver.wait() == 1
    lab.until_batch(1, above=lab.until_batch(1))
