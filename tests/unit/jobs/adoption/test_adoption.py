"""A job of plain Spark moves in and out: each record is counted once, and what would not be is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.checkpoint.errors import CHECKPOINT_UNSUPPORTED, NO_COMMIT_YET
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.adoption.leaving import leave
from airflow_flinkstyle.jobs.adoption.stopped import adopt_stopped
from airflow_flinkstyle.jobs.adoption.taking import take_outside
from airflow_flinkstyle.jobs.client import JobClient
from airflow_flinkstyle.jobs.errors import (
    HISTORY,
    LOCATION_NOT_EMPTY,
    NOT_ADOPTED,
    OLD_JOB_RUNS,
    SOURCE_CLUSTER,
    AdoptedBeforeError,
    CheckpointWrittenError,
    JobRunningError,
    RewindError,
)
from airflow_flinkstyle.jobs.retention import savepoints_in_use
from airflow_flinkstyle.jobs.start.choice import plan_start
from airflow_flinkstyle.jobs.start.home import moved_on, require_order_stands
from airflow_flinkstyle.jobs.start.origins import Fresh, FromCheckpoint, FromSavepoint, LastState
from airflow_flinkstyle.kafka.errors import OFFSET_BEFORE_START, OFFSET_BEYOND_END
from airflow_flinkstyle.storage.errors import StoreDeniedError
from airflow_flinkstyle.storage.local import LocalStore
from testbed.refusals import refuses
from tests.unit.jobs.adoption.plain import OneCluster, PlainSpark, adopt, at, content, start, watched
from tests.unit.jobs.drivers import QUERY

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.unit.jobs.conftest import Mood, World


def test_adopted_job_goes_on_at_its_batch_is_left_goes_on_in_plain_spark_and_is_adopted_again(
    world: World, plain: PlainSpark
):
    before = content(plain.place)
    adoption = adopt(world, plain)
    assert content(plain.place) == before
    assert adoption.manifest.taken_from_generation is None
    assert world.board.generations() == []
    start(world)
    world.logs.produce(5)
    world.until(lambda: at(world, 1) > 2)
    order = world.board.takeover_order(1)
    assert (order.savepoint_id, order.parent.generation) == (adoption.manifest.savepoint_id, None)
    assert world.board.takeover_order(1).turns[0].parent.savepoint_id == adoption.manifest.savepoint_id

    out = world.folder / "out"
    left = leave(world.client(), {QUERY: str(out)}, key="leave", by="test", timeout_s=10)
    back = f"flinkstyle job adopt --job {world.job} --checkpoint {QUERY}={out} --kafka-conn-id CONN"
    assert left.way_back == back
    assert "v1.py" in left.spark_submit
    again = PlainSpark(world, out)
    reached = again.batch
    assert reached == left.checkpoints[QUERY].batch_id > 2
    again.run(batches=2)
    for origin in (LastState(), FromCheckpoint()):
        with refuses(NOT_ADOPTED, match="left"):
            world.client().starts.start(world.spec(), world.target(), claim_key="too early", origin=origin)

    second = adopt(world, again, key="adopt again")
    assert second.manifest.queries[0].batch_id == reached + 2
    handle = start(world, "start again")
    world.logs.produce(5)
    world.until(lambda: at(world, handle.generation) > reached + 2)
    assert world.board.takeover_order(handle.generation).savepoint_id == second.manifest.savepoint_id
    world.judge()


def test_planned_batch_is_carried_in_and_out(world: World, plain: PlainSpark):
    world.logs.produce(7)
    assert plain.plan() == 3
    world.logs.produce(4)
    adoption = adopt(world, plain)
    assert adoption.manifest.queries[0].planned_offsets is not None
    assert [note for note in adoption.notes if "batch 3 of orders" in note]
    out = world.folder / "out"
    left = leave(world.client(), {QUERY: str(out)}, key="leave", by="test")  # before any start
    assert left.checkpoints[QUERY].planned
    PlainSpark(world, out).run()
    PlainSpark(world, out).run()
    world.judge()


def test_adopting_the_same_twice_is_done_already_and_anything_else_is_refused(
    world: World, plain: PlainSpark
):
    first = adopt(world, plain)
    assert adopt(world, plain, key="another").manifest == first.manifest
    assert len(world.repository.ids()) == 1
    other = PlainSpark(world, world.folder / "other")
    other.run()
    with pytest.raises(AdoptedBeforeError, match="found others"):
        adopt(world, other)
    start(world)
    with pytest.raises(JobRunningError):
        adopt(world, plain)
    world.client().requests.stop("stop", savepoint=False, timeout_s=10)
    with refuses(HISTORY, match="no history"):
        adopt(world, plain)


def test_checkpoint_that_another_job_was_made_of_is_refused(world: World, plain: PlainSpark, tmp_path: Path):
    adopt(world, plain)
    another = type(world)(tmp_path / "another", job="another-job", store=world.store)
    another.logs = world.logs
    with pytest.raises(AdoptedBeforeError, match=f"job {world.job} of root"):
        adopt(another, plain)
    assert another.board.home() is None


def test_old_job_that_goes_on_is_noticed_and_is_adopted_anew_while_nothing_was_started(
    world: World, plain: PlainSpark
):
    adopt(world, plain)
    plain.run(batches=2)
    (found,) = moved_on(world.client().view, world.board.home().value)
    assert "went on from batch 2 to batch 4" in found
    with refuses(OLD_JOB_RUNS, match="batch 2 to batch 4"):
        world.client().starts.start(world.spec(), world.target(), claim_key="start")
    assert world.board.generations() == []
    assert adopt(world, plain, key="again").manifest.queries[0].batch_id == 4
    start(world)
    world.logs.produce(3)
    world.until(lambda: at(world, 1) > 4)
    plain.plan()
    assert list(moved_on(world.client().view, world.board.home().value)) != []


def start_and_die(world: World, mood: type[Mood]) -> None:
    """Start generation 1, whose driver dies before it takes over."""
    world.moods["v1.py"] = mood(slow_start_s=60)
    world.client().starts.start(world.spec(), world.target(), claim_key="start")
    world.kill(1)
    del world.moods["v1.py"]


def test_start_that_died_before_the_job_was_adopted_again_begins_where_that_is(
    world: World, plain: PlainSpark, mood: type[Mood]
):
    """Its order names the savepoint of the first adoption: what plain Spark did since would be done twice."""
    adopt(world, plain)
    start_and_die(world, mood)
    plain.run(batches=2)
    with refuses(OLD_JOB_RUNS, match="batch 2 to batch 4"):
        start(world)
    with refuses(OLD_JOB_RUNS):
        require_order_stands(world.client().view, world.board.takeover_order(1))
    again = adopt(world, plain, key="again").manifest
    with pytest.raises(RewindError, match="batch 4 of query orders, found batch 2"):
        require_order_stands(world.client().view, world.board.takeover_order(1))
    assert world.alive() == []
    handle = start(world)
    assert handle.generation == 2
    assert world.board.takeover_order(2).savepoint_id == again.savepoint_id
    world.logs.produce(3)
    world.judge()
    require_order_stands(world.client().view, world.board.takeover_order(2))


def test_start_that_died_before_it_took_over_goes_on_in_its_generation(
    world: World, plain: PlainSpark, mood: type[Mood]
):
    adopt(world, plain)
    start_and_die(world, mood)
    require_order_stands(world.client().view, world.board.takeover_order(1))
    assert start(world).generation == 1
    world.logs.produce(3)
    world.judge()


def test_checkpoint_that_is_being_written_is_refused(world: World, plain: PlainSpark):
    client = world.client()
    looks = []

    def open_and_write(location: str) -> LocalStore:
        looks.append(location)
        if len(looks) == 2:
            plain.run()
        return LocalStore(plain.place)

    client = replace(client, view=replace(client.view, open_checkpoint=open_and_write))
    with pytest.raises(CheckpointWrittenError, match="batch 2, then batch 3"):
        adopt_stopped(client.view, watched(world, plain), key="adopt", by="test", still_s=0.02)
    assert (world.repository.ids(), world.board.home()) == ((), None)


def test_job_written_while_it_is_captured_is_not_adopted(world: World, plain: PlainSpark):
    looks = []

    def open_and_write(location: str) -> LocalStore:
        looks.append(location)
        return LocalStore(plain.place)

    client = JobClient(view=replace(world.client().view, open_checkpoint=open_and_write))
    with pytest.raises(CheckpointWrittenError):
        adopt_stopped(
            client.view, watched(world, plain), key="adopt", by="test", still_s=0.0,
            progress=lambda _: plain.plan() if plain.plan else None,
        )  # fmt: skip
    assert world.board.home().value.state == "watched"
    with refuses(NOT_ADOPTED):
        plan_start(world.client().view, LastState(), "start")


@pytest.mark.parametrize("side", ["new", "both"])
def test_positions_that_no_cluster_or_two_have_are_refused(world: World, plain: PlainSpark, side: str):
    sides = ("new",) if side == "new" else ("old", "old")
    with refuses(OFFSET_BEYOND_END if side == "new" else SOURCE_CLUSTER) as caught:
        adopt(world, plain, clusters=OneCluster(world, *sides))
    assert "only read" in caught.value.state_after
    assert world.board.home() is None


def test_cluster_without_the_topic_is_refused(world: World, plain: PlainSpark):
    with refuses(SOURCE_CLUSTER, match="none among old"):
        adopt(world, plain, clusters=OneCluster(world, topics=()))


def test_positions_whose_records_were_deleted_are_refused(world: World, plain: PlainSpark):
    world.logs.base = lambda _: 10_000  # type: ignore[method-assign]
    world.logs.end = lambda _: 20_000  # type: ignore[method-assign]
    with refuses(OFFSET_BEFORE_START) as caught:
        adopt(world, plain)
    assert "only read" in caught.value.state_after


def test_two_queries_with_one_location_and_none_at_all_are_refused(world: World, plain: PlainSpark):
    with pytest.raises(BadInputError, match="more and orders have one"):
        adopt(world, plain, checkpoints={QUERY: str(plain.place), "more": f"{plain.place}/"})
    with pytest.raises(BadInputError, match="found none"):
        adopt(world, plain, checkpoints={})


def test_place_without_a_checkpoint_names_those_below_it(world: World, plain: PlainSpark):
    with pytest.raises(BadInputError) as caught:
        adopt(world, plain, checkpoints={QUERY: str(plain.place.parent)})
    assert "Below it are the checkpoints ck" in caught.value.remedy


def test_query_without_a_commit_is_refused(world: World):
    fresh = PlainSpark(world, world.folder / "fresh")
    world.logs.produce(1)
    fresh.plan()
    with refuses(NO_COMMIT_YET):
        adopt(world, fresh)


def test_checkpoint_of_a_spark_that_is_newer_than_this_package_is_refused(world: World):
    newer = PlainSpark(world, world.folder / "newer", commit_version=4)
    newer.run()
    with refuses(CHECKPOINT_UNSUPPORTED, match="v4 is newer"):
        adopt(world, newer)


def test_checkpoint_that_may_not_be_read_is_refused(world: World, plain: PlainSpark):
    class Denied(LocalStore):
        def read(self, key: str, **_: Any) -> bytes:
            raise StoreDeniedError(f"{key} may not be read.", "Nothing.", "Ask its owner.")

    client = JobClient(view=replace(world.client().view, open_checkpoint=lambda _: Denied(plain.place)))
    with pytest.raises(StoreDeniedError, match="readable from here"):
        adopt_stopped(client.view, watched(world, plain), key="adopt", by="test", still_s=0.0)
    assert world.board.home() is None


def test_adopted_savepoint_is_kept_until_the_job_has_started(world: World, plain: PlainSpark):
    adoption = adopt(world, plain)
    wanted = adoption.manifest.savepoint_id
    assert "continue from it" in savepoints_in_use(world.board, world.repository)[wanted]
    start(world)
    assert "continue from it" not in savepoints_in_use(world.board, world.repository).get(wanted, "")


def test_savepoints_from_outside_start_nothing_unless_one_is_named(world: World, plain: PlainSpark):
    client = world.client()
    first = take_outside(client.view, watched(world, plain), "one", by="test")
    plain.run()
    second = take_outside(client.view, watched(world, plain), "two", by="test")
    assert take_outside(client.view, watched(world, plain), "two", by="test") == second
    assert [q.batch_id for m in (first, second) for q in m.queries] == [2, 3]
    for origin in (LastState(), FromCheckpoint()):
        with refuses(NOT_ADOPTED, match="never adopted"):
            plan_start(client.view, origin, "start")
    with refuses(HISTORY):
        plan_start(client.view, Fresh(), "start")
    plan = plan_start(client.view, FromSavepoint(savepoint_id=first.savepoint_id), "start")
    assert plan.order.savepoint_id == first.savepoint_id
    adoption = adopt(world, plain)
    with pytest.raises(AdoptedBeforeError):
        take_outside(client.view, watched(world, plain), "three", by="test")
    start(world)
    world.logs.produce(2)
    world.until(lambda: at(world, 1) > 3)
    assert world.board.takeover_order(1).savepoint_id == adoption.manifest.savepoint_id
    world.judge()


def test_job_is_not_left_to_a_place_that_holds_something(world: World, plain: PlainSpark):
    adopt(world, plain)
    start(world)
    for to in ({QUERY: str(plain.place)}, {}):  # it is there that it was adopted
        with refuses(LOCATION_NOT_EMPTY, match=r"of which job \S+ was made, at batch 2") as caught:
            leave(world.client(), to, key="leave", by="test")
        assert "keeps running" in caught.value.state_after
    world.client().requests.stop("stop", savepoint=False, timeout_s=10)
    world.own_location = str(world.folder / "other")
    PlainSpark(world, world.folder / "other")
    start(world, "again")
    world.until(lambda: own_location(world) == world.own_location)
    with refuses(LOCATION_NOT_EMPTY, match=r"other was expected to be empty\D+ found metadata and"):
        leave(world.client(), {}, key="leave", by="test")
    assert world.alive() != []


def own_location(world: World) -> str | None:
    queries = world.client().view.status().heartbeat.queries
    return queries[QUERY].own_location if QUERY in queries else None


def test_place_that_only_sparks_client_opens_is_refused_with_the_way(world: World, plain: PlainSpark):
    with pytest.raises(BadInputError, match="hdfs://nn/a b: only Spark's own client opens") as caught:
        adopt(world, plain, checkpoints={QUERY: "hdfs://nn/a b"})
    assert "hadoop fs -get 'hdfs://nn/a b' FOLDER" in caught.value.remedy
    adopt(world, plain)
    start(world)
    with pytest.raises(BadInputError, match="hdfs://nn/ck: only Spark's own client writes") as caught:
        leave(world.client(), {QUERY: "hdfs://nn/ck"}, key="leave", by="test")
    assert f"--to {QUERY}=FOLDER" in caught.value.remedy
    assert world.alive() != []


def test_job_whose_script_names_no_place_is_not_left_without_one(world: World):
    world.start()
    with pytest.raises(BadInputError, match="found none of orders") as caught:
        leave(world.client(), {}, key="leave", by="test")
    assert "--to QUERY=LOCATION" in caught.value.remedy
    assert world.alive() != []


def test_job_is_left_where_its_script_looks_for_its_checkpoint(world: World, plain: PlainSpark):
    world.own_location = str(world.folder / "its own")
    adopt(world, plain)
    start(world)
    world.logs.produce(5)
    world.until(lambda: at(world, 1) > 2)
    left = leave(world.client(), {}, key="leave", by="test")
    assert left.checkpoints[QUERY].location == world.own_location
    assert leave(world.client(), {}, key="again", by="test") == left
    PlainSpark(world, world.folder / "its own").run()
    world.judge()


def test_leaving_twice_says_the_same_and_to_another_place_is_refused(world: World, plain: PlainSpark):
    adopt(world, plain)
    start(world)
    out = world.folder / "out"
    first = leave(world.client(), {QUERY: str(out)}, key="leave", by="test")
    assert leave(world.client(), {QUERY: str(out)}, key="leave", by="test") == first
    with refuses(NOT_ADOPTED, match="left before"):
        leave(world.client(), {QUERY: f"{out}-2"}, key="leave", by="test")


def test_leaving_that_ends_half_way_is_continued_by_a_retry(world: World, plain: PlainSpark):
    adopt(world, plain)
    start(world)
    out = world.folder / "out"

    class Full(LocalStore):
        def write(self, key: str, data: bytes) -> str:
            if key.startswith("commits/"):
                raise StoreDeniedError(f"{key} may not be written.", "Nothing.", "Ask its owner.")
            return super().write(key, data)

        def write_many(self, contents: Sequence[tuple[str, bytes]]) -> None:
            for key, data in contents:
                self.write(key, data)

    broken = JobClient(view=replace(world.client().view, open_checkpoint=lambda _: Full(out)))
    with pytest.raises(StoreDeniedError):
        leave(broken, {QUERY: str(out)}, key="leave", by="test")
    assert world.board.home().value.state == "leaving"
    leave(world.client(), {QUERY: str(out)}, key="leave", by="test")
    PlainSpark(world, out).run()
    world.judge()
