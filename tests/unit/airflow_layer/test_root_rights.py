"""Who may trigger one DAG acts on the roots of that DAG, not on every root whose name they know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import Param

from airflow_flinkstyle import dags
from airflow_flinkstyle.hooks.airflow_versions import AirflowFailException
from airflow_flinkstyle.hooks.errors import ROOT_DENIED
from airflow_flinkstyle.hooks.job import StreamingJobHook
from testbed.refusals import refuses
from tests.unit.airflow_layer.rendering import rendered

if TYPE_CHECKING:
    from types import SimpleNamespace

    from airflow.sdk import DAG

pytestmark = pytest.mark.airflow


def asking() -> list[Any]:
    """Return each DAG of this package that asks for the savepoint root."""
    found = []
    for name in sorted(dags.MODULES):
        made = getattr(dags, name)
        try:
            dag = made()
        except TypeError:  # it needs a job that is defined, with its root
            continue
        if "flinkstyle_conn_id" in dag.params:
            found.append(pytest.param(dag, id=dag.dag_id))
    return found


@pytest.fixture
def billing(connections: SimpleNamespace) -> SimpleNamespace:
    connections.set("billing", "flinkstyle", {"savepoint_root": "/billing"})
    return connections


def on(dag: DAG, conn_id: str) -> Any:  # noqa: ANN401 - any operator
    first = next(one for one in dag.topological_sort() if "flinkstyle_conn_id" in one.template_fields)
    return rendered(dag, first.task_id, {"job": "orders", "jobs": ["orders"], "flinkstyle_conn_id": conn_id})


def test_each_dag_that_asks_is_tried():
    assert len(asking()) > 10


@pytest.mark.parametrize("dag", asking())
def test_form_takes_its_default_and_no_root_that_does_not_list_the_dag(dag: DAG, billing: SimpleNamespace):
    assert on(dag, "flinkstyle_default").flinkstyle_conn_id == "flinkstyle_default"
    with pytest.raises(
        AirflowFailException, match=f"ROOT_DENIED: DAG {dag.dag_id} was expected among those that may act"
    ):
        on(dag, "billing")
    billing.set("billing", "flinkstyle", {"savepoint_root": "/billing", "dags": f"other, {dag.dag_id}"})
    assert on(dag, "billing").flinkstyle_conn_id == "billing"
    billing.set("billing", "flinkstyle", {"savepoint_root": "/billing", "dags": "other"})
    with pytest.raises(AirflowFailException, match="those that may are other"):
        on(dag, "billing")
    with pytest.raises(AirflowFailException, match="CONNECTION_MISSING"):
        on(dag, "no_such")


@pytest.mark.parametrize("dag", asking())
def test_no_task_of_a_form_has_a_root_that_is_not_asked_for_so(dag: DAG):
    for task in dag.tasks:
        if "flinkstyle_conn_id" in task.template_fields:
            told = task.partial_kwargs if task.is_mapped else vars(task)
            answer = "{{ root_answer(params['flinkstyle_conn_id']) }}"
            assert told["flinkstyle_conn_id"] == answer, task.task_id


def test_roots_that_the_author_offers_are_taken_and_one_in_code_too(billing: SimpleNamespace):
    offers = Param("flinkstyle_default", type="string", enum=["flinkstyle_default", "billing"])
    assert on(dags.stop_dag("orders", flinkstyle_conn_id=offers), "billing").flinkstyle_conn_id == "billing"
    own = dags.stop_dag("orders", flinkstyle_conn_id="billing")
    assert rendered(own, own.roots[0].task_id).flinkstyle_conn_id == "billing"


def as_task_of(monkeypatch: pytest.MonkeyPatch, dag_id: str) -> None:
    told = {"DAG_ID": dag_id, "DAG_RUN_ID": "r", "TASK_ID": "t"}
    for name, value in told.items():
        monkeypatch.setenv(f"AIRFLOW_CTX_{name}", value)


@pytest.mark.parametrize(
    ("listed", "dag_id", "may"),
    [
        ("", "payroll", True),  # its code names the connection
        ("upgrade_orders", "payroll", False),
        ("upgrade_orders, payroll", "payroll", True),
        ("upgrade_*", "upgrade_orders", True),
        ("upgrade_*", "stop_orders", False),
        ("*", "payroll", True),
    ],
)
def test_list_of_a_root_binds_every_task_that_reads_its_connection(
    billing: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, listed: str, dag_id: str, may: bool
):
    billing.set("billing", "flinkstyle", {"savepoint_root": "/billing", "dags": listed})
    assert StreamingJobHook("billing").defaults.savepoint_root == "/billing", "outside of tasks nothing binds"
    as_task_of(monkeypatch, dag_id)
    if may:
        assert StreamingJobHook("billing").defaults.savepoint_root == "/billing"
        return
    hook = StreamingJobHook("billing")
    for use in (lambda: hook.store, lambda: hook.client("orders"), lambda: hook.kafka("kafka_default")):
        with refuses(ROOT_DENIED) as refused:
            use()
    assert refused.value.code == "ROOT_DENIED"
    assert f"add {dag_id} to its field dags" in refused.value.remedy
