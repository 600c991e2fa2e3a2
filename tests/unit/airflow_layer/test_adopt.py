"""Operators that adopt a job and give it back, and savepoints of one that plain Spark runs."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.hooks.adoption import ending, locations, names
from airflow_flinkstyle.hooks.airflow_versions import AirflowFailException, AirflowSkipException
from airflow_flinkstyle.operators import (
    AdoptRunningJobOperator,
    AdoptStreamingJobOperator,
    LeaveStreamingJobOperator,
    TakeSavepointOperator,
    WatchStreamingJobOperator,
)
from tests.seeming_jobs import GOLDEN
from tests.unit.airflow_layer.conftest import a_context
from tests.unit.jobs.adoption.plain import PlainSpark
from tests.unit.jobs.conftest import QUERY

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


def test_answers_of_a_form_are_read(world: World):
    assert locations('{"totals": "s3a://b/ck"}') == {"totals": "s3a://b/ck"}
    assert names("a, b") == names(["a", "b"]) == ["a", "b"]
    assert names(None) == []
    with pytest.raises(AirflowFailException, match="BAD_INPUT"):
        AdoptStreamingJobOperator(task_id="adopt", job=world.job, checkpoints={"totals": ""}).execute(
            a_context("adopt")
        )
