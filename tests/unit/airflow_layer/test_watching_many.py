"""A thousand jobs of one root, by the watcher's own times on a clock of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.hooks import watching
from airflow_flinkstyle.hooks.job import StreamingJobHook
from airflow_flinkstyle.hooks.watching import WatchedRoot
from airflow_flinkstyle.protocol.pulse import Pulse, write_pulse
from airflow_flinkstyle.storage.errors import StoreUnavailableError
from airflow_flinkstyle.types import Generation, Incarnation
from tests.unit.clocks import SleptClock

if TYPE_CHECKING:
    from tests.unit.jobs.conftest import World

pytestmark = pytest.mark.airflow


def test_thousand_jobs_cost_two_requests_a_second_and_one_that_dies_is_found_within_ten(
    world: World,
):
    world.start()
    clock = SleptClock()
    jobs = [world.job, *(f"job-{number}" for number in range(999))]
    watched, hook = WatchedRoot(dict.fromkeys(jobs), clock=clock), StreamingJobHook()
    found: dict[int, list[str]] = {}
    asked, dies_s = dict[int, int](), 60
    for second in range(80):
        if second == dies_s:
            world.kill(1)
        for number, job in enumerate(jobs):
            if (second + number) % 5 == 0 and not (number == 0 and second >= dies_s):
                beat = Pulse(generation=Generation(1), incarnation=Incarnation(1), beat=second)
                write_pulse(world.store, job, beat)
        asked[second] = watched.meter.requests
        if wanted := watched.inspect_due(hook, {}):
            found[second] = list(wanted)
        clock.sleep(1.0)
    first = min(found)
    assert dies_s < first <= dies_s + 10
    assert found[first] == [world.job]
    most_at_once = 10  # of one look at all of a job, which later looks wait for
    assert asked[dies_s] - asked[10] <= 2 * (dies_s - 10) + most_at_once


def test_hundred_jobs_that_stand_still_at_once_are_all_found_within_ten_seconds(world: World):
    clock, jobs = SleptClock(), [f"job-{number}" for number in range(300)]
    for job in jobs:
        world.store.write(
            f"{job}/current.json", b"no record: whoever looks at the job wants it to be looked at"
        )
    watched, hook, found = WatchedRoot(dict.fromkeys(jobs), clock=clock), StreamingJobHook(), dict[str, int]()
    for second in range(31):
        for number, job in enumerate(jobs):
            if (second + number) % 5 == 0 and not (number < 100 and second >= 20):
                beat = Pulse(generation=Generation(1), incarnation=Incarnation(1), beat=second)
                write_pulse(world.store, job, beat)
        found |= {job: second for job in watched.inspect_due(hook, {}) if second >= 20}
        clock.sleep(1.0)
    assert set(jobs[:100]) <= set(found)


def stale_seconds(world: World, seconds: int) -> list[int]:
    """Return in which of so many seconds a job was found to have no savepoint, none of which is reported."""
    clock, found = SleptClock(), []
    watched, hook = WatchedRoot({world.job: 1.0}, clock=clock), StreamingJobHook()
    for second in range(seconds):
        if watched.inspect_due(hook, {}):
            found.append(second)
        clock.sleep(1.0)
    return found


def test_fault_whose_task_failed_of_what_passes_is_found_again_within_a_minute(world: World):
    world.start()
    assert stale_seconds(world, 130) == [0, 60, 120]


def test_job_that_could_not_be_read_is_inspected_as_a_whole_within_a_minute(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    world.start()
    answers = iter([StoreUnavailableError.during("be read", "s3://old-checkpoints", "it is away")])

    def away_once(*_: object) -> None:
        for error in answers:
            raise error

    monkeypatch.setattr(watching, "require_old_job_ended", away_once)
    assert stale_seconds(world, 70) == [60]
