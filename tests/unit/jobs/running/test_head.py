"""A job has one line of history: what a fork, a rewind or a new beginning has left is used only by name."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.errors import LastStateError, RewindError
from airflow_flinkstyle.jobs.start.dry import dry_start
from airflow_flinkstyle.jobs.start.origins import Fresh, FromSavepoint
from airflow_flinkstyle.jobs.stopped.saving import take_stopped
from airflow_flinkstyle.jobs.upgrade.on_demand import rollback_targets
from airflow_flinkstyle.protocol.head import read_line
from airflow_flinkstyle.savepoint.errors import SAVEPOINT_PROTECTED
from airflow_flinkstyle.savepoint.repository.summary import newest_summary, read_listing
from airflow_flinkstyle.savepoint.retention.dispose import dispose_savepoint
from testbed.refusals import refuses

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.client import JobClient
    from airflow_flinkstyle.jobs.start.origins import Origin
    from tests.unit.jobs.conftest import World


def start(world: World, key: str, origin: Origin | None = None) -> int:
    client = world.client()
    handle = client.starts.start(world.spec(), world.target(), claim_key=key, origin=origin)
    client.drivers.wait_running(handle.generation, timeout_s=10)
    return handle.generation


def reads(world: World, count: int) -> None:
    """Let the job read so many records more, in a batch of its own."""
    world.logs.produce(count)
    world.until(lambda: len(world.logs.counted) == len(world.logs.records))


def stop(world: World, key: str, *, savepoint: bool = False) -> str | None:
    outcome = world.client().requests.stop(key, savepoint=savepoint, timeout_s=10)
    world.until(lambda: world.alive() == [])
    return outcome.savepoint_id


@pytest.fixture
def forked(world: World) -> tuple[JobClient, str, str]:
    """A job that was stopped with S2, brought back to S1 by a fork, and has read on without a savepoint."""
    client = world.start()
    _, s1 = client.requests.wait(client.requests.request_savepoint("s1"), timeout_s=10)
    reads(world, 5)
    s2 = stop(world, "s2", savepoint=True)
    assert s1.savepoint_id is not None
    assert s2 is not None
    start(world, "fork", FromSavepoint(savepoint_id=s1.savepoint_id, rewind="fork"))
    world.logs.produce(7)
    world.until(lambda: len(world.logs.counted) == 22)
    return client, s1.savepoint_id, s2


def test_start_after_a_fork_was_lost_with_its_host_is_refused_and_does_not_resume_what_it_left(
    world: World, forked: tuple[JobClient, str, str]
):
    client, s1, s2 = forked
    world.kill(2)
    shutil.rmtree(client.view.run(2).claim.checkpoint_location)
    with pytest.raises(LastStateError, match="generation 2, at batch") as refused:
        start(world, "default")
    said = refused.value
    assert s1 in said.problem
    assert s2 not in said.problem + said.remedy
    assert "rewind='fork'" in said.remedy
    assert "discard_history='generation 2'" in said.remedy
    assert client.view.board.generations() == [1, 2]


def test_latest_after_a_fork_that_stopped_without_a_savepoint_is_not_what_it_left(
    world: World, forked: tuple[JobClient, str, str]
):
    client, s1, s2 = forked
    stop(world, "stop")
    latest = newest_summary(world.repository)
    assert latest is not None
    assert latest.parent == s1, "what the fork began with"
    with pytest.raises(RewindError, match="and the job continued to batch"):
        start(world, "latest", FromSavepoint(savepoint_id=latest.savepoint_id))
    with pytest.raises(RewindError, match=r"has left it behind: generation 2 started from .* \(fork\)"):
        start(world, "s2", FromSavepoint(savepoint_id=s2))
    assert client.view.run(start(world, "default")).claim.checkpoint_location == (
        client.view.run(2).claim.checkpoint_location
    )


def test_what_a_fork_left_is_shown_beside_the_line_and_comes_back_by_a_choice(
    world: World, forked: tuple[JobClient, str, str]
):
    client, s1, s2 = forked
    listing = read_listing(world.repository)
    assert [one.savepoint.savepoint_id for one in listing.beside] == [s2]
    assert listing.beside[0].why.startswith("abandoned: generation 2 started from savepoint sp-fork-")
    assert s2 not in [target.savepoint_id for target in rollback_targets(client.view)]
    stop(world, "stop")
    start(world, "back", FromSavepoint(savepoint_id=s2, rewind="fork"))
    listing = read_listing(world.repository)
    assert [one.parent or one.savepoint_id for one in listing.savepoints] == [s2, s2, s1, s1]
    assert not listing.beside, "the fork that was given up in its turn took no savepoint"


def test_batches_since_a_savepoint_are_not_counted_by_numbers_that_a_fork_has_changed(
    world: World, forked: tuple[JobClient, str, str]
):
    client, s1, _ = forked
    (target,) = (one for one in rollback_targets(client.view) if one.savepoint_id == s1)
    assert target.cells()[-1].startswith("not counted: generation 2 started from savepoint sp-fork-")


def test_batches_of_numbers_that_were_used_again_are_not_those_since_what_was_left(world: World):
    client = world.start()
    _, s1 = client.requests.wait(client.requests.request_savepoint("s1"), timeout_s=10)
    reads(world, 5)
    s2 = stop(world, "s2", savepoint=True)
    assert s1.savepoint_id is not None
    assert s2 is not None
    start(world, "again", FromSavepoint(savepoint_id=s1.savepoint_id, rewind="re-emit"))
    saved = world.repository.read(s1.savepoint_id)
    world.until(lambda: client.view.board.heartbeat(2).value.batches()["orders"] > saved.queries[0].batch_id)
    assert dry_start(client.view, world.repository.read(s2)).since == {"orders": None}
    since = dry_start(client.view, saved).since["orders"]
    assert since is not None
    assert since >= 1


def test_last_savepoint_on_the_line_is_not_disposed_of_for_what_a_new_beginning_has_left(world: World):
    world.start()
    left = stop(world, "stop", savepoint=True)
    start(world, "anew", Fresh(discard_history="generation 1"))
    own = stop(world, "stop anew", savepoint=True)
    assert left is not None
    assert own is not None
    with refuses(SAVEPOINT_PROTECTED, match="it is the last complete one"):
        dispose_savepoint(world.repository, own, in_use=dict, holder="ann")
    dispose_savepoint(world.repository, left, in_use=dict, holder="ann")


def test_job_that_began_anew_never_takes_up_what_it_gave_up(world: World):
    client = world.start()
    saved = stop(world, "stop", savepoint=True)
    start(world, "anew", Fresh(discard_history="generation 1"))
    assert newest_summary(world.repository) is None
    assert [one.savepoint.savepoint_id for one in read_listing(world.repository).beside] == [saved]
    reads(world, 3)
    world.kill(2)
    shutil.rmtree(client.view.run(2).claim.checkpoint_location)
    with pytest.raises(LastStateError, match="and it has no savepoint"):
        start(world, "again")


def test_stops_starts_and_offline_savepoints_leave_one_line_without_a_turn(world: World):
    client = world.start()
    for number in range(3):
        stop(world, f"stop {number}")
        take_stopped(client.view, f"nightly {number}")
        world.logs.produce(2)
        start(world, f"again {number}")
    line = read_line(world.board)
    assert line is not None
    assert (line.head, [turn.generation for turn in line.turns]) == (client.view.status().run.generation, [1])
    listing = read_listing(world.repository)
    assert len(listing.savepoints) == 6, "each start copies the checkpoint that a caller had closed"
    assert not listing.beside
    world.judge()


def test_savepoint_from_elsewhere_begins_a_line_by_its_name(world: World):
    client = world.start()
    saved = stop(world, "stop", savepoint=True)
    assert saved is not None
    for info in list(world.store.list(f"{world.job}/")):
        if "/runs/" in info.key or info.key.endswith("current.json"):
            world.store.delete(info.key)  # as below another root
    world.logs.produce(5)
    assert start(world, "here") == 2, "no generation gets the number of one that a savepoint is of"
    order = client.view.board.takeover_order(2)
    assert order is not None
    assert (order.parent.generation, order.parent.savepoint_id) == (None, saved)
    world.judge()


def test_savepoint_that_a_job_without_records_began_with_is_where_it_is_until_it_commits(world: World):
    client = world.start()
    saved = stop(world, "stop", savepoint=True)
    for info in list(world.store.list(f"{world.job}/")):
        if "/runs/" in info.key or info.key.endswith("current.json"):
            world.store.delete(info.key)
    start(world, "again")
    latest = newest_summary(world.repository)
    assert latest is not None
    assert latest.savepoint_id == saved
    stop(world, "stop again")
    shutil.rmtree(client.view.run(client.view.board.generations()[-1]).claim.checkpoint_location)
    world.logs.produce(4)
    start(world, "after its host was lost")
    world.judge()
