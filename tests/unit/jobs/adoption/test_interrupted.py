"""Adoptions that end half way, come twice at once, or meet a job that was started meanwhile."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.errors import BadInputError, FlinkstyleError
from airflow_flinkstyle.jobs.adoption.stopped import adopt_stopped
from airflow_flinkstyle.jobs.client import JobClient
from airflow_flinkstyle.jobs.errors import NOT_ADOPTED, AdoptedBeforeError, CheckpointWrittenError
from airflow_flinkstyle.jobs.start.choice import plan_start
from airflow_flinkstyle.jobs.start.origins import LastState
from airflow_flinkstyle.protocol.home import ADOPTED_KEY
from airflow_flinkstyle.storage.local import LocalStore
from testbed.refusals import refuses
from tests.unit.jobs.adoption.plain import PlainSpark, adopt, at, start, watched
from tests.unit.jobs.drivers import QUERY

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.jobs.conftest import World


def test_batch_planned_since_a_failed_try_is_carried_by_the_next_one_with_its_key(
    world: World, plain: PlainSpark
):
    looks = []

    def open_and_write(location: str) -> LocalStore:
        looks.append(location)
        if len(looks) == 3 and plain.batch == 2:  # behind the capture
            world.logs.produce(4)
            plain.plan()
        return LocalStore(plain.place)

    client = JobClient(view=replace(world.client().view, open_checkpoint=open_and_write))
    with pytest.raises(CheckpointWrittenError):
        adopt_stopped(client.view, watched(world, plain), key="adopt", by="test", still_s=0.0)
    world.logs.produce(3)
    manifest = adopt(world, plain, key="adopt").manifest
    assert manifest.queries[0].planned_offsets is not None


def test_mark_that_a_killed_try_did_not_leave_is_left_by_the_next_one(world: World, plain: PlainSpark):
    adopt(world, plain)
    LocalStore(plain.place).delete(ADOPTED_KEY)  # killed before it
    adopt(world, plain)
    assert LocalStore(plain.place).head(ADOPTED_KEY) is not None


def test_of_two_jobs_that_adopt_one_checkpoint_at_once_one_has_it(
    world: World, plain: PlainSpark, tmp_path: Path
):
    another = type(world)(tmp_path / "another", job="another-job", store=world.store)
    another.logs = world.logs
    done = []

    def meanwhile(_: object) -> None:
        if not done:
            done.append(adopt(another, plain))

    with pytest.raises(AdoptedBeforeError, match="another-job"):
        adopt_stopped(
            world.client().view,
            watched(world, plain),
            key="adopt",
            by="test",
            still_s=0.02,
            progress=meanwhile,
        )
    assert world.board.home().value.state == "watched"
    with refuses(NOT_ADOPTED):
        plan_start(world.client().view, LastState(), "start")


def test_adopter_that_wakes_late_does_not_take_a_job_back_that_has_run_since(world: World, plain: PlainSpark):
    done = []

    def meanwhile(_: object) -> None:
        if not done:
            done.append(adopt(world, plain))
            start(world)
            world.logs.produce(5)
            world.until(lambda: at(world, 1) > 2)
            world.client().requests.stop("stop", savepoint=False, timeout_s=10)

    with pytest.raises(FlinkstyleError):
        adopt_stopped(
            world.client().view, watched(world, plain), key="adopt late", by="test", still_s=0.02,
            progress=meanwhile,
        )  # fmt: skip
    assert plan_start(world.client().view, LastState(), "start").order.savepoint_id is None


def test_one_checkpoint_under_two_spellings_is_no_two_queries(world: World, plain: PlainSpark):
    link = world.folder / "link"
    link.symlink_to(plain.place)
    with pytest.raises(BadInputError, match="more and orders have one"):
        adopt(world, plain, checkpoints={QUERY: str(plain.place), "more": str(link)})


def test_checkpoint_of_a_job_of_this_package_is_not_adopted_by_another_one(
    world: World, plain: PlainSpark, tmp_path: Path
):
    adopt(world, plain)
    start(world)
    world.logs.produce(5)
    world.until(lambda: at(world, 1) > 2)
    world.client().requests.stop("stop", savepoint=False, timeout_s=10)
    place = f"{world.board.claim(1).checkpoint_location}/{QUERY}"
    another = type(world)(tmp_path / "another", job="another-job", store=world.store)
    another.logs = world.logs
    with pytest.raises(AdoptedBeforeError, match=f"job {world.job}"):
        adopt(another, plain, checkpoints={QUERY: place})
