"""How a job was started last, by its signed claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.errors import JobNotRunningError
from airflow_flinkstyle.jobs.found import require_known

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.running.client import JobClient
    from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget


def recorded_launch(client: JobClient) -> tuple[JobSpec, SubmitTarget]:
    """Return how the current run was started; a caller's fence has no launch, the run before it has.

    Raises:
        JobNotRunningError: If the job has never run.
        JobUnknownError: If nothing below the root has its name.
        SignatureError: If no caller has signed that start.
    """
    current = client.board.current()
    generation = current.value.generation if current else None
    while generation is not None:
        claim = client.run(generation).claim
        if claim.launch:
            return client.launch_of(generation)
        generation = claim.follows
    require_known(client.board.store, client.board.job)
    raise JobNotRunningError(
        f"Job {client.board.job} was expected to have run, found that no driver ever took it over.",
        state_after="Nothing was changed.",
        remedy="Start it first (StartStreamingJobOperator, flinkstyle job start).",
    )
