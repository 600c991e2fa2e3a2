"""A job between the starts of its queries: nothing that was asked of it then forgets a query."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.agent.core.board.inbox import POLL_S
from airflow_flinkstyle.protocol.places import own_place
from airflow_flinkstyle.storage.open import open_store
from airflow_flinkstyle.types import Generation
from tests.integration.agent_lab import Lab, logs_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.warm_lab import WarmJvms

pytestmark = [pytest.mark.integration, pytest.mark.spark]

SCRIPT = """
import os, sys
from pyspark.sql import SparkSession
folder, names = sys.argv[1], sys.argv[2:]
spark = SparkSession.builder.getOrCreate()
for name in names:
    while not os.path.exists(f"{folder}/start-{name}"):
        spark.streams.awaitAnyTermination(0.2)
        if not spark.streams.active:
            sys.exit()
    def write(batch, batch_id, name=name):
        rows = [row.value for row in batch.collect()]
        with open(f"{folder}/{name}.txt", "a") as file:
            file.writelines(f"{row}\\n" for row in rows)
    rows = spark.readStream.schema("value string").text(f"{folder}/in")
    writer = rows.writeStream.foreachBatch(write).trigger(processingTime="1 second")
    writer.option("checkpointLocation", f"{folder}/own/{name}").queryName(name).start()
"""
"""Starts each query once its file is there."""


@pytest.fixture
def lab(tmp_path: Path, warm_jvms: WarmJvms | None) -> Iterator[Lab]:
    lab = Lab(tmp_path / "lab", warm=warm_jvms)
    yield lab
    lab.close()


def add_rows(lab: Lab, name: str, *rows: int) -> None:
    folder = lab.folder / "in"
    folder.mkdir(exist_ok=True)
    (lab.folder / name).write_text("".join(f"{row}\n" for row in rows))
    (lab.folder / name).rename(folder / name)


def written(lab: Lab, query: str) -> list[int]:
    return sorted(int(line) for line in (lab.folder / f"{query}.txt").read_text().splitlines())


def until_at(lab: Lab, generation: int, incarnation: int = 1, **batches: int) -> None:
    def is_there() -> bool:
        beat = lab.heartbeat(generation)
        there = beat is not None and beat.state == "running" and beat.incarnation == incarnation
        return there and beat.batches() == batches

    lab.until(f"generation {generation} at {batches}", is_there)


def saved(lab: Lab, savepoint_id: str) -> dict[str, int]:
    return {query.name: query.batch_id for query in lab.repository.read(savepoint_id).queries}


@pytest.mark.nightly
def test_query_that_is_not_started_yet_is_in_every_savepoint_and_in_the_last_words(lab: Lab):
    script, folder = lab.script(SCRIPT), str(lab.folder)
    for name in ("start-a", "start-b", "start-c"):
        (lab.folder / name).touch()
    add_rows(lab, "one", 1, 2, 3)
    first = lab.start(1, script, folder, "a", "b")
    until_at(lab, 1, a=0, b=0)
    stop = lab.end_of(1, lab.ask(1, "stop_with_savepoint"))
    assert first.wait(200) == 0

    (lab.folder / "start-b").unlink()
    add_rows(lab, "two", 4, 5)
    second = lab.start(2, script, folder, "a", "b", savepoint_id=stop.savepoint_id)
    until_at(lab, 2, a=1, b=0)
    assert lab.heartbeat(2).queries["b"].waiting
    assert lab.heartbeat(2).queries["b"].query_id == lab.heartbeat(1).queries["b"].query_id
    hot = lab.end_of(2, lab.ask(2, "savepoint"))
    assert saved(lab, hot.savepoint_id) == {"a": 1, "b": 0}
    refused = lab.end_of(2, lab.ask(2, "savepoint", alignment="aligned", hold_s=0.5))
    assert refused.outcome == "refused"
    assert "has not started b" in refused.detail

    second.kill()
    relaunched = lab.launch(2, script, folder, "a", "b")
    until_at(lab, 2, incarnation=2, a=1, b=0)
    stop = lab.end_of(2, lab.ask(2, "stop_with_savepoint", incarnation=2))
    assert stop.outcome == "done", stop.detail
    assert relaunched.wait(200) == 0
    assert saved(lab, stop.savepoint_id) == stop.batches == lab.heartbeat(2).batches() == {"a": 1, "b": 0}

    (lab.folder / "start-b").touch()
    closed_at = lab.heartbeat(2).batches()
    third = lab.start(3, script, folder, "a", "b", savepoint_id=stop.savepoint_id, closed_at=closed_at)
    until_at(lab, 3, a=1, b=1)
    assert not lab.heartbeat(3).queries["b"].waiting
    stop = lab.end_of(3, lab.ask(3, "stop_with_savepoint"))
    assert third.wait(200) == 0
    assert written(lab, "a") == written(lab, "b") == [1, 2, 3, 4, 5]

    lab.conf |= {"spark.flinkstyle.droppedQueries": "b"}
    fourth = lab.start(4, script, folder, "a", "c", savepoint_id=stop.savepoint_id)
    until_at(lab, 4, a=1, c=0)
    assert lab.heartbeat(4).dropped == ("b",)
    stop = lab.end_of(4, lab.ask(4, "stop_with_savepoint"))
    assert fourth.wait(200) == 0
    assert saved(lab, stop.savepoint_id) == {"a": 1, "c": 0}


@pytest.mark.nightly
def test_stop_that_comes_in_the_first_batch_waits_for_its_commit(lab: Lab):
    held = "import time" + SCRIPT.replace(
        "        rows = [",
        '        while not os.path.exists(f"{folder}/go"): time.sleep(0.05)\n        rows = [',
    )
    (lab.folder / "start-a").touch()
    add_rows(lab, "one", 1, 2, 3)
    first = lab.start(1, lab.script(held), str(lab.folder), "a")
    location = str(lab.folder / "checkpoints-1")
    lab.until("the first batch is planned", lambda: logs_of(location, "a") == ({0}, set()))
    stop = lab.ask(1, "stop_with_savepoint")
    time.sleep(2 * POLL_S)  # it has been looked at, and not been refused
    assert lab.board.end(Generation(1), stop.request_id) is None
    (lab.folder / "go").touch()
    assert lab.end_of(1, stop).outcome == "done"
    assert first.wait(200) == 0
    assert saved(lab, stop.savepoint_id) == {"a": 0}


def test_query_whose_driver_was_killed_in_its_first_write_runs(lab: Lab):
    """Spark refuses its first batch in such a checkpoint: whoever awaits another query never hears of it."""
    script = lab.script(SCRIPT)
    lab.order_takeover(1)
    own_place(open_store(lab.claim(1)), lab.board, Generation(1))
    for name in ("a", "b"):
        (lab.folder / f"start-{name}").touch()
        for left in ("offsets/.0.67b1b5be.tmp", "offsets/..0.67b1b5be.tmp.crc", "commits/.0.9fd2.tmp"):
            place = lab.folder / "checkpoints-1" / name / left
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
    add_rows(lab, "one", 1, 2, 3)
    driver = lab.launch(1, script, str(lab.folder), "a", "b")
    until_at(lab, 1, a=0, b=0)
    assert lab.end_of(1, lab.ask(1, "stop_with_savepoint")).outcome == "done"
    assert driver.wait(200) == 0
    assert written(lab, "a") == written(lab, "b") == [1, 2, 3]
