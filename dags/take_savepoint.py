"""Take a savepoint of a streaming job while it runs, or of one that has stopped."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_flinkstyle.operators import TakeSavepointOperator

with DAG(
    "take_savepoint",
    schedule=None,
    catchup=False,
    tags=["flinkstyle"],
    doc_md=__doc__,
    params={
        "job": Param(
            type="string", minLength=1, title="Job", description="Name of the job under the savepoint root."
        ),
        "flinkstyle_conn_id": Param(
            "flinkstyle_default",
            type="string",
            title="Flinkstyle connection",
            description="Connection with the savepoint root.",
        ),
    },
) as dag:
    TakeSavepointOperator(
        task_id="take_savepoint",
        job="{{ params.job }}",
        flinkstyle_conn_id="{{ params.flinkstyle_conn_id }}",
        deferrable=True,
        retries=2,
        retry_delay=timedelta(seconds=10),
    )
