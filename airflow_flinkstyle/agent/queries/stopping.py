"""Stop queries between two batches: afterwards every planned batch is committed."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.errors import PlannedBatchOpenError
from airflow_flinkstyle.agent.guards.guard import read_positions
from airflow_flinkstyle.agent.queries.boundary import StopFlag
from airflow_flinkstyle.checkpoint.inventory import list_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_flinkstyle.agent.job_query import JobQuery
    from airflow_flinkstyle.agent.jvm.untyped import Java, PySpark
    from airflow_flinkstyle.types import BatchId

_IDLE_LOOKS = 3
_LOOK_S = 0.05
log = logging.getLogger(__name__)


def sessions_of(queries: Sequence[JobQuery]) -> list[PySpark]:
    """Return the sessions of queries, each once."""
    found = {id(query.writer._spark): query.writer._spark for query in queries}  # noqa: SLF001
    return list(found.values())


def keep_waiting() -> None:
    """Look for nothing: whoever ends a run waits as long as a batch takes."""


def stop_at_boundary(
    jvm: Java, queries: Sequence[JobQuery], *, look: Callable[[], None] = keep_waiting
) -> None:
    """Let every query end its batch and stop; a query that sleeps until its next trigger is woken.

    Args:
        jvm: The driver's.
        queries: Those to stop.
        look: Called in every round; raises to end the wait. Queries that were told to stop do so all the
            same, the others run on.
    """
    running = [query for query in queries if query.query is not None]
    for query in running:
        query.silenced_runs.add(query.query.runId)
    flags = [StopFlag(jvm, _execution(query.query)) for query in running]
    try:
        left = flags
        while left := [flag for flag in left if not flag.try_set()]:
            look()
            time.sleep(_LOOK_S)
    finally:
        for flag in flags:
            flag.let_go()
    for query, flag in zip(running, flags, strict=True):
        wait_until_stopped(query, look=look, sleeps=flag.sleeps)


def _execution(streaming_query: PySpark) -> Java:
    wrapped = streaming_query._jsq  # noqa: SLF001
    return wrapped.streamingQuery()


def wait_until_stopped(
    query: JobQuery,
    *,
    look: Callable[[], None] = keep_waiting,
    sleeps: Callable[[], bool] = lambda: False,
) -> None:
    """Wait for a query that was told to stop; one that sleeps until its next trigger is woken.

    Args:
        query: Its stop flag is set.
        look: Called in every round; raises to end the wait.
        sleeps: Whether the engine is known to sleep; else a while without a batch shows it.
    """
    thread = _execution(query.query).queryExecutionThread()
    idle = 0
    while thread.isAlive():
        idle = 0 if query.query.status["isTriggerActive"] else idle + 1
        if idle >= _IDLE_LOOKS or (idle and sleeps()):
            log.info("Query %s only waits for its next trigger", query.name)
            query.query._jsq.stop()  # noqa: SLF001
            return
        look()
        time.sleep(_LOOK_S)


def commit_planned(query: JobQuery, *, look: Callable[[], None] = keep_waiting) -> BatchId | None:
    """Commit the planned batch, if there is one; returns the last batch.

    An earlier driver planned it, or this one stopped it without threads of its own (``boundary``).

    Args:
        query: A query that has stopped.
        look: Called in every round; raises to end the wait. The batch runs on.

    Raises:
        PlannedBatchOpenError: If the batch fails.
    """
    if read_positions(query.checkpoint).planned is not None:
        log.info("Query %s: committing the batch that was planned", query.name)
        _run_once(query, look)
    positions = read_positions(query.checkpoint)
    if positions.planned is not None:
        raise PlannedBatchOpenError(
            f"Query {query.name} was expected to end with every planned batch committed, "
            "found one that is planned only.",
            state_after=_left(query),
            remedy="Look for the query's exception in the driver's log.",
        )
    return max(list_batches(query.checkpoint, "commits"), default=None)


def _run_once(query: JobQuery, look: Callable[[], None]) -> None:
    from pyspark.errors import PySparkException

    try:
        query.start_again(once=True)
        while not query.query._jsq.awaitTermination(int(_LOOK_S * 1000)):  # noqa: SLF001
            look()
    except PySparkException as error:
        raise PlannedBatchOpenError(
            f"Query {query.name} was expected to commit the batch it had planned, but that failed: "
            f"{query.refusal or (str(error).splitlines() or [repr(error)])[0]}",
            state_after=_left(query),
            remedy="Correct what makes the batch fail, then start the job again.",
        ) from error


def _left(query: JobQuery) -> str:
    return f"Its checkpoint {query.location} is as Spark left it; the next start runs that batch again."
