"""Stop queries between two batches: afterwards every planned batch is committed."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.core.causes import passes
from airflow_flinkstyle.agent.core.errors import PlannedBatchOpenError, PlannedBatchPostponedError
from airflow_flinkstyle.agent.core.guards.checks import read_positions
from airflow_flinkstyle.checkpoint.inventory import list_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from airflow_flinkstyle.agent.core.job_query import JobQuery
    from airflow_flinkstyle.agent.core.spark import Spark
    from airflow_flinkstyle.types import BatchId

_IDLE_ROUNDS = 3
_POLL_S = 0.05
log = logging.getLogger(__name__)


@contextmanager
def listeners_away(queries: Iterable[JobQuery]) -> Iterator[None]:
    """Take the JVM's listeners of queries away for a while, in all their sessions."""
    with ExitStack() as away:
        for spark in sessions_of(queries):
            away.enter_context(spark.without_listeners())
        yield


def sessions_of(queries: Iterable[JobQuery]) -> list[Spark]:
    """Return the sessions of queries, each once."""
    return list({id(query.session): query.session for query in queries}.values())


def keep_waiting() -> None:
    """Never end the wait: the end of a run waits as long as a batch takes."""


def stop_at_boundary(queries: Sequence[JobQuery], *, check: Callable[[], None] = keep_waiting) -> None:
    """Let every query end its batch and stop; a query that sleeps until its next trigger is woken.

    Args:
        queries: Those to stop.
        check: Called in every round; raises to end the wait. Queries whose stop flag is set stop all the
            same; the others run on.
    """
    running = [query for query in queries if query.query is not None]
    for query in running:
        query.silenced_runs.add(query.started.run_id)
    flags = [query.started.stop_flag() for query in running]
    try:
        remaining = flags
        while remaining := [flag for flag in remaining if not flag.try_set()]:
            check()
            time.sleep(_POLL_S)
    finally:
        for flag in flags:
            flag.let_go()
    for query, flag in zip(running, flags, strict=True):
        wait_until_stopped(query, check=check, sleeps=flag.sleeps)


def wait_until_stopped(
    query: JobQuery,
    *,
    check: Callable[[], None] = keep_waiting,
    sleeps: Callable[[], bool] = lambda: False,
) -> None:
    """Wait for a query whose stop flag is set; one that sleeps until its next trigger is woken.

    Args:
        query: The query to wait for.
        check: Called in every round; raises to end the wait.
        sleeps: Whether the engine is known to sleep; else a while without a batch shows it.
    """
    started, idle = query.started, 0
    while started.has_thread:
        idle = 0 if started.is_triggered else idle + 1
        if idle >= _IDLE_ROUNDS or (idle and sleeps()):
            log.info("Query %s only waits for its next trigger", query.name)
            started.stop()
            return
        check()
        time.sleep(_POLL_S)


def commit_planned(query: JobQuery, *, check: Callable[[], None] = keep_waiting) -> BatchId | None:
    """Commit the planned batch, if there is one; returns the last batch.

    An earlier driver planned it, or this one stopped it without threads of its own (``boundary``).

    Args:
        query: A query that has stopped.
        check: Called in every round; raises to end the wait. The batch runs on.

    Raises:
        PlannedBatchOpenError: If the batch fails; ``PlannedBatchPostponedError`` if the cause may pass.
    """
    if read_positions(query.checkpoint).planned is not None:
        log.info("Query %s: committing the batch that was planned", query.name)
        _run_once(query, check)
    positions = read_positions(query.checkpoint)
    if positions.planned is not None:
        raise PlannedBatchPostponedError(
            f"Query {query.name} was expected to end with every planned batch committed, "
            "found one that is planned only.",
            state_after=_state_after(query),
            remedy="Look for the query's exception in the driver's log.",
        )
    return max(list_batches(query.checkpoint, "commits"), default=None)


def _run_once(query: JobQuery, check: Callable[[], None]) -> None:
    try:
        query.start_again(once=True)
        while not query.started.await_end(int(_POLL_S * 1000)):
            check()
    except Exception as error:
        if not query.session.raised(error):
            raise
        refusal = query.refusal
        may_pass = refusal.retryable if refusal is not None else passes(error)
        kind = PlannedBatchPostponedError if may_pass else PlannedBatchOpenError
        raise kind(
            f"Query {query.name} was expected to commit the batch it had planned, but that failed: "
            f"{refusal or (str(error).splitlines() or [repr(error)])[0]}",
            state_after=_state_after(query),
            remedy="Nothing, if it passes: a watcher starts the job again. If it stays, correct the cause."
            if may_pass
            else "Correct what makes the batch fail, then start the job again.",
        ) from error


def _state_after(query: JobQuery) -> str:
    return f"Its checkpoint {query.location} is as Spark left it; the next start runs that batch again."
