"""Told nothing, a start goes on where the job was; beginning anew must be said, and what that gives up."""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.jobs.errors import (
    HELD_NO_MORE,
    HISTORY,
    STEP_TIMEOUT,
    CheckpointMismatchError,
    JobRunningError,
    LastStateError,
)
from airflow_flinkstyle.jobs.start import same_driver
from airflow_flinkstyle.jobs.start.choice import plan_start
from airflow_flinkstyle.jobs.start.origins import Fresh, FromCheckpoint, FromSavepoint, LastState
from airflow_flinkstyle.jobs.status import Closed, Sightings, Starting, describe_status
from airflow_flinkstyle.jobs.stopped.offline_lock import hold_offline
from airflow_flinkstyle.jobs.stopped.saving import take_stopped
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.places import MARK_KEY, OwnersMark
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.errors import StoreDeniedError, StoreUnavailableError
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.storage.open import open_store
from airflow_flinkstyle.types import Generation
from testbed.refusals import refuses
from tests.unit.stores import ActingStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.jobs.client import JobClient
    from airflow_flinkstyle.jobs.start.origins import Origin
    from airflow_flinkstyle.jobs.start.starts import RunHandle
    from airflow_flinkstyle.storage.base import Versioned
    from testbed.memory_store import MemoryStore
    from tests.unit.jobs.conftest import Mood, World


def start(world: World, key: str, script: str = "v1.py", **kwargs: object) -> RunHandle:
    client = world.client()
    handle = client.starts.start(world.spec(script), world.target(), claim_key=key, **kwargs)
    client.drivers.wait_running(handle.generation, timeout_s=10)
    return handle


def stopped(world: World, *, savepoint: bool = False) -> JobClient:
    client = world.start()
    client.requests.stop("stop", savepoint=savepoint, timeout_s=10)
    world.until(lambda: world.alive() == [])
    return client


def lose(world: World, generation: int) -> None:
    """Take the disk away on which a generation's checkpoint stands."""
    shutil.rmtree(world.client().view.run(generation).claim.checkpoint_location)


def elsewhere(client: JobClient) -> JobClient:
    """Return the same on another machine: this one has seen nothing of what it did."""
    return replace(client, view=replace(client.view, sightings=Sightings()))


def batches(world: World, generation: int) -> dict[str, int]:
    beat = world.board.heartbeat(generation)
    return beat.value.batches() if beat else {}


def records(world: World) -> dict[str, bytes]:
    return {info.key: world.store.read(info.key) for info in world.store.list()}


def test_stopped_job_goes_on_where_it_was_and_the_log_says_where(
    world: World, caplog: pytest.LogCaptureFixture
):
    client = stopped(world)
    at = batches(world, 1)["orders"]
    world.logs.produce(5)
    with caplog.at_level(logging.INFO):
        handle = start(world, "again")
    assert handle.checkpoint_location == client.view.run(1).claim.checkpoint_location
    world.until(lambda: batches(world, 2) == {"orders": at + 1})
    assert f"generation 1, which closed at batch {at} of orders" in caplog.text
    world.judge()


def test_job_without_a_history_begins_anew(world: World, caplog: pytest.LogCaptureFixture):
    world.logs.produce(10)
    with caplog.at_level(logging.INFO):
        handle = start(world, "first")
    assert (handle.generation, world.board.takeover_order(1).savepoint_id) == (1, None)
    assert "no run of it has planned a batch" in caplog.text
    world.judge()


def test_run_that_planned_no_batch_is_no_history(world: World, mood: type[Mood]):
    world.moods["v1.py"] = mood(fails_guard=True)
    client = world.client()
    client.starts.start(world.spec(), world.target(), claim_key="guarded")
    world.until(lambda: world.alive() == [])
    world.moods["v1.py"] = mood()
    world.reads_slowly = True  # it takes over and finds nothing to read
    start(world, "idle")
    client.requests.stop("stop", savepoint=False, timeout_s=10)
    world.reads_slowly = False
    world.logs.produce(10)
    third = start(world, "third", origin=Fresh())
    assert third.generation == 3
    world.judge()


def test_run_that_closed_before_its_first_query_is_no_history_on_any_machine(world: World):
    world.reads_slowly = True
    start(world, "idle")
    world.client().requests.stop("stop", savepoint=False, timeout_s=10)
    closed = world.board.heartbeat(1)
    world.board.beat(1, replace(closed.value, queries={}), seen=closed.version)
    lose(world, 1)
    world.reads_slowly = False
    handle = start(world, "on another machine")
    assert world.board.takeover_order(handle.generation).savepoint_id is None
    assert handle.checkpoint_location != world.client().view.run(1).claim.checkpoint_location
    world.judge()


def test_version_that_never_took_over_leaves_the_closed_checkpoint_before_it(world: World, mood: type[Mood]):
    client = stopped(world)
    world.moods["broken.py"] = mood(fails_at_import=True)
    client.starts.start(world.spec("broken.py"), world.target(), claim_key="broken")
    world.until(lambda: world.alive() == [])
    world.logs.produce(5)
    handle = start(world, "mended")
    assert handle.checkpoint_location == client.view.run(1).claim.checkpoint_location
    world.judge()


def test_dead_driver_s_checkpoint_is_copied_under_an_offline_lock(world: World):
    client = world.start()
    world.kill(1)
    world.logs.produce(4)
    handle = start(world, "again", "v2.py")
    assert client.view.run(2).claim.claim_key == "lock:again/checkpoint"
    assert world.board.takeover_order(handle.generation).savepoint_id is not None
    world.judge()


def test_dead_driver_s_checkpoint_is_copied_without_a_query_that_spark_had_not_begun(
    world: World, mood: type[Mood]
):
    world.moods["v1.py"] = mood(adds_query=True)
    client = world.start()
    world.until(lambda: "more" in client.view.status().heartbeat.queries)
    assert client.view.status().heartbeat.queries["more"].query_id is None
    world.kill(1)
    world.logs.produce(4)
    handle = start(world, "again", "v2.py")
    saved = world.repository.read(world.board.takeover_order(handle.generation).savepoint_id)
    assert [query.name for query in saved.queries] == ["orders"]
    world.judge()


def test_job_that_failed_in_its_first_batch_reads_that_batch_again(world: World, mood: type[Mood]):
    world.logs.produce(10)
    world.moods["v1.py"] = mood(fails_in_batch=True)
    client = world.client()
    first = client.starts.start(world.spec(), world.target(), claim_key="first")
    world.until(lambda: world.alive() == [])
    world.logs.produce(5)  # what a fresh start would read with the first batch
    world.moods["v1.py"] = mood()
    second = start(world, "second")
    assert second.checkpoint_location == first.checkpoint_location
    world.judge()
    planned = world.drivers[2].checkpoint.read("offsets/0").decode()
    assert '"0":110' in planned, "the batch that the first driver had planned"


@pytest.mark.parametrize("planned", [True, False])
@pytest.mark.parametrize("origin", [LastState(), FromCheckpoint()])
def test_dead_driver_of_which_one_query_has_committed_nothing_yet_is_followed_in_its_checkpoint(
    world: World, origin: Origin, planned: bool
):
    client = world.start()
    world.kill(1)
    location = client.view.run(1).claim.checkpoint_location
    shutil.copytree(f"{location}/orders", f"{location}/second")
    for log in ("commits",) if planned else ("commits", "offsets"):
        shutil.rmtree(f"{location}/second/{log}")
    handle = start(world, "again", origin=origin)
    assert handle.checkpoint_location == location
    assert client.view.board.takeover_order(handle.generation).closed_at == batches(world, 1), (
        "what was closed in its place"
    )
    assert not world.repository.ids()
    world.judge()


def test_start_that_was_killed_after_it_closed_the_run_of_a_dead_driver_is_repeated(
    world: World, mood: type[Mood]
):
    world.moods["v1.py"] = mood(fails_in_batch=True)
    world.logs.produce(10)
    client = world.client()
    first = client.starts.start(world.spec(), world.target(), claim_key="first")
    world.until(lambda: world.alive() == [])
    world.moods["v1.py"] = mood()
    plan_start(client.view, LastState(), "again")
    assert client.view.board.heartbeat(2).value.state == "closed"
    for key, generation in (("another", 4), ("again", 5)):
        handle = start(world, key)
        assert (handle.generation, handle.checkpoint_location) == (generation, first.checkpoint_location)
        client.requests.stop(f"stop {key}", savepoint=False, timeout_s=10)
        world.until(lambda: world.alive() == [])
    world.judge()


def test_vanished_checkpoint_of_a_closed_run_is_replaced_by_the_savepoint_of_its_stop(
    world: World, caplog: pytest.LogCaptureFixture
):
    client = stopped(world, savepoint=True)
    (savepoint_id,) = world.repository.ids()
    lose(world, 1)
    world.logs.produce(5)
    with caplog.at_level(logging.INFO):
        handle = start(world, "again")
    assert client.view.board.takeover_order(handle.generation).savepoint_id == savepoint_id
    assert savepoint_id in caplog.text
    world.judge()


def test_vanished_checkpoint_and_a_savepoint_that_is_older_is_refused_with_what_there_is(world: World):
    client = world.start()
    _, hot = client.requests.wait(client.requests.request_savepoint("hot"), timeout_s=10)
    world.logs.produce(5)
    world.until(lambda: len(world.logs.counted) == 15)
    client.requests.stop("stop", savepoint=False, timeout_s=10)
    lose(world, 1)
    before = records(world)
    with pytest.raises(LastStateError, match="continued to batch 1") as refused:
        client.starts.start(world.spec(), world.target(), claim_key="again")
    said = refused.value
    assert client.view.run(1).claim.checkpoint_location in said.problem
    assert (said.state_after, records(world)) == ("Nothing was started.", before)
    for choice in (f"savepoint_id={hot.savepoint_id!r}", "rewind='fork'", "discard_history='generation 1'"):
        assert choice in said.remedy


def test_vanished_checkpoint_of_a_dead_driver_is_refused_though_it_has_a_savepoint(world: World):
    client = world.start()
    client.requests.wait(client.requests.request_savepoint("hot"), timeout_s=10)
    world.kill(1)
    lose(world, 1)
    before = records(world)
    with pytest.raises(LastStateError, match="ended at a batch that no run recorded"):
        client.starts.start(world.spec(), world.target(), claim_key="again")
    assert records(world) == before


def test_driver_that_died_before_its_first_word_of_a_query_may_have_run_elsewhere(world: World):
    client = world.start()
    world.kill(1)
    lose(world, 1)
    key = f"{world.job}/runs/000001/heartbeat.json"
    beat = json.loads(world.store.read(key))
    world.store.write(key, json.dumps({**beat, "queries": {}}).encode())
    with pytest.raises(LastStateError, match="no mark of the job there"):
        client.starts.start(world.spec(), world.target(), claim_key="again")
    with refuses(HISTORY, match="generation 1"):
        client.starts.start(world.spec(), world.target(), claim_key="again", origin=Fresh())


def test_batches_of_a_query_that_a_dead_driver_had_not_named_yet_are_never_left_behind(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(same_driver, "NAMED_S", 0.0)  # the world's drivers never start it again
    client = world.start()
    world.kill(1)
    location = client.view.run(1).claim.checkpoint_location
    shutil.copytree(f"{location}/orders", f"{location}/second")
    before = records(world)
    with pytest.raises(CheckpointMismatchError, match="query second"):
        take_stopped(client.view, "nightly")
    assert client.view.board.current().value.generation == 1
    assert before.items() <= records(world).items()
    handle = start(world, "again")
    assert handle.checkpoint_location == location, "where all of them are"
    world.judge()


@pytest.mark.parametrize("origin", [LastState(), None])
def test_checkpoint_that_only_its_own_driver_can_continue_is_closed_by_that_driver(
    world: World, origin: Origin | None, caplog: pytest.LogCaptureFixture
):
    client = world.start()
    world.kill(1)
    world.logs.produce(4)
    client.view.open_checkpoint = lambda location: open_store(f"hdfs://names{location}")
    with caplog.at_level(logging.WARNING):
        handle = client.starts.start(world.spec("v2.py"), world.target(), claim_key="again", origin=origin)
    assert "its own driver is started in its checkpoint again" in caplog.text
    client.drivers.wait_running(handle.generation, timeout_s=10)
    assert handle.checkpoint_location == client.view.run(1).claim.checkpoint_location
    assert client.view.board.heartbeat(1).value.state == "closed"
    world.judge()


def test_start_fresh_is_offered_once_the_same_driver_in_the_same_checkpoint_has_failed(
    world: World, mood: type[Mood]
):
    client = world.start()
    world.kill(1)
    world.moods["v1.py"] = mood(fails_guard=True)
    client.view.open_checkpoint = lambda location: open_store(f"hdfs://names{location}")
    with pytest.raises(
        LastStateError, match=r"Tried first: its own driver was started in it again: .*failed"
    ):
        client.starts.start(world.spec(), world.target(), claim_key="again")
    assert client.view.board.current().value.generation == 1


class Unread(LocalStore):
    """Shows a caller who a query is in a form that it does not know."""

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        return b"of a later Spark" if key == "metadata" else super().read(key, start=start, length=length)


def test_checkpoint_of_a_closed_run_that_a_caller_cannot_read_is_tried_by_the_same_driver(
    world: World, caplog: pytest.LogCaptureFixture
):
    client = stopped(world)
    at = batches(world, 1)["orders"]
    world.logs.produce(4)
    client.view.open_checkpoint = lambda location: Unread(Path(location))
    with caplog.at_level(logging.WARNING):
        handle = client.starts.start(world.spec("v2.py"), world.target(), claim_key="again")
    client.drivers.wait_running(handle.generation, timeout_s=10)
    assert "Generation 1: its own driver is started in its checkpoint again" in caplog.text
    launched = [client.view.claim(Generation(one)).launch["spec"]["script"] for one in (1, 2, 3)]
    assert launched == ["v1.py", "v1.py", "v2.py"]
    assert client.view.board.heartbeat(2).value.state == "closed"
    assert batches(world, 2)["orders"] >= at
    assert handle.checkpoint_location == client.view.run(1).claim.checkpoint_location
    world.judge()


def test_start_fresh_is_offered_once_the_driver_of_a_closed_run_has_failed_there_too(
    world: World, mood: type[Mood]
):
    client = stopped(world)
    world.moods["v1.py"] = mood(fails_guard=True)
    client.view.open_checkpoint = lambda location: Unread(Path(location))
    tried = r"Tried first: its own driver was started in it again: generation 2 has failed"
    for _ in range(2):  # a retry finds what was tried, and tries it no more
        with pytest.raises(LastStateError, match=tried) as refused:
            client.starts.start(world.spec("v2.py"), world.target(), claim_key="again")
        assert "discard_history='generation 1'" in refused.value.remedy
    assert client.view.board.generations() == [1, 2]
    assert client.view.board.current().value.generation == 1


def test_no_driver_is_started_in_another_state_than_the_one_that_a_run_has_closed_at(world: World):
    client = stopped(world)
    commits = Path(client.view.run(1).claim.checkpoint_location) / "orders" / "commits"
    (commits / "7").write_text("v1\n{}")  # plain Spark has run there since
    with pytest.raises(
        LastStateError, match="Tried first: nothing, for its run has closed and another state"
    ):
        client.starts.start(world.spec("v2.py"), world.target(), claim_key="again")
    assert client.view.board.generations() == [1]


def test_cause_that_may_pass_offers_nothing_to_give_up(world: World, mood: type[Mood]):
    client = world.start()
    world.kill(1)
    world.moods["v1.py"] = mood(out_of_reach=1)
    client.view.open_checkpoint = lambda location: open_store(f"hdfs://names{location}")
    with refuses(STEP_TIMEOUT, match="CLUSTER_UNREACHABLE") as refused:
        client.starts.start(world.spec(), world.target(), claim_key="again")
    assert "fresh" not in str(refused.value)
    handle = start(world, "again")
    assert handle.generation > 1
    world.judge()


def kill_while_it_starts(world: World, then: Callable[[], object]) -> threading.Thread:
    """Kill the second driver of generation 1 once it has begun."""

    def kill() -> None:
        world.until(lambda: 2 in world.drivers and world.board.incarnations(1) == [1, 2])
        world.kill(1)
        then()

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


@pytest.fixture
def unread(world: World, mood: type[Mood]) -> JobClient:
    """A job whose driver died, in a checkpoint that only a driver can read; the next one comes up slowly."""
    client = world.start()
    world.kill(1)
    world.moods["v1.py"] = mood(slow_start_s=60)
    client.view.open_checkpoint = lambda location: open_store(f"hdfs://names{location}")
    return client


def test_same_driver_that_is_killed_while_it_starts_shows_nothing_of_the_state(
    world: World, unread: JobClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(same_driver, "PATIENCE_S", 2.0)
    thread = kill_while_it_starts(world, lambda: None)
    with refuses(STEP_TIMEOUT, match="has ended without reporting why") as lost:
        unread.starts.start(world.spec(), world.target(), claim_key="again")
    thread.join()
    assert "fresh" not in str(lost.value).lower()
    world.moods.clear()
    world.logs.produce(4)
    handle = unread.starts.start(world.spec(), world.target(), claim_key="again")
    unread.drivers.wait_running(handle.generation, timeout_s=10)
    world.judge()


def test_same_driver_that_is_killed_while_it_starts_closes_once_a_watcher_has_started_it_again(
    world: World, unread: JobClient
):
    def look_after() -> None:
        time.sleep(0.2)  # the start sees it dead
        world.moods.clear()
        assert isinstance(world.client().drivers.ensure_running(), Starting)

    thread = kill_while_it_starts(world, look_after)
    handle = unread.starts.start(world.spec("v2.py"), world.target(), claim_key="again")
    thread.join()
    unread.drivers.wait_running(handle.generation, timeout_s=10)
    closed = world.board.heartbeat(1)
    assert closed is not None
    assert (closed.value.state, closed.value.incarnation) == ("closed", 3)
    world.judge()


def test_hold_that_is_refused_leaves_no_claim_in_the_way(world: World):
    client = world.start()
    world.kill(1)
    lose(world, 1)
    with pytest.raises(CheckpointMismatchError):
        take_stopped(client.view, "nightly")
    assert client.view.board.generations()[-1] > 1
    status = client.view.settled_status()
    assert (type(status).__name__, status.run.generation) == ("Dead", 1)
    assert client.view.board.heartbeat(client.view.board.generations()[-1]).value.state == "failed"


def test_same_location_on_another_machines_disk_is_not_where_the_job_was(world: World):
    client = world.start()
    ran_in = client.view.board.current().value.place_id
    world.kill(1)
    place = LocalStore(Path(client.view.run(1).claim.checkpoint_location))
    mark = place.read(MARK_KEY)
    elsewhere = replace(OwnersMark.from_bytes(mark), place_id="on-another-disk")
    place.write(MARK_KEY, elsewhere.to_bytes())  # as of a driver that waited there, and never ran the job
    with pytest.raises(CheckpointMismatchError, match="another place of the job"):
        take_stopped(client.view, "nightly")
    with pytest.raises(LastStateError, match="another place of the job"):
        start(world, "again")
    assert client.view.board.current().value.place_id == ran_in
    place.write(MARK_KEY, mark)
    take_stopped(client.view, "nightly")
    assert client.view.board.current().value.place_id == ran_in, "who holds the job passes it on"
    start(world, "again")
    world.judge()


def test_chosen_checkpoint_that_has_vanished_is_refused_and_not_begun_anew(world: World):
    client = stopped(world, savepoint=True)
    lose(world, 1)
    with pytest.raises(CheckpointMismatchError):
        client.starts.start(world.spec(), world.target(), claim_key="again", origin=FromCheckpoint())
    assert client.view.board.generations() == [1]


def test_checkpoint_that_cannot_be_read_for_now_has_not_vanished(world: World, tmp_path: Path):
    client = stopped(world, savepoint=True)

    class Unavailable(LocalStore):
        def get(self, key: str, *, unless: str | None = None) -> Versioned | None:
            raise StoreUnavailableError("The store", "is away", "for a while.")

    client.view.open_checkpoint = lambda _: Unavailable(tmp_path)
    for origin in (None, FromCheckpoint()):
        with pytest.raises(StoreUnavailableError):
            client.starts.start(world.spec(), world.target(), claim_key="again", origin=origin)
    world.kill(1)


def test_checkpoint_that_only_the_driver_can_read_is_left_to_it(world: World):
    client = stopped(world)
    client.view.open_checkpoint = lambda location: open_store(f"hdfs://names{location}")
    handle = client.starts.start(world.spec(), world.target(), claim_key="again")
    assert handle.checkpoint_location == client.view.run(1).claim.checkpoint_location


def test_job_with_savepoints_and_no_run_goes_on_from_the_newest(world: World):
    client = stopped(world, savepoint=True)
    for key in list(records(world)):
        if "/runs/" in key or key.endswith("current.json"):
            world.store.delete(key)
    world.logs.produce(5)
    (savepoint_id,) = world.repository.ids()
    with refuses(HISTORY, match=savepoint_id):
        client.starts.start(world.spec(), world.target(), claim_key="fresh", origin=Fresh())
    generation = start(world, "again").generation
    assert client.view.board.takeover_order(generation).savepoint_id == savepoint_id
    world.judge()


def test_beginning_anew_needs_the_name_of_what_is_given_up_each_time(
    world: World, caplog: pytest.LogCaptureFixture
):
    client = stopped(world, savepoint=True)
    (savepoint_id,) = world.repository.ids()
    before = records(world)
    for origin in (Fresh(), Fresh(discard_history="generation 7"), Fresh(discard_history="True")):
        with refuses(HISTORY, match=r"generation 1, at batch 0 of orders; .*" + savepoint_id) as refused:
            client.starts.start(world.spec(), world.target(), claim_key="anew", origin=origin)
        assert "discard_history='generation 1'" in refused.value.remedy
    assert records(world) == before
    confirmed = Fresh(discard_history="generation 1")
    with caplog.at_level(logging.WARNING):
        second = start(world, "anew", origin=confirmed)
    assert second.checkpoint_location != client.view.run(1).claim.checkpoint_location
    assert "generation 1, at batch 0 of orders" in caplog.text
    assert savepoint_id in caplog.text
    assert start(world, "anew", origin=confirmed) == second, "a retry finds its own start"
    world.until(lambda: batches(world, 2) == {"orders": 0})
    client.requests.stop("stop again", savepoint=False, timeout_s=10)
    with refuses(HISTORY, match="generation 2"):
        client.starts.start(world.spec(), world.target(), claim_key="the next DAG run", origin=confirmed)


def test_job_that_was_told_to_begin_anew_and_planned_no_batch_begins_anew_again(world: World):
    client = stopped(world, savepoint=True)
    world.reads_slowly = True
    start(world, "anew", origin=Fresh(discard_history="generation 1"))
    client.requests.stop("stop again", savepoint=False, timeout_s=10)
    world.reads_slowly = False
    handle = start(world, "again")
    assert world.board.takeover_order(handle.generation).savepoint_id is None
    world.until(lambda: world.logs.counted[0] == 2)


def test_retry_finds_the_offline_lock_of_its_killed_attempt(world: World):
    client = world.start()
    world.kill(1)
    killed = hold_offline(client.view, "again/checkpoint")
    killed.__enter__().heartbeats.stop()
    assert isinstance(client.view.status(), Starting), "for another start, until its lease has passed"
    world.logs.produce(4)
    start(world, "again")
    world.judge()


def test_caller_that_froze_before_it_took_the_job_leaves_it_to_the_driver_that_was_started_again(
    world: World,
):
    client = world.start()
    world.kill(1)

    def start_again() -> None:
        world.client().drivers.ensure_running()
        world.client().drivers.wait_running(Generation(1), timeout_s=10)

    store: Any = ActingStore(world.store, start_again, key="runs/000002/heartbeat")
    with pytest.raises(JobRunningError, match="another run has taken it over"):
        take_stopped(replace(client.view, board=JobBoard(store, world.job)), "nightly")
    assert store.has_acted
    current = world.board.current()
    assert current is not None
    assert (current.value.generation, current.value.incarnation) == (1, 2)
    world.logs.produce(4)
    world.judge()


def test_savepoint_taken_since_of_a_stopped_job_is_where_it_is(world: World):
    client = stopped(world)
    take_stopped(client.view, "nightly")
    world.logs.produce(4)
    start(world, "again")
    world.judge()


def test_a_rewind_that_was_chosen_is_gone_on_with(world: World):
    client = stopped(world, savepoint=True)
    (savepoint_id,) = world.repository.ids()
    start(world, "fork", origin=FromSavepoint(savepoint_id=savepoint_id, rewind="fork"))
    world.logs.produce(4)
    world.until(lambda: batches(world, 2).get("orders", 0) > 0)
    client.requests.stop("stop again", savepoint=False, timeout_s=10)
    handle = start(world, "again")
    assert handle.checkpoint_location == client.view.run(2).claim.checkpoint_location


def test_offline_savepoint_that_fails_half_way_leaves_the_job_as_it_was(world: World):
    client = stopped(world)
    before, was = world.board.current(), describe_status(client.view.status())
    world.store.refuse(denied="/takes/")
    with pytest.raises(StoreDeniedError):
        take_stopped(client.view, "nightly")
    world.store.refuse()
    after = world.board.current()
    assert before is not None
    assert after is not None
    assert after.value == before.value
    assert describe_status(client.view.status()) == was
    world.logs.produce(4)
    start(world, "again")
    world.judge()


def test_caller_that_lives_on_holds_no_job_that_it_could_not_give_back(world: World):
    client = stopped(world)

    def fail() -> None:
        with hold_offline(client.view, "nightly"):
            world.store.refuse(denied="/heartbeat")
            raise ValueError("the copy failed")

    with pytest.raises(ValueError, match="the copy failed"):
        fail()
    world.store.refuse()
    world.logs.produce(4)
    world.until(lambda: not isinstance(client.view.status(), Starting))
    handle = client.starts.start(world.spec(), world.target(), claim_key="again")
    client.drivers.wait_running(handle.generation, timeout_s=10)
    world.judge()


def test_offline_savepoint_that_fails_behind_another_one_gives_back_whom_that_one_stands_for(world: World):
    client = stopped(world)
    take_stopped(client.view, "first")
    before = world.board.current()
    world.store.refuse(denied="/takes/")
    with pytest.raises(StoreDeniedError):
        take_stopped(client.view, "second")
    world.store.refuse()
    after = world.board.current()
    assert before is not None
    assert after is not None
    assert before.value.head == 1
    assert after.value == before.value
    world.logs.produce(4)
    start(world, "again")
    world.judge()


def test_offline_savepoint_that_failed_is_taken_by_its_retry(world: World):
    client = stopped(world)
    world.store.refuse(denied="/takes/")
    with pytest.raises(StoreDeniedError):
        take_stopped(client.view, "nightly")
    world.store.refuse()
    saved = take_stopped(client.view, "nightly")
    world.logs.produce(4)
    start(world, "again", origin=FromSavepoint(savepoint_id=saved.savepoint_id))
    world.judge()


@pytest.mark.parametrize("job", ["stopped", "killed"])
def test_start_passes_the_lock_of_a_caller_that_was_killed_once_that_was_silent_for_its_lease(
    world: World, job: str
):
    client = stopped(world) if job == "stopped" else world.start()
    world.kill(1)
    killed = hold_offline(elsewhere(client).view, "nightly")
    killed.__enter__().heartbeats.stop()
    world.logs.produce(4)
    start(world, "again")
    world.judge()


def test_no_start_passes_the_lock_of_a_caller_that_lives(world: World):
    client = stopped(world)
    with hold_offline(client.view, "nightly") as lock:
        with pytest.raises(JobRunningError, match="lock:nightly"):
            client.starts.start(world.spec(), world.target(), claim_key="again")
        with pytest.raises(JobRunningError, match="lock:nightly holds it"):
            client.starts.standby(world.spec(), world.target(), claim_key="next", prepare_savepoint_id=None)
        lock.close(lock.last_heartbeat.batches(), ids={}, under_way=())
    world.logs.produce(4)
    start(world, "again")
    world.judge()


def test_caller_that_was_frozen_beyond_its_lease_says_nothing_of_a_job_that_went_on(world: World):
    client = stopped(world)
    frozen = hold_offline(elsewhere(client).view, "nightly")
    lock = frozen.__enter__()
    lock.heartbeats.stop()
    world.logs.produce(4)
    start(world, "again")
    with refuses(HELD_NO_MORE, match="wrote no heartbeat for its lease") as lost:
        lock.close(lock.last_heartbeat.batches(), ids={}, under_way=())
    assert (lost.value.code, lost.value.retryable) == ("JOB_RUNNING", True), "a retry looks anew"
    assert world.board.current().value.generation > lock.generation
    world.judge()


class Unanswered:
    """Writes heartbeats, and while it is mute answers none of them."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.is_mute, self.times = False, 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def replace(self, key: str, data: bytes, *, expected: str) -> str:
        version = self._store.replace(key, data, expected=expected)
        if self.is_mute and "heartbeat" in key:
            self.times += 1
            raise StoreUnavailableError.during(f"replace {key}", self._store.uri, "no answer came")
        return version


def test_caller_whose_heartbeats_were_written_without_an_answer_still_holds_the_job(world: World):
    client = stopped(world)
    store: Any = Unanswered(world.store)
    with hold_offline(replace(client.view, board=JobBoard(store, world.job)), "nightly") as lock:
        store.is_mute = True
        world.until(lambda: store.times > 1)
        store.is_mute = False
        lock.close(lock.last_heartbeat.batches(), ids={}, under_way=())
    status = client.view.status()
    assert isinstance(status, Closed)
    assert status.run.generation == lock.generation
    world.logs.produce(4)
    start(world, "again")
    world.judge()


def test_start_that_is_tried_again_copies_anew_where_the_job_has_run_since_its_first_try(world: World):
    client = world.start()
    at = batches(world, 1)["orders"]
    world.kill(1)
    store: Any = ActingStore(
        world.store, lambda: world.store.refuse(denied="/runs/000002/"), key="/savepoints/", after=True
    )
    cut_off = replace(client.view, repository=SavepointRepository(store, world.job))
    with pytest.raises(StoreDeniedError):  # it has its copy, and can hold the job no more
        replace(client, view=cut_off).starts.start(world.spec(), world.target(), claim_key="again")
    assert store.has_acted
    world.store.refuse()
    other = elsewhere(client)
    other.drivers.look_after(follow=other.starts.follow)  # by now it is silent for its lease
    client.drivers.wait_running(Generation(1), timeout_s=10)
    world.logs.produce(4)
    world.until(lambda: batches(world, 1)["orders"] > at)
    world.kill(1)
    start(world, "again")
    world.logs.produce(2)
    world.judge()


def test_start_passes_the_lock_of_a_caller_that_said_it_failed_and_could_not_give_the_job_back(world: World):
    client = stopped(world)
    with contextlib.suppress(ValueError), hold_offline(client.view, "nightly"):
        world.store.refuse(denied="current.json")
        raise ValueError
    world.store.refuse()
    assert world.board.current().value.generation == 2
    world.logs.produce(4)
    start(world, "again")
    world.judge()


def test_retried_start_passes_the_lock_of_a_caller_that_was_killed_meanwhile(world: World, mood: type[Mood]):
    client = stopped(world)
    world.moods["v1.py"] = mood(out_of_reach=1)
    client.starts.start(world.spec(), world.target(), claim_key="again")
    world.until(lambda: world.alive() == [])
    killed = hold_offline(elsewhere(client).view, "nightly")
    killed.__enter__().heartbeats.stop()
    world.logs.produce(4)
    start(world, "again")
    world.judge()


def test_retry_that_sees_the_checkpoint_does_not_go_on_under_a_claim_for_the_savepoint(world: World):
    client = stopped(world, savepoint=True)
    place = Path(client.view.run(1).claim.checkpoint_location)
    hidden = place.rename(place.with_name("on another machine"))

    def die() -> None:
        raise KeyboardInterrupt

    store: Any = ActingStore(world.store, die, key="takeover-order")
    with pytest.raises(KeyboardInterrupt):
        replace(client, view=replace(client.view, board=JobBoard(store, world.job))).starts.start(
            world.spec(), world.target(), claim_key="again"
        )
    hidden.rename(place)
    world.logs.produce(5)
    handle = start(world, "again")
    assert handle.checkpoint_location == str(place)
    assert start(world, "again").generation == handle.generation
    world.judge()
