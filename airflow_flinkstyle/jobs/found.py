"""The jobs below a savepoint root."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import MessageFormatError, ProtocolVersionError
from airflow_flinkstyle.jobs.errors import JobUnknownError
from airflow_flinkstyle.protocol.board import JobBoard, is_job_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_flinkstyle.protocol.records import Heartbeat
    from airflow_flinkstyle.storage.base import ObjectStore

log = logging.getLogger(__name__)


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


# The queries that other jobs of the root have: one of them may be this job under another name.
#
# A driver may read its own job's folder alone, so the caller of a first start tells it.

_MOST = 500
"""How many a claim names: it is read at each start of a driver."""


def queries_elsewhere(board: JobBoard) -> dict[str, str]:
    """Return what is declared of the queries that the root's other jobs ran last, and whose they are.

    Only of queries whose script names a checkpoint: two jobs may well run one script that names none.
    """
    found: dict[str, str] = {}
    for job in jobs_below(board.store):
        words = _last_words(JobBoard(board.store, job)) if job != board.job else None
        for name, status in words.queries.items() if words is not None else ():
            if status.declared is not None and status.declared.location is not None and len(found) < _MOST:
                found.setdefault(status.declared.key, f"query {name} of job {job}")
    return found


def _last_words(board: JobBoard) -> Heartbeat | None:
    """Return the last heartbeat of a job's head; None if there is none, or another version wrote it."""
    try:
        current = board.current()
        slot = board.heartbeat(current.value.head) if current is not None else None
    except (MessageFormatError, ProtocolVersionError) as error:
        log.warning("The queries of job %s are not known here: %s", board.job, error.problem)
        return None
    return None if slot is None else slot.value
