"""Make the library's clients from a root and a job's name."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.answers.values import is_true
from airflow_flinkstyle.jobs.client import JobClient
from airflow_flinkstyle.jobs.deployments.detached import DetachedDeployment
from airflow_flinkstyle.jobs.errors import JOB_UNKNOWN_NO_JOBS, job_unknown
from airflow_flinkstyle.jobs.found import jobs_below
from airflow_flinkstyle.jobs.signing import Signer
from airflow_flinkstyle.jobs.view import JobView
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.keys import is_name
from airflow_flinkstyle.storage.open import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

MAY_END_VARIABLE = "FLINKSTYLE_DRIVER_MAY_END_WITH_WORKER"
"""With ``true``, commands start drivers too where they end with the task or the service around them."""

SUPERVISE_VARIABLE = "FLINKSTYLE_SUPERVISE_DRIVERS"
"""With ``true``, commands start a supervisor beside each driver that they start on this machine."""

ARCHIVES_VARIABLE = "FLINKSTYLE_CLASS_ARCHIVES"
"""With ``true``, drivers that commands start on this machine start from an archive of Spark's classes."""


def jobs_of(root: str) -> Iterator[str]:
    """Yield the jobs below a savepoint root, in order."""
    return jobs_below(open_store(root))


def jobs_found(root: str) -> list[str]:
    """Return the jobs below a savepoint root.

    Raises:
        JobNotRunningError: ``JOB_UNKNOWN`` if there is none: more often a wrong root than an empty one.
    """
    found = list(jobs_of(root))
    if not found:
        raise JOB_UNKNOWN_NO_JOBS.error(uri=open_store(root).uri)
    return found


def require_job(root: str, job: str) -> None:
    """Require that there is something of a job below a root; its last savepoint may have gone.

    Raises:
        JobNotRunningError: ``JOB_UNKNOWN`` if there is nothing.
    """
    store = open_store(root)
    if not is_name(job) or next(iter(store.list(f"{job}/")), None) is None:
        raise job_unknown(job, store.uri, known=list(jobs_of(root)))


def repository_of(root: str, job: str) -> SavepointRepository:
    """Return the savepoints of a job."""
    return SavepointRepository(open_store(root), job)


def board_of(root: str, job: str) -> JobBoard:
    """Return the records of a job."""
    return JobBoard(open_store(root), job)


def client_of(root: str, job: str) -> JobClient:
    """Return a job's client; keys, and credentials of drivers it starts again, are this environment's."""
    store = open_store(root)
    return JobClient(
        view=JobView(
            board=JobBoard(store, job),
            repository=SavepointRepository(store, job),
            deployment=DetachedDeployment(
                may_end_with_starter=_is_set(MAY_END_VARIABLE),
                supervisor_env={} if _is_set(SUPERVISE_VARIABLE) else None,
                class_archives=_is_set(ARCHIVES_VARIABLE),
            ),
            signer=Signer.of_environment(os.environ),
        )
    )


def _is_set(variable: str) -> bool:
    given = os.environ.get(variable, "")
    return bool(given) and is_true(variable, given.capitalize())


def whoami() -> str:
    """Name this caller for people, in locks and records."""
    user = os.environ.get("USER") or f"uid {os.getuid()}"  # a container's user may have no name
    return f"{user}@{socket.gethostname()} (flinkstyle)"
