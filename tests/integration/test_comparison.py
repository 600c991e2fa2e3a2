"""Two versions of a job on the same records of a real broker, by real drivers."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.protocol.comparison_records import COMPARE, Compare
from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
from airflow_flinkstyle.types import Generation
from tests.integration.agent_lab import Lab

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_flinkstyle.protocol.comparison_records import Comparison
    from testbed.kafka import Broker
    from tests.integration.warm_lab import WarmJvms

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.kafka]
RECORDS, MORE = 40, 4000
JOB = """
import sys
from pyspark.sql import SparkSession, functions as F
servers, topic = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.format("kafka").options(**{
    "kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest",
    "maxOffsetsPerTrigger": "20"}).load()
orders = rows.select(F.col("value").cast("string").cast("long").alias("id"))
orders = orders.withColumn("k", F.col("id") % 7).withColumn("price", F.col("id") / 3)
cents = F.round(F.col("price") * 100).cast("long")
totals = orders.groupBy("k").agg(F.count("*").alias("n"), F.sum(cents).alias("total"))
lines = orders.select("id", "price", F.create_map(F.lit("k"), "k").alias("tags"),
    F.current_timestamp().alias("at"))
def nowhere(batch, number):
    batch.count()
totals.writeStream.foreachBatch(nowhere).queryName("totals").outputMode("update").start()
lines.writeStream.format("noop").queryName("lines").start()
spark.streams.awaitAnyTermination()
"""
REFACTORED = JOB.replace('F.col("id") % 7', 'F.pmod(F.col("id"), F.lit(7))').replace(
    'lines = orders.select("id", "price",', 'lines = orders.select("id", (F.col("id") / 3).alias("price"),'
)
ROUNDED = JOB.replace('F.col("id") / 3', 'F.when(F.col("id").isin(1000, 2000), F.floor(F.col("id") / 3))'
    '.otherwise(F.col("id") / 3)')  # fmt: skip
WRITES = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
rows, out = spark.range(2), "OUT"
rows.createOrReplaceTempView("seen")
writes = [lambda: rows.write.parquet(out), lambda: rows.write.format("json").save(out),
    lambda: rows.writeTo("none").append(),
    lambda: spark.sql(f"INSERT OVERWRITE DIRECTORY '{out}' USING json SELECT * FROM seen")]
print("ROWS", spark.sql("SELECT count(*) AS n FROM seen WHERE id < :most", {"most": 1}).first().n, flush=True)
for write in writes:
    try:
        write()
    except Exception as error:
        print("REFUSED", getattr(error, "code", "by Spark"), flush=True)
writes[0]()
"""
RANDOM = 'F.current_timestamp().alias("at"), F.rand().alias("luck")'


class Compared:
    """A job that has stopped with savepoint ``sp-1``, and more records behind it."""

    def __init__(self, lab: Lab, broker: Broker, text: str) -> None:
        from confluent_kafka.admin import NewTopic

        self.lab, self.broker, self.text = lab, broker, text
        lab.conf = {"spark.sql.pyspark.jvmStacktrace.enabled": "true"}
        self.topic = f"compared-{uuid.uuid4().hex[:8]}"
        broker.admin().create_topics([NewTopic(self.topic, 2, 1)])[self.topic].result(20)
        self.produce(range(RECORDS))
        driver = lab.start(1, lab.script(text), broker.bootstrap, self.topic)
        for query in ("totals", "lines"):
            lab.until_batch(1, query, driver=driver)
        # It would run hundreds of batches more meanwhile; and its JVM is warm for the others.
        assert lab.end_of(1, lab.ask(1, "stop_with_savepoint")).outcome == "done"
        self.until_closed(1)
        self.produce(range(RECORDS, RECORDS + MORE))
        self.last = 1

    def produce(self, numbers: range) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        for number in numbers:
            producer.produce(self.topic, str(number).encode(), partition=number % 2)
        assert producer.flush(20) == 0

    def until_closed(self, generation: int) -> None:
        """Wait for a driver's end, or else the next one gets another JVM."""
        self.lab.until_state(generation, "closed")
        self.lab.drivers[-1].wait()

    def run(self, text: str, asked: Compare) -> int:
        """Start one driver of a comparison; returns its generation."""
        self.last += 1
        tried = Rehearse(batches=2, records=1000, only=True, timeout_s=900.0)
        self.lab.claim(self.last, follows=1, prepare_savepoint_id="sp-1", rehearse=tried)
        self.lab.conf = {COMPARE: asked.as_setting()}
        script = self.lab.script(text, f"v{self.last}.py")
        self.lab.launch(self.last, script, self.broker.bootstrap, self.topic)
        return self.last

    def compare(self, text: str, *, at_once: bool = False, **asked: object) -> Comparison:
        """Run both versions, and the old one again if they differ; ``at_once``, as a caller does."""
        old = Generation(self.run(self.text, Compare(part="old")))
        if not at_once:
            self.until_closed(old)
        new = Generation(self.run(text, Compare(part="new", old=old, **asked)))
        for generation in (old, new):
            self.until_closed(generation)
        found = self.told(new)
        if found.asks_for_another_run:
            again = self.run(self.text, Compare(part="again", old=old, new=new, **asked))
            self.until_closed(again)
            found = self.told(again)
        assert not list(self.lab.folder.glob("*.rehearsal")), "scratch is removed"
        return found

    def told(self, generation: int) -> Comparison:
        found = self.lab.board.comparison(Generation(generation))
        assert found is not None
        return found


@pytest.fixture(scope="module")
def job(
    old_broker: Broker, tmp_path_factory: pytest.TempPathFactory, warm_jvms: WarmJvms | None
) -> Iterator[Compared]:
    lab = Lab(tmp_path_factory.mktemp("comparison") / "lab", warm=warm_jvms)
    yield Compared(lab, old_broker, JOB)
    lab.close()


@pytest.mark.nightly
def test_refactoring_that_changes_nothing_is_the_same_in_one_pass(job: Compared):
    found = job.compare(REFACTORED)
    assert (found.verdict, found.again) == ("same", None)
    lines, totals = found.queries["lines"], found.queries["totals"]
    assert (lines.input_rows, lines.batches, lines.old_rows, lines.equal) == (2000, 2, 2000, 2000)
    assert (totals.output_mode, totals.old_rows, totals.equal) == ("update", 14, 14)
    assert [state.differs for state in totals.states] == [False]


@pytest.mark.nightly
def test_wrong_rounding_is_found_with_its_rows_and_its_keys_in_the_state(job: Compared):
    found = job.compare(ROUNDED, keys={"lines": ("id",), "totals": ("k",)})
    lines, totals = found.queries["lines"], found.queries["totals"]
    assert (found.verdict, lines.verdict, totals.verdict) == ("differs", "differs", "differs")
    assert (lines.changed, lines.only_old, lines.only_new) == (2, 0, 0)
    assert dict(lines.changed_columns) == {"price": 2}
    assert {json.loads(sample.new or "")["id"] for sample in lines.samples} == {1000, 2000}
    assert (totals.changed, totals.not_deterministic, lines.not_deterministic) == (2, (), ())
    assert [state.changed for state in totals.states] == [2]
    assert "2 changed" in found.summary()


@pytest.mark.parametrize(
    "allowed", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["refused", "allowed"]
)
def test_script_that_writes_past_its_queries_is_refused_unless_that_is_allowed(
    job: Compared, tmp_path: Path, allowed: bool
):
    out = tmp_path / "out"
    number = job.run(WRITES.replace("OUT", str(out)), Compare(part="old", allow_writes=allowed))
    beat, said = job.lab.until_state(number, "failed"), job.lab.drivers[-1].text
    assert "ROWS 1" in said
    assert (said.count("REFUSED COMPARED_WRITES"), out.exists()) == ((0, True) if allowed else (4, False))
    assert (beat.error or ("",))[0] == ("SCRIPT_FAILED" if allowed else "COMPARED_WRITES")


@pytest.mark.matrix
def test_random_column_is_told_apart_from_a_difference(
    old_broker: Broker, tmp_path: Path, warm_jvms: WarmJvms | None
):
    lab = Lab(tmp_path / "lab", warm=warm_jvms)
    try:
        text = JOB.replace('F.current_timestamp().alias("at")', RANDOM)
        found = Compared(lab, old_broker, text).compare(text, at_once=True)
        assert (found.verdict, found.again is not None) == ("same", True)
        assert found.queries["lines"].not_deterministic == ("luck",)
    finally:
        lab.close()
