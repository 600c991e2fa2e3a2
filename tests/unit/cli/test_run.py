"""``flinkstyle job start|restart|logs|health``; a spark-submit of two lines stands for Spark."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.cli import job, run
from airflow_flinkstyle.cli.factories import client_of
from airflow_flinkstyle.jobs.start.origins import LastState
from airflow_flinkstyle.jobs.stopped.offline_lock import lock_key
from airflow_flinkstyle.protocol.records import End
from airflow_flinkstyle.types import Generation
from testbed.keys import SIGNING_ENV

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Root = Any


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An interpreter beside a spark-submit that says how it was called, and fails."""
    for name, value in SIGNING_ENV.items():
        monkeypatch.setenv(name, value)
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text('#!/bin/sh\necho "called with $*"\nexit 7\n')
    submit.chmod(0o700)
    return submit.with_name("python")


@pytest.fixture
def definition(tmp_path: Path) -> Path:
    file = tmp_path / "jobs" / "orders.yaml"
    file.parent.mkdir()
    file.write_text("job: orders\nscript: /jobs/orders.py\nargs: [--topic, orders]\n")
    return file


def test_first_start_needs_to_be_told_what_to_run_and_where(root: Root, definition: Path):
    refused = root.run("job", "start", "--file", str(definition), code=1)
    assert "The first start of job orders needs --master, --python" in refused.stderr
    assert "needs --file, --master, --python" in root.run("job", "start", code=1).stderr


def test_job_is_started_as_its_definition_says_and_its_log_is_shown(
    root: Root, definition: Path, python: Path, tmp_path: Path
):
    where = ("--master", "local[1]", "--python", str(python), "--log-dir", str(tmp_path / "logs"))
    failed = root.run("job", "start", "--file", str(definition.parent), *where, code=1)
    assert failed.stderr.startswith("DRIVER_LOST: ")
    shown = root.run("job", "logs").stdout
    assert "called with --master local[1]" in shown
    assert "-- /jobs/orders.py --topic orders" in shown
    assert root.json("job", "logs", "-n", "1")["log"][-1] in shown
    definition.write_text("job: orders\nscript: /jobs/orders_v2.py\n")
    again = root.run("job", "restart", "--file", str(definition), *where, "--yes", code=1)
    assert again.stderr.startswith("DRIVER_LOST: ")
    assert "-- /jobs/orders_v2.py" in root.run("job", "logs").stdout


def test_definition_that_is_wrong_starts_nothing(root: Root, definition: Path):
    definition.write_text("job: orders\nscript: [x]\n")
    refused = root.run("job", "start", "--file", str(definition), code=1)
    assert "orders.yaml:2:9: expected script to be a text, found a list" in refused.stderr


@pytest.mark.parametrize(
    "options",
    [("--start-from", "savepoint"), ("--savepoint-id", "sp-1"), ("--discard-history", "generation 1")],
)
def test_options_that_do_not_belong_together_are_a_wrong_command_line(root: Root, options: tuple[str, ...]):
    root.run("job", "start", *options, code=2)


def test_restart_asks_first(root: Root, definition: Path, python: Path):
    root.take("sp-1", "4.2.0/rocksdb")
    options = ("--file", str(definition), "--master", "local[1]", "--python", str(python))
    root.run("job", "restart", *options, code=130, answer="n\n")
    assert root.board.newest_submit(1) == 0


@contextlib.contextmanager
def driver_that_fails_to_stop(root: Root) -> Iterator[None]:
    """Answer each request: its savepoint is taken, and the job goes on."""
    left, answered = threading.Event(), set[str]()

    def answer() -> None:
        while not left.wait(0.01):
            slot = root.board.request(Generation(1))
            if slot is not None and slot.value.request_id not in answered:
                asked = slot.value
                root.take(asked.savepoint_id, "4.2.0/rocksdb")
                end = End(
                    request_id=asked.request_id,
                    outcome="failed",
                    savepoint_id=asked.savepoint_id,
                    detail="its store was away",
                    ended_at_ms=1,
                )
                root.board.create_end(Generation(1), end)
                answered.add(asked.request_id)

    driver = threading.Thread(target=answer)
    driver.start()
    try:
        yield
    finally:
        left.set()
        driver.join()


def test_restart_whose_job_did_not_stop_says_so_as_job_stop_does(root: Root, definition: Path, python: Path):
    root.seem_running()
    where = ("--file", str(definition), "--master", "local[1]", "--python", str(python))
    with driver_that_fails_to_stop(root):
        found = root.json("job", "restart", *where, "--key", "k", "--yes", code=3)
        again = root.run("job", "restart", *where, "--key", "k", "-y", code=3).stdout
    assert found.pop("savepoint_id") in root.repository.ids()
    assert found == {"stopped": False, "reason": "its store was away"}
    assert "but the job did not stop" in again


def test_restart_that_is_repeated_with_its_key_finds_the_driver_that_it_has_started(
    root: Root, definition: Path, python: Path
):
    where = {"master": "local[1]", "python": str(python)}
    view = client_of(root.uri, root.job).view
    spec, target = run.launch_by(view, root.uri, run.wanted_by(root.job, definition, **where, log_dir=None))
    root.claim_key = run._claim_key(spec, target, LastState(), "deploy-42")
    root.seem_running()
    options = ("--file", str(definition), "--master", where["master"], "--python", where["python"])
    found = root.json("job", "restart", *options, "--key", "deploy-42", "--yes")
    assert found["generation"] == 1
    assert root.board.request(Generation(1)) is None, "it was not asked to stop"


def test_job_that_runs_commits_and_has_a_fresh_savepoint_is_healthy(root: Root):
    root.seem_running()
    found = root.json("job", "health")
    assert (found["healthy"], found["findings"]) == (True, [])
    root.take("sp-1", "4.2.0/rocksdb")
    root.run("savepoint", "verify", "sp-1", "--full")
    shown = root.run("job", "health", "--max-savepoint-age", "10000d").stdout
    assert "sp-1, " in shown
    assert "old, verified" in shown


def test_what_is_not_healthy_is_named_and_ends_with_3(root: Root):
    root.seem_running()
    root.take("sp-1", "4.2.0/rocksdb")
    limits = ("--max-batch-age", "15m", "--max-savepoint-age", "36h")
    findings = root.json("job", "health", *limits, code=3)["findings"]
    assert findings[0].startswith("query totals has committed its last batch ")
    assert findings[1].startswith("its newest savepoint is ")
    blob = next(iter(root.repository.blob_sizes()))
    (root.folder / "root" / "orders" / "blobs" / blob).unlink()
    root.run("savepoint", "verify", "sp-1", code=1)
    assert "its newest savepoint sp-1 is damaged" in root.run("job", "health", code=3).stdout


def test_job_that_has_closed_is_not_healthy(root: Root):
    root.seem_running(state="closed")
    assert "generation 1 has closed at batch 4 of totals" in root.run("job", "health", code=3).stdout


def test_query_that_an_error_has_ended_is_not_healthy(root: Root):
    root.seem_running(failed=True)
    found = root.json("job", "health", code=3)
    assert found["findings"] == ["an error has ended query totals"]


def test_driver_whose_lease_is_longer_than_the_wait_is_not_called_healthy(
    root: Root, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(job, "_CERTAIN_S", 0.3)
    root.seem_running(lease_s=900, beats=False)
    (finding,) = root.json("job", "health", code=3)["findings"]
    assert finding.startswith("its heartbeat has not changed for ")
    status = root.json("job", "status")
    assert (status["status"], status["certain"]) == ("running", False)


def test_job_that_failed_and_was_saved_since_is_shown_as_failed(root: Root):
    root.seem_running(state="failed", error=("SCRIPT_FAILED", "disk full"))
    root.claim_key = lock_key("rotation")
    root.seem_running(state="closed", generation=2)
    (listed,) = root.json("job", "list")["jobs"]
    assert (listed["status"], listed["generation"]) == ("failed", 1)
    assert "has failed with SCRIPT_FAILED" in root.run("job", "status").stdout
    assert root.json("job", "logs")["generation"] == 1
    assert "disk full" in root.json("job", "health", code=3)["findings"][0]


def test_logs_of_a_job_that_never_ran_are_refused(root: Root):
    root.take("sp-1", "4.2.0/rocksdb")
    assert root.run("job", "logs", code=1).stderr.startswith("JOB_NOT_RUNNING: ")
