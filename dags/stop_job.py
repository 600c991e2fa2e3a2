"""Stop a streaming job between two batches, with a savepoint."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_flinkstyle.operators import StopStreamingJobOperator

with DAG(
    "stop_job",
    schedule=None,
    catchup=False,
    tags=["flinkstyle"],
    doc_md=__doc__,
    params={
        "job": Param(type="string", minLength=1, title="Job", description="Name of the running job."),
        "flinkstyle_conn_id": Param(
            "flinkstyle_default",
            type="string",
            title="Flinkstyle connection",
            description="Connection with the savepoint root.",
        ),
    },
) as dag:
    StopStreamingJobOperator(
        task_id="stop",
        job="{{ params.job }}",
        flinkstyle_conn_id="{{ params.flinkstyle_conn_id }}",
        retries=2,
        retry_delay=timedelta(seconds=5),
    )
