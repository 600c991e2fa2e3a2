"""Rotating savepoints: take one, verify it, dispose of old ones; of one job, or of hundreds in one task."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import FlinkstyleError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from airflow_flinkstyle.hooks.job import StreamingJobHook
    from airflow_flinkstyle.jobs.definition import SparkStreamingJob
    from airflow_flinkstyle.jobs.request_slot import PendingRequest
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.savepoint.repository.summary import Summary
    from airflow_flinkstyle.types import Alignment

log = logging.getLogger(__name__)
_PRUNE_WAIT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The caller that takes a savepoint."""

    key: str
    """By which a retry finds what an earlier try has begun."""
    by: str
    """The caller's name in the record."""


def begin_take(
    hook: StreamingJobHook,
    job: str,
    caller: Caller,
    *,
    unless_saved: bool,
    alignment: Alignment = "none",
    checkpoints: Mapping[str, str] | str | None,
    kafka_conn_ids: Sequence[str] | str | None,
    timeout_s: float,
) -> Summary | Manifest | PendingRequest:
    """Begin to take a savepoint of a job of this package, or of one that plain Spark runs.

    Args:
        hook: On the job's root.
        job: Its name.
        caller: Who takes it.
        unless_saved: Return the newest savepoint, if the job has stopped and that holds its last state.
        alignment: As of ``TakeSavepointOperator``.
        checkpoints: For a job that plain Spark runs: query name -> location.
        kafka_conn_ids: For such a job: connections of the clusters that it reads.
        timeout_s: How long the driver may take.

    Returns:
        The newest savepoint, if it is enough; one that was taken at once, since no driver of this package
        runs; or the request that the driver answers.
    """
    from airflow_flinkstyle.hooks.adoption import take_if_outside, watched_checkpoint
    from airflow_flinkstyle.jobs.stopped.saving import savepoint_at_rest

    if checkpoints:
        watched = watched_checkpoint(hook, checkpoints, kafka_conn_ids, None)
        outside = take_if_outside(hook, job, caller.key, watched, by=caller.by)
        if outside is not None:
            return outside
    known = savepoint_at_rest(hook.client(job).view) if unless_saved else None
    return known or hook.begin_savepoint(job, caller.key, timeout_s=timeout_s, alignment=alignment)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotated:
    """What a rotation did for a job."""

    savepoint_id: str
    """The one that it took, or the newest one if that is enough."""
    is_new: bool
    disposed: tuple[str, ...]
    freed_bytes: int


def rotate_job(
    hook: StreamingJobHook, job: SparkStreamingJob, caller: Caller, *, dry_run: bool, timeout_s: float
) -> Rotated:
    """Take a savepoint of a job, verify it, and prune, by the job's definition; blocking.

    Args:
        hook: On the job's root.
        job: Its definition.
        caller: Who takes it.
        dry_run: Only list what would be disposed of.
        timeout_s: How long the savepoint may take.
    """
    from airflow_flinkstyle.jobs.answers.values import one_of
    from airflow_flinkstyle.jobs.request_slot import PendingRequest
    from airflow_flinkstyle.savepoint.files.verify import LEVELS
    from airflow_flinkstyle.savepoint.repository.summary import Summary

    begun = begin_take(
        hook,
        job.job,
        caller,
        unless_saved=True,
        checkpoints=dict(job.checkpoints),
        kafka_conn_ids=list(job.kafka_conn_ids),
        timeout_s=timeout_s,
    )
    if isinstance(begun, PendingRequest):
        begun = hook.finish_savepoint(job.job, begun, timeout_s=timeout_s)
    level = one_of("verify", job.verify, LEVELS)
    hook.verify_savepoint(job.job, begun.savepoint_id, level=level, by=caller.key)
    pruned = hook.prune_savepoints(
        job.job, job.retention, by=caller.key, dry_run=dry_run, wait_s=_PRUNE_WAIT_S
    )
    return Rotated(
        savepoint_id=begun.savepoint_id,
        is_new=not isinstance(begun, Summary),
        disposed=tuple(pruned.plan.disposed),
        freed_bytes=pruned.freed_bytes,
    )


def rotate_jobs(
    jobs: Iterable[SparkStreamingJob],
    rotate: Callable[[SparkStreamingJob], Rotated],
    *,
    at_once: int,
) -> list[tuple[SparkStreamingJob, Rotated | FlinkstyleError]]:
    """Rotate the savepoints of many jobs, some at a time; a failure of one stops none of the others.

    Args:
        jobs: Their definitions.
        rotate: Rotates one job.
        at_once: How many jobs at a time.

    Returns:
        Each job with what was done, or its error.
    """
    from concurrent.futures import ThreadPoolExecutor

    def outcome_of(job: SparkStreamingJob) -> tuple[SparkStreamingJob, Rotated | FlinkstyleError]:
        try:
            return job, rotate(job)
        except FlinkstyleError as error:
            log.warning("Job %s was not rotated: %s", job.job, error)
            return job, error

    with ThreadPoolExecutor(at_once, thread_name_prefix="flinkstyle rotation") as pool:
        return list(pool.map(outcome_of, jobs))
