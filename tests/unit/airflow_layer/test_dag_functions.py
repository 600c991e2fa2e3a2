"""DAGs that are made by functions: for one job of a person's own, and for all that are defined."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from airflow.sdk import Param

from airflow_flinkstyle import dags
from airflow_flinkstyle.dags import migration_dag, rotation_dag, start_dag, take_savepoint_dag, watch_dag
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.hooks.airflow_versions import AirflowFailException
from airflow_flinkstyle.jobs.definition import SparkStreamingJob
from tests.unit.airflow_layer.rendering import rendered

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow.sdk import DAG

pytestmark = pytest.mark.airflow

ORDERS = SparkStreamingJob(
    job="orders.eu",
    script="/jobs/orders.py",
    args=("--top", "10", "--rate", "1e3"),
    conf={"spark.sql.shuffle.partitions": "200"},
    flinkstyle_conn_id="other",
    max_count=24,
    max_age="7d",
    verify="full",
)
CLICKS = SparkStreamingJob(job="clicks", script="b.py")
FOR_A_JOB = (
    *("adopt", "adopt_running", "compare", "dispose", "drill", "export", "fail_back"),
    *("leave", "migration", "roll_back", "start", "stop"),
    *("take_savepoint", "upgrade", "verify"),
)


@pytest.mark.parametrize("name", FOR_A_JOB)
def test_dag_of_a_job_has_its_name_and_does_not_ask_for_it(name: str):
    function: Callable[..., DAG] = getattr(dags, f"{name}_dag")
    asks, knows = function(), function("orders", owner_links={})
    assert knows.dag_id == f"{asks.dag_id}_orders"
    assert set(asks.params) - set(knows.params) == {"job"}
    assert "orders" in knows.tags
    first = knows.roots[0]
    assert rendered(knows, first.task_id).job == "orders"
    assert function("orders", dag_id="mine").dag_id == "mine"


def test_definition_answers_all_that_it_knows_and_arrives_unchanged():
    dag = start_dag(ORDERS)
    assert {"job", "script", "args", "conf", "env", "spark_conn_id", "flinkstyle_conn_id"}.isdisjoint(
        dag.params
    )
    start = rendered(dag, "start")
    assert (start.job, start.script, start.flinkstyle_conn_id) == ("orders.eu", "/jobs/orders.py", "other")
    assert start.args == ["--top", "10", "--rate", "1e3"]
    assert start.conf == {"spark.sql.shuffle.partitions": "200"}
    assert start.savepoint_id is None


def test_answer_that_is_given_is_a_field_no_more_and_a_param_asks_otherwise():
    ask = Param("acl", enum=["acl", "passive"], title="Fence")
    dag = migration_dag(
        "orders", target_kafka_conn_id="kafka_new", fence=ask, tags=["mine"], max_active_runs=2
    )
    assert "target_kafka_conn_id" not in dag.params
    assert dag.params["fence"] == "acl"
    assert (dag.tags, dag.max_active_runs) == ({"mine"}, 2)
    check = rendered(dag, "pre_flight", {"way": "new_identity"})
    assert check.migration["target_kafka_conn_id"] == "kafka_new"
    assert (check.migration["fence"], check.migration["way"]) == ("acl", "new_identity")


def test_answer_that_the_form_would_refuse_is_refused_where_the_dag_is_made():
    with pytest.raises(BadInputError, match="Expected way to be an answer that the form of the DAG takes"):
        migration_dag("orders", way="sideways")
    with pytest.raises(TypeError, match="waay"):
        migration_dag("orders", waay="proved")


def test_rotation_keeps_of_each_job_what_its_definition_says():
    dag = rotation_dag([ORDERS, CLICKS])
    assert set(dag.task_group.children) == {"orders--eu", "clicks"}
    assert not dag.catchup
    take, verify, prune = (
        dag.get_task(f"orders--eu.{name}")
        for name in ("take_savepoint", "verify_savepoint", "prune_savepoints")
    )
    assert take.downstream_task_ids == {verify.task_id}
    assert take.unless_saved
    assert verify.downstream_task_ids == {prune.task_id}
    assert (verify.job, verify.level, verify.flinkstyle_conn_id) == ("orders.eu", "full", "other")
    assert "orders--eu.take_savepoint" in verify.savepoint_id
    assert (prune.max_count, prune.max_age_s) == (24, "7d")
    assert dag.get_task("clicks.prune_savepoints").max_count is None
    assert {task.retries for task in dag.tasks} == {2}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AIRFLOW__FLINKSTYLE__JOBS", str(tmp_path))
    return tmp_path


def test_rotation_of_many_jobs_in_few_tasks_shares_them_out():
    dag = rotation_dag([ORDERS, CLICKS], tasks=2)
    shares = [[job.job for job in dag.get_task(f"rotate_{number}").jobs] for number in (0, 1)]
    assert shares == [[ORDERS.job], [CLICKS.job]]
    assert len(dag.tasks) == 2
    assert [task.task_id for task in rotation_dag([ORDERS, CLICKS], tasks=1).tasks] == ["rotate_0"]
    assert len(rotation_dag([ORDERS, CLICKS], tasks=8).tasks) == 2
    with pytest.raises(BadInputError, match="at least one task for all jobs, found tasks=0"):
        rotation_dag([ORDERS, CLICKS], tasks=0)


def test_definition_that_is_wrong_fails_a_task_of_its_own_and_keeps_no_other_job_out(folder: Path):
    (folder / "orders.yaml").write_text("job: orders\nscript: a.py\nmax_age: 7 moons\n")
    (folder / "clicks.yaml").write_text("job: clicks\nscript: b.py\n")
    assert watch_dag().get_task("watch_flinkstyle_default").jobs == {"clicks": None}
    for made in (rotation_dag(), watch_dag(schedule=timedelta(minutes=5))):
        assert [name for name in made.task_group.children if name.startswith("orders")] == []
        assert "clicks" in made.task_group.children
        with pytest.raises(AirflowFailException, match=r"orders.yaml:1:1: .*'7 moons'"):
            made.get_task("every_definition_is_used").execute({})
    assert take_savepoint_dag().params.get_param("job").schema["examples"] == ["clicks"]
    (folder / "orders.yaml").unlink()
    rotation_dag().get_task("every_definition_is_used").execute({})


def test_airflow_that_is_told_of_no_jobs_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("AIRFLOW__FLINKSTYLE__JOBS", raising=False)
    dag = watch_dag()
    assert dag.task_ids == ["every_definition_is_used"]
    with pytest.raises(AirflowFailException, match=r"BAD_INPUT.*\[flinkstyle\] jobs"):
        dag.get_task("every_definition_is_used").execute({})


ODD_NAMES = (
    *("2024", "1_000", "1e3", "0x10", "007", "None", "True", "False", "inf", "nan", "1-2", "3.4.5", "b", "j"),
    *("null", "yes", "2024-11-26", "1.0", "0", "00", "a_b", "Ellipsis", "print"),
)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("name", FOR_A_JOB)
def test_every_name_a_job_may_have_arrives_as_it_was_written(name: str, *, native: bool):
    function: Callable[..., DAG] = getattr(dags, f"{name}_dag")
    asks = function(render_template_as_native_obj=native)
    first = asks.roots[0].task_id
    for job in ODD_NAMES:
        assert rendered(asks, first, {"job": job}).job == job
        assert rendered(function(job, render_template_as_native_obj=native), first).job == job


def test_every_text_and_value_of_a_form_arrives_as_it_was_given():
    chance = random.Random(7)  # noqa: S311
    letters = "0123456789_-.+eENx'\"\\{}[](),:# \n\u00fc\u2028" + "None" * 3 + "True"
    texts = {"".join(chance.choice(letters) for _ in range(chance.randint(1, 12))) for _ in range(500)}
    dag = start_dag()
    for text in sorted({*texts, *ODD_NAMES, "[1, 2]", "{'a': 1}", "'x'", "b'x'", "{{ 1 }}"}):
        assert rendered(dag, "start", {"script": text}).script == text
    for value in (None, ["1", "2"], {"a": "1"}, True, 7):
        assert rendered(dag, "start", {"args": value}).args == value
