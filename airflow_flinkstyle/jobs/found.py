"""The jobs below a savepoint root."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.errors import JobUnknownError
from airflow_flinkstyle.protocol.board import is_job_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_flinkstyle.storage.base import ObjectStore


def jobs_below(store: ObjectStore) -> Iterator[str]:
    """Yield the jobs of a store, in order; other folders there are none."""
    for name in store.folders():
        if is_job_name(name) and not {"runs", "savepoints"}.isdisjoint(store.folders(f"{name}/")):
            yield name


def require_known(store: ObjectStore, job: str) -> None:
    """Require that a job has ever been started, or that a savepoint bears its name.

    Raises:
        JobUnknownError: If not, with the jobs to choose from: more often a mistyped name than a new job.
    """
    known = list(jobs_below(store))
    if job not in known:
        raise JobUnknownError.of(job, store.uri, known=known)
