from __future__ import annotations

import runpy
from inspect import isroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.airflow_names import ParamValidationError
from tests.unit.airflow_layer.rendering import rendered
from tools import forms

if TYPE_CHECKING:
    from airflow.sdk import DAG

pytestmark = pytest.mark.airflow

FOLDER = Path(__file__).resolve().parents[3] / "dags"
CLUSTERS = {"job": "orders", "target_kafka_conn_id": "new"}


def a_dag(name: str) -> DAG:
    return runpy.run_path(str(FOLDER / f"{name}.py"))["dag"]


@pytest.mark.parametrize(
    ("name", "filled"),
    [
        ("take_savepoint", {"job": "orders"}),
        ("drill_restore", {"job": "orders"}),
        ("compare_versions", {"job": "orders"}),
        ("stop_job", {"job": "orders"}),
        ("verify_savepoint", {"job": "orders"}),
        ("dispose_savepoints", {"job": "orders"}),
        ("export_savepoint", {"job": "orders", "to": "s3://bucket/export"}),
        ("cut_jobs", {"jobs": ["orders", "clicks"]}),
        ("start_job", {"job": "orders", "script": "/jobs/orders.py"}),
        ("upgrade_job", {"job": "orders"}),
        ("roll_back", {"job": "orders"}),
        ("migrate_kafka_cluster", CLUSTERS),
        ("fail_back", {"job": "orders"}),
    ],
)
def test_form_is_complete_with_its_required_fields(name: str, filled: dict[str, Any]):
    dag = a_dag(name)
    dag.params.update(filled)
    dag.params.validate()
    for missing in filled:
        again = a_dag(name)
        again.params.update({field: value for field, value in filled.items() if field != missing})
        with pytest.raises(ParamValidationError):
            again.params.validate()


@pytest.mark.parametrize(
    ("field", "wrong"),
    [("way", "anything"), ("replication_policy", "mine"), ("producer_switch", "os:system"), ("job", "")],
)
def test_form_refuses_what_is_not_offered(field: str, wrong: str):
    dag = a_dag("migrate_kafka_cluster")
    dag.params.update(CLUSTERS)
    with pytest.raises(ParamValidationError):
        dag.params.update({field: wrong})


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_every_field_of_a_form_has_a_title(path: Path):
    dag = a_dag(path.stem)
    untitled = [name for name in dag.params if not dag.params.get_param(name).schema.get("title")]
    assert untitled == []
    assert dag.doc_md


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_every_answer_reaches_its_task_whatever_the_field_is_called(path: Path):
    """Jinja takes ``params.keys`` for the method of a mapping."""
    dag = a_dag(path.stem)
    for found in dag.tasks:
        if not found.is_mapped:
            task = rendered(dag, found.task_id)
            wrong = [name for name in task.template_fields if isroutine(getattr(task, name, None))]
            assert wrong == [], found.task_id


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_form_asks_for_five_things_at_most_and_has_the_others_below_more(path: Path):
    dag = a_dag(path.stem)
    sections = [dag.params.get_param(name).schema.get("section") for name in dag.params]
    asked = [section for section in sections if section is None]
    assert len(asked) <= 5
    assert sections[: len(asked)] == asked, "they come first"
    assert all(section.startswith("More") for section in sections[len(asked) :])


def test_page_about_the_forms_is_as_they_are():
    assert forms.PAGE.read_text(encoding="utf-8") == forms.text(), "run python -m tools.forms"


@pytest.mark.parametrize("name", ["migrate_kafka_cluster", "fail_back"])
def test_migration_asks_a_person_before_the_window_and_settles_whatever_happens(name: str):
    dag = a_dag(name)
    assert dag.get_task("approve").downstream_task_ids == {"migrate"}
    settle = dag.get_task("settle")
    assert settle.is_teardown, "so that it runs in a run too that is marked failed or success"
    assert settle.on_failure_fail_dagrun
    assert settle.upstream_task_ids == {"migrate"}
    assert {task.task_id for task in dag.leaves} == {"settle", "verify"}, "a failed window fails the run"


def test_all_tasks_of_a_migration_are_told_the_same():
    from airflow_flinkstyle.operators.migrate import MigrationOperator

    tasks = [task for task in a_dag("migrate_kafka_cluster").tasks if isinstance(task, MigrationOperator)]
    assert len(tasks) == 5
    assert (
        len({str([getattr(task, name) for name in MigrationOperator.template_fields]) for task in tasks}) == 1
    )


def test_way_back_begins_first_and_what_it_finds_is_told_to_all_behind_it():
    from airflow_flinkstyle.operators.migrate import MigrationOperator

    dag = a_dag("fail_back")
    assert dag.roots == [dag.get_task("begin")]
    tasks = [task for task in dag.tasks if isinstance(task, MigrationOperator)]
    told = [task for task in tasks if "task_ids='begin')['migration']" in task.migration]
    assert {task.task_id for task in told} == {"pre_flight", "plan", "migrate", "verify", "settle"}
    assert "task_ids='begin', key='markdown'" in dag.get_task("approve").body
