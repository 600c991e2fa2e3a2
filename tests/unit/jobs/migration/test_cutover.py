from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.errors import (
    DONE_BEFORE,
    MIGRATION_BUSY,
    MIGRATION_ENDED,
    MIRROR_BEHIND,
    PRODUCERS_NOT_HELD,
    ROLLED_BACK,
    STEP_TIMEOUT,
    AttemptSupersededError,
    JobError,
    JobNotRunningError,
)
from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.migration.cutover import PHASES, Cutover
from airflow_flinkstyle.jobs.request_slot import DRAINED, CutMode
from airflow_flinkstyle.jobs.start.origins import FromCheckpoint
from airflow_flinkstyle.jobs.status import Closed, Running
from airflow_flinkstyle.kafka.errors import ClusterUnreachableError
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.protocol.records import KafkaOverride
from airflow_flinkstyle.storage.errors import StoreUnavailableError
from testbed.keys import SIGNER
from testbed.refusals import refuses
from tests.unit.jobs.cutovers import NEW, QUICK, DyingStore, Killed, a_cutover, position, stop_before_it
from tests.unit.jobs.hosts import Host, start

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.migration.producers import Position
    from tests.unit.jobs.conftest import Mood, World


def runs_on(world: World) -> int:
    status = world.client().view.status()
    assert isinstance(status, Running)
    return status.run.generation


def test_migration_moves_the_job_and_counts_every_record_once(world: World):
    world.start()
    world.logs.produce(7)
    report = a_cutover(world).run()
    world.logs.produce(5)
    world.judge()
    assert (report.generation, position(world)) == (2, "release_new")
    move = report.plan.moves[0]
    assert move.shift == -100
    assert set(report.phases_s) == set(PHASES) - {"rollback"}
    world.until(lambda: world.alive() == [2])


def test_window_with_nothing_left_to_read_ends_without_a_first_commit(world: World):
    world.start()
    report = a_cutover(world).run()
    assert report.downtime is None
    world.logs.produce(5)
    world.judge()


def test_running_it_again_reports_the_same_and_moves_nothing(world: World):
    world.start()
    first = a_cutover(world).run()
    again = a_cutover(world).run()
    assert (again.generation, again.rewritten_id) == (first.generation, first.rewritten_id)
    world.until(lambda: world.alive() == [2])


def test_job_that_does_not_run_is_not_migrated(world: World):
    client = world.start()
    client.requests.stop("s", savepoint=False, timeout_s=10)
    with pytest.raises(JobNotRunningError):
        a_cutover(world).run()
    assert a_cutover(world).settle().where == "untouched"


def test_producer_that_ignores_the_switch_is_named_and_the_job_stays(world: World):
    world.start()
    world.logs.writes_late = True
    with refuses(ROLLED_BACK, match=r"orders-0"):
        a_cutover(world).run()
    assert (runs_on(world), position(world)) == (1, "release_old")
    world.until(lambda: world.alive() == [1])
    world.judge()


def test_mirror_that_stopped_leaves_the_job_on_the_old_cluster(world: World):
    world.start()
    world.logs.mirror_runs = False
    world.logs.produce(3)
    with refuses(ROLLED_BACK, match="MirrorMaker"):
        a_cutover(world).run()
    assert (runs_on(world), position(world)) == (1, "release_old")
    world.judge()


def test_refused_translation_resumes_the_job_on_the_old_cluster(world: World):
    world.start()
    world.logs.refuse = True
    with refuses(ROLLED_BACK, match="not on the target"):
        a_cutover(world).run()
    assert position(world) == "release_old"
    world.logs.produce(5)
    world.judge()
    assert runs_on(world) == 3
    assert world.client().view.run(3).claim.follows == 1


def test_job_that_a_person_stops_in_the_window_stays_stopped_and_its_producers_are_released(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    stop_before_it(monkeypatch, world.start())
    with refuses(ROLLED_BACK) as back:
        a_cutover(world).run()
    assert "has closed" in back.value.state_after
    assert position(world) == "release_old"
    assert isinstance(world.client().view.settled_status(), Closed)
    assert a_cutover(world).settle().where == "old"
    assert isinstance(world.client().view.settled_status(), Closed)
    world.until(lambda: not world.alive())


@pytest.mark.parametrize("how", ["fails_at_import", "fails_guard"])
def test_new_driver_that_fails_before_it_took_over_goes_back(world: World, mood: type[Mood], how: str):
    world.moods[NEW] = mood(**{how: True})
    world.start()
    with refuses(ROLLED_BACK):
        a_cutover(world).run()
    assert position(world) == (None if how == "fails_at_import" else "release_old")  # None: never held
    world.logs.produce(5)
    world.judge()


def test_went_back_is_final_for_this_migration(world: World):
    world.start()
    world.logs.refuse = True
    with refuses(ROLLED_BACK):
        a_cutover(world).run()
    world.logs.refuse = False
    with refuses(MIGRATION_ENDED, match="went back"):
        a_cutover(world).run()
    world.logs.produce(5)
    world.judge()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, 26))
def test_attempt_killed_at_any_journal_write_is_completed_by_a_retry(world: World, at: int, after: bool):
    world.start()
    with pytest.raises(Killed):
        a_cutover(world, DyingStore(world.store, at, after=after)).run()
    report = a_cutover(world).run()
    assert (report.generation, position(world)) == (2, "release_new")
    world.logs.produce(5)
    world.judge()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, 26, 2))
def test_last_task_brings_any_killed_attempt_to_rest(world: World, at: int, after: bool):
    world.start()
    with pytest.raises(Killed):
        a_cutover(world, DyingStore(world.store, at, after=after)).run()
    settled = a_cutover(world).settle()
    if settled.where != "untouched":
        assert position(world) in (None, f"release_{settled.where}")
    world.logs.produce(5)
    world.judge()
    world.until(lambda: len(world.alive()) == 1)


@pytest.mark.parametrize("at", range(1, 8))
def test_way_back_killed_at_any_journal_write_is_completed(world: World, at: int):
    world.start()
    world.logs.refuse = True
    cutover = a_cutover(world, DyingStore(world.store, at + 14, after=True))
    with pytest.raises((Killed, JobError)) as ended:
        cutover.run()
    assert isinstance(ended.value, Killed) or ended.value.code == ROLLED_BACK.code
    assert a_cutover(world).settle().where == "old"
    assert position(world) == "release_old"
    world.logs.produce(5)
    world.judge()


def test_older_attempt_that_wakes_can_do_nothing_more(world: World):
    world.start()
    old = a_cutover(world)
    old.begin()
    newer = a_cutover(world)
    newer.run()
    with pytest.raises(AttemptSupersededError):
        old.journal.open("hold", {})
    with pytest.raises(AttemptSupersededError):
        old.journal.check()


def test_store_that_fails_midway_leaves_the_migration_to_a_retry(world: World):
    world.start()
    cutover = a_cutover(world)
    plan = world.logs.plan

    def broken(manifest: object) -> object:
        raise StoreUnavailableError.during("read", "x", "it is down")

    world.logs.plan = broken  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailableError):
        cutover.run()
    world.logs.plan = plan  # type: ignore[method-assign]
    assert a_cutover(world).run().generation == 2
    world.logs.produce(2)
    world.judge()


def test_new_driver_and_way_back_race_and_only_one_runs(world: World, mood: type[Mood]):
    world.start()
    with pytest.raises(Killed):
        # The order is given, takeover is open.
        a_cutover(world, DyingStore(world.store, after=True, only="-takeover.json")).run()
    assert world.client().view.board.takeover_order(2) is not None
    settled = a_cutover(world).settle()
    world.logs.produce(5)
    world.judge()
    world.until(lambda: world.alive() == [settled.generation])
    after_stop = world.logs.committed_by[world.logs.committed_by.index(settled.generation) :]
    assert set(after_stop) == {settled.generation}
    assert position(world) == f"release_{settled.where}"


def test_stop_that_the_driver_refuses_leaves_it_running(world: World):
    world.start()
    world.refuses = True
    with refuses(ROLLED_BACK, match="expected to be started by PySpark"):
        a_cutover(world).run()
    assert (runs_on(world), position(world), len(world.drivers)) == (1, "release_old", 2)
    world.logs.produce(5)
    world.judge()


def test_settling_a_given_up_migration_late_does_not_undo_a_newer_one(world: World):
    world.start()
    world.logs.refuse = True
    with refuses(ROLLED_BACK):
        a_cutover(world).run()
    world.logs.refuse = False
    newer = a_cutover(world)
    newer.journal = CutoverJournal(world.store, world.job, "m2", PHASES, signer=SIGNER)
    newer.run()
    assert a_cutover(world).settle().where == "old"
    assert position(world) == "release_new"


def test_savepoint_that_fails_leaves_the_old_driver_running(world: World):
    world.start()
    world.takes_fail = True
    with refuses(ROLLED_BACK, match="the disk is full"):
        a_cutover(world).run()
    assert world.client().view.board.heartbeat(1).value.incarnation == 1, "it was never down"
    world.logs.produce(5)
    world.judge()
    assert (runs_on(world), position(world)) == (1, "release_old")


def test_old_driver_killed_while_it_stops_is_started_again_and_asked_anew(world: World, mood: type[Mood]):
    world.start()
    world.moods["v1.py"] = mood(slow_takes_s=0.2)
    cutover = a_cutover(world)
    send = cutover.kafka.await_mirrored

    def kill_later(sources: object, timeout_s: float) -> None:
        send(sources, timeout_s)
        world.kill(1)

    world.logs.await_mirrored = kill_later  # type: ignore[method-assign]
    report = cutover.run()
    assert report.generation == 2
    world.logs.produce(2)
    world.judge()


def test_job_that_must_be_drained_has_read_everything_before_it_moves(world: World):
    world.start()
    world.reads_slowly = True
    world.logs.produce(7)
    cutover = a_cutover(world)
    cutover.stop_mode = DRAINED
    move = cutover.run().plan.moves[0]
    assert move.before == world.logs.end("old")
    world.reads_slowly = False
    world.logs.produce(3)
    world.judge()


def test_drained_stop_that_leads_nowhere_goes_back_and_loses_nothing(world: World):
    world.start()
    world.logs.refuse = True
    cutover = a_cutover(world)
    cutover.stop_mode = DRAINED
    with refuses(ROLLED_BACK):
        cutover.run()
    world.logs.produce(5)
    world.judge()
    assert (runs_on(world), position(world)) == (3, "release_old")


def test_drained_stop_that_nobody_answers_is_taken_back(world: World):
    world.start()
    world.deaf = True
    cutover = a_cutover(world)
    cutover.stop_mode, cutover.settings = DRAINED, replace(QUICK, stop_timeout_s=0.2)
    with refuses(ROLLED_BACK):
        cutover.run()
    assert world.board.request(1).value.state == "cancelled"
    world.deaf = False
    world.logs.produce(5)
    world.judge()
    assert (runs_on(world), position(world)) == (1, "release_old")


def test_cluster_that_is_gone_half_way_brings_the_job_back(world: World):
    world.start()

    def unreachable(manifest: object) -> object:
        raise ClusterUnreachableError("Cluster new was expected to answer.", "Nothing.", "Start it.")

    world.logs.plan = unreachable  # type: ignore[method-assign]
    with refuses(ROLLED_BACK, match="Cluster new was expected to answer"):
        a_cutover(world).run()
    assert (runs_on(world), position(world)) == (3, "release_old")
    world.logs.produce(5)
    world.judge()


def test_record_that_somebody_writes_behind_the_proof_brings_the_job_back_unfenced(world: World):
    world.start()
    plan = world.logs.plan

    def write_meanwhile(manifest: object) -> object:
        world.logs.strayed = 1
        return plan(manifest)

    world.logs.plan = write_meanwhile  # type: ignore[method-assign]
    with refuses(ROLLED_BACK, match=r"records arrived on orders-0"):
        a_cutover(world).run()
    assert (runs_on(world), position(world), world.logs.fenced) == (3, "release_old", False)
    world.logs.produce(5)
    world.judge()


def test_topic_that_the_driver_did_not_tell_of_is_never_moved_unwatched(world: World):
    world.start()
    ends = world.logs.ends
    world.logs.ends = lambda topics: Offsets.of({"other": ends(topics).by_topic["orders"]})  # type: ignore[method-assign]
    with refuses(ROLLED_BACK, match="that orders were not"):
        a_cutover(world).run()
    assert (runs_on(world), position(world)) == (3, "release_old")
    world.logs.produce(5)
    world.judge()


def dead_in_a_batch(world: World, mood: type[Mood]) -> Cutover:
    """Return a migration of a job whose driver died in a batch; the next one has not come to that query."""
    v1 = world.moods["v1.py"] = mood(has_ticks=True)
    world.moods[NEW] = mood(has_ticks=True)
    client = world.start()
    v1.hangs_in_batch = True
    world.logs.produce(7)
    world.until(lambda: world.drivers[1].logs()[1] == 1)
    world.kill(1)
    world.moods["v1.py"] = mood(has_ticks=True, dawdles=True)
    client.drivers.ensure_running(client.view.settled_status())
    client.drivers.wait_running(1, timeout_s=10)
    world.moods["v1.py"] = mood(has_ticks=True)
    cutover = a_cutover(world)
    cutover.stop_mode = CutMode(hold_s=0.1)
    return cutover


def test_batch_half_written_where_the_sink_leaves_brings_the_job_back(world: World, mood: type[Mood]):
    cutover = dead_in_a_batch(world, mood)
    rule = KafkaOverride(role="sink", servers="old:9092", options={"kafka.bootstrap.servers": "new"})
    cutover.spec = replace(cutover.spec, overrides=(*cutover.spec.overrides, rule))
    with refuses(ROLLED_BACK, match=r"was planned: a part.*once all queries of the job run"):
        cutover.run()
    assert position(world) == "release_old"
    world.logs.produce(5)
    world.judge()


def test_batch_that_a_dead_driver_planned_is_run_on_the_new_cluster_with_its_rows(
    world: World, mood: type[Mood]
):
    cutover = dead_in_a_batch(world, mood)
    world.logs.produce(4)  # behind what the batch has
    report = cutover.run()
    planned = world.repository.read(report.rewritten_id).query("orders").batch_id + 1
    world.until(lambda: world.client().view.status().heartbeat.batches()["orders"] >= planned)
    driver = next(one for one in world.drivers.values() if one.generation == report.generation)
    assert driver.position(planned) == 17
    world.judge()


def test_job_whose_driver_has_died_runs_again_before_it_is_migrated(world: World):
    world.start()
    world.logs.produce(5)
    world.kill(1)
    report = a_cutover(world).run()
    assert report.generation == 2
    world.logs.produce(5)
    world.judge()


def test_batch_planned_where_the_sink_stays_is_judged_by_its_positions_alone(world: World, mood: type[Mood]):
    cutover = dead_in_a_batch(world, mood)
    world.logs.loses_planned = True
    with refuses(ROLLED_BACK, match="have no exact place there") as told:
        cutover.run()
    assert "so that the batch commits" in told.value.remedy
    world.logs.produce(5)
    world.judge()  # the old driver has run it


def test_topics_are_those_of_the_beginning_even_if_the_driver_starts_again(world: World):
    world.start()
    with pytest.raises(Killed):
        a_cutover(world, DyingStore(world.store, 3, after=True)).run()  # stands by, nothing is held
    assert a_cutover(world).journal.result("standby") is not None
    slot = world.board.heartbeat(1)
    world.kill(1)
    world.board.beat(1, replace(slot.value, queries={}), seen=world.board.heartbeat(1).version)
    assert a_cutover(world).topics == ["orders"]


def test_record_left_behind_after_the_takeover_is_told_and_the_fence_stays(world: World):
    world.start()
    cutover = a_cutover(world)
    apply = cutover.switch.apply

    def write_late(position: Position, token: int) -> None:
        world.logs.strayed = int(position == "release_new")
        apply(position, token)

    cutover.switch.apply = write_late  # type: ignore[method-assign]
    report = cutover.run()
    assert "producers wrote to the old cluster" in report.as_markdown()
    assert (report.generation, world.logs.fenced) == (2, True)


def test_group_that_watches_lag_gets_the_positions_on_the_new_cluster(world: World):
    world.start()
    world.logs.produce(7)
    cutover = a_cutover(world)
    cutover.group = "lag"
    report = cutover.run()
    assert world.logs.groups == {"lag": report.plan.positions(report.plan.sources[0])["orders", 0]}
    assert "Group lag: 1 partition committed." in report.notes


def test_group_with_members_is_a_warning_and_the_job_has_moved(world: World):
    world.start()
    world.logs.group_has_members = True
    cutover = a_cutover(world)
    cutover.group = "lag"
    report = cutover.run()
    assert report.generation == 2
    assert "WARNING: Group lag should have no members." in report.as_markdown()


def test_second_migration_beside_the_first_is_refused_by_name_until_that_has_gone_back(world: World):
    world.start()
    first = a_cutover(world, DyingStore(world.store, 5, after=True))
    with pytest.raises(Killed):
        first.run()
    second = a_cutover(world)
    second.journal = CutoverJournal(world.store, world.job, "m2", PHASES, signer=SIGNER)
    with refuses(MIGRATION_BUSY, match="m1 under way"):
        second.run()
    assert second.settle().where == "untouched"
    assert a_cutover(world).settle().where == "old"
    third = a_cutover(world)
    third.journal = CutoverJournal(world.store, world.job, "m3", PHASES, signer=SIGNER)
    assert third.run().plan.moves[0].shift == -100
    world.logs.produce(5)
    world.judge()


def another(world: World, migration_id: str) -> Cutover:
    cutover = a_cutover(world)
    cutover.journal = CutoverJournal(world.store, world.job, migration_id, PHASES, signer=SIGNER)
    return cutover


def test_of_two_migrations_that_begin_at_the_same_moment_none_goes_on_beside_the_other(world: World):
    world.start()
    cutover, second = a_cutover(world), another(world, "m2")
    standby = cutover.client.starts.standby

    def begin_too(*args: object, **kwargs: object) -> object:
        second.begin()
        second.journal.open("standby", {"old": 1})
        return standby(*args, **kwargs)

    cutover.client.starts.standby = begin_too  # type: ignore[method-assign]
    with refuses(ROLLED_BACK, match="m2 under way"):
        cutover.run()
    assert (runs_on(world), position(world)) == (1, None)
    assert another(world, "m2").run().plan.moves[0].shift == -100
    world.logs.produce(5)
    world.judge()


def test_run_that_a_migration_brought_back_is_not_moved_before_that_one_rests(world: World):
    world.start()
    world.logs.refuse = True
    first = a_cutover(world)
    with refuses(ROLLED_BACK):
        first.run()
    world.logs.refuse = False
    record = first.journal.read("rollback")
    (key,) = (info.key for info in world.store.list(f"{world.job}/migrations/m1/") if "rollback" in info.key)
    died = SIGNER.sign(replace(record, result=None), f"{world.store.uri}/{key}")
    world.store.write(key, died.to_bytes())  # before it could say so
    with refuses(MIGRATION_BUSY, match="m1 under way"):
        another(world, "m2").run()
    assert a_cutover(world).settle().where == "old"
    assert another(world, "m2").run().plan.moves[0].shift == -100
    world.logs.produce(5)
    world.judge()


def test_settling_after_a_later_run_took_over_on_the_new_cluster_releases_producers_there(world: World):
    world.start()
    with pytest.raises(Killed):
        a_cutover(world, DyingStore(world.store, only="-release.json")).run()
    client = world.client()
    client.requests.stop("s", savepoint=False, timeout_s=10)
    client.drivers.wait_running(client.starts.follow(2, claim_key="later").generation, timeout_s=10)
    assert (a_cutover(world).settle().where, position(world)) == ("new", "release_new")
    world.logs.produce(5)
    world.judge()


def test_settling_a_migration_that_rests_touches_no_producers_that_a_newer_one_holds(world: World):
    world.start()
    a_cutover(world).run()
    newer = another(world, "m2")
    newer.begin()
    newer.switch.apply("hold", newer.journal.token)
    assert (a_cutover(world).settle().where, position(world)) == ("new", "hold")


def test_settling_a_migration_that_went_back_lets_go_of_no_producers_that_a_newer_one_holds(world: World):
    world.start()
    world.logs.writes_late = True
    with refuses(ROLLED_BACK):
        a_cutover(world).run()
    newer = another(world, "m2")
    newer.begin()
    newer.switch.apply("hold", newer.journal.token)
    assert (a_cutover(world).settle().where, position(world)) == ("old", "hold")


def test_producer_left_on_the_old_cluster_is_named_also_when_the_new_driver_took_over_late(world: World):
    world.start()
    cutover = a_cutover(world)

    def too_late(*_: object) -> None:
        world.until(lambda: world.board.current().value.generation == 2)
        raise STEP_TIMEOUT.with_text("The new driver was expected to take over.", "It may come.", "Look.")

    cutover.journal = LateJournal(cutover.journal, too_late)  # type: ignore[assignment]
    with refuses(MIGRATION_ENDED, match="failed late"):
        cutover.run()
    assert position(world) == "release_new"
    world.logs.writes_late = True
    with refuses(PRODUCERS_NOT_HELD, match=r"orders-0"):
        a_cutover(world).settle()


class LateJournal:
    """Fails as if the time for the takeover were over, once the new driver has taken over."""

    def __init__(self, journal: CutoverJournal, fail: object) -> None:
        self._journal, self._fail = journal, fail

    def __getattr__(self, name: str) -> object:
        return getattr(self._journal, name)

    def open(self, phase: str, intent: object) -> object:
        if phase == "takeover":
            self._fail()
        return self._journal.open(phase, intent)


def test_way_back_of_a_job_whose_host_is_lost_says_that_it_runs_once_it_does(world: World):
    first, other = Host(world, "a"), Host(world, "b", ahead_s=600.0)
    start(world, first)
    cutover = a_cutover(world)
    cutover.client = other.client()

    def lost(*_: object) -> None:
        world.kill(1)
        raise MIRROR_BEHIND.with_text("MirrorMaker was expected to catch up.", "Nothing.", "Start it.")

    world.logs.await_mirrored = lost
    with refuses(ROLLED_BACK, match=r"As seen now, generation 1 \(start\) is running"):
        cutover.run()
    (driver,) = [one for one in world.drivers.values() if one.generation == 1 and not one.killed.is_set()]
    assert (driver.host, driver.incarnation) == ("b", 2)
    world.kill(1)
    assert "As seen now, generation 1 (start) is running" in cutover.settle().detail
    world.logs.produce(5)
    world.judge()


def test_migration_that_was_done_and_left_again_since_is_no_success_and_moves_nothing(world: World):
    client = world.start()
    report = a_cutover(world).run()
    client.requests.stop("away", savepoint=True, timeout_s=10)
    with refuses(DONE_BEFORE, match=r"read the new cluster.* has closed"):
        a_cutover(world).run()
    client.starts.start(
        world.spec("v2.py", new=True), world.target(), claim_key="again", origin=FromCheckpoint()
    )
    world.until(lambda: isinstance(client.view.status(), Running))
    world.until(lambda: client.view.status().heartbeat.queries)
    assert a_cutover(world).run().generation == report.generation, "a later run there is there too"
