"""Rotate the savepoints of many jobs in one task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_flinkstyle.errors import BadInputError, FlinkstyleError
from airflow_flinkstyle.hooks.assets import SAVEPOINTS, emit, savepoint_asset
from airflow_flinkstyle.operators.base import airflow_errors, request_key, run_key
from airflow_flinkstyle.wording import size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from airflow_flinkstyle.hooks.rotation import Rotated
    from airflow_flinkstyle.jobs.definition import SparkStreamingJob


class RotateSavepointsOperator(BaseOperator):
    """Take a savepoint of each of many jobs, verify it, and prune the old ones; it holds one worker slot.

    A job that has stopped is saved once. A failure of one job stops none of the others; the task fails in
    the end, and names the jobs. A retry keeps what was taken. The savepoints are asset events
    (``hooks.assets``) once none has failed. Returns how many jobs were rotated (``jobs``), how many
    savepoints are new (``taken``), how many were disposed of (``disposed``), and how many bytes that freed
    (``freed_bytes``).

    :param jobs: Definitions of the jobs: of each its connection, what a rotation keeps, and how it verifies.
    :param dry_run: Only list what would be disposed of. (templated)
    :param at_once: How many jobs at a time.
    :param timeout_s: How long the savepoint of a job may take.
    """

    template_fields: Sequence[str] = ("only_plan",)
    ui_color = "#e6ddf4"

    def __init__(
        self,
        *,
        jobs: Sequence[SparkStreamingJob],
        dry_run: bool | str = False,
        at_once: int = 8,
        timeout_s: float = 3600.0,
        outlets: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(outlets=[*(outlets or ()), SAVEPOINTS], **kwargs)
        if at_once < 1:
            raise BadInputError(
                f"Expected to rotate at least one job at a time, found at_once={at_once}.",
                state_after="There is no task.",
                remedy="Give a number from 1 on.",
            )
        self.jobs = jobs
        self.only_plan = dry_run  # BaseOperator has a method of the parameter's name
        self.at_once = at_once
        self.timeout_s = timeout_s

    def execute(self, context: Context) -> dict[str, int]:
        """Rotate each, some at a time."""
        from airflow_flinkstyle.hooks.errors import not_rotated
        from airflow_flinkstyle.hooks.job import StreamingJobHook
        from airflow_flinkstyle.hooks.rotation import Caller, rotate_job, rotate_jobs
        from airflow_flinkstyle.jobs.answers.values import is_true

        caller = Caller(key=request_key(context), by=run_key(context))
        with airflow_errors():
            dry_run = is_true("dry_run", self.only_plan)
            connections = {job.flinkstyle_conn_id for job in self.jobs}
            hooks = {conn_id: StreamingJobHook(conn_id) for conn_id in connections}

            def rotate(job: SparkStreamingJob) -> Rotated:
                hook = hooks[job.flinkstyle_conn_id]
                done = rotate_job(hook, job, caller, dry_run=dry_run, timeout_s=self.timeout_s)
                self.log.info(
                    "Job %s: %s %s, %d %s, %s freed",
                    *(job.job, "took" if done.is_new else "is at rest with", done.savepoint_id),
                    *(len(done.disposed), "would be disposed of" if dry_run else "disposed of"),
                    size(done.freed_bytes),
                )
                return done

            outcomes = rotate_jobs(self.jobs, rotate, at_once=self.at_once)
            failed = {job.job: error for job, error in outcomes if isinstance(error, FlinkstyleError)}
            if failed:
                raise not_rotated(failed, len(outcomes))
        done = [(job, rotated) for job, rotated in outcomes if not isinstance(rotated, FlinkstyleError)]
        for job, rotated in done:
            if rotated.is_new:
                extra = {"job": job.job, "savepoint_id": rotated.savepoint_id}
                emit(context, SAVEPOINTS, savepoint_asset(job.job, job.flinkstyle_conn_id), extra)
        return {
            "jobs": len(done),
            "taken": sum(rotated.is_new for _, rotated in done),
            "disposed": sum(len(rotated.disposed) for _, rotated in done),
            "freed_bytes": sum(rotated.freed_bytes for _, rotated in done),
        }
