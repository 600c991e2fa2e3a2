"""One job from Spark 3.5 to 4.x by an upgrade, and what cannot be; only ``make test-versions`` runs this."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from threading import Event, Thread
from typing import TYPE_CHECKING, NamedTuple

import pytest

from airflow_flinkstyle.jobs.cutover.context import CutoverSettings
from airflow_flinkstyle.jobs.errors import UPGRADE_ROLLED_BACK
from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.status import Running
from airflow_flinkstyle.jobs.upgrade.upgrade import UPGRADE_PHASES, Upgrade
from airflow_flinkstyle.savepoint.errors import SparkIncompatibleError
from testbed.keys import SIGNER
from testbed.refusals import refuses
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
from pathlib import Path
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.getOrCreate()
numbers = str(Path(sys.argv[1]).with_name("in"))
def read():
    return spark.readStream.schema("n long, pair long").json(numbers)
even = read().where("n % 2 = 0")
odd = read().where("n % 2 = 1").select("pair", F.col("n").alias("odd"))
def note(batch, batch_id):
    pairs = [row.pair for row in batch.collect()]
    with open(sys.argv[1], "a") as out:
        out.write(json.dumps({"batch": batch_id, "pairs": pairs, "spark": spark.version}) + "\\n")
query = (even.join(odd, "pair").writeStream.queryName("counts")
         .trigger(processingTime="300 milliseconds").foreachBatch(note).start())
query.awaitTermination()
"""
"""Joins every even number to the next odd one. Both come from files: there Spark 3.5 writes down that the
columns of a side are never null (docs/compatibility.md)."""
EACH_S, NUMBERS = 0.5, 10


class Seen(NamedTuple):
    """What the job wrote, each batch once: the newest is what a sink holds."""

    pairs: list[int]
    sparks: list[str]
    """Minor versions in the order in which they wrote."""


@contextmanager
def feeding(folder: Path) -> Iterator[None]:
    """Write numbers to files, a file at a time, for as long as the block runs."""
    folder.mkdir()
    ended = Event()

    def feed() -> None:
        for file in count():
            first = file * NUMBERS
            lines = [json.dumps({"n": n, "pair": n // 2}) + "\n" for n in range(first, first + NUMBERS)]
            part = folder / f".{file}.json"
            part.write_text("".join(lines))
            part.rename(folder / f"{file}.json")
            if ended.wait(EACH_S):
                return

    feeder = Thread(target=feed)
    feeder.start()
    try:
        yield
    finally:
        ended.set()
        feeder.join()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    with feeding(tmp_path / "in"):
        yield lab
    for generation in lab.client.view.board.generations():
        if lab.client.view.run(generation).submit is not None:
            lab.client.drivers.end_driver(generation)


def upgrade(lab: Lab, name: str, minor: str, conf: dict[str, str]) -> UpgradeReport:
    spec = lab.spec(PAIRS)
    return Upgrade(
        client=lab.client,
        journal=CutoverJournal(lab.client.view.board.store, "counts", name, UPGRADE_PHASES, signer=SIGNER),
        spec=replace(spec, conf={**spec.conf, **conf}),
        target=lab.target(minor),
        settings=CutoverSettings(first_commit_timeout_s=TIMEOUT_S),
    ).run()


def running_spark(lab: Lab) -> str:
    status = lab.client.view.status()
    assert isinstance(status, Running), status
    return status.heartbeat.spark_version.rpartition(".")[0]


def seen(lab: Lab) -> Seen:
    lines = [json.loads(line) for line in lab.out.read_text().splitlines()]
    newest = {line["batch"]: line["pairs"] for line in lines}
    assert sorted(newest) == list(range(len(newest)))
    pairs = sorted(pair for batch in newest.values() for pair in batch)
    return Seen(pairs, list(dict.fromkeys(line["spark"].rpartition(".")[0] for line in lines)))


def start(lab: Lab) -> int:
    """Start the job on the old Spark; return a batch that it has committed."""
    first = lab.client.starts.start(lab.spec(PAIRS), lab.target(OLD), claim_key="start")
    lab.client.drivers.wait_running(first.generation, timeout_s=TIMEOUT_S)
    return lab.until_committed_beyond(1)


def test_job_on_an_old_spark_goes_to_a_new_one_and_not_back(lab: Lab):
    batch = start(lab)
    report = upgrade(lab, "good", NEW, UNCHECKED)
    assert report.first_batch is not None
    assert running_spark(lab) == NEW
    batch = lab.until_committed_beyond(max(batch, report.first_batch["counts"]))

    with pytest.raises(SparkIncompatibleError, match=rf"Run the job on Spark {NEW} or newer"):
        upgrade(lab, "way-back", OLD, UNCHECKED)
    lab.until_committed_beyond(batch)
    lab.client.requests.stop("stop", savepoint=False, timeout_s=TIMEOUT_S)
    pairs, sparks = seen(lab)
    assert sparks == [OLD, NEW]
    assert pairs == list(range(len(pairs))), "each pair once, none left out"


def test_job_on_files_that_a_new_spark_refuses_goes_back_and_finds_each_pair(lab: Lab):
    """The newer Spark has planned a batch when it fails: its list of files goes back with it."""
    batch = start(lab)
    with refuses(UPGRADE_ROLLED_BACK, match="STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE"):
        upgrade(lab, "refused-by-spark", NEW, {})
    assert running_spark(lab) == OLD
    lab.until_committed_beyond(batch + 3)
    lab.client.requests.stop("stop", savepoint=False, timeout_s=TIMEOUT_S)
    pairs, sparks = seen(lab)
    assert sparks == [OLD]
    assert pairs == list(range(len(pairs))), "each pair once, none left out"
