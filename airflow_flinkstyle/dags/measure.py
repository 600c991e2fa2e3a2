"""Set the metrics of all jobs of a savepoint root, every 30 seconds, from the triggerer.

They are Airflow's own metrics: StatsD, Datadog or OpenTelemetry, as set in `[metrics]` of its configuration.
`dashboards/grafana.json` shows them.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG

from airflow_flinkstyle.dags.defined import settings_of
from airflow_flinkstyle.operators.measure import MeasureJobsOperator

if TYPE_CHECKING:
    from collections.abc import Sequence


def measure_dag(
    *,
    flinkstyle_conn_id: str = "flinkstyle_default",
    jobs: Sequence[str] | None = None,
    every_s: float = 30.0,
    dag_id: str = "measure_jobs",
    **arguments: Any,
) -> DAG:
    """Return a DAG that measures jobs without end, an hour in each task.

    Args:
        flinkstyle_conn_id: Connection with the savepoint root.
        jobs: Their names; None for all below the root.
        every_s: From round to round.
        dag_id: The DAG's name.
        arguments: Further arguments of ``DAG``.
    """
    with DAG(dag_id, schedule="@continuous", **{**settings_of(__doc__), **arguments}) as dag:
        MeasureJobsOperator(
            task_id="measure",
            flinkstyle_conn_id=flinkstyle_conn_id,
            jobs=jobs,
            every_s=every_s,
            retries=5,
            retry_delay=timedelta(seconds=30),
        )
    return dag
