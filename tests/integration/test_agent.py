"""Real drivers with a local store: start, save, stop, resume, relaunch, supersede, fail."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.agent.core.board.inbox import POLL_S
from airflow_flinkstyle.agent.core.process import EXIT_DONE, EXIT_LEASE_LOST
from airflow_flinkstyle.protocol.process import process_started
from airflow_flinkstyle.protocol.records import Request
from airflow_flinkstyle.types import Generation
from tests.integration.agent_lab import COUNT_JOB, Lab, logs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.warm_lab import WarmJvms

pytestmark = [pytest.mark.integration, pytest.mark.spark]


@pytest.fixture
def lab(tmp_path: Path, warm_jvms: WarmJvms | None) -> Iterator[Lab]:
    lab = Lab(tmp_path / "lab", warm=warm_jvms)
    yield lab
    lab.close()


@pytest.fixture
def submitted(tmp_path: Path) -> Iterator[Lab]:
    """The same where each driver is a spark-submit: what is shown is how its processes end."""
    lab = Lab(tmp_path / "lab")
    yield lab
    lab.close()


def assert_exact(lab: Lab) -> None:
    """Every batch has counted every row so far once."""
    rows = [row for row in lab.rows() if row["n"] is not None]
    assert rows
    assert [row for row in rows if row["n"] != row["top"] + 1] == []


def test_job_is_saved_stopped_over_a_running_take_and_resumed_by_a_standby(lab: Lab):
    script = lab.script(COUNT_JOB)
    checkpoint = Path(lab.claim(1))
    lab.order_takeover(1)
    first = lab.launch(1, script)
    lab.until_batch(1)
    assert not Path("/nonexistent").exists()
    hot = lab.ask(1, "savepoint")
    assert lab.end_of(1, hot).outcome == "done"

    lab.claim(2, follows=1, prepare_savepoint_id=hot.savepoint_id)
    standby = lab.launch(2, script)
    lab.until_state(2, "standby")
    assert (lab.folder / "checkpoints-2" / "counts" / "offsets").exists()
    assert lab.current().generation == 1
    lab.until_batch(1, above=lab.end_of(1, hot).batches["counts"])
    newer = lab.ask(1, "savepoint")
    assert lab.end_of(1, newer).outcome == "done"
    lab.board.write_precopy(Generation(2), newer.savepoint_id)
    lab.until("the newer savepoint was copied", lambda: lab.heartbeat(2).precopied == newer.savepoint_id)

    # A take that cannot go on: it reads a pipe that nobody writes to.
    pipe = checkpoint / "counts" / "sources" / "pipe"
    os.mkfifo(pipe)
    slow = lab.ask(1, "savepoint")
    lab.until("the take was accepted", lambda: lab.board.request(Generation(1)).value.state == "accepted")
    stop = lab.ask(1, "stop_with_savepoint")
    time.sleep(2 * POLL_S)  # it has been looked at: the take is cancelled once it goes on
    assert lab.board.request(Generation(1)).value == stop
    os.close(os.open(pipe, os.O_WRONLY))
    pipe.unlink()
    assert lab.end_of(1, slow).outcome == "cancelled"
    stopped = lab.end_of(1, stop)
    assert (stopped.outcome, stopped.savepoint_id) == ("done", stop.savepoint_id)
    assert first.wait() == 0
    assert "SCRIPT WENT ON" in first.text
    closed = lab.until_state(1, "closed")
    pace = closed.queries["counts"].pace
    assert pace is not None
    assert (pace.state_rows, pace.lag_records) == (7, None)
    assert "RateStream" in pace.sources[0].description
    assert (lab.board.history().value.samples()[60][-1].processed_rows_per_s or 0) > 0
    assert (closed.request_id, closed.savepoint_id) == (stop.request_id, stop.savepoint_id)
    offsets, commits = logs_of(str(checkpoint))
    assert max(offsets) == max(commits) == closed.batches()["counts"]
    assert lab.repository.find(slow.savepoint_id) is None

    lab.order_takeover(2, savepoint_id=stop.savepoint_id, closed_at=closed.batches())
    lab.until_batch(2, above=closed.batches()["counts"])
    assert lab.current().generation == 2
    assert lab.end_of(2, lab.ask(2, "stop")).batches == lab.heartbeat(2).batches()
    assert standby.wait() == 0
    assert re.findall(
        r"Savepoint (\S+), query counts: \d+ files written, [1-9]\d* kept( \(prepared\))?", standby.text
    ) == [
        (newer.savepoint_id, " (prepared)"),
        (stop.savepoint_id, ""),
    ]
    assert_exact(lab)
    assert len({row["batch"] for row in lab.rows()}) == len(lab.rows())

    relaunched = lab.launch(1, script)
    assert relaunched.wait() == 0
    assert "this generation has closed" in relaunched.text
    assert "SparkContext" not in relaunched.text


def test_stop_whose_savepoint_fails_lets_the_queries_resume_or_closes_the_job_as_chosen(lab: Lab):
    script = lab.script(COUNT_JOB)
    driver = lab.start(1, script)
    lab.until_batch(1)
    in_the_way = lab.root / "job" / "blobs"
    in_the_way.parent.mkdir(exist_ok=True)
    in_the_way.write_text("so that no file of a savepoint can be written")

    stop = lab.ask(1, "stop_with_savepoint")
    failed = lab.end_of(1, stop)
    assert (failed.outcome, failed.transient) == ("failed", True)
    assert lab.heartbeat(1).state == "running"
    lab.until_batch(1, above=max(logs_of(str(lab.folder / "checkpoints-1"))[1]))

    chosen = lab.ask(1, "stop_with_savepoint", on_failed_savepoint="close")
    end = lab.end_of(1, chosen)
    assert (end.outcome, end.savepoint_id) == ("done", None)
    assert "It has no savepoint: CAPTURE_FAILED" in end.detail
    assert driver.wait() == 0
    closed = lab.heartbeat(1)
    assert (closed.state, closed.request_id, closed.savepoint_id) == ("closed", chosen.request_id, None)
    assert closed.error[0] == "CAPTURE_FAILED"
    offsets, commits = logs_of(str(lab.folder / "checkpoints-1"))
    assert max(offsets) == max(commits) == closed.batches()["counts"]
    assert_exact(lab)
    assert len({row["batch"] for row in lab.rows()}) == len(lab.rows())


@pytest.mark.nightly
def test_relaunched_driver_goes_on_and_a_frozen_one_ends_when_it_wakes(submitted: Lab):
    script = submitted.script(COUNT_JOB)
    killed = submitted.start(1, script)
    submitted.until_batch(1)
    killed.kill()
    request = submitted.ask(1, "savepoint", incarnation=1)
    checkpoint = str(submitted.folder / "checkpoints-1")
    before = max(logs_of(checkpoint)[1])

    relaunched = submitted.launch(1, script)
    assert submitted.end_of(1, request).outcome == "lost"
    submitted.until_state(1, "running", incarnation=2)
    submitted.until_batch(1, above=before)
    assert submitted.current().incarnation == 2
    hot = submitted.end_of(1, submitted.ask(1, "savepoint", incarnation=2))

    agent = relaunched.python_pid()
    os.killpg(relaunched.process.pid, signal.SIGSTOP)
    frozen_at_s = time.monotonic()
    successor = submitted.start(2, script, savepoint_id=hot.savepoint_id)
    submitted.until_state(2, "running")
    assert time.monotonic() - frozen_at_s > submitted.lease_s
    os.killpg(relaunched.process.pid, signal.SIGCONT)
    # Its watchdog finds the lease lost, or its heartbeat finds the successor: whichever wakes first. A JVM
    # that is still slow from having been frozen does not answer in time, and is killed.
    assert relaunched.wait() in (EXIT_LEASE_LOST, EXIT_DONE, -signal.SIGKILL)
    assert "Ending the driver at once, exit code" in relaunched.text
    submitted.until("Python, which kills its JVM first, has ended", lambda: process_started(agent) is None)
    submitted.until_batch(2, above=hot.batches["counts"])

    again = submitted.launch(1, script)
    assert again.wait() == 0
    assert "current.json names generation 2" in again.text
    assert "SparkContext" not in again.text
    assert submitted.current().generation == 2
    assert submitted.end_of(2, submitted.ask(2, "stop")).outcome == "done"
    assert successor.wait() == 0
    assert_exact(submitted)


@pytest.mark.matrix
def test_signals_drain_and_python_dies_with_its_jvm(submitted: Lab):
    script = submitted.script(COUNT_JOB)
    location = submitted.claim(1)
    submitted.order_takeover(1)
    first = submitted.launch(1, script)
    submitted.until_batch(1)
    os.kill(first.python_pid(), signal.SIGTERM)
    assert first.wait() == 0
    told = submitted.heartbeat(1)
    assert (told.state, told.error[0], told.told_to_end) == ("closed", "DRIVER_TOLD_TO_END", True)

    submitted.claim(
        2, follows=1, checkpoint_location=location
    )  # adopts the checkpoint of a closed generation
    submitted.order_takeover(2, closed_at=told.batches())
    second = submitted.launch(2, script)
    submitted.until_batch(2, above=told.batches()["counts"])
    os.kill(second.process.pid, signal.SIGTERM)
    second.wait()
    told = submitted.heartbeat(2)
    assert told.told_to_end
    offsets, commits = logs_of(location)
    assert max(offsets) == max(commits) == told.batches()["counts"]

    third = submitted.start(3, script)
    submitted.until_batch(3)
    agent = third.python_pid()
    os.kill(third.process.pid, signal.SIGKILL)
    submitted.until("Python has ended", lambda: process_started(agent) is None, timeout_s=2)
    assert_exact(submitted)


@pytest.mark.matrix
def test_driver_refuses_a_predecessor_that_closed_elsewhere_and_stops_while_it_waits(lab: Lab):
    script = lab.script(COUNT_JOB)
    first = lab.start(1, script)
    lab.until_batch(1)
    waiting = lab.launch_standby(2, script)
    lab.until_state(2, "standby")
    refused = lab.end_of(2, lab.ask(2, "savepoint"))
    assert refused.outcome == "refused"
    assert "no batch" in refused.detail
    assert lab.end_of(2, lab.ask(2, "stop")).outcome == "done"
    assert waiting.wait() == 0
    assert lab.heartbeat(2).state == "closed"
    assert lab.heartbeat(1).state == "running"

    cancelled = cancel_before_it_is_read(lab)
    assert lab.end_of(1, cancelled).outcome == "cancelled"
    assert lab.end_of(1, lab.ask(1, "stop")).outcome == "done"
    assert first.wait() == 0

    lab.claim(3, follows=1)
    lab.order_takeover(3, closed_at={"counts": 9999})
    third = lab.launch(3, script)
    assert third.wait() == 1
    failed = lab.heartbeat(3)
    assert failed.state == "failed"
    assert failed.error[0] == "PREDECESSOR"
    assert "9999" in failed.error[1]
    assert lab.current().generation == 1
    assert lab.begun(3) == []


def cancel_before_it_is_read(lab: Lab) -> Request:
    """Put a request that its caller had withdrawn before the driver looked."""
    request = Request(
        request_id="rq-withdrawn",
        incarnation=lab.heartbeat(1).incarnation,
        command="savepoint",
        state="cancelled",
        savepoint_id="sp-withdrawn",
        sent_at_ms=0,
    )
    lab.board.put_request(Generation(1), request, seen=lab.board.request(Generation(1)))
    return request


TWO_QUERIES = """
import sys, threading, time
from pyspark.sql import SparkSession, functions as F
out = sys.argv[1]
spark = SparkSession.builder.getOrCreate()
def rate():
    return spark.readStream.format("rate").option("rowsPerSecond", 20).load()
def note(batch, batch_id):
    if "poison" in sys.argv and batch_id == 2:
        raise ValueError("poisoned batch")
    with open(out, "a") as f:
        f.write('{"n": %d}\\n' % batch.count())
def in_thread():
    writer = rate().writeStream.foreachBatch(note).trigger(processingTime="1 second")
    writer.start(queryName="batches")
threading.Thread(target=in_thread).start()
query = rate().writeStream.toTable("rows", queryName="table", format="parquet")
if "poison" in sys.argv:
    spark.streams.awaitAnyTermination()
while True:  # a restart loop
    query.awaitTermination()
    time.sleep(0.1)
    query = rate().writeStream.toTable("rows", queryName="table", format="parquet")
"""


def test_two_queries_one_in_a_thread_are_saved_and_stopped_together(lab: Lab):
    driver = lab.start(1, lab.script(TWO_QUERIES))
    for query in ("batches", "table"):
        lab.until_batch(1, query)
    stop = lab.ask(1, "stop_with_savepoint")
    assert lab.end_of(1, stop).outcome == "done"
    assert driver.wait() == 0
    manifest = lab.repository.read(stop.savepoint_id)
    assert [query.name for query in manifest.queries] == ["batches", "table"]
    for query in manifest.queries:
        offsets, commits = logs_of(str(lab.folder / "checkpoints-1"), query.name)
        assert max(offsets) == max(commits) == query.batch_id


def test_exception_of_one_query_drains_the_others_and_fails_the_run(lab: Lab):
    driver = lab.start(1, lab.script(TWO_QUERIES), str(lab.out), "poison")
    assert driver.wait() == 1
    failed = lab.heartbeat(1)
    assert failed.state == "failed"
    assert failed.error[0] == "SCRIPT_FAILED"
    assert "poisoned batch" in failed.error[1]
    location = str(lab.folder / "checkpoints-1")
    assert logs_of(location, "batches") == ({0, 1, 2}, {0, 1})
    offsets, commits = logs_of(location, "table")
    assert max(offsets, default=-1) - max(commits, default=-1) in (0, 1)


def test_script_that_raises_at_import_fails_without_touching_the_running_job(lab: Lab):
    lab.claim(1)
    lab.order_takeover(1)
    driver = lab.launch(
        1, lab.script("import sys\nraise RuntimeError('broken version ' + sys.argv[1])\n"), "7"
    )
    assert driver.wait() == 1
    failed = lab.heartbeat(1)
    assert failed.state == "failed"
    assert failed.error[0] == "SCRIPT_FAILED"
    assert "RuntimeError: broken version 7" in failed.error[1]
    assert lab.current() is None
    assert not (lab.folder / "checkpoints-1").exists()


UNNAMED = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
rate = spark.readStream.format("rate").load()
rate.writeStream.format("noop").start()
rate.writeStream.format("noop").queryName("second").start()
spark.streams.awaitAnyTermination()
"""

TWO_UNNAMED = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
rate = spark.readStream.format("rate").load()
for folder in ("/own/1", "/own/2"):
    rate.writeStream.format("noop").option("checkpointLocation", folder).start()
spark.streams.awaitAnyTermination()
"""

CONTINUOUS = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
rate = spark.readStream.format("rate").load()
rate.writeStream.format("noop").queryName("q").trigger(continuous="1 second").start().awaitTermination()
"""

NO_TIME = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.config("spark.flinkstyle.executorTimeout", "soon").getOrCreate()
spark.readStream.format("rate").load().writeStream.format("noop").start().awaitTermination()
"""


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        (UNNAMED, "QUERY_NAME", "second"),
        (TWO_UNNAMED, "QUERY_NAME", "a second one while the first runs"),
        (CONTINUOUS, "UNSUPPORTED_MODE", "continuous processing"),
        ("print('nothing to stream')", "NO_QUERY", "without one"),
        (NO_TIME, "BAD_INPUT", "executorTimeout was expected to be a time, found 'soon'"),
    ],
    ids=["unnamed-among-several", "two-unnamed", "continuous", "no-query", "no-time"],
)
def test_script_the_agent_cannot_run_is_refused_by_name(lab: Lab, script: str, code: str, words: str):
    driver = lab.start(1, lab.script(script))
    assert driver.wait() == 1
    failed = lab.heartbeat(1)
    assert failed.state == "failed"
    assert failed.error[0] == code
    assert words in failed.error[1]


def test_query_under_another_name_is_refused_instead_of_losing_its_state(lab: Lab):
    first = lab.start(1, lab.script(COUNT_JOB))
    lab.until_batch(1)
    stop = lab.end_of(1, lab.ask(1, "stop_with_savepoint"))
    assert first.wait() == 0
    counted = lab.out.read_text()

    renamed = lab.start(
        2, lab.script(COUNT_JOB.replace('"counts"', '"totals"')), savepoint_id=stop.savepoint_id
    )
    assert renamed.wait() == 1
    code, text = lab.heartbeat(2).error
    assert code == "QUERY_UNKNOWN"
    assert (
        "found totals, which has no checkpoint and would start from nothing, without the state of counts"
        in text
    )
    assert lab.current().generation == 1
    assert lab.out.read_text() == counted


def test_driver_without_a_claim_is_refused(lab: Lab):
    driver = lab.launch(4, lab.script("raise AssertionError('ran')"))
    assert driver.wait() == 1
    assert "A claim of generation 4 of job job was expected, found none." in driver.text
    with contextlib.suppress(FileNotFoundError):
        assert list(lab.root.rglob("*.json")) == []
