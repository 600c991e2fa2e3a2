"""A drill of a job's restore, begun with Airflow's connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.running import drills
from airflow_flinkstyle.jobs.running.recorded import recorded_launch

if TYPE_CHECKING:
    from airflow_flinkstyle.hooks.job import StreamingJobHook
    from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
    from airflow_flinkstyle.types import Generation


def begin_drill(
    hook: StreamingJobHook,
    job: str,
    *,
    key: str,
    savepoint_id: str,
    rehearse: Rehearse,
    spark_conn_id: str | None,
) -> tuple[Generation, str]:
    """Start the driver; returns its generation and the savepoint, ``latest`` being the newest one.

    Raises as ``jobs.running.drills.begin_drill`` does.
    """
    client = hook.client(job)
    spec, target = recorded_launch(client)
    newest = hook.newest_savepoint(job) if savepoint_id == "latest" else None
    savepoint_id = newest.savepoint_id if newest is not None else savepoint_id
    generation = drills.begin_drill(
        client,
        spec,
        hook.target(spark_conn_id) if spark_conn_id else target,
        key=key,
        savepoint_id=savepoint_id,
        rehearse=rehearse,
    )
    return generation, savepoint_id
