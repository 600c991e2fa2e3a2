from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.jobs.cutover.compat import spark_findings
from airflow_flinkstyle.jobs.errors import (
    UPGRADE_CHOICE,
    UPGRADE_ROLLED_BACK,
    UPGRADE_UNHEALTHY,
    DiesWithStarterError,
    JobNotRunningError,
    JobRunningError,
)
from airflow_flinkstyle.jobs.journal import has_ended, read_phases
from airflow_flinkstyle.jobs.migration.preflight import spark_finding
from airflow_flinkstyle.jobs.start.starts import JobStarts
from airflow_flinkstyle.jobs.status import Closed, Failed, Running
from airflow_flinkstyle.jobs.upgrade import rollback
from airflow_flinkstyle.jobs.upgrade.health import await_first
from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
from airflow_flinkstyle.savepoint.errors import SPARK_INCOMPATIBLE, SinkSkipsError
from testbed.refusals import refuses
from tests.unit.jobs.conftest import World
from tests.unit.jobs.cutovers import DyingStore, Killed, an_upgrade, stop_before_it
from tests.unit.jobs.drivers import written_by

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_flinkstyle.jobs.status import JobStatus
    from airflow_flinkstyle.jobs.upgrade.context import Standby
    from airflow_flinkstyle.jobs.upgrade.upgrade import Upgrade
    from tests.unit.jobs.conftest import Mood


def an_upgrade_with_news(world: World, **settings: object) -> Upgrade:
    """Let orders arrive between the old version's stop and the new one's start."""
    upgrade = an_upgrade(world, **settings)
    begin = upgrade._let_take_over

    def begin_with_news(manifest: object) -> object:
        world.logs.produce(5)
        return begin(manifest)

    upgrade._let_take_over = begin_with_news  # type: ignore[method-assign]
    return upgrade


@pytest.mark.parametrize("standby", ["warm", "none"])
def test_new_version_goes_on_where_the_old_one_stopped(world: World, standby: Standby):
    world.start()
    report = an_upgrade_with_news(world, first_commit_timeout_s=10.0, standby=standby).run()
    assert (report.generation, report.first_batch) == (2, {"orders": 1})
    world.judge()
    assert an_upgrade(world).run().generation == 2


def test_new_version_with_nothing_to_read_is_a_success(world: World):
    world.start()
    assert an_upgrade(world).run().first_batch is None
    world.logs.produce(5)
    world.judge()


def test_standby_for_which_there_is_no_room_is_given_up_and_the_old_version_never_stopped(
    world: World, mood: type[Mood]
):
    world.moods["v2.py"] = mood(finds_no_room=True)
    world.start()
    upgrade = an_upgrade(world)
    upgrade.settings = replace(upgrade.settings, standby_timeout_s=0.3)
    with refuses(UPGRADE_ROLLED_BACK, match=r"(?s)come up and wait within 0.3 s.*never stopped"):
        upgrade.run()
    assert world.alive() == [1]
    world.logs.produce(5)
    world.judge()


def test_version_that_was_not_tested_takes_over_only_if_that_is_allowed(world: World, mood: type[Mood]):
    world.moods["v2.py"] = mood(finds_no_records=True)
    world.start()
    with refuses(UPGRADE_ROLLED_BACK, match=r"NOT TESTED, no rows read: orders.*never stopped") as failed:
        an_upgrade(world, rehearse=Rehearse()).run()
    assert "allow_untested=True" in failed.value.remedy
    assert world.alive() == [1]
    with refuses(UPGRADE_ROLLED_BACK, match="allow_untested=True"):
        an_upgrade(world, rehearse=Rehearse()).run()  # a retry says the same
    allowed = an_upgrade(world, rehearse=Rehearse(allow_untested=True))
    allowed.journal = allowed.journal.part("allowed")
    report = allowed.run()
    assert report.rehearsal is not None
    assert report.rehearsal["summary"].startswith("NOT TESTED, no rows read: orders; ")
    world.logs.produce(5)
    world.judge()


def test_what_is_new_since_the_first_savepoint_is_saved_and_copied_before_the_window(world: World):
    world.start()
    world.logs.produce(5)
    upgrade = an_upgrade(world)
    upgrade.run()
    first, ahead = (upgrade.journal.result(name)["savepoint_id"] for name in ("savepoint", "precopy"))
    assert len({first, ahead, upgrade.journal.result("stop")["savepoint_id"]}) == 3
    assert upgrade.client.view.board.claim(2).prepare_savepoint_id == first
    assert upgrade.client.view.board.precopy(2).savepoint_id == ahead
    assert upgrade.client.view.board.precopy(1) is None
    assert an_upgrade(world).run().generation == 2, "a retry saves nothing more"


def test_standby_that_fails_over_its_copy_is_given_up_and_the_old_version_never_stopped(
    world: World, mood: type[Mood]
):
    world.moods["v2.py"] = mood(fails_to_copy=True)
    world.start()
    with refuses(UPGRADE_ROLLED_BACK, match=r"(?s)no space left on the device.*never stopped"):
        an_upgrade(world).run()
    world.logs.produce(5)
    world.judge()


@pytest.mark.parametrize("standby", ["warm", "none"])
@pytest.mark.parametrize("how", ["fails_at_import", "fails_in_batch", "hangs_in_batch", "fails_guard"])
def test_version_that_fails_before_it_commits_goes_back_by_itself(
    world: World, mood: type[Mood], how: str, standby: Standby
):
    world.moods["v2.py"] = mood(**{how: True})
    world.start()
    never_stopped = how == "fails_at_import" and standby == "warm"
    says = "runs as generation 1 .it was never stopped" if never_stopped else "runs again"
    with refuses(UPGRADE_ROLLED_BACK, match=f"The old version {says}"):
        an_upgrade_with_news(world, standby=standby).run()
    world.logs.produce(5)
    world.judge()
    status = world.client().view.status()
    assert isinstance(status, Running)
    assert status.run.claim.launch["spec"]["script"] == "v1.py"
    world.until(lambda: world.alive() == [status.run.generation])
    with refuses(UPGRADE_ROLLED_BACK):
        an_upgrade(world).run()  # a retry goes back to nothing, it only says so


def test_job_that_a_person_stops_before_the_upgrade_does_stays_stopped(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    stop_before_it(monkeypatch, world.start())
    for _ in range(2):  # and a retry says so
        with pytest.raises(JobNotRunningError) as stopped:
            an_upgrade(world).run()
        assert "Generation 1 was left as it is: it was stopped" in stopped.value.state_after
        status = world.client().view.settled_status()
        assert isinstance(status, Closed)
        assert status.run.generation == 1
    world.until(lambda: not world.alive())


def test_old_version_may_take_longer_to_come_back_than_the_new_one_to_commit(world: World, mood: type[Mood]):
    world.moods["v2.py"] = mood(hangs_in_batch=True)
    world.start()
    world.moods["v1.py"] = mood(slow_start_s=1.5)
    with refuses(UPGRADE_ROLLED_BACK, match="The old version runs again"):
        an_upgrade_with_news(world, standby="none", first_commit_timeout_s=0.5).run()
    world.logs.produce(5)
    world.judge()


def test_error_of_a_first_batch_that_fails_between_two_looks_is_told(world: World, mood: type[Mood]):
    driver = world.moods["v1.py"] = mood()
    client = world.start()
    driver.hangs_in_batch = driver.fails_in_batch = True
    world.logs.produce(5)
    context = an_upgrade(world, first_commit_timeout_s=10.0)
    look = context.client.drivers.ensure_running

    def look_just_before_it_fails(status: JobStatus) -> JobStatus:
        status = look(status)
        driver.hangs_in_batch = False
        world.until(lambda: client.view.board.heartbeat(1).value.state == "failed")
        return status

    context.client.drivers.ensure_running = look_just_before_it_fails  # type: ignore[method-assign]
    context.journal.begin(lambda: 0)
    assert "ZeroDivisionError" in await_first(context, 1, {"orders": 0})["failure"]


@pytest.mark.parametrize("tells_no_sinks", [False, True])
def test_planned_batch_of_the_new_version_is_carried_over_with_its_offsets(
    world: World, mood: type[Mood], tells_no_sinks: bool
):
    world.moods["v2.py"] = mood(fails_in_batch=True, tells_no_sinks=tells_no_sinks)
    world.start()
    with refuses(UPGRADE_ROLLED_BACK, match="planned batch of orders carried over"):
        an_upgrade_with_news(world).run()
    generation = world.client().view.status().run.generation
    carried = world.repository.read(world.board.takeover_order(generation).savepoint_id)
    assert '{"orders":{"0":115}}' in carried.queries[0].planned_offsets
    # A part of the batch may stand where the new one wrote; where it told nothing, the lineage stays known.
    assert carried.queries[0].sinks == written_by(1 if tells_no_sinks else 2)


def test_version_that_moved_its_sink_and_may_have_written_goes_back_by_choice_only(
    world: World, mood: type[Mood]
):
    world.moods["v2.py"] = mood(fails_in_batch=True, moves_sink=True)
    world.start()
    with refuses(UPGRADE_CHOICE, match="a part of that batch may be on cluster another"):
        an_upgrade_with_news(world).run()
    assert isinstance(world.client().view.status(), Closed)
    with refuses(UPGRADE_ROLLED_BACK, match="re-emit"):
        an_upgrade(world, if_committed="re-emit").run()
    assert world.client().view.status().run.claim.launch["spec"]["script"] == "v1.py"


def test_version_goes_back_by_itself_though_a_query_that_it_added_has_no_checkpoint_yet(
    world: World, mood: type[Mood]
):
    world.moods["v2.py"] = mood(fails_in_batch=True, adds_query=True)
    world.start()
    with refuses(UPGRADE_ROLLED_BACK, match="planned batch of orders carried over"):
        an_upgrade_with_news(world).run()
    world.logs.produce(5)
    world.judge()


def test_version_that_would_have_moved_its_sink_but_planned_no_batch_goes_back_by_itself(
    world: World, mood: type[Mood]
):
    world.moods["v2.py"] = mood(fails_guard=True, moves_sink=True)
    world.start()
    with refuses(UPGRADE_ROLLED_BACK, match="The old version runs again"):
        an_upgrade(world).run()


@pytest.mark.parametrize("choice", ["fork", "re-emit"])
def test_version_that_committed_goes_back_by_choice_only(world: World, mood: type[Mood], choice: str):
    world.start()
    an_upgrade(world).run()
    world.logs.produce(5)
    world.until(lambda: len(world.logs.counted) == 15)
    verified = next(info.key for info in world.store.list() if info.key.endswith("-verify.json"))
    world.store.delete(verified)  # as if it had failed right after its commit
    world.moods["v2.py"] = mood(fails_in_batch=True)
    world.kill(2)
    undecided = an_upgrade(world)
    undecided._verify = lambda: {"failure": "it broke", "batches": None}  # type: ignore[method-assign]
    with refuses(UPGRADE_CHOICE, match=r"batches \{'orders': 1\}"):
        undecided.run()
    with refuses(UPGRADE_ROLLED_BACK, match=choice):
        an_upgrade(world, if_committed=choice).run()
    assert world.client().view.status().run.claim.launch["spec"]["script"] == "v1.py"


def test_retry_finds_the_new_version_running_that_an_earlier_attempt_told_to_take_over(world: World):
    world.start()
    dying = an_upgrade_with_news(world)
    dying.journal._store = DyingStore(world.store, 2, only="-takeover-order.json")  # type: ignore[assignment]
    tell = dying._let_take_over

    def tell_and_wait(manifest: object) -> object:
        told = tell(manifest)
        world.until(lambda: world.client().view.run(2).heartbeat.batches() == {"orders": 1})
        return told

    dying._let_take_over = tell_and_wait  # type: ignore[method-assign]
    with pytest.raises(Killed):
        dying.run()
    assert an_upgrade(world, first_commit_timeout_s=10.0).run().generation == 2
    world.judge()


def test_retry_leaves_a_job_alone_that_a_person_has_started_since(world: World, mood: type[Mood]):
    world.moods["v2.py"] = mood(fails_guard=True)
    world.start()
    dying = an_upgrade_with_news(world)
    dying.journal._store = DyingStore(world.store, only="-takeover.json")  # type: ignore[assignment]
    with pytest.raises(Killed):
        dying.run()
    client = world.client()
    world.until(lambda: isinstance(client.view.status(), Failed))
    by_hand = client.starts.start(world.spec("v1.py"), world.target(), claim_key="by-hand").generation
    client.drivers.wait_running(by_hand, timeout_s=10)
    with pytest.raises(JobRunningError, match=f"Generation {by_hand} .started by by-hand. has taken the job"):
        an_upgrade(world).run()
    assert world.alive() == [by_hand]
    world.logs.produce(5)
    world.judge()
    with pytest.raises(JobRunningError):
        an_upgrade(world).run()  # and says so again
    assert all(has_ended(phases) for phases in read_phases(world.store, world.job).values())


def test_retry_after_the_job_was_stopped_and_started_since_leaves_no_driver_that_waits(world: World):
    client = world.start()
    dying = an_upgrade(world)
    dying.journal._store = DyingStore(world.store, only="-standby.json", after=True)  # type: ignore[assignment]
    with pytest.raises(Killed):
        dying.run()  # it has noted which version runs, and begun nothing yet
    client.requests.stop("stop", savepoint=False, timeout_s=10)
    client.starts.start(world.spec("v1.py"), world.target(), claim_key="by-hand")
    world.until(lambda: isinstance(client.view.status(), Running))
    client.requests.stop("again", savepoint=False, timeout_s=10)
    with pytest.raises(JobRunningError, match=r"Generation 2 .started by by-hand. has taken the job"):
        an_upgrade(world).run()
    client.starts.start(world.spec("v1.py"), world.target(), claim_key="next")
    world.logs.produce(5)
    world.judge()


def test_version_that_has_committed_after_all_runs_on_where_nothing_was_chosen(
    world: World, mood: type[Mood]
):
    new = world.moods["v2.py"] = mood(hangs_in_batch=True)
    world.start()
    dying = an_upgrade_with_news(world)
    dying.journal._store = DyingStore(world.store, only="-rollback.json", after=True)  # type: ignore[assignment]
    with pytest.raises(Killed):
        dying.run()
    new.hangs_in_batch = False
    world.until(lambda: world.client().view.status().heartbeat.batches() == {"orders": 1})
    with refuses(UPGRADE_UNHEALTHY, match=r"committed none .* as generation 2: it has committed"):
        an_upgrade(world).run()
    assert world.alive() == [2]
    world.logs.produce(5)
    world.judge()


def test_driver_that_a_sensor_starts_again_while_the_old_version_comes_back_is_ended_too(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    world.start()
    upgrade = an_upgrade(world)
    upgrade.journal._store = DyingStore(world.store, only="-takeover.json")  # type: ignore[assignment]
    order = upgrade._let_take_over
    upgrade._let_take_over = lambda manifest: (world.kill(2), order(manifest))[1]  # type: ignore[method-assign]
    with pytest.raises(Killed):
        upgrade.run()
    follow, ended = JobStarts.follow, []

    def once_a_sensor_has_looked(starts: JobStarts, *args: Any, **kwargs: Any) -> object:
        world.client().drivers.ensure_running()
        world.until(lambda: world.board.current().value.generation == 2)
        return follow(starts, *args, **kwargs)

    def end(native_id: dict[str, str]) -> object:
        ended.append(int(native_id["pid"]))
        return World.end(world, native_id)

    monkeypatch.setattr(JobStarts, "follow", once_a_sensor_has_looked)
    world.end = end  # type: ignore[method-assign]
    retry = an_upgrade(world)
    retry.journal.begin(lambda: 0)
    assert "from sp-" in rollback.roll_back(retry)["how"]
    assert world.alive() == [world.client().view.status().run.generation]
    started_again = max(pid for pid, driver in world.drivers.items() if driver.generation == 2)
    assert started_again in ended, "it may be in a batch"
    assert rollback.roll_back(retry)["how"] == "by an earlier attempt"


@pytest.mark.parametrize("sink", ["foreachBatch", "parquet"])
def test_way_back_that_a_sink_may_skip_is_refused_before_anything_stops(
    world: World, mood: type[Mood], sink: str
):
    world.moods["v1.py"] = mood(sink=sink)
    world.start()
    with pytest.raises(SinkSkipsError, match=f"{sink} of query orders, which leaves out, or may") as refused:
        an_upgrade(world, if_committed="re-emit").run()
    assert refused.value.state_after == "Nothing was stopped; the job keeps running."
    assert isinstance(world.client().view.status(), Running)
    for settings in ({"if_committed": "fork"}, {"if_committed": "re-emit", "skip_known_batches": True}):
        upgrade = an_upgrade(world, **settings)
        upgrade._require_possible()


def test_version_that_could_not_go_on_is_refused_before_anything_stops(world: World, tmp_path: Path):
    world.start()
    (tmp_path / "RELEASE").write_text("Spark 3.5.9 (git revision a) built for Hadoop 3.3.4\n")
    upgrade = an_upgrade(world)
    upgrade.target = replace(upgrade.target, spark_home=str(tmp_path))
    upgrade.spec = replace(upgrade.spec, conf={"spark.sql.shuffle.partitions": "5"})
    with refuses(SPARK_INCOMPATIBLE, match=r"Spark is 4\.2\.0 there and 3\.5\.9 here") as refused:
        upgrade.run()
    assert "spark.sql.shuffle.partitions of query orders is 2 there and 5 here" in refused.value.problem
    assert refused.value.state_after == "Nothing was stopped; the job keeps running."
    status = world.client().view.status()
    assert isinstance(status, Running)
    assert status.run.generation == 1


def test_host_where_the_new_driver_would_not_stay_stops_nothing(world: World):
    client = world.start()
    world.refused = DiesWithStarterError("A pod.", state_after="Nothing was stopped.", remedy="Elsewhere.")
    with pytest.raises(DiesWithStarterError):
        an_upgrade(world).run()
    assert isinstance(client.view.status(), Running)


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("RELEASE", "Spark 4.1.0 (git revision a) built for Hadoop 3.4.1\n"),
        ("version.py", "# Licensed to the ASF\n__version__: str = '4.1.0'\n"),
    ],
    ids=["of-a-distribution", "of-pip"],
)
def test_migration_to_an_older_spark_is_found_by_the_preflight(
    world: World, tmp_path: Path, file: str, says: str
):
    client = world.start()
    (tmp_path / file).write_text(says)
    older = replace(world.target(), spark_home=str(tmp_path))
    found = spark_finding(client.view, older)
    assert (found.level, "Spark is 4.2.0 there and 4.1.0 here" in found.detail) == ("refusal", True)
    assert spark_finding(client.view, None).level == "ok"


def test_setting_that_both_versions_are_given_is_left_to_the_driver(world: World):
    """A script may set another over it, so that it tells nothing of what the session will have."""
    conf = {"spark.sql.shuffle.partitions": "5"}
    spec = replace(world.spec(), conf=conf)
    client = world.client()
    client.starts.start(spec, world.target(), claim_key="start")
    world.logs.produce(5)
    client.drivers.wait_running(1, timeout_s=10)
    world.until(lambda: client.view.status().heartbeat.batches())
    assert spark_findings(client.view, replace(world.spec("v2.py"), conf=conf), world.target()) == ()
    assert spark_findings(
        client.view, replace(spec, conf={"spark.sql.shuffle.partitions": "6"}), world.target()
    )
