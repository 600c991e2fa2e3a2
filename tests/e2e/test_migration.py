"""Migrations to another cluster, each judged order by order."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.cutover.context import CutoverSettings
from airflow_flinkstyle.jobs.errors import ROLLED_BACK, DriverFailedError
from airflow_flinkstyle.jobs.start.origins import FromCheckpoint
from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
from testbed.cycles import Cycle, Moves
from testbed.exactly_once import ExactlyOnceJob
from testbed.forward import BootstrapName
from testbed.late_producer import PARTITION as LATE_PARTITION
from testbed.refusals import refuses
from testbed.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from testbed.judge import StateReader
    from testbed.scenario import OrdersScenario

pytestmark = pytest.mark.e2e


@pytest.mark.nightly
def test_migration_moves_the_job_and_a_relaunched_old_driver_exits_before_spark_starts(
    scenario: OrdersScenario, reader: StateReader
):
    """The job writes through the transactional sink, and has been started from savepoints before."""
    job = ExactlyOnceJob(orders=scenario)
    scenario.start_producer(opening={0: 949})
    moves = Moves(job)
    moves.start()
    moves.cycle("more shards", Cycle(run_s=0, shards=3, kill_after_s=None))
    moves.cycle("killed", Cycle(run_s=0.4, shards=1, kill_after_s=6))
    old = scenario.running().run.generation
    report = scenario.cutover(hot=scenario.hot_savepoint()).run()
    assert report.generation != old
    assert not report.plan.refused
    assert report.downtime is not None
    wait_until("orders go to new", lambda: scenario.producer_is_at() == "new")
    scenario.wait_commits(2)

    relaunched = scenario.relaunch(old)
    assert relaunched.exit_code == 0
    assert "SparkContext" not in relaunched.log
    assert scenario.running().run.generation == report.generation

    judgement, output = job.judge(reader, scenario.new)
    assert judgement.right, judgement
    assert output.right, output


@pytest.mark.matrix
def test_a_window_in_which_nothing_is_left_to_read(scenario: OrdersScenario, reader: StateReader):
    """It was rehearsed on the new cluster."""
    scenario.start_producer(most_on_old=2000, rate_per_s=1000)
    scenario.start()
    wait_until("the producer has paused", lambda: scenario.acknowledged() >= 2000)
    scenario.wait_all_read(scenario.old)
    tried = Rehearse(batches=2, records=500, elsewhere=True)
    report = scenario.cutover(hot=scenario.hot_savepoint(), rehearse=tried).run()
    assert report.rehearsal is not None
    assert report.rehearsal["summary"].startswith("rehearsed: 2 batches, ")
    wait_until("orders go to new", lambda: scenario.acknowledged() > 2500)
    judgement = scenario.judge(reader, scenario.new)
    assert judgement.right, judgement


@pytest.mark.matrix
def test_a_window_without_any_producer_ends_without_a_commit(scenario: OrdersScenario, reader: StateReader):
    scenario.start_producer(rate_per_s=1000)
    scenario.start()
    scenario.end_producer()
    scenario.wait_all_read(scenario.old)
    report = scenario.cutover(settings=CutoverSettings(first_commit_timeout_s=5)).run()
    assert report.downtime is None
    judgement = scenario.judge(reader, scenario.new)
    assert judgement.right, judgement


@pytest.mark.nightly
def test_refused_migrations_leave_the_job_on_old_with_its_producers_released(
    scenario: OrdersScenario, reader: StateReader
):
    """One job: a producer ignores the switch; then the copy holds records that no proof can explain."""
    scenario.start_producer()
    old = scenario.start()
    with (
        beside(scenario.write_unheeding),
        refuses(ROLLED_BACK, match=f"{scenario.topic}-{LATE_PARTITION}") as ignored,
    ):
        scenario.cutover(settings=CutoverSettings(hold_timeout_s=3)).run()
    assert "expected to be held within 3 s" in str(ignored.value)
    assert scenario.running().run.generation == old
    wait_until("orders go to old", lambda: scenario.producer_is_at() == "old")

    scenario.new.wait_for_topic(scenario.topic)
    with beside(scenario.write_foreign_records), refuses(ROLLED_BACK) as refused:
        scenario.cutover(migration_id="m2").run()
    assert f"{scenario.topic}" in str(refused.value)
    wait_until("orders go to old", lambda: scenario.producer_is_at() == "old")
    scenario.wait_commits(2)
    assert not scenario.running().run.claim.overrides
    judgement = scenario.judge(reader, scenario.old)
    assert judgement.right, judgement


@contextmanager
def beside(write: Callable[[threading.Event], None]) -> Iterator[None]:
    """Let somebody write in a thread meanwhile."""
    stop = threading.Event()
    writer = threading.Thread(target=write, args=(stop,))
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


@pytest.mark.matrix
def test_another_cluster_without_a_rewrite_is_refused(scenario: OrdersScenario, reader: StateReader):
    """By its address, and by the script's own bootstrap name, which now points elsewhere."""
    scenario.start_producer()
    with BootstrapName(scenario.old) as name:
        spec = replace(scenario.spec, args=("--bootstrap", name.address, *scenario.spec.args[2:]))
        scenario.start(spec=spec)
        scenario.client.requests.stop("stop", savepoint=False, timeout_s=PATIENCE_S)
        stopped_at = scenario.last_batch()
        scenario.new.wait_for_topic(scenario.topic)
        name.leads_to(scenario.new)
        elsewhere = replace(spec, args=("--bootstrap", scenario.new.bootstrap, *spec.args[2:]))
        for by, wrong in (("address", elsewhere), ("name", spec)):
            with pytest.raises(DriverFailedError, match=scenario.new.cluster_id):
                scenario.start(key=f"wrong {by}", spec=wrong, origin=FromCheckpoint())
            assert scenario.last_batch() == stopped_at
            assert not (scenario.checkpoint() / "offsets" / str(stopped_at + 1)).exists()

        name.leads_to(scenario.old)
        scenario.start(key="right", spec=spec, origin=FromCheckpoint())
        judgement = scenario.judge(reader, scenario.old)
        assert judgement.right, judgement
