"""A new version that has committed is observed, and the way back from one that is not well."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.errors import UPGRADE_ROLLED_BACK, UPGRADE_UNHEALTHY, JobNotRunningError
from airflow_flinkstyle.jobs.journal import CutoverJournal, has_ended, read_phases
from airflow_flinkstyle.jobs.status import Closed, Running
from airflow_flinkstyle.jobs.upgrade.health import Bounds, how_ended
from airflow_flinkstyle.jobs.upgrade.on_demand import as_markdown, roll_back_to, rollback_targets
from airflow_flinkstyle.jobs.upgrade.repartition import with_changes
from airflow_flinkstyle.jobs.upgrade.upgrade import UPGRADE_PHASES, Upgrade
from testbed.keys import SIGNER
from testbed.refusals import refuses
from tests.unit.jobs.cutovers import QUICK, a_cutover, save
from tests.unit.jobs.upgrade.paces import a_beat, a_pace

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.jobs.upgrade.upgrade import UpgradeReport
    from airflow_flinkstyle.protocol.query_records import QueryStatus
    from airflow_flinkstyle.types import Rewind
    from tests.unit.jobs.conftest import Mood, World

OBSERVED = Bounds(observe_s=0.5)
SHORT = replace(QUICK, stop_timeout_s=4.0, first_commit_timeout_s=10.0)


def an_upgrade(world: World, *, meanwhile: Callable[[], None] = lambda: None, **settings: object) -> Upgrade:
    """Return an upgrade to ``v2.py``; ``meanwhile`` happens once it has committed, while it is observed."""
    fields = {
        "spec": world.spec("v2.py"),
        "bounds": OBSERVED,
        "settings": replace(QUICK, first_commit_timeout_s=10.0),
        **settings,
    }
    upgrade = Upgrade(
        client=world.client(),
        journal=CutoverJournal(world.store, world.job, "u1", UPGRADE_PHASES, signer=SIGNER),
        target=world.target(),
        **fields,
    )
    order, observe = upgrade._let_take_over, upgrade._observe

    def with_news(manifest: object) -> object:
        world.logs.produce(5)
        return order(manifest)

    def while_it_is_observed() -> object:
        meanwhile()
        return observe()

    upgrade._let_take_over = with_news  # type: ignore[method-assign]
    upgrade._observe = while_it_is_observed  # type: ignore[method-assign]
    return upgrade


def runs(world: World) -> str:
    status = world.client().view.status()
    assert isinstance(status, Running)
    return str(status.run.claim.launch["spec"]["script"])


def test_version_that_commits_is_healthy_and_one_without_records_too(world: World):
    world.start()
    report = an_upgrade(world, meanwhile=lambda: world.logs.produce(5)).run()
    assert report.health is not None
    assert report.health.startswith("healthy after 0.")
    assert "observe" in report.phases_s
    world.judge()


def test_driver_that_failed_of_what_may_pass_is_not_said_to_have_ended_its_script():
    failed = replace(a_beat(), state="failed", error=("CLUSTER_UNREACHABLE", "No broker."), transient=True)
    assert how_ended(failed) == "Its driver has failed: CLUSTER_UNREACHABLE: No broker."
    assert how_ended(replace(a_beat(), state="closed")) == "Its script has ended."


def test_version_whose_driver_dies_goes_back_from_where_it_is_and_repeats_nothing(world: World):
    world.start()

    def dies() -> None:
        world.kill(2)
        world.logs.produce(5)

    with refuses(UPGRADE_ROLLED_BACK, match="started again, 1 times") as failed:
        an_upgrade(world, meanwhile=dies).run()
    assert "where the new one stopped" in failed.value.state_after
    assert runs(world) == "v1.py"
    world.judge()
    assert all(has_ended(phases) for phases in read_phases(world.store, world.job).values())
    with refuses(UPGRADE_ROLLED_BACK, match="started again, 1 times"):
        an_upgrade(world).run()  # a retry goes back to nothing, it only says so


def test_version_that_is_stuck_runs_on_where_nothing_was_chosen(world: World, mood: type[Mood]):
    new = world.moods["v2.py"] = mood()
    world.moods["v1.py"] = old = mood()
    world.start()
    old.fails_at_import = True

    def dies() -> None:
        world.kill(2)
        world.logs.produce(5)

    with refuses(UPGRADE_UNHEALTHY, match="started again") as failed:
        an_upgrade(world, meanwhile=dies).run()
    assert "It runs on as generation 2" in failed.value.state_after
    assert "ImportError" in failed.value.state_after
    assert runs(world) == "v2.py"
    assert not new.fails_at_import
    world.judge()


def test_batch_that_hangs_is_unhealthy_and_what_was_chosen_then_counts(world: World, mood: type[Mood]):
    new = world.moods["v2.py"] = mood()
    world.start()

    def hangs() -> None:
        new.hangs_in_batch = True
        world.logs.produce(5)

    with refuses(UPGRADE_ROLLED_BACK, match="committed no batch, and batch 2 is under way") as failed:
        an_upgrade(world, meanwhile=hangs, if_committed="fork", settings=SHORT).run()
    assert "(fork)" in failed.value.state_after
    assert runs(world) == "v1.py"


def test_new_version_that_a_person_stops_while_it_is_observed_stays_stopped(world: World):
    """What was chosen for an unhealthy one would write its batches once more."""
    world.start()

    def stopped() -> None:
        world.client().requests.stop("a person", savepoint=True, timeout_s=10)

    with pytest.raises(JobNotRunningError, match="was expected to be healthy") as error:
        an_upgrade(world, meanwhile=stopped, if_committed="fork").run()
    assert "Generation 2 was left as it is: it was stopped" in error.value.state_after
    status = world.client().view.settled_status()
    assert isinstance(status, Closed)
    assert status.run.generation == 2
    world.judge()


def test_version_that_falls_behind_goes_back_from_where_it_is(world: World, mood: type[Mood]):
    world.moods["v1.py"] = mood(pace=a_pace(rate=500.0))
    new = world.moods["v2.py"] = mood()
    world.start()

    def falls_behind() -> None:
        new.pace = a_pace(rate=9000.0, lag=0)
        world.until(lambda: told(world).pace == new.pace)

        def later() -> None:
            new.pace = replace(a_pace(2, rate=120.0, lag=900), begun_at_ms=now_ms())

        threading.Timer(0.2, later).start()

    with refuses(UPGRADE_ROLLED_BACK, match=r"120 rows per second, where .* 500, .* from 0 to 900"):
        an_upgrade(world, meanwhile=falls_behind).run()
    assert runs(world) == "v1.py"
    world.judge()


@pytest.mark.parametrize("chosen", ["continue", "fork"])
def test_old_version_does_not_go_on_with_a_state_that_was_changed_for_the_new_one(
    world: World, mood: type[Mood], chosen: Rewind
):
    new = world.moods["v2.py"] = mood()
    world.start()

    def hangs() -> None:
        new.hangs_in_batch = True
        world.logs.produce(5)

    spec = with_changes(world.spec("v2.py"), "cents:of_orders", asked="u1", before=0)
    upgrade = an_upgrade(world, meanwhile=hangs, spec=spec, if_committed=chosen, settings=SHORT)
    unhealthy = UPGRADE_UNHEALTHY if chosen == "continue" else UPGRADE_ROLLED_BACK
    with refuses(unhealthy, match="committed no batch") as failed:
        upgrade.run()
    words = "what cents:of_orders did to the state" if chosen == "continue" else "(fork)"
    assert words in failed.value.state_after
    assert runs(world) == ("v2.py" if chosen == "continue" else "v1.py")


def test_job_does_not_go_back_in_place_to_a_version_that_knows_another_state(world: World):
    world.start()
    saved = save(world)
    an_upgrade(world, spec=with_changes(world.spec("v2.py"), "cents:of_orders", asked="u1", before=0)).run()
    assert "where the job is" not in as_markdown(rollback_targets(world.client().view))
    with pytest.raises(JobNotRunningError, match="found it changed since, by cents:of_orders"):
        go_back(world, "b1", None, "continue")
    assert runs(world) == "v2.py"
    assert go_back(world, "b2", saved, "fork").generation == 3
    assert runs(world) == "v1.py"


def told(world: World) -> QueryStatus:
    status = world.client().view.status()
    assert isinstance(status, Running)
    return status.heartbeat.queries["orders"]


def go_back(world: World, key: str, savepoint_id: str | None, rewind: Rewind) -> UpgradeReport:
    return roll_back_to(
        world.client(),
        CutoverJournal(world.store, world.job, key, UPGRADE_PHASES, signer=SIGNER),
        savepoint_id=savepoint_id,
        rewind=rewind,
        skip_known_batches=False,
        restore_tables=False,
        standby="warm",
        rehearse=None,
        settings=replace(QUICK, first_commit_timeout_s=10.0),
    )


def test_job_goes_back_to_the_version_before_from_where_it_is(world: World):
    world.start()
    with pytest.raises(JobNotRunningError, match="another version before"):
        go_back(world, "b0", None, "continue")
    an_upgrade(world).run()
    shown = as_markdown(rollback_targets(world.client().view))
    assert "| where the job is | generation 1: v1.py | now | nothing |" in shown
    with pytest.raises(BadInputError, match="with a savepoint only"):
        go_back(world, "b1", None, "fork")
    assert go_back(world, "b2", None, "continue").generation == 3
    assert runs(world) == "v1.py"
    assert go_back(world, "b2", None, "continue").generation == 3, "a retry goes back once"
    world.logs.produce(5)
    world.judge()


def test_savepoint_from_before_a_migration_is_no_way_back_since_producers_would_stay(world: World):
    world.start()
    moved = a_cutover(world).run()
    with pytest.raises(BadInputError, match="cluster new, which job orders-job reads now, found old") as told:
        go_back(world, "b1", moved.savepoint_id, "re-emit")
    assert "fail_back" in told.value.remedy
    world.logs.produce(5)
    world.judge()


def test_job_goes_back_to_a_savepoint_with_the_version_that_took_it(world: World):
    world.start()
    savepoint_id = an_upgrade(world).run().savepoint_id
    world.logs.produce(5)
    world.until(lambda: len(world.logs.counted) == 20)
    shown = as_markdown(rollback_targets(world.client().view))
    assert f"| {savepoint_id} | generation 1: v1.py |" in shown
    with pytest.raises(BadInputError, match="rewind='continue'"):
        go_back(world, "b1", savepoint_id, "continue")
    assert runs(world) == "v2.py"
    assert go_back(world, "b2", savepoint_id, "fork").first_batch is not None
    assert runs(world) == "v1.py"
    twice = sorted(record for record, times in world.logs.counted.items() if times > 1)
    assert twice == list(range(10, 20)), "what was committed after the savepoint is counted again"
