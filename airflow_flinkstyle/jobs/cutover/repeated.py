"""A cutover that is asked for once more after it was done: it still is so, or that is an error.

A retry cannot be told from a clear: doing it again could undo what somebody has done since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.errors import DoneBeforeError
from airflow_flinkstyle.jobs.status import Failed, NeverStarted, describe_status, stays_down

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.jobs.cutover.context import CutoverContext
    from airflow_flinkstyle.jobs.status import Run


def require_still(context: CutoverContext, what: str, is_so: Callable[[Run], bool]) -> None:
    """Require that the job is as a finished cutover has left it.

    Args:
        context: The cutover.
        what: What was asked for, to follow "the job was expected to".
        is_so: Whether a later run is what was asked for too.

    Raises:
        DoneBeforeError: If it is not, naming what runs now.
    """
    client, done = context.client, (context.journal.result("takeover") or {}).get("generation")
    status = client.settled_status()
    runs = not isinstance(status, (NeverStarted, Failed)) and not stays_down(status)
    if not isinstance(status, NeverStarted) and runs and (status.run.generation == done or is_so(status.run)):
        return
    raise DoneBeforeError(
        f"Job {client.board.job} was expected to {what}, as {context.journal.migration_id} has left it in "
        f"generation {done}, found that {describe_status(status)}.",
        state_after="Nothing was changed: it was done before, and more has happened since.",
        remedy="Trigger a new run of the DAG if it is to be done once more.",
    )
