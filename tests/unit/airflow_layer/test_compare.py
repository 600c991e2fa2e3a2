"""The task that compares two versions of a job, against the small world of drivers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.standard.operators.hitl import HITLOperator

from airflow_flinkstyle.dags import upgrade_dag
from airflow_flinkstyle.hooks.airflow_versions import AirflowFailException, AirflowSkipException
from airflow_flinkstyle.operators import (
    ApproveDifferenceOperator,
    CompareUpgradeOperator,
    CompareVersionsOperator,
    TakeSavepointOperator,
    UpgradeStreamingJobOperator,
)
from tests.unit.airflow_layer.conftest import a_context
from tests.unit.airflow_layer.rendering import rendered

if TYPE_CHECKING:
    from tests.unit.jobs.conftest import Mood, World

pytestmark = pytest.mark.airflow


def comparing(world: World, **kwargs: Any) -> CompareVersionsOperator:
    return CompareVersionsOperator(task_id="compare", job=world.job, script="v2.py", timeout_s=30.0, **kwargs)


def test_task_returns_the_verdict_and_fails_where_another_is_expected(world: World, mood: type[Mood]):
    world.start()
    TakeSavepointOperator(task_id="take", job=world.job).execute(a_context("take"))
    context = a_context("compare")
    found = comparing(world, keys='{"orders": ["id"]}').execute(context)
    assert (found["verdict"], found["queries"]["orders"]["equal"]) == ("same", 10)
    world.moods["v2.py"] = mood(computes_otherwise=2)
    with pytest.raises(AirflowFailException, match="VERSIONS_DIFFER"):
        comparing(world).execute(a_context("differs"))
    told = comparing(world, expect="differs").execute(a_context("told"))
    assert (told["verdict"], told["queries"]["orders"]["changed"]) == ("differs", 2)
    world.until(lambda: world.alive() == [1])


def of_upgrade(kind: type[UpgradeStreamingJobOperator], world: World, **kwargs: Any) -> Any:  # noqa: ANN401
    return kind(task_id=kind.__name__, job=world.job, script="v2.py", first_commit_timeout_s=1.0, **kwargs)


def test_upgrade_shows_a_person_what_differs_and_reports_it_without_comparing_again(
    world: World, mood: type[Mood]
):
    world.start()
    world.moods["v2.py"] = mood(computes_otherwise=3)
    context = a_context("compare")
    compared = of_upgrade(CompareUpgradeOperator, world, compare_batches=2, expect="differs").execute(context)
    assert compared["verdict"] == "differs"
    assert "3 changed" in context["ti"].xcoms["markdown"]
    drivers = len(world.board.generations())
    report = of_upgrade(UpgradeStreamingJobOperator, world, comparison=compared).execute(a_context("upgrade"))
    assert report["comparison"] == compared
    assert len(world.board.generations()) == drivers + 1, "the new version's, none that compares"
    with pytest.raises(AirflowFailException, match="VERSIONS_DIFFER"):
        of_upgrade(CompareUpgradeOperator, world, compare_batches=2).execute(a_context("same"))
    with pytest.raises(AirflowSkipException):
        of_upgrade(CompareUpgradeOperator, world).execute(a_context("not"))


@pytest.mark.parametrize(("verdict", "asks"), [("same", False), ("differs", True), ("not comparable", True)])
def test_person_is_asked_only_where_versions_do_not_compute_the_same(
    monkeypatch: pytest.MonkeyPatch, verdict: str, asks: bool
):
    asked: list[str | None] = []
    monkeypatch.setattr(HITLOperator, "execute", lambda self, _: asked.append(self.body))
    task = ApproveDifferenceOperator(
        task_id="approve", subject="Upgrade?", body="the table", comparison={"verdict": verdict}
    )
    task.execute(a_context("approve"))
    assert asked == (["the table"] if asks else [])


def test_dag_shows_the_table_before_the_upgrade_and_upgrades_where_nothing_is_compared():
    dag = upgrade_dag("orders")
    compare, approve, upgrade = (dag.get_task(name) for name in ("compare", "approve", "upgrade"))
    assert (compare.downstream_task_ids, approve.downstream_task_ids) == ({"approve"}, {"upgrade"})
    assert upgrade.trigger_rule == "none_failed"
    assert "orders" in rendered(dag, "approve").subject
    assert approve.body == "{{ ti.xcom_pull(task_ids='compare', key='markdown') }}"
    told = [rendered(dag, name, {"script": "v2.py", "conf": {"a": "b"}}) for name in ("compare", "upgrade")]
    assert len({str([getattr(task, name) for name in task.asks]) for task in told}) == 1, "one version"
