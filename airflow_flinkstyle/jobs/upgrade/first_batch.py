"""Whether a new version commits its first batch after the takeover."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.checkpoint.inventory import list_batches
from airflow_flinkstyle.jobs.cutover.downtime import batch_ms
from airflow_flinkstyle.jobs.errors import DriverFailedError
from airflow_flinkstyle.jobs.running import last_run
from airflow_flinkstyle.jobs.status import Closed, Failed, Running

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.cutover.context import CutoverContext
    from airflow_flinkstyle.types import Generation


_MOST_RETRIES = 1
"""How often a new version is started again that fails, of a cause that may pass, before it has committed. A
running job has half an hour; here the version before waits to go on."""


def await_first(context: CutoverContext, new: Generation, before: Mapping[str, int]) -> Mapping[str, Any]:
    """Wait for the first committed batch.

    Args:
        context: The upgrade.
        new: The new version's generation.
        before: Query name -> last batch of the old version.

    Returns:
        ``failure``, why there was none, or None; ``batches``, query name -> batch seen committed, or None if
        there was nothing to read; ``first_commit_at_ms``, epoch milliseconds, or None; ``first_batch_ms``,
        what that batch consisted of, as far as Spark has told.
    """
    client, timeout_s = context.client, context.settings.first_commit_timeout_s
    wait = client.waiting(timeout_s)
    while True:
        try:
            status = client.status()
            if isinstance(status, Failed) and status.run.next_retry > _MOST_RETRIES:
                raise client.driver_failed(status.run)
            status = client.ensure_running(status)
        except DriverFailedError as error:
            status, failure = None, str(error)
        else:
            failure = f"it committed none within {timeout_s:g} s."
        run = client.run(new)
        beats = run.heartbeat.queries if run.heartbeat else {}
        batches = run.heartbeat.batches() if run.heartbeat else {}
        behind = [name for name, batch in batches.items() if batch > before.get(name, -1)]
        if behind and status is not None:
            at_ms = [at for name in behind if (at := beats[name].batch_committed_at_ms) is not None]
            return {
                "failure": None,
                "batches": batches,
                "first_commit_at_ms": min(at_ms, default=None),
                "first_batch_ms": batch_ms(run.heartbeat, before) if run.heartbeat else {},
            }
        # The status decides, not the later look: a driver that failed between the two is asked for its error.
        if status is None or isinstance(status, Closed):
            return _failed(failure if status is None else "its script ended.")
        if not wait.again():
            idle = isinstance(status, Running) and not _has_planned(context, new, before)
            return {"failure": None if idle else failure, "batches": None, "first_commit_at_ms": None}
        context.journal.check()


def _failed(failure: str) -> Mapping[str, Any]:
    return {"failure": failure, "batches": None, "first_commit_at_ms": None}


def _has_planned(context: CutoverContext, new: Generation, before: Mapping[str, int]) -> bool:
    """Return whether any query found something to read: Spark plans no batch without data."""
    run = context.client.run(new)
    for name in run.heartbeat.queries if run.heartbeat else ():
        planned = list_batches(last_run.read_checkpoint(context.client, run, name), "offsets")
        if max(planned, default=-1) > before.get(name, -1):
            return True
    return False
