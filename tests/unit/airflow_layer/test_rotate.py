"""One task that rotates the savepoints of many jobs."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.hooks.airflow_versions import AirflowException, AirflowFailException
from airflow_flinkstyle.hooks.assets import SAVEPOINTS, savepoint_asset
from airflow_flinkstyle.hooks.rotation import Rotated, rotate_jobs
from airflow_flinkstyle.jobs.definition import SparkStreamingJob
from airflow_flinkstyle.operators import RotateSavepointsOperator
from airflow_flinkstyle.savepoint.files.verified import verified_records
from airflow_flinkstyle.storage.errors import StoreUnavailableError
from tests.unit.airflow_layer.conftest import a_context

if TYPE_CHECKING:
    from tests.unit.jobs.conftest import World

pytestmark = pytest.mark.airflow


def defined(name: str, **fields: Any) -> SparkStreamingJob:
    return SparkStreamingJob(job=name, script="/jobs/job.py", **fields)


def rotate(jobs: list[SparkStreamingJob], context: dict[str, Any], **arguments: Any) -> dict[str, int]:
    return RotateSavepointsOperator(task_id="rotate", jobs=jobs, **arguments).execute(context)


def test_each_job_gets_a_verified_savepoint_and_keeps_as_many_as_it_says(world: World):
    world.start()
    jobs = [defined(world.job, max_count=2, verify="full")]
    for run in ("one", "two", "three"):
        context = a_context("rotate", run_id=run)
        found = rotate(jobs, context)
    assert {**found, "freed_bytes": None} == {"jobs": 1, "taken": 1, "disposed": 1, "freed_bytes": None}
    kept = world.repository.ids()
    assert len(kept) == 2
    assert {verified_records(world.repository)[one].level for one in kept} == {"full"}
    [event] = context["outlet_events"][SAVEPOINTS].asset_alias_events
    assert event.dest_asset_key.name == savepoint_asset(world.job).name
    assert event.extra["savepoint_id"] in kept


def test_retry_finds_what_was_taken(world: World):
    world.start()
    jobs, context = [defined(world.job)], a_context("rotate", run_id="one")
    assert rotate(jobs, context)["taken"] == 1
    assert rotate(jobs, context)["taken"] == 1
    assert len(world.repository.ids()) == 1


def test_dry_run_disposes_of_nothing(world: World):
    world.start()
    for run in ("one", "two"):
        found = rotate([defined(world.job, max_count=1)], a_context("rotate", run_id=run), dry_run="True")
    assert found["disposed"] == 1
    assert len(world.repository.ids()) == 2


def test_job_that_fails_is_named_and_stops_none_of_the_others(world: World):
    world.start()
    others = [defined(f"gone-{number:02}") for number in range(12)]
    with pytest.raises(AirflowFailException, match=r"(?s)of 13 jobs .* found 12 that were not.*other 1 were"):
        rotate([*others, defined(world.job)], a_context("rotate", run_id="one"))
    assert len(world.repository.ids()) == 1


def test_failure_that_may_pass_keeps_the_retries_and_the_first_are_named(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    from airflow_flinkstyle.hooks import rotation

    def busy(_hook: object, job: SparkStreamingJob, *_: object, **__: object) -> None:
        raise StoreUnavailableError.during("be read", job.job, "it is busy")

    monkeypatch.setattr(rotation, "rotate_job", busy)
    with pytest.raises(AirflowException) as raised:
        rotate([defined(f"job-{number:02}") for number in range(12)], a_context("rotate"))
    assert not isinstance(raised.value, AirflowFailException)
    told = caplog.text + str(raised.value)
    assert "job-09" in told
    assert "and 2 more" in told


def test_no_job_at_a_time_is_refused_where_the_task_is_made():
    with pytest.raises(BadInputError, match="at least one job at a time, found at_once=0"):
        RotateSavepointsOperator(task_id="rotate", jobs=[], at_once=0)


def test_jobs_are_rotated_so_many_at_a_time():
    """Neither of two ends before the other has begun, and the third begins after one of them."""
    both = threading.Barrier(2, timeout=60)
    running: list[str] = []
    most: list[int] = []

    def one(job: SparkStreamingJob) -> Rotated:
        running.append(job.job)
        most.append(len(running))
        if job.job != "c":
            both.wait()
        running.remove(job.job)
        return one_of(job.job)

    found = rotate_jobs(map(defined, "abc"), one, at_once=2)
    assert [(job.job, done) for job, done in found] == [(name, one_of(name)) for name in "abc"]
    assert max(most) == 2


def one_of(name: str) -> Rotated:
    return Rotated(savepoint_id=f"sp-{name}", is_new=True, disposed=(), freed_bytes=0)
