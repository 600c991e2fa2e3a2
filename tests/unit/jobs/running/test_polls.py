"""What a look at a job's status costs, whatever the job has behind it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_flinkstyle.jobs.status import Closed, Dead, Failed, Running, Starting
from airflow_flinkstyle.types import Incarnation
from tests.unit.jobs.records import PROCESS, Job

MOST_REQUESTS, MOST_BYTES = 3, 20_000
MOST_WHILE_STARTING = 10
HISTORY = [1, 100, 10_000]


@pytest.mark.parametrize("finished", HISTORY)
def test_poll_of_a_running_job_costs_the_same_whatever_it_has_behind_it(finished: int) -> None:
    job = Job(finished)
    status, cost = job.poll()
    assert isinstance(status, Running)
    assert (status.run.generation, status.run.incarnation) == (finished + 1, finished)
    assert len(cost.requests) <= MOST_REQUESTS, cost.requests[:20]
    assert cost.bytes <= MOST_BYTES


@pytest.mark.parametrize("finished", HISTORY)
def test_poll_of_a_job_that_ended_costs_the_same_whatever_it_has_behind_it(finished: int) -> None:
    job = Job(finished)
    job.beat("failed", error=("SCRIPT_FAILED", "no"))
    status, cost = job.poll()
    assert isinstance(status, Failed)
    assert len(cost.requests) <= MOST_REQUESTS, cost.requests[:20]
    job.beat("closed")
    status, cost = job.poll()
    assert isinstance(status, Closed)
    assert len(cost.requests) <= MOST_REQUESTS, cost.requests[:20]
    assert cost.bytes <= MOST_BYTES


@pytest.mark.parametrize("finished", HISTORY)
def test_poll_of_a_start_costs_the_same_whatever_the_job_has_behind_it(finished: int) -> None:
    job = Job(finished)
    job.beat("closed")
    job.claim(finished + 2)
    status, cost = job.poll()
    assert isinstance(status, Starting)
    assert status.run.generation == finished + 2
    assert len(cost.requests) <= MOST_WHILE_STARTING, cost.requests[:20]
    assert cost.bytes <= MOST_BYTES


def test_driver_that_was_declared_dead_is_seen_though_its_submit_was_repeated_before() -> None:
    job = Job(3)
    slot = job.board.submit(job.newest)
    assert slot is not None
    job.board.put_submit(job.newest, replace(slot.value, state="dead", detail="gone"), seen=slot.version)
    status, cost = job.poll()
    assert isinstance(status, Dead)
    assert status.run.submit.detail == "gone"
    assert len(cost.requests) == MOST_REQUESTS + 2  # its submit, and whether it said something at last


def test_later_process_of_the_run_is_seen_though_it_has_not_taken_over() -> None:
    job = Job(3)
    job.relaunch(4)
    job.board.create_incarnation(job.newest, Incarnation(4), replace(PROCESS, submit=4))
    status, cost = job.poll()
    assert (status.run.incarnation, status.run.submit_number) == (4, 4)
    assert len(cost.requests) <= MOST_WHILE_STARTING + MOST_REQUESTS


def test_run_is_put_together_alike_from_what_is_repeated_and_from_the_records() -> None:
    job = Job(3)
    status, _ = job.poll()
    found = job.client(job.store).view.run(job.newest)
    same = {name: getattr(found, name) for name in ("claim", "order", "submit", "incarnation", "heartbeat")}
    assert same == {name: getattr(status.run, name) for name in same}
