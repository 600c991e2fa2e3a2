"""The jobs below a savepoint root."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import MessageFormatError, ProtocolVersionError
from airflow_flinkstyle.jobs.errors import job_unknown
from airflow_flinkstyle.protocol.board import JobBoard, is_job_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_flinkstyle.protocol.records import Heartbeat
    from airflow_flinkstyle.storage.base import ObjectStore

log = logging.getLogger(__name__)


def jobs_below(store: ObjectStore) -> Iterator[str]:
    """Yield the jobs of a store, in order; other folders are skipped."""
    for name in store.folders():
        if is_job_name(name) and not {"runs", "savepoints"}.isdisjoint(store.folders(f"{name}/")):
            yield name


def require_known(store: ObjectStore, job: str) -> None:
    """Require that the job was started before, or has a savepoint.

    Raises:
        JobNotRunningError: ``JOB_UNKNOWN`` if not; it lists the known jobs, since the name is more often
            mistyped than new.
    """
    known = list(jobs_below(store))
    if job not in known:
        raise job_unknown(job, store.uri, known=known)


# The queries that other jobs of the root have: one of them may be this job under another name.
#
# A driver may read only its own job's folder, so the caller of a first start lists them in the claim.

_MOST = 500
"""How many a claim lists at most: it is read at each start of a driver."""


def queries_elsewhere(board: JobBoard) -> dict[str, str]:
    """Return the declared queries of the last runs of the root's other jobs, and which job each belongs to.

    Only queries whose script names a checkpoint: two jobs may well run one script that names none.
    """
    found: dict[str, str] = {}
    for job in jobs_below(board.store):
        heartbeat = _last_heartbeat(JobBoard(board.store, job)) if job != board.job else None
        for name, status in heartbeat.queries.items() if heartbeat is not None else ():
            if status.declared is not None and status.declared.location is not None and len(found) < _MOST:
                found.setdefault(status.declared.key, f"query {name} of job {job}")
    return found


def _last_heartbeat(board: JobBoard) -> Heartbeat | None:
    """Return the last heartbeat of a job's head; None if there is none, or another version wrote it."""
    try:
        current = board.current()
        slot = board.heartbeat(current.value.head) if current is not None else None
    except (MessageFormatError, ProtocolVersionError) as error:
        log.warning("The queries of job %s are not known here: %s", board.job, error.problem)
        return None
    return None if slot is None else slot.value
