"""Check that a savepoint of a streaming job is whole, and write it down.

Retention keeps the newest savepoint that was verified.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_flinkstyle.operators import VerifySavepointOperator

with DAG(
    "verify_savepoint",
    schedule=None,
    catchup=False,
    tags=["flinkstyle"],
    doc_md=__doc__,
    params={
        "job": Param(
            type="string", minLength=1, title="Job", description="Name of the job under the savepoint root."
        ),
        "savepoint_id": Param(
            "latest",
            type="string",
            minLength=1,
            title="Savepoint",
            description="Which one; 'latest' is the newest.",
        ),
        "level": Param(
            "quick",
            type="string",
            enum=["quick", "full"],
            values_display={
                "quick": "Every file's presence and size, the logs' content",
                "full": "Every byte",
            },
            title="Level",
        ),
        "flinkstyle_conn_id": Param(
            "flinkstyle_default",
            type="string",
            title="Flinkstyle connection",
            description="Connection with the savepoint root.",
        ),
    },
) as dag:
    VerifySavepointOperator(
        task_id="verify_savepoint",
        job="{{ params.job }}",
        savepoint_id="{{ params.savepoint_id }}",
        level="{{ params.level }}",
        flinkstyle_conn_id="{{ params.flinkstyle_conn_id }}",
        retries=2,
        retry_delay=timedelta(seconds=10),
    )
