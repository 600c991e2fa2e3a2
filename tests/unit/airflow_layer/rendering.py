"""Tasks as Airflow would run them, without running them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import DAG

NOTHING_YET = SimpleNamespace(xcom_pull=lambda **_: None)


def rendered(dag: DAG, task_id: str, params: dict[str, Any] | None = None) -> Any:  # noqa: ANN401 - any operator
    """Render a task's templates as Airflow does, with the defaults of the form and ``params``."""
    task = dag.get_task(task_id).prepare_for_execution()
    shown = {name: dag.params.get_param(name).value for name in dag.params} | (params or {})
    task.render_template_fields({"params": shown, "task": task, "ti": NOTHING_YET})
    return task
