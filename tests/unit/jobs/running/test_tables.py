"""Rewinds of a job that writes to a table, with and without what it has written since."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.errors import BadInputError, FlinkstyleError
from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.start.dry import dry_start
from airflow_flinkstyle.jobs.start.origins import FromSavepoint, require_allowed
from airflow_flinkstyle.jobs.start.tables import await_restored
from airflow_flinkstyle.jobs.status import Running
from airflow_flinkstyle.jobs.upgrade.on_demand import roll_back_to
from airflow_flinkstyle.jobs.upgrade.upgrade import UPGRADE_PHASES
from airflow_flinkstyle.savepoint.errors import SinkSkipsError
from testbed.keys import SIGNER
from tests.small_spark import SmallTable
from tests.unit.jobs.cutovers import QUICK

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.client import JobClient
    from airflow_flinkstyle.jobs.upgrade.upgrade import UpgradeReport
    from airflow_flinkstyle.protocol.table_records import RestoredTable
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.types import Rewind
    from tests.unit.jobs.conftest import Mood, World


class Written:
    """A job that has written ten rows into a table, was saved, and wrote five more."""

    def __init__(self, world: World, mood: type[Mood], way: str = "") -> None:
        self.world = world
        path = world.folder / f"{way}table"
        world.moods["v1.py"] = mood(sink="delta", table=str(path))
        self.table = SmallTable(path)
        self.table.commit()  # somebody has made it
        self.client = world.start()
        world.until(lambda: self.rows() == 10 + 10)
        self.saved = self._take()
        world.logs.produce(5)
        world.until(lambda: self.rows() == 10 + 15)

    def _take(self) -> Manifest:
        _, end = self.client.requests.wait(self.client.requests.request_savepoint("hot"), timeout_s=10)
        return self.world.repository.read(end.savepoint_id)

    def rows(self) -> int:
        return sum(one.rows or 0 for one in self.table.line())

    def stop(self) -> JobClient:
        self.client.requests.stop("stop", savepoint=False, timeout_s=10)
        return self.client

    def rewind(self, rewind: Rewind = "fork", key: str = "again", *, restores: bool = True) -> int:
        origin = FromSavepoint(savepoint_id=self.saved.savepoint_id, rewind=rewind, restore_tables=restores)
        handle = self.client.starts.start(
            self.world.spec(), self.world.target(), claim_key=key, origin=origin
        )
        self.client.drivers.wait_running(handle.generation, timeout_s=10)
        return handle.generation

    def restored(self, generation: int) -> dict[str, RestoredTable]:
        return await_restored(self.client.view, generation, timeout_s=10)

    def roll_back(self, key: str) -> UpgradeReport:
        return roll_back_to(
            self.client,
            CutoverJournal(self.world.store, self.world.job, key, UPGRADE_PHASES, signer=SIGNER),
            savepoint_id=self.saved.savepoint_id,
            rewind="fork",
            skip_known_batches=False,
            restore_tables=True,
            standby="warm",
            rehearse=None,
            settings=replace(QUICK, first_commit_timeout_s=10.0),
        )


@pytest.fixture
def written(world: World, mood: type[Mood]) -> Written:
    return Written(world, mood)


def test_fork_takes_back_what_the_job_wrote_since_and_each_row_is_there_once(
    written: Written, caplog: pytest.LogCaptureFixture
):
    assert written.saved.queries[0].sink_table is not None
    written.stop()
    caplog.set_level(logging.INFO)
    generation = written.rewind()
    assert (
        "delta table of query orders: 5 rows in 1 versions of this job since: that is taken back"
        in caplog.text
    )
    (done,) = written.restored(generation).values()
    assert done.rows == 5
    written.world.until(lambda: written.rows() == 10 + 15)
    written.client.requests.stop("again", savepoint=False, timeout_s=10)
    written.rewind(key="once more")  # what the fork wrote is the job's own, too
    written.world.until(lambda: written.rows() == 10 + 15)


def test_fork_without_it_says_what_will_be_there_twice(written: Written, caplog: pytest.LogCaptureFixture):
    written.stop()
    caplog.set_level(logging.INFO)
    generation = written.rewind(restores=False)
    assert "5 rows in 1 versions of this job since: that stays" in caplog.text
    assert written.restored(generation) == {}
    written.world.until(lambda: written.rows() == 10 + 15 + 5)
    checks = dry_start(written.client.view, written.saved).ways["fork"]
    assert any("restore_tables='yes' takes it back" in str(check.verdict) for check in checks)


def test_table_that_others_have_written_to_is_refused_before_anything_starts(written: Written):
    written.stop()
    written.table.commit("somebody")
    with pytest.raises(FlinkstyleError, match="found some of others") as refused:
        written.rewind()
    assert refused.value.code == "TABLE_RESTORE"
    assert refused.value.state_after == "Nothing was started or stopped."
    assert written.client.view.own_claim("again") is None
    assert written.rows() == 10 + 15 + 10


def test_table_that_only_the_driver_can_read_is_refused_by_it(
    world: World, mood: type[Mood], caplog: pytest.LogCaptureFixture
):
    (world.folder / "to").mkdir()
    written = Written(world, mood, "to/../" * 400)  # so long a path no heartbeat tells
    written.stop()
    written.table.commit("somebody")
    caplog.set_level(logging.INFO)
    with pytest.raises(FlinkstyleError, match="TABLE_RESTORE"):
        written.rewind()
    assert "how much that is, only its driver sees" in caplog.text
    assert "found some of others" in caplog.text
    assert written.rows() == 10 + 15 + 10


@pytest.mark.parametrize(("rewind", "error"), [("continue", BadInputError), ("re-emit", SinkSkipsError)])
def test_tables_belong_to_a_fork_where_delta_keeps_batch_ids(
    written: Written, rewind: Rewind, error: type[FlinkstyleError]
):
    written.stop()
    with pytest.raises(error):
        written.rewind(rewind)
    assert written.client.view.own_claim("again") is None


def test_to_accept_skipped_batches_does_not_let_delta_take_rows_back_and_leave_their_batches_out(
    written: Written,
):
    origin = FromSavepoint(
        savepoint_id=written.saved.savepoint_id,
        rewind="re-emit",
        restore_tables=True,
        skip_known_batches=True,
    )
    with pytest.raises(SinkSkipsError, match="keeps their ids"):
        require_allowed(written.client.view, origin)
    written.stop()
    with pytest.raises(SinkSkipsError, match="keeps their ids") as refused:
        written.client.starts.start(
            written.world.spec(), written.world.target(), claim_key="again", origin=origin
        )
    assert "rewind='fork'" in refused.value.remedy
    assert written.client.view.own_claim("again") is None
    assert written.rows() == 10 + 15


def test_savepoint_of_another_job_or_without_tables_takes_nothing_back(written: Written):
    written.stop()
    (query,) = written.saved.queries
    for name, changes, found in (
        ("sp-else", {"query_id": "another"}, "may be another job's"),
        ("sp-kafka", {"sink": "kafka"}, "found none in sp-kafka"),
    ):
        other = replace(written.saved, savepoint_id=name, queries=(replace(query, **changes),))  # type: ignore[arg-type]
        written.world.repository.publish(other)
        written.saved = other
        with pytest.raises(FlinkstyleError, match=found):
            written.rewind(key=name)


def test_running_job_is_brought_back_with_its_table(written: Written):
    report = written.roll_back("b1")
    (done,) = written.restored(report.generation).values()
    assert done.rows == 5
    written.world.until(lambda: written.rows() == 10 + 15)


def test_job_whose_table_cannot_be_brought_back_runs_on(written: Written):
    written.table.commit("somebody")
    before = written.client.view.status()
    with pytest.raises(FlinkstyleError, match="some of others"):
        written.roll_back("b1")
    running = written.client.view.status()
    assert isinstance(running, Running)
    assert isinstance(before, Running)
    assert running.run.generation == before.run.generation, "it was not stopped"
    written.world.logs.produce(5)
    written.world.until(lambda: written.rows() == 10 + 15 + 10 + 5)
