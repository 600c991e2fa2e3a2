"""A DAG for the folder of your DAGs: every hour a job reads what has come since, and ends by itself.

Its script starts each query with ``trigger(availableNow=True)`` and waits for it, as
``examples/orders_job.py --available-now`` does. Nothing runs between two hours. Positions and state are those
of one job all the same, so it can be upgraded, migrated and saved like one that runs on.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from airflow_flinkstyle.operators import StartStreamingJobOperator, TakeSavepointOperator
from airflow_flinkstyle.sensors import StreamingJobEndSensor

with DAG(
    "orders_hourly",
    schedule=timedelta(hours=1),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,  # one run reads all that is there, however many hours were missed
    max_active_runs=1,  # a start beside a run that has not ended is refused
    default_args={"retries": 2},
) as dag:
    start = StartStreamingJobOperator(
        task_id="start",
        job="orders",
        script="/jobs/orders_job.py",
        args=["--topic", "orders", "--available-now"],
        ends_by_itself=True,
    )
    end = StreamingJobEndSensor(
        task_id="end",
        job="orders",
        generation="{{ ti.xcom_pull(task_ids='start')['generation'] }}",
        deferrable=True,
        timeout=3000,
    )
    # The job has stopped by then: the task reads its checkpoint, and no driver is started for it.
    savepoint = TakeSavepointOperator(task_id="savepoint", job="orders")

    start >> end >> savepoint
