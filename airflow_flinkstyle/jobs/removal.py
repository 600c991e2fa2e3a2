"""Remove the records of a job that was left to plain Spark, or that never ran (a mistyped name)."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.errors import RECORDS_NEEDED, JobRunningError, job_unknown
from airflow_flinkstyle.jobs.found import jobs_below
from airflow_flinkstyle.jobs.status import Running, Starting, describe_status
from airflow_flinkstyle.protocol.home import HOME_KEY
from airflow_flinkstyle.protocol.pulse import pulse_key
from airflow_flinkstyle.savepoint.blobs.references import pins

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.view import JobView

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """A job that was removed from its root."""

    job: str
    objects: int
    """How many were deleted."""
    savepoints: tuple[str, ...]
    checkpoints: tuple[str, ...]
    """Locations of its runs' checkpoints; they stay."""


def remove_job(runs: JobView, *, savepoints: bool = False) -> Removed:
    """Delete everything below a job's folder of the root; after an interrupted call, call it again.

    Checkpoints stay. So does what plain Spark runs: its script, its checkpoint and its output.

    Args:
        runs: The job: one that no driver has ever taken over, or that was left to plain Spark.
        savepoints: Whether its savepoints may go with it.

    Raises:
        JobNotRunningError: ``JOB_UNKNOWN`` if the root has no such job.
        JobRunningError: If a driver runs or is coming up.
        JobError: ``RECORDS_NEEDED`` if the job has run here and was not left; if it has savepoints and
            ``savepoints`` is false, or one of them is pinned.
    """
    board, store = runs.board, runs.board.store
    if next(iter(store.list(f"{board.job}/")), None) is None:
        raise job_unknown(board.job, store.uri, known=list(jobs_below(store)))
    found = _require_over(runs, savepoints=savepoints)
    places = {claim.checkpoint_location for number in board.generations() if (claim := board.claim(number))}
    keys = sorted((info.key for info in store.list(f"{board.job}/")), key=_in_order)
    for key in keys:
        store.delete(key)
    store.delete(pulse_key(board.job))
    log.info("Job %s is removed: %d objects", board.job, len(keys))
    return Removed(
        job=board.job, objects=len(keys), savepoints=found, checkpoints=tuple(sorted(filter(None, places)))
    )


def _require_over(runs: JobView, *, savepoints: bool) -> tuple[str, ...]:
    """Require that nothing needs the records, and return the savepoints that go with them."""
    board = runs.board
    status = runs.settled_status()
    if isinstance(status, (Running, Starting)):
        raise JobRunningError(
            f"Job {board.job} was expected not to run, found that {describe_status(status)}.",
            state_after="Nothing was removed.",
            remedy="Stop it, and give it back (flinkstyle job leave), if it is to go.",
        )
    home = board.home()
    is_left = home is not None and home.value.state == "left" and board.binding_home() is not None
    if board.current() is not None and not is_left:
        raise RECORDS_NEEDED.with_text(
            f"A job that no driver has ever run, or that was left, was expected, found that job {board.job} "
            f"has run here: {describe_status(status)}.",
            remedy="Its records tell where it continues. If plain Spark is to continue it, leave it "
            "first (flinkstyle job leave).",
        )
    ids = runs.repository.ids()
    held = sorted(pins(runs.repository))
    if held or (ids and not savepoints):
        what = f"pinned: {', '.join(held)}" if held else ", ".join(ids[-3:])
        raise RECORDS_NEEDED.with_text(
            f"Job {board.job} was expected to have no savepoints, found {len(ids)} ({what}).",
            remedy="Take the pins away first (flinkstyle savepoint unpin)."
            if held
            else "Remove it with its savepoints (--with-savepoints), or export first what is to be kept.",
        )
    return ids


def _in_order(key: str) -> tuple[int, str]:
    """Order what is deleted: savepoints before their files; without ``current.json`` no job has ever run."""
    name = key.partition("/")[2]
    for rank, first in enumerate(("savepoints/", "blobs/", "current.json")):
        if name.startswith(first):
            return rank, key
    return (4 if name == HOME_KEY else 3), key
