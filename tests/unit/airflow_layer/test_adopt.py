"""Operators that adopt a job and give it back, and savepoints of one that plain Spark runs."""

from __future__ import annotations

import shutil
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.hooks.adoption import ending, locations, names
from airflow_flinkstyle.hooks.airflow_versions import AirflowFailException, AirflowSkipException
from airflow_flinkstyle.jobs.adoption import outside
from airflow_flinkstyle.jobs.status import Running
from airflow_flinkstyle.operators import (
    AdoptRunningJobOperator,
    AdoptStreamingJobOperator,
    AskToEndOldJobOperator,
    FinishAdoptionOperator,
    LeaveStreamingJobOperator,
    PrepareAdoptionOperator,
    TakeSavepointOperator,
    WatchStreamingJobOperator,
)
from airflow_flinkstyle.operators.adopt_running import ENDED, GIVE_UP
from tests.seeming_jobs import GOLDEN
from tests.unit.airflow_layer.conftest import a_context
from tests.unit.jobs.adoption.plain import OneCluster, PlainSpark
from tests.unit.jobs.drivers import QUERY

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.jobs.conftest import World

pytestmark = pytest.mark.airflow


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return shutil.copytree(GOLDEN / "4.2.0" / "rocksdb", tmp_path / "own")


def adopt(world: World, own: Path, **kwargs: Any) -> dict[str, Any]:
    operator = AdoptStreamingJobOperator(
        task_id="adopt", job=world.job, checkpoints={"totals": str(own)}, still_s=0.05, **kwargs
    )
    return operator.execute(a_context("adopt"))


def test_job_is_adopted_a_retry_finds_it_and_it_is_given_back(world: World, own: Path, tmp_path: Path):
    adopted = adopt(world, own)
    assert adopted["batches"] == {"totals": 4}
    assert adopt(world, own)["savepoint_id"] == adopted["savepoint_id"]
    leave = LeaveStreamingJobOperator(task_id="leave", job=world.job, to={"totals": str(tmp_path / "out")})
    left = leave.execute(a_context("leave"))
    assert left["savepoint_id"] == adopted["savepoint_id"]
    assert leave.execute(a_context("leave")) == left


def test_watch_fails_once_the_old_job_goes_on(world: World, own: Path):
    adopt(world, own)
    watch = WatchStreamingJobOperator(task_id="watch", job=world.job)
    (own / "offsets" / "5").write_bytes((own / "offsets" / "4").read_bytes())
    with pytest.raises(AirflowFailException, match="OLD_JOB_RUNS"):
        watch.execute(a_context("watch"))
    own.rename(own.with_name("away"))
    with pytest.raises(AirflowSkipException):
        watch.execute(a_context("watch"))


def test_savepoints_are_taken_from_outside_until_the_job_is_adopted(world: World, own: Path):
    def take(run_id: str) -> str:
        operator = TakeSavepointOperator(
            task_id="take",
            job=world.job,
            checkpoints={"totals": str(own)},
            unless_saved=True,
            deferrable=False,
        )
        return operator.execute(a_context("take", run_id=run_id))

    first = take("one")
    assert take("one") == first
    assert world.repository.read(first).taken_from_generation is None
    adopt(world, own)
    with pytest.raises(AirflowFailException, match="JOB_NOT_RUNNING"):
        take("two")  # its own driver is asked, and it has none yet


@pytest.mark.parametrize(("pid", "command"), [(None, None), (4, "true"), ("x", None), (1, None)])
def test_old_driver_is_ended_by_one_way(pid: object, command: str | None):
    with pytest.raises(BadInputError):
        ending(pid, command, None)  # type: ignore[arg-type]


def test_running_job_is_adopted_and_a_driver_that_is_none_is_refused_first(world: World, tmp_path: Path):
    old = PlainSpark(world, tmp_path / "old")
    old.run(batches=2)
    operator = AdoptRunningJobOperator(
        task_id="adopt", job=world.job, script="v1.py", checkpoints={QUERY: str(old.place)}, end_pid=4_000_000
    )
    with pytest.raises(AirflowFailException, match="expected to be the old driver, found none"):
        operator.execute(a_context("adopt"))
    assert world.alive() == []


class InThreeTasks:
    """The tasks of the DAG ``adopt_running_job`` on a job that plain Spark runs, one by one."""

    def __init__(self, world: World, old: PlainSpark, **how: Any) -> None:
        self.world, self.how = world, how
        self.told = {"script": "v1.py", "checkpoints": {QUERY: str(old.place)}, "rehearse_batches": 0, **how}

    def prepare(self) -> None:
        operator = PrepareAdoptionOperator(task_id="prepare", job=self.world.job, **self.told)
        operator.execute(a_context("prepare"))

    def asking(self) -> AskToEndOldJobOperator:
        ask = {name: value for name, value in self.how.items() if name != "gone_command"}
        return AskToEndOldJobOperator(task_id="end_old", job=self.world.job, subject="Has it ended?", **ask)

    def answer(self, choice: str) -> None:
        event = {
            "chosen_options": [choice],
            "params_input": {},
            "responded_at": datetime.now(UTC),
            "responded_by_user": {"id": "7", "name": "ann"},
        }
        self.asking().execute_complete(a_context("end_old"), event)

    def finish(self) -> dict[str, Any]:
        operator = FinishAdoptionOperator(task_id="finish", job=self.world.job, **self.told)
        return operator.execute(a_context("finish"))


@pytest.fixture
def old(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlainSpark:
    """A job of plain Spark that reads the world's logs."""
    monkeypatch.setattr(outside, "LiveClusters", lambda _: OneCluster(world))
    made = PlainSpark(world, tmp_path / "old")
    made.run(batches=3)
    return made


def test_running_job_is_adopted_once_a_person_says_that_the_old_driver_has_ended(
    world: World, old: PlainSpark
):
    tasks = InThreeTasks(world, old)
    tasks.prepare()
    tasks.prepare()  # a retry
    assert (len(world.alive()), world.board.current()) == (1, None)
    old.run(batches=2)  # it runs on until the person has ended it
    tasks.answer(ENDED)
    world.logs.produce(4)
    done = tasks.finish()
    assert done["batches"] == {QUERY: 4}
    assert done["ended"].startswith("ann, at ")
    assert isinstance(world.client().view.status(), Running)
    assert tasks.finish() == done
    world.judge()


def test_person_gives_up_and_no_driver_waits_any_more(world: World, old: PlainSpark):
    tasks = InThreeTasks(world, old)
    tasks.prepare()
    tasks.answer(GIVE_UP)
    for _ in range(2):
        with pytest.raises(AirflowSkipException, match=r"ann gave the adoption of job .* up"):
            tasks.finish()
    world.until(lambda: world.alive() == [])
    with pytest.raises(AirflowFailException, match="ROLLED_BACK"):
        tasks.prepare()
    old.run()
    assert old.batch == 3


def test_adoption_that_nobody_answered_is_given_up_and_so_is_one_that_was_not_prepared(
    world: World, old: PlainSpark
):
    tasks = InThreeTasks(world, old)
    with pytest.raises(AirflowFailException, match="Nobody said"):
        tasks.finish()
    tasks.prepare()
    with pytest.raises(AirflowFailException, match="Nobody said"):
        tasks.finish()
    world.until(lambda: world.alive() == [])


def test_person_helps_where_the_command_fails_and_nobody_is_asked_where_it_does_not(
    world: World, old: PlainSpark
):
    tasks = InThreeTasks(world, old, end_command=f"{sys.executable} -c 'raise SystemExit(3)'")
    tasks.prepare()
    assert tasks.asking().execute(a_context("end_old")) is None
    with pytest.raises(AirflowFailException, match="OLD_JOB_RUNS"):
        tasks.finish()
    with pytest.raises(KeyError, match="task_instance"):  # Airflow itself would ask now
        tasks.asking().execute(a_context("end_old"))
    tasks.answer(ENDED)
    world.logs.produce(4)
    assert tasks.finish()["ended"].startswith("ann, at ")
    world.judge()


def test_answers_of_a_form_are_read(world: World):
    assert locations('{"totals": "s3a://b/ck"}') == {"totals": "s3a://b/ck"}
    assert names("a, b") == names(["a", "b"]) == ["a", "b"]
    assert names(None) == []
    with pytest.raises(AirflowFailException, match="BAD_INPUT"):
        AdoptStreamingJobOperator(task_id="adopt", job=world.job, checkpoints={"totals": ""}).execute(
            a_context("adopt")
        )
