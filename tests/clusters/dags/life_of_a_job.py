"""Start a job, save it, stop it: what a worker with nothing but the base package must be able to do."""

from __future__ import annotations

from airflow.sdk import DAG, Param

from airflow_flinkstyle.operators import (
    StartStreamingJobOperator,
    StopStreamingJobOperator,
    TakeSavepointOperator,
)

JOB = "{{ params.job }}"

with DAG(
    "life_of_a_job",
    schedule=None,
    render_template_as_native_obj=True,
    params={"job": Param(type="string"), "script": Param(type="string"), "args": Param(type="array")},
) as dag:
    start = StartStreamingJobOperator(
        task_id="start", job=JOB, script="{{ params.script }}", args="{{ params.args }}"
    )
    save = TakeSavepointOperator(task_id="save", job=JOB)
    stop = StopStreamingJobOperator(task_id="stop", job=JOB)
    start >> save >> stop
