"""Rehearsals of scripts that start several queries, with real drivers, beside the job that runs on."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.protocol.rehearsal_records import Rehearsal, Rehearse
from airflow_flinkstyle.types import Generation
from tests.integration.agent_lab import Lab, logs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.agent_lab import Driver
    from tests.integration.warm_lab import WarmJvms

pytestmark = [pytest.mark.integration, pytest.mark.spark]

JOB = """
import json, sys, threading, time
from pathlib import Path
from pyspark.sql import SparkSession, functions as F
out = sys.argv[1]
spark = SparkSession.builder.appName("several").getOrCreate()

def started(name, partitions):
    spark.conf.set("spark.sql.shuffle.partitions", partitions)
    rows = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
    keys = rows.groupBy((F.col("value") % 7).alias("k"))
    counts = keys.agg(F.count("*").alias("n"), F.max("value").alias("top"))
    def note(batch, batch_id):
        total = batch.agg(F.sum("n").alias("n"), F.max("top").alias("top")).first()
        with open(out, "a") as f:
            f.write(json.dumps({"query": name, "batch": batch_id, "n": total.n, "top": total.top}) + "\\n")
    return (counts.writeStream.queryName(name).outputMode("complete").foreachBatch(note)
            .trigger(processingTime="1 second").start())

def idle():
    spark.conf.set("spark.sql.shuffle.partitions", 3)
    files = spark.readStream.schema("value LONG").json(str(Path(out).with_name("in")))
    return files.writeStream.queryName("idle").format("noop").start()
"""
BEFORE = f"""{JOB}
started("counts", 2)
started("others", 3)
idle()
spark.streams.awaitAnyTermination()
"""
IN_OTHER_ORDER = f"""{JOB}
def second():
    print("ID", started("counts", 2).id, flush=True)
others = started("others", 3)
print("ACTIVE", others.isActive, others.name, flush=True)
thread = threading.Thread(target=second)
thread.start()
thread.join()
idle()
started("fresh", 2)
print("ALL STARTED", flush=True)
for query in spark.streams.active:
    print("AWAITS", query.name, flush=True)
    query.awaitTermination()
"""
SECOND_BREAKS = f"""{JOB}
started("counts", 2)
spark.conf.set("spark.sql.shuffle.partitions", 3)
rows = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
broken = F.udf(lambda value: 1 // 0, "long")
keys = rows.withColumn("value", broken("value")).groupBy((F.col("value") % 7).alias("k"))
counts = keys.agg(F.count("*").alias("n"), F.max("value").alias("top"))
q = counts.writeStream.queryName("others").outputMode("complete").foreachBatch(lambda batch, n: None).start()
q.awaitTermination()
"""
MOVED = f"""{JOB}
spark.conf.set("spark.sql.shuffle.partitions", 2)
rows = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
first = (rows.writeStream.queryName("counts").foreachBatch(lambda batch, batch_id: None).start())
started("others", 3)
first.awaitTermination()
"""
RENAMED = f"""{JOB}
started("counts", 2)
started("renamed", 3).awaitTermination()
"""
ADDS_ONE_OF_PLAIN_SPARK = f"""{JOB}
started("counts", 2)
started("others", 3)
idle()
moved = spark.readStream.format("rate").load().writeStream.queryName("moved").format("noop")
moved.option("checkpointLocation", str(Path(out).with_name("own"))).start()
spark.streams.awaitAnyTermination()
"""
ON_CONDITION = f"""{JOB}
first = started("counts", 2)
while not first.lastProgress:
    time.sleep(1)
started("others", 3).awaitTermination()
"""


NEEDS_AN_ARGUMENT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("out")
parser.add_argument("--window", required=True)
parser.parse_args()
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, warm_jvms: WarmJvms | None) -> Iterator[Lab]:
    """One job of two queries that runs all the time, with a hot savepoint ``sp-1`` of both."""
    lab = Lab(tmp_path_factory.mktemp("several") / "lab", warm=warm_jvms)
    (lab.folder / "in").mkdir()
    (lab.folder / "in" / "one.json").write_text('{"value": 1}')
    lab.start(1, lab.script(BEFORE))
    for query, batch in (("counts", 1), ("others", 1), ("idle", -1)):
        lab.until_batch(1, query, above=batch)
    assert lab.end_of(1, lab.ask(1, "savepoint")).outcome == "done"
    yield lab
    lab.close()


def rehearse(lab: Lab, generation: int, text: str) -> Driver:
    lab.claim(generation, follows=1, prepare_savepoint_id="sp-1", rehearse=Rehearse(batches=2))
    return lab.launch(generation, lab.script(text, f"v{generation}.py"))


def told(lab: Lab, generation: int) -> Rehearsal:
    found = lab.board.rehearsal(Generation(generation))
    assert found is not None
    return found


def require_each_counted(lab: Lab) -> None:
    """Require that every query has counted all its rows once, batch after batch."""
    for name in ("counts", "others"):
        rows = [row for row in lab.rows() if row["query"] == name]
        assert all(after["batch"] == one["batch"] + 1 for one, after in pairwise(rows))
        assert [row for row in rows if row["n"] is not None and row["n"] != row["top"] + 1] == []


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("generation", "text", "says"),
    [
        (2, SECOND_BREAKS, "modulo by zero"),
        pytest.param(3, RENAMED, "found renamed, which has no checkpoint", marks=pytest.mark.matrix),
        pytest.param(
            6, MOVED, "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA", marks=pytest.mark.matrix
        ),
        pytest.param(
            7, NEEDS_AN_ARGUMENT, "the following arguments are required: --window", marks=pytest.mark.matrix
        ),
    ],
    ids=["second query breaks", "second query renamed", "operator moved", "argument missing"],
)
def test_what_does_not_fit_the_savepoints_queries_fails_while_the_job_runs_on(
    lab: Lab, generation: int, text: str, says: str
):
    driver = rehearse(lab, generation, text)
    beat = lab.until_state(generation, "failed")
    assert says in beat.error[1]
    assert driver.wait() == 1
    if text != NEEDS_AN_ARGUMENT:
        assert beat.error[0] == "REHEARSAL_FAILED"
        assert says in told(lab, generation).failure[1]
    for query in ("counts", "others"):
        lab.until_batch(1, query, above=lab.until_batch(1, query))
    require_each_counted(lab)


@pytest.mark.matrix
def test_added_query_that_has_run_in_plain_spark_is_refused_while_the_job_runs_on(lab: Lab):
    for log in ("offsets", "commits"):
        (lab.folder / "own" / log).mkdir(parents=True)
        (lab.folder / "own" / log / "0").write_text("v1\n{}\n0")
    driver = rehearse(lab, 8, ADDS_ONE_OF_PLAIN_SPARK)
    beat = lab.until_state(8, "failed")
    assert beat.error[0] == "CHECKPOINT_FOUND"
    assert f"found a checkpoint at {lab.folder / 'own'}, which its script names: batch 0 com" in beat.error[1]
    assert driver.wait() == 1
    assert lab.current().generation == 1
    for query in ("counts", "others"):
        lab.until_batch(1, query, above=lab.until_batch(1, query))


@pytest.mark.nightly
def test_query_that_is_started_on_a_condition_is_said_not_to_be_rehearsed(lab: Lab):
    driver = rehearse(lab, 4, ON_CONDITION)
    lab.until_state(4, "standby")
    found = told(lab, 4)
    assert found.failure is None
    assert found.queries["counts"].batches == 2
    assert found.queries["others"].untested == (
        "Not rehearsed: the script asks query counts for lastProgress before it starts it.",
    )
    driver.kill()


@pytest.mark.nightly
def test_queries_in_other_order_and_threads_are_all_rehearsed_and_go_on(lab: Lab):
    driver = rehearse(lab, 5, IN_OTHER_ORDER)
    lab.until_state(5, "standby")
    found = told(lab, 5)
    assert found.failure is None
    batches = {name: query.batches for name, query in found.queries.items()}
    assert batches == {"counts": 2, "others": 2, "idle": 0}
    assert "Its sources had no records after the savepoint." in found.queries["idle"].untested
    assert found.not_tested == ("idle",)
    assert "| sink of others |" in found.as_markdown()
    assert "ACTIVE True others" in driver.text
    assert f"ID {lab.repository.read('sp-1').query('counts').query_id}" in driver.text

    end = lab.end_of(1, lab.ask(1, "stop_with_savepoint"))
    lab.order_takeover(5, savepoint_id=end.savepoint_id, closed_at=dict(end.batches))
    for query in ("counts", "others"):
        lab.until_batch(5, query, above=end.batches[query] + 2)
    lab.until("all were started", lambda: "AWAITS" in driver.text)
    require_each_counted(lab)
    for query, partitions in (("counts", 2), ("others", 3)):
        location = lab.folder / "checkpoints-5" / query
        newest = max(logs_of(str(lab.folder / "checkpoints-5"), query)[0])
        assert (
            f'"spark.sql.shuffle.partitions":"{partitions}"' in (location / f"offsets/{newest}").read_text()
        )
