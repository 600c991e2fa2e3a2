"""Copy a savepoint of a streaming job out, with everything it needs: to a folder, or to one file.

The copy needs nothing of the savepoint root; `flinkstyle savepoint import` brings it into another one.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_flinkstyle.operators import ExportSavepointOperator

with DAG(
    "export_savepoint",
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
        "to": Param(
            type="string",
            minLength=1,
            title="To",
            description="A folder (path or s3://...), or a file that ends in .tar; paths are the worker's.",
        ),
        "flinkstyle_conn_id": Param(
            "flinkstyle_default",
            type="string",
            title="Flinkstyle connection",
            description="Connection with the savepoint root.",
        ),
    },
) as dag:
    ExportSavepointOperator(
        task_id="export_savepoint",
        job="{{ params.job }}",
        savepoint_id="{{ params.savepoint_id }}",
        to="{{ params.to }}",
        flinkstyle_conn_id="{{ params.flinkstyle_conn_id }}",
        retries=2,
        retry_delay=timedelta(seconds=10),
    )
