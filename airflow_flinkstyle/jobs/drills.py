"""Drill a restore: a driver beside the job restores a savepoint, runs some batches on the copy, and ends.

It is a start like any other, but its claim asks only for a rehearsal. So it needs the resources of a second
driver for as long as it takes, and nothing of the job: it gets no takeover order, writes to no sink, commits
no offsets, and another start or upgrade does not wait for it.
"""

from __future__ import annotations

import itertools
import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.errors import DRILL_FAILED, STEP_TIMEOUT
from airflow_flinkstyle.wording import size

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.client import JobClient
    from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget
    from airflow_flinkstyle.jobs.view import JobView
    from airflow_flinkstyle.protocol.rehearsal_records import Rehearsal, Rehearse
    from airflow_flinkstyle.types import Generation

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """The result of a drill."""

    job: str
    savepoint_id: str
    generation: int
    """The generation of the driver; it never held the job."""
    size_bytes: int
    """Of the savepoint."""
    rehearsal: Rehearsal

    @property
    def restore_s(self) -> float:
        """How long it took to restore the files of all queries."""
        return sum(query.restore_s for query in self.rehearsal.queries.values())

    def as_dict(self) -> dict[str, object]:
        """Return plain values, for XCom and for an asset's event."""
        ran = self.rehearsal.queries.values()
        return {
            "job": self.job,
            "savepoint_id": self.savepoint_id,
            "generation": self.generation,
            "size_bytes": self.size_bytes,
            "restore_s": round(self.restore_s, 3),
            "batches": sum(query.batches for query in ran),
            "rows": sum(query.input_rows for query in ran),
            "batch_s": [round(seconds, 3) for query in ran for seconds in query.seconds],
            "seconds": round(self.rehearsal.seconds, 3),
        }

    def as_markdown(self) -> str:
        """Render times and size, then a row for each query."""
        return (
            f"Savepoint {self.savepoint_id} of job {self.job} ({size(self.size_bytes)}) was restored in "
            f"{self.restore_s:.1f} s; the drill took {self.rehearsal.seconds:.1f} s.\n\n"
            f"{self.rehearsal.as_markdown()}"
        )


def begin_drill(
    client: JobClient,
    spec: JobSpec,
    target: SubmitTarget,
    *,
    key: str,
    savepoint_id: str,
    rehearse: Rehearse,
) -> Generation:
    """Start the driver; a retry finds the one that an earlier try has started, unless that has ended.

    Args:
        client: The job; whether it runs does not matter.
        spec: What to run, usually as the job ran last.
        target: Where to run it.
        key: The caller, without the try number.
        savepoint_id: What to restore.
        rehearse: How many batches, of how many records.

    Raises:
        SavepointMissingError: If there is no such savepoint.
        DiesWithStarterError: If the driver would end with the task or the worker that starts it.
    """
    client.view.repository.read(savepoint_id)
    handle = client.starts.standby(
        spec,
        target,
        claim_key=_claim_key(client.view, key),
        prepare_savepoint_id=savepoint_id,
        rehearse=replace(rehearse, only=True),
    )
    log.info("Generation %d of job %s drills the restore of %s", handle.generation, spec.name, savepoint_id)
    return handle.generation


def is_drilled(runs: JobView, generation: Generation) -> bool:
    """Return whether a drill has ended: it wrote its result, or its driver is gone."""
    if runs.board.rehearsal(generation) is not None:
        return True
    run = runs.run(generation)
    return run.is_over or not run.holds_the_job


def finish_drill(client: JobClient, generation: Generation, *, timeout_s: float) -> Drill:
    """Wait for the end of a drill, and end its driver.

    Raises:
        JobError: ``DRILL_FAILED`` if the savepoint could not be restored, or a batch failed on it.
        JobError: ``STEP_TIMEOUT`` if that took too long.
        DriverFailedError: If the driver did not come up, or ended without reporting why.
    """
    wait = client.view.waiting(timeout_s)
    try:
        while not is_drilled(client.view, generation):
            if not wait.again():
                raise STEP_TIMEOUT.with_text(
                    f"The drill of job {client.view.job} (generation {generation}) was expected to end "
                    f"within {timeout_s:g} s.",
                    state_after="Its driver was told to end; the job was not touched.",
                    remedy="Look at its log; drill with fewer records, or give it more time.",
                )
        return _outcome(client, generation)
    finally:
        with suppress(FlinkstyleError):  # it ends by itself
            client.drivers.dismiss(generation)


def _outcome(client: JobClient, generation: Generation) -> Drill:
    rehearsal = client.view.board.rehearsal(generation)
    if rehearsal is None:
        raise client.drivers.driver_failed(client.view.run(generation))
    if rehearsal.failure is not None:
        code, text = rehearsal.failure
        raise DRILL_FAILED.with_text(
            f"Savepoint {rehearsal.savepoint_id} of job {client.view.job} was expected to be restored "
            f"and to run, found {code}: {text}",
            state_after="The job was not touched, and the copy is gone.",
            remedy="Do not rely on this savepoint: take another one and drill that. "
            "If it fails too, correct what the error names.",
        )
    manifest = client.view.repository.find(rehearsal.savepoint_id)
    return Drill(
        job=client.view.job,
        savepoint_id=rehearsal.savepoint_id,
        generation=generation,
        size_bytes=manifest.total_bytes if manifest is not None else 0,
        rehearsal=rehearsal,
    )


def _claim_key(runs: JobView, key: str) -> str:
    """Return the key of the caller's drill that has not ended."""
    for attempt in itertools.count(1):
        claim_key = f"{key}/drill-{attempt}"
        own = runs.own_claim(claim_key)
        if own is None or not is_drilled(runs, own):
            return claim_key
    raise AssertionError("count ended")
