"""A job that never ran here, or was left, is removed with its records; one that is needed is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.jobs.adoption.leaving import leave
from airflow_flinkstyle.jobs.adoption.taking import take_outside
from airflow_flinkstyle.jobs.errors import JOB_UNKNOWN, RECORDS_NEEDED, DriverFailedError, JobRunningError
from airflow_flinkstyle.jobs.found import jobs_below
from airflow_flinkstyle.jobs.removal import remove_job
from airflow_flinkstyle.savepoint.blobs.references import pin, unpin
from airflow_flinkstyle.storage.errors import StoreDeniedError
from testbed.refusals import refuses
from tests.unit.jobs.adoption.plain import PlainSpark, adopt, content, start, watched
from tests.unit.jobs.drivers import QUERY

if TYPE_CHECKING:
    from tests.unit.jobs.conftest import Mood, World


def is_known(world: World) -> bool:
    return world.job in list(jobs_below(world.store))


def left(world: World) -> PlainSpark:
    """Adopt, run and leave a job."""
    plain = PlainSpark(world, world.folder / "plain")
    plain.run(batches=2)
    adopt(world, plain)
    start(world)
    leave(world.client(), {QUERY: str(world.folder / "out")}, key="leave", by="test", timeout_s=10)
    return PlainSpark(world, world.folder / "out")


def test_job_that_was_left_is_removed_and_plain_spark_goes_on(world: World):
    plain = left(world)
    before = content(plain.place)
    with refuses(RECORDS_NEEDED, match=r"no savepoints, found 2") as caught:
        remove_job(world.client().view)
    assert "--with-savepoints" in caught.value.remedy
    kept = world.repository.ids()[0]
    pin(world.repository, kept, reason="audit", by="test", at_ms=now_ms())
    with refuses(RECORDS_NEEDED, match=f"pinned: {kept}"):
        remove_job(world.client().view, savepoints=True)
    unpin(world.repository, kept)
    assert is_known(world)
    removed = remove_job(world.client().view, savepoints=True)
    assert len(removed.savepoints) == 2
    assert not is_known(world)
    assert list(world.store.list(f"{world.job}/")) == []
    assert content(plain.place) == before
    plain.run()
    world.judge()
    with refuses(JOB_UNKNOWN):
        remove_job(world.client().view)


def test_job_that_runs_or_has_run_is_not_removed(world: World):
    client = world.start()
    with pytest.raises(JobRunningError):
        remove_job(client.view, savepoints=True)
    client.requests.stop("stop", savepoint=False, timeout_s=10)
    with refuses(RECORDS_NEEDED, match="has run here: generation 1 has closed") as caught:
        remove_job(client.view, savepoints=True)
    assert "job leave" in caught.value.remedy
    assert is_known(world)


def test_job_whose_driver_never_came_up_is_removed(world: World, mood: type[Mood]):
    world.moods["mistyped.py"] = mood(fails_at_import=True)
    client = world.client()
    handle = client.starts.start(world.spec("mistyped.py"), world.target(), claim_key="mistyped")
    with pytest.raises(DriverFailedError):
        client.drivers.wait_running(handle.generation, timeout_s=10)
    assert is_known(world)
    assert remove_job(world.client().view).savepoints == ()
    assert not is_known(world)
    world.start()
    world.judge()


def test_job_of_which_only_savepoints_were_taken_is_removed_with_them(world: World):
    plain = PlainSpark(world, world.folder / "plain")
    plain.run(batches=2)
    take_outside(world.client().view, watched(world, plain), "one", by="test")
    with refuses(RECORDS_NEEDED):
        remove_job(world.client().view)
    remove_job(world.client().view, savepoints=True)
    assert not is_known(world)


@pytest.mark.parametrize("after", range(0, 30, 3))
def test_removal_that_is_cut_off_is_completed_by_a_second_call(world: World, after: int):
    left(world)
    delete, count = world.store.delete, []

    def fails(key: str) -> None:
        count.append(key)
        if len(count) > after:
            raise StoreDeniedError(f"{key} may not be deleted.", "Nothing.", "Ask its owner.")
        delete(key)

    world.store.delete = fails  # type: ignore[method-assign]
    try:
        remove_job(world.client().view, savepoints=True)
    except StoreDeniedError:
        pass
    finally:
        world.store.delete = delete  # type: ignore[method-assign]
    if list(world.store.list(f"{world.job}/")):
        remove_job(world.client().view, savepoints=True)
    assert list(world.store.list(f"{world.job}/")) == []
