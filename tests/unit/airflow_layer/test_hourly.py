"""The example of a job that ends by itself: what its tasks wait for."""

from __future__ import annotations

import runpy
from typing import Any

import pytest

from airflow_flinkstyle.sensors import StreamingJobEndSensor
from testbed import paths

pytestmark = pytest.mark.airflow


def test_each_hour_waits_for_the_end_of_its_own_run_and_none_runs_beside_another():
    dag: Any = runpy.run_path(str(paths.ROOT / "examples" / "hourly_dag.py"))["dag"]
    start, end, savepoint = (dag.get_task(name) for name in ("start", "end", "savepoint"))
    assert (dag.max_active_runs, dag.catchup) == (1, False)
    assert start.ends_by_itself
    assert "--available-now" in start.args
    assert isinstance(end, StreamingJobEndSensor)
    assert "'start'" in end.generation
    assert end.upstream_task_ids == {"start"}
    assert savepoint.upstream_task_ids == {"end"}
    assert {task.job for task in dag.tasks} == {"orders"}
