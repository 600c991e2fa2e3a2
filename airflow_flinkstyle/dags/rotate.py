"""Take a savepoint of every job that is defined on a schedule, verify it, and prune the old ones.

Each job has its own tasks, so one that fails does not stop the others. A job that has stopped is saved once.
How much history a job keeps is in its definition: `max_count` and `max_age`; `verify: full` reads every byte.
The log of `prune_savepoints` shows for every savepoint whether it was kept or disposed of, and why. Pinned
savepoints, those that a run or an open migration needs, the newest complete one, and the newest complete and
verified one are always kept.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param, TaskGroup

from airflow_flinkstyle.dags.defined import dag_of_jobs, each, group_of
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.operators.retention import PruneSavepointsOperator, VerifySavepointOperator
from airflow_flinkstyle.operators.rotate import RotateSavepointsOperator
from airflow_flinkstyle.operators.savepoint import TakeSavepointOperator

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow.sdk import DAG

    from airflow_flinkstyle.jobs.definition import SparkStreamingJob


def rotation_dag(
    jobs: Iterable[SparkStreamingJob] | None = None,
    *,
    dag_id: str = "rotate_savepoints",
    schedule: timedelta = timedelta(hours=1),
    tasks: int | None = None,
    **arguments: Any,
) -> DAG:
    """Return a DAG that takes, verifies and prunes savepoints of every job, each in a group of its name.

    Args:
        jobs: Definitions, as ``read_jobs(folder).values()``; None: those that ``[flinkstyle] jobs`` names.
        dag_id: The DAG's name.
        schedule: How often.
        tasks: For hundreds of jobs, whose tasks take Airflow longer to start than to run: how many tasks
            share all jobs; each holds a worker slot. None: three tasks for each job.
        arguments: Further arguments of ``DAG``.

    Raises:
        BadInputError: If there would be no task.
    """
    if tasks is not None and tasks < 1:
        raise BadInputError(
            f"Expected at least one task for all jobs, found tasks={tasks}.",
            state_after="There is no DAG.",
            remedy="Give a number from 1 on, or leave it out for three tasks of each job.",
        )
    dry_run = Param(
        False, type="boolean", title="Dry run", description="Only list what would be disposed of."
    )
    settings = {"params": {"dry_run": dry_run}, **arguments}
    add = each(_rotate) if tasks is None else partial(_rotate_many, tasks)
    return dag_of_jobs(jobs, add, dag_id=dag_id, schedule=schedule, doc=__doc__, arguments=settings)


def _rotate_many(tasks: int, jobs: list[SparkStreamingJob]) -> None:
    for number in range(min(tasks, len(jobs))):
        RotateSavepointsOperator(
            task_id=f"rotate_{number}", jobs=jobs[number::tasks], dry_run="{{ params['dry_run'] }}"
        )


def _rotate(job: SparkStreamingJob) -> None:
    known: dict[str, Any] = {"job": job.job, "flinkstyle_conn_id": job.flinkstyle_conn_id}
    with TaskGroup(group_of(job)) as group:
        taken = TakeSavepointOperator(
            task_id="take_savepoint",
            deferrable=True,
            unless_saved=True,
            checkpoints=dict(job.checkpoints) or None,
            kafka_conn_ids=list(job.kafka_conn_ids) or None,
            **known,
        )
        verified = VerifySavepointOperator(
            task_id="verify_savepoint",
            savepoint_id=f"{{{{ ti.xcom_pull(task_ids='{group.group_id}.take_savepoint') }}}}",
            level=job.verify,
            **known,
        )
        pruned = PruneSavepointsOperator(
            task_id="prune_savepoints",
            max_count=job.max_count,
            max_age_s=job.max_age,
            dry_run="{{ params['dry_run'] }}",
            **known,
        )
        taken >> verified >> pruned
