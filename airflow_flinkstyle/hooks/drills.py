"""A drill of a job's restore, begun with Airflow's connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.jobs import drills
from airflow_flinkstyle.jobs.errors import JobNotRunningError
from airflow_flinkstyle.jobs.stopped.last_run import recorded_launch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    script: str | None = None,
    args: Sequence[str] | str | None = None,
    conf: Mapping[str, Any] | str | None = None,
    env: Mapping[str, str] | None = None,
) -> tuple[Generation, str]:
    """Start the driver; returns its generation and the savepoint, ``latest`` being the newest one.

    A job that was never started here, because plain Spark runs it, is drilled with the ``script`` and its
    arguments and settings. Raises as ``jobs.drills.begin_drill`` does.
    """
    client = hook.client(job)
    try:
        spec, target = recorded_launch(client.view)
    except JobNotRunningError:
        if script is None:
            raise
        spec = hook.spec(job, script, args=args, conf=conf, env=env)
        target = hook.target(spark_conn_id or "spark_default")
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
