"""The example for a team on call: who is told what."""

from __future__ import annotations

import runpy
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.definitions.deadline import DeadlineAlert

from airflow_flinkstyle.hooks.airflow_versions import AirflowFailException
from airflow_flinkstyle.hooks.failures import airflow_errors
from airflow_flinkstyle.jobs.errors import SAVEPOINT_STALE
from testbed import paths

pytestmark = pytest.mark.airflow
pytest.importorskip("airflow.sdk.definitions.callback", reason="Airflow 3.1 has it elsewhere")


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> dict[str, Any]:  # noqa: ANN401 - a path
    (tmp_path / "orders.yaml").write_text("job: orders\nscript: a.py\nfresh: 36h\n")
    monkeypatch.setenv("AIRFLOW__FLINKSTYLE__JOBS", str(tmp_path))
    return runpy.run_path(str(paths.ROOT / "examples" / "on_call.py"))


def failing(task: Any) -> Any:  # noqa: ANN401 - Airflow's
    """Return the notifier of a task's failure."""
    found = task.on_failure_callback
    (notifier,) = found if isinstance(found, (list, tuple)) else (found,)
    return notifier


def fail(error: Exception) -> None:
    raise error


def test_mail_says_code_problem_what_runs_and_what_to_do(example: dict[str, Any]):
    watched = example["watch"].get_task("not_well_flinkstyle_default")
    found = "the newest one, sp-1, is older"
    with pytest.raises(AirflowFailException) as caught, airflow_errors():
        fail(SAVEPOINT_STALE.error(job="orders", max_age_s=129_600, found=found))
    ti = SimpleNamespace(task_id="not_well_flinkstyle_default", rendered_map_index="orders")
    context = {"exception": caught.value, "run_id": "r1", "dag": example["watch"], "ti": ti}
    mail = failing(watched)
    mail.render_template_fields(context, jinja_env=example["watch"].get_template_env())
    assert mail.subject == "Job orders needs a look"
    for words in ("SAVEPOINT_STALE", "sp-1, is older", "The job keeps running", "take one now"):
        assert words in mail.html_content


def test_every_task_of_each_dag_tells_somebody_and_keeps_its_retries(example: dict[str, Any]):
    for name in ("watch", "rotate", "upgrade", "migrate"):
        for task in example[name].tasks:
            assert failing(task).to in ("on-call@example.com", "streaming@example.com")
    assert example["migrate"].get_task("migrate").retries == 2
    assert example["rotate"].get_task("orders.take_savepoint").retries == 2
    watch = example["watch"].get_task("watch_flinkstyle_default")
    assert watch.retries == 2, "a store that is away for a moment wakes nobody"


def test_approval_that_waits_is_told_and_a_migration_that_takes_too_long(example: dict[str, Any]):
    (waiting,) = example["migrate"].get_task("approve").notifiers
    assert "waits for your approval" in waiting.subject
    deadline = example["migrate"].deadline
    found = deadline[0] if isinstance(deadline, list) else deadline
    assert isinstance(found, DeadlineAlert)
    assert found.interval.total_seconds() == 7200
