"""One job from Spark 3.5 to 4.x by an upgrade, and what cannot be; only ``make test-versions`` runs this."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pytest

from airflow_flinkstyle.jobs.errors import UpgradeRolledBackError
from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.status import Running
from airflow_flinkstyle.jobs.upgrade.upgrade import UPGRADE_PHASES, Upgrade
from airflow_flinkstyle.savepoint.errors import SparkIncompatibleError
from testbed.keys import SIGNER
from tests.integration.detached_lab import TIMEOUT_S, Lab

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_flinkstyle.jobs.upgrade.upgrade import UpgradeReport

pytestmark = [pytest.mark.integration, pytest.mark.spark]
OLD, NEW = "3.5", "4.2"
UNCHECKED = {"spark.sql.streaming.stateStore.stateSchemaCheck": "false"}
"""What a newer Spark needs for the state of 3.5's join (docs/compatibility.md)."""
PAIRS = """
import json, sys
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.getOrCreate()
def stream():
    return spark.readStream.format("rate").option("rowsPerSecond", 20).load()
even = stream().where("value % 2 = 0")
odd = stream().where("value % 2 = 1").select(F.expr("value - 1").alias("before"))
def note(batch, batch_id):
    pairs = [row.value // 2 for row in batch.collect()]
    with open(sys.argv[1], "a") as out:
        out.write(json.dumps({"batch": batch_id, "pairs": pairs, "spark": spark.version}) + "\\n")
query = (even.join(odd, even.value == odd.before).writeStream.queryName("counts")
         .trigger(processingTime="300 milliseconds").foreachBatch(note).start())
query.awaitTermination()
"""
"""Joins every even number of a stream to the next odd one of another, which starts with it. Spark 3.5 knows
that the even numbers are never null: nothing stands between their filter and the join."""


class Seen(NamedTuple):
    """What the job wrote, each batch once: the newest is what a sink holds."""

    pairs: list[int]
    sparks: list[str]
    """Minor versions in the order in which they wrote."""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    for generation in lab.client.board.generations():
        if lab.client.run(generation).submit is not None:
            lab.client.end_driver(generation)


def upgrade(lab: Lab, name: str, minor: str, conf: dict[str, str]) -> UpgradeReport:
    spec = lab.spec(PAIRS)
    return Upgrade(
        client=lab.client,
        journal=CutoverJournal(lab.client.board.store, "counts", name, UPGRADE_PHASES, signer=SIGNER),
        spec=replace(spec, conf={**spec.conf, **conf}),
        target=lab.target(minor),
        first_commit_timeout_s=TIMEOUT_S,
    ).run()


def running_spark(lab: Lab) -> str:
    status = lab.client.status()
    assert isinstance(status, Running), status
    return status.heartbeat.spark_version.rpartition(".")[0]


def seen(lab: Lab) -> Seen:
    lines = [json.loads(line) for line in lab.out.read_text().splitlines()]
    newest = {line["batch"]: line["pairs"] for line in lines}
    assert sorted(newest) == list(range(len(newest)))
    pairs = sorted(pair for batch in newest.values() for pair in batch)
    return Seen(pairs, list(dict.fromkeys(line["spark"].rpartition(".")[0] for line in lines)))


def test_job_on_an_old_spark_goes_to_a_new_one_or_back_by_itself(lab: Lab):
    client = lab.client
    first = client.start(lab.spec(PAIRS), lab.target(OLD), claim_key="start")
    client.wait_running(first.generation, timeout_s=TIMEOUT_S)
    batch = lab.until_committed_beyond(1)

    with pytest.raises(UpgradeRolledBackError, match="STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE"):
        upgrade(lab, "refused-by-spark", NEW, {})
    assert running_spark(lab) == OLD
    batch = lab.until_committed_beyond(batch)

    report = upgrade(lab, "good", NEW, UNCHECKED)
    assert report.first_batch is not None
    assert running_spark(lab) == NEW
    batch = lab.until_committed_beyond(max(batch, report.first_batch["counts"]))

    with pytest.raises(SparkIncompatibleError, match=rf"Run the job on Spark {NEW} or newer"):
        upgrade(lab, "way-back", OLD, UNCHECKED)
    lab.until_committed_beyond(batch)
    client.stop("stop", savepoint=False, timeout_s=TIMEOUT_S)
    pairs, sparks = seen(lab)
    assert sparks == [OLD, NEW]
    assert pairs == list(range(len(pairs))), "each pair once, none left out"
