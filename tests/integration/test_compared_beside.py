"""A comparison beside the job that runs, by callers and drivers as they are: the job does not notice."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.clock import Clock
from airflow_flinkstyle.jobs.comparison import CompareAsked, Version, compare_versions
from airflow_flinkstyle.jobs.errors import STEP_TIMEOUT
from airflow_flinkstyle.jobs.status import Running
from testbed.refusals import refuses
from testbed.waiting import wait_until
from tests.integration.detached_lab import TIMEOUT_S, Lab
from tests.integration.numbers_job import HANGS, JOB, REFACTORED, NumbersJob

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_flinkstyle.protocol.comparison_records import Comparison
    from testbed.kafka import Broker

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.kafka]


class JumpingClock(Clock):
    """The machine's clock, until a test lets much time pass."""

    passed_s = 0.0

    @property
    def now_s(self) -> float:
        return super().now_s + self.passed_s


@pytest.fixture
def job(old_broker: Broker, tmp_path: Path) -> Iterator[NumbersJob]:
    job = NumbersJob(Lab(tmp_path), old_broker, f"beside-{uuid.uuid4().hex[:8]}")
    yield job
    job.lab.close()


def compare(job: NumbersJob, text: str, clock: Clock) -> Comparison:
    client = replace(job.lab.client, view=replace(job.lab.client.view, clock=clock))
    target = job.lab.target()
    return compare_versions(
        client,
        Version(spec=job.spec(JOB), target=target),
        Version(spec=job.spec(text, "v2.py"), target=target),
        key="test",
        savepoint_id=job.savepoint_id,
        asked=CompareAsked(batches=2, records=100, timeout_s=2 * TIMEOUT_S),
    )


def scratch(job: NumbersJob) -> list[str]:
    return [path.name for path in (job.lab.folder / "checkpoints").rglob("*.rehearsal")]


@pytest.mark.nightly
def test_job_runs_on_beside_a_comparison_that_is_killed_and_one_that_removes_what_is_left(job: NumbersJob):
    job.start()
    job.save()
    clock, hangs = JumpingClock(), Path(f"{job.lab.out}.hangs")
    job.produce(200)
    with ThreadPoolExecutor() as pool:
        late = pool.submit(compare, job, HANGS, clock)
        wait_until(
            "the new version is in its batch", lambda: hangs.exists() or late.done(), timeout_s=TIMEOUT_S
        )
        clock.passed_s = 20 * TIMEOUT_S
        with refuses(STEP_TIMEOUT, match="the job was not touched"):
            late.result(TIMEOUT_S)
        hangs.unlink()
        assert len(scratch(job)) == 2, "its drivers were killed at their batches"

        going = pool.submit(compare, job, REFACTORED, JumpingClock())
        while not going.done():
            job.produce(10)
            job.until_read()
        found = going.result()
    assert (found.verdict, found.queries["counts"].input_rows) == ("same", 200)
    assert not scratch(job), "that of the killed ones too"
    status = job.lab.client.view.status()
    assert isinstance(status, Running)
    assert status.run.generation == 1
    assert job.read() == job.produced
    job.lab.judge()
