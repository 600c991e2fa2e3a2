"""What a task does that is retried, cleared or repeated: a request is who asks and what, not who alone."""

# ruff: noqa: ANN401
from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle import operators
from airflow_flinkstyle.hooks.airflow_versions import AirflowFailException
from airflow_flinkstyle.operators import (
    CutJobsOperator,
    DrillRestoreOperator,
    RollBackStreamingJobOperator,
    StartStreamingJobOperator,
    StopStreamingJobOperator,
    TakeSavepointOperator,
    UpgradeStreamingJobOperator,
)
from airflow_flinkstyle.operators.base import StreamingJobOperator
from tests.unit.airflow_layer.conftest import a_context

if TYPE_CHECKING:
    from tests.unit.jobs.conftest import World

pytestmark = pytest.mark.airflow
PAGE = Path(__file__).parents[3] / "docs" / "operating.md"

UPGRADE = {
    *("if_committed", "skip_known_batches", "standby", "rehearse_batches", "rehearse_records"),
    *("observe_s", "max_lag", "min_rate", "first_commit_timeout_s"),
    *("compare_batches", "compare_records", "compare_from", "keys", "ignore", "tolerance", "expect"),
    *("allow_writes", "comparison"),
}
HOW = {
    "UpgradeStreamingJobOperator": UPGRADE,
    "CompareUpgradeOperator": UPGRADE,
    "RollBackStreamingJobOperator": {
        *("skip_known_batches", "standby", "rehearse_batches", "rehearse_records", "first_commit_timeout_s"),
    },
    "StartStreamingJobOperator": {"spark_conn_id"},
    "DrillRestoreOperator": set(),
    "CompareVersionsOperator": {"expect"},
    "ReplayStreamingJobOperator": set(),
    "AdoptRunningJobOperator": {"spark_conn_id", "kafka_conn_ids", "gone_command", "rehearse_batches"},
}
"""Answers of the operators that find what an earlier try has begun, by which a person helps it on."""
NEEDED: dict[str, dict[str, Any]] = {
    "StartStreamingJobOperator": {"script": "v1.py"},
    "AdoptRunningJobOperator": {"script": "v1.py", "checkpoints": "totals=/data/ck"},
    "ReplayStreamingJobOperator": {"until": "now", "as_job": "again"},
}
BASE = set(StreamingJobOperator.template_fields)
EVERY = [getattr(operators, name) for name in sorted(operators.MODULES)]


@pytest.mark.parametrize("operator", EVERY, ids=lambda one: one.__name__)
def test_each_answer_makes_another_request_or_helps_the_same_one_on(operator: Any):
    asks = set(getattr(operator, "asks", ()))
    if operator.__name__ not in HOW:
        assert not asks, "an operator with a memory says which of its answers are part of the request"
    else:
        answers = set(operator.template_fields) - BASE
        assert answers - asks == HOW[operator.__name__], "asks what, or how? say it of each answer"


@pytest.mark.parametrize("name", sorted(HOW))
def test_key_changes_with_what_is_asked_and_with_nothing_else(name: str):
    operator, context = getattr(operators, name), a_context("one")
    needed = NEEDED.get(name, {})
    one = operator(task_id="one", job="orders", **needed)
    key = one.request_key(context)
    for field in set(operator.template_fields) - BASE:
        other = operator(task_id="one", job="orders", **{**needed, field: "another"})
        assert (other.request_key(context) != key) == (field in operator.asks), field
    assert operator(task_id="one", job="orders", **needed).request_key(a_context("one")) == key


@pytest.mark.parametrize("operator", EVERY, ids=lambda one: one.__name__)
def test_page_says_of_each_operator_what_doing_it_again_does(operator: Any):
    table = PAGE.read_text().partition("## Done again")[2].partition("\n## ")[0]
    assert f"`{operator.__name__}`" in table


def upgrade(world: World, script: str, **more: Any) -> UpgradeStreamingJobOperator:
    return UpgradeStreamingJobOperator(
        task_id="up", job=world.job, script=script, first_commit_timeout_s=1, rehearse_batches=0, **more
    )


def script_that_runs(world: World) -> str:
    return str(world.client().view.status().run.claim.launch["spec"]["script"])


def test_cleared_upgrade_to_another_version_runs_that_version(world: World):
    world.start()
    upgrade(world, "v2.py").execute(a_context("up"))
    report = upgrade(world, "v3.py").execute(a_context("up"))
    assert (script_that_runs(world), report["generation"]) == ("v3.py", 3)
    world.logs.produce(3)
    world.judge()


def test_upgrade_that_was_done_and_undone_since_is_no_success_and_changes_nothing(world: World):
    world.start()
    upgrade(world, "v2.py").execute(a_context("up"))
    RollBackStreamingJobOperator(
        task_id="back", job=world.job, rehearse_batches=0, first_commit_timeout_s=1
    ).execute(a_context("back"))
    with pytest.raises(AirflowFailException, match=r"DONE_BEFORE.*left it in generation 2.*generation 3 "):
        upgrade(world, "v2.py").execute(a_context("up"))
    assert script_that_runs(world) == "v1.py"
    report = upgrade(world, "v2.py").execute(a_context("up", run_id="the next one"))
    assert (script_that_runs(world), report["generation"]) == ("v2.py", 4)
    with pytest.raises(AirflowFailException, match="DONE_BEFORE"):
        RollBackStreamingJobOperator(task_id="back", job=world.job).execute(a_context("back"))


def test_upgrade_whose_version_was_started_again_since_is_still_done(world: World):
    world.start()
    context = a_context("up")
    done = upgrade(world, "v2.py").execute(context)
    StopStreamingJobOperator(task_id="stop", job=world.job, savepoint=False).execute(a_context("stop"))
    with pytest.raises(AirflowFailException, match=r"DONE_BEFORE.*has closed"):
        upgrade(world, "v2.py").execute(context)
    StartStreamingJobOperator(task_id="start", job=world.job, script="v2.py").execute(a_context("start"))
    assert upgrade(world, "v2.py").execute(context)["generation"] == done["generation"]


def test_cleared_start_of_another_script_is_refused_while_the_job_runs_and_then_starts_it(world: World):
    def start(script: str) -> Any:
        return StartStreamingJobOperator(task_id="start", job=world.job, script=script)

    first = start("v1.py").execute(a_context("start"))
    with pytest.raises(AirflowFailException, match="JOB_RUNNING"):
        start("v2.py").execute(a_context("start"))
    assert start("v1.py").execute(a_context("start")) == first
    StopStreamingJobOperator(task_id="stop", job=world.job, savepoint=False).execute(a_context("stop"))
    start("v2.py").execute(a_context("start"))
    assert script_that_runs(world) == "v2.py"


def test_start_whose_job_was_stopped_since_is_repeated_by_a_clear_and_not_by_a_retry(world: World):
    """Airflow has run tasks again that had succeeded: https://github.com/apache/airflow/issues/36039."""
    operator = StartStreamingJobOperator(task_id="start", job=world.job, script="v1.py", retries=2)
    first, cleared = a_context("start"), a_context("start")
    first["ti"].max_tries, cleared["ti"].max_tries = 2, 1 + 2  # as Airflow counts
    started = operator.execute(first)
    world.logs.produce(3)
    assert operator.execute(cleared) == started, "it runs: a clear finds it"
    StopStreamingJobOperator(task_id="stop", job=world.job, savepoint=False).execute(a_context("stop"))
    said = (
        r"it was stopped at .*Now: Nothing has to be corrected.*Next: To start it again where it was, clear"
    )
    with pytest.raises(AirflowFailException, match=f"(?s)DRIVER_FAILED.*{said}"):
        operator.execute(first)
    assert world.alive() == [], "a person has stopped it"
    again = operator.execute(cleared)
    assert again["generation"] == started["generation"] + 1
    assert operator.execute(cleared) == again, "a retry of the cleared task finds it"
    world.logs.produce(3)
    world.judge()


def test_start_whose_driver_was_told_to_end_meanwhile_is_tried_again(world: World):
    operator = StartStreamingJobOperator(task_id="start", job=world.job, script="v1.py")
    operator.execute(a_context("start"))
    world.tells_to_end = True
    world.until(lambda: not world.alive())
    world.tells_to_end = False
    assert operator.execute(a_context("start"))["generation"] == 2


def test_cut_of_other_jobs_by_the_same_task_is_another_cut(world: World):
    world.start()
    first = CutJobsOperator(task_id="cut", jobs=world.job).execute(a_context("cut"))
    with pytest.raises(Exception, match=r"JOB_UNKNOWN.*found the jobs orders-job"):
        CutJobsOperator(task_id="cut", jobs=[world.job, "nobody"], timeout_s=5).execute(a_context("cut"))
    assert CutJobsOperator(task_id="cut", jobs=[world.job]).execute(a_context("cut")) == first


def test_drill_of_another_savepoint_by_the_same_task_is_another_drill(world: World, mood: Any):
    world.start()
    first, second = (
        TakeSavepointOperator(task_id="take", job=world.job).execute(a_context("take", run_id=run))
        for run in "ab"
    )
    world.moods["v1.py"] = mood(hangs_in_batch=True)

    def drill(savepoint_id: str, **more: Any) -> Any:
        return DrillRestoreOperator(task_id="drill", job=world.job, savepoint_id=savepoint_id, **more)

    # Who waits gives up, or the driver does: both have as long.
    with pytest.raises(Exception, match=r"STEP_TIMEOUT|REHEARSAL_TIMEOUT"):
        drill(first, timeout_s=0.2).execute(a_context("drill"))
    world.moods["v1.py"].hangs_in_batch = False
    assert drill(second).execute(a_context("drill"))["savepoint_id"] == second
