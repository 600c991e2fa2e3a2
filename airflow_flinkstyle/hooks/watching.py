"""Watched jobs: what a trigger looks at, of many at once, and what a task does for those that need it.

The trigger looks as seldom as it may: a listing shows the pulses of all jobs, and only those without a sign
of life are looked at (``jobs.rounds``). It starts nothing. A task does: it starts a driver again, settles
what was left, and tells what is wrong.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import wait
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.clock import CLOCK
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.hooks.store_threads import StoreThreads
from airflow_flinkstyle.jobs.relaunch import retry_pause_s
from airflow_flinkstyle.jobs.rounds import QUIET_S, Rounds
from airflow_flinkstyle.jobs.start.home import require_old_job_ended
from airflow_flinkstyle.jobs.status import (
    OF_THIS_PROCESS,
    NeverStarted,
    Running,
    Starting,
    describe_status,
    stays_down,
)
from airflow_flinkstyle.jobs.stopped.last_run import failed_before
from airflow_flinkstyle.jobs.unsettled import find_unsettled
from airflow_flinkstyle.protocol.board import JobBoard, is_job_name
from airflow_flinkstyle.protocol.pulse import pulses
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.savepoint.repository.summary import newest_summary
from airflow_flinkstyle.storage.errors import StoreUnavailableError
from airflow_flinkstyle.storage.meter import Meter, MeteredStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_flinkstyle.clock import Clock
    from airflow_flinkstyle.hooks.job import StreamingJobHook
    from airflow_flinkstyle.jobs.client import JobClient
    from airflow_flinkstyle.jobs.status import JobStatus, Run
    from airflow_flinkstyle.savepoint.repository.summary import Summary

log = logging.getLogger(__name__)
BURST_MINUTES: Final = 30
"""After a rest so many minutes' requests may be made at once: a host that is lost takes many jobs with it."""
_NOT_URGENT: Final = 10
"""So many of them for looks that can wait."""
_NO_PULSES_S: Final = 30.0
"""How often the pulses of a root that has none are listed."""
_NAMES_S: Final = 60.0
"""How long the names of the jobs below a root count."""
MOST_LOOKS_S: Final = 10.0
"""How long one round looks; those that it has not come to are due in the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InNeed:
    """A job that needs a task."""

    mark: str
    """What was found: the same again is not told again."""
    seen: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """What was seen of its driver (``Sightings.as_json``)."""


class WatchedRoot:
    """Some jobs of one root, or all of them, as one process watches them; one thread at a time."""

    def __init__(
        self,
        jobs: Mapping[str, float | None] | None = None,
        *,
        requests_per_s: float = 2.0,
        clock: Clock = CLOCK,
    ) -> None:
        """Begin with nothing seen.

        Args:
            jobs: Their names, and how old the newest savepoint of each may be, in seconds; None for all jobs
                below the root, whose savepoints may be of any age.
            requests_per_s: How many requests may be made to the store, on average.
            clock: By which it looks.
        """
        per_minute = round(requests_per_s * 60)
        self.meter = Meter(per_minute, burst_minutes=BURST_MINUTES, now_s=lambda: clock.now_s)
        self._jobs, self._rounds, self._clock = jobs, Rounds(clock), clock
        self._listed_s = self._named_s = float("-inf")
        self._work: dict[str, str] = {}
        """Job -> versions of the work on its unfinished migrations and upgrades, as seen last."""

    def look(self, hook: StreamingJobHook, told: Mapping[str, str]) -> dict[str, InNeed]:
        """Look once at whatever is due; blocking.

        Args:
            hook: On the root.
            told: Job -> what was found of it and told before.

        Returns:
            The jobs that need a task.

        Raises:
            FlinkstyleError: If the store cannot be asked. What is wrong with one job is wanted instead.
        """
        store: Any = MeteredStore(hook.store, self.meter)
        until_s, rounds = self._clock.now_s + MOST_LOOKS_S, self._rounds
        self._look_at_all(store)
        found: dict[str, InNeed | None] = {}
        for job in rounds.due():
            if self.meter.may_ask() and self._clock.now_s < until_s:
                found[job] = self._look_at(hook, store, job, told)
        if self._may_ask_now_and_then and (whole := rounds.whole()) is not None and whole not in found:
            found[whole] = self._look_at(hook, store, whole, told, whole=True)
            rounds.was_whole(whole, is_urgent=bool(self._work.get(whole)))
        for job in rounds.in_turn():
            if self._may_ask_now_and_then and self._clock.now_s < until_s:
                found[job] = self._look_at(hook, store, job, told)
        return {job: one for job, one in found.items() if one is not None}

    @property
    def _may_ask_now_and_then(self) -> bool:
        """Whether what is not urgent may be asked: most of the burst is for jobs that end together."""
        return self.meter.may_ask(of_newest=_NOT_URGENT)

    def _look_at_all(self, store: Any) -> None:  # noqa: ANN401 - a store that is counted
        now_s = self._clock.now_s
        if self._jobs is not None:
            self._rounds.watch(self._jobs)
        elif now_s - self._named_s >= _NAMES_S:
            self._rounds.watch(filter(is_job_name, store.folders()))  # one that is no job was never started
            self._named_s = now_s
        if self._rounds.has_pulses or now_s - self._listed_s >= _NO_PULSES_S:
            self._rounds.saw_pulses(pulses(store))
            self._listed_s = now_s

    # --- one job ------------------------------------------------------------------------------

    def _look_at(
        self,
        hook: StreamingJobHook,
        store: Any,  # noqa: ANN401 - a store that is counted
        job: str,
        told: Mapping[str, str],
        *,
        whole: bool = False,
    ) -> InNeed | None:
        """Look at one job, and note when it is due again; None if it needs nothing, or nothing new."""
        client = _counted(hook.client(job), store)
        try:
            if not whole and self._still_beats(client):
                return None
            found = self._judge(client, client.view.status())
        except FlinkstyleError as error:
            found = self._not_judged(job, error)
        if found is not None:
            is_new = told.get(job) != found.mark
            (self._rounds.called if is_new else self._rounds.is_down)(job)
            return found if is_new else None
        return self._look_at_rest(client, told.get(job)) if whole else None

    def _not_judged(self, job: str, error: FlinkstyleError) -> InNeed | None:
        """Return what is wanted for a job that cannot be looked at: the others are watched all the same."""
        if isinstance(error, StoreUnavailableError):
            raise error
        if not error.retryable:
            return InNeed(mark=_mark(error))
        log.warning("Job %s is looked at again in a while: %s", job, error.problem)  # its cluster is away
        self._rounds.called(job)
        return None

    def _still_beats(self, client: JobClient) -> bool:
        """Return whether a job that runs without pulses has written a heartbeat; one request."""
        before = self._rounds.heartbeat_of(client.view.job)
        if before is None:
            return False
        found = client.view.board.heartbeat_version(before[0])
        if found is None or found == before[1]:
            return False
        self._rounds.lives(client.view.job, (before[0], found))
        return True

    def _judge(self, client: JobClient, status: JobStatus) -> InNeed | None:
        """Return what a job's driver needs, and note when that is looked at again if it needs nothing now."""
        job, rounds = client.view.job, self._rounds
        if isinstance(status, NeverStarted) or stays_down(status):
            failed = failed_before(client.view, status)
            rounds.is_down(job)
            return None if failed is None else InNeed(mark=f"generation {failed.generation} has failed")
        run = status.run
        if isinstance(status, Starting):
            rounds.starts(job)
        elif isinstance(status, Running) and self._is_heard(job, run):
            rounds.lives(job, (run.generation, client.view.board.heartbeat_version(run.generation) or ""))
        elif isinstance(status, Running):
            rounds.is_silent(job, certain_in_s=run.claim.lease_s - run.silence.still_s)
        elif (waits_s := _waits_s(client, run)) > 0:
            rounds.is_silent(job, certain_in_s=2 * waits_s)
        else:
            beat = (run.heartbeat.incarnation, run.heartbeat.beat) if run.heartbeat is not None else ()
            mark = f"{type(status).__name__} {run.generation} {run.submit_number} {beat}"
            return InNeed(mark=mark, seen=client.view.sightings.as_json(run.claim.claim_id))
        return None

    def _is_heard(self, job: str, run: Run) -> bool:
        return run.silence.still_s < QUIET_S and (run.silence.changed or not self._rounds.is_suspect(job))

    def _look_at_rest(self, client: JobClient, told: str | None) -> InNeed | None:
        """Look at what needs a task though the job runs, or is down on purpose."""
        try:
            mark = self._fault(client)
        except FlinkstyleError as error:
            if error.retryable:
                raise
            mark = _mark(error)
        return InNeed(mark=mark) if mark not in (None, told) else None

    def _fault(self, client: JobClient) -> str | None:
        """Return what is wrong beside the driver: an upgrade left alone, a savepoint that is too old."""
        job = client.view.job
        work = ", ".join(f"{one.migration_id} {one.version}" for one in find_unsettled(client.view.board))
        before, self._work[job] = self._work.get(job), work
        if work and work == before:
            return f"nobody works on {work}"
        require_old_job_ended(client.view, "This one is as it was.")
        max_age_s = self._jobs.get(job) if self._jobs is not None else None
        if max_age_s is None:
            return None
        newest = newest_summary(client.view.repository)
        if newest is not None and newest.is_at_most(max_age_s):
            return None
        return f"savepoint {newest.savepoint_id if newest is not None else None} is too old"


def _counted(client: JobClient, store: Any) -> JobClient:  # noqa: ANN401 - as above
    """Return a client whose requests are counted."""
    job = client.view.job
    view = replace(client.view, board=JobBoard(store, job), repository=SavepointRepository(store, job))
    return replace(client, view=view)


def _waits_s(client: JobClient, run: Run) -> float:
    """Return how long a driver is still left alone that failed of a cause that may pass; else 0."""
    is_to_wait = (run.may_be_retried or run.was_not_taken) and not run.was_retried_enough(
        client.view.clock.now_ms()
    )
    return retry_pause_s(run) - run.silence.still_s if is_to_wait else 0.0


def _mark(error: FlinkstyleError) -> str:
    return f"{error.code}: {error.problem}"


_roots: dict[tuple[object, ...], WatchedRoot] = {}
_lock = threading.Lock()


def watched_root(conn_id: str, jobs: Mapping[str, float | None] | None, requests_per_s: float) -> WatchedRoot:
    """Return what this process has seen of these jobs: a trigger that follows another one goes on from it."""
    key = (conn_id, requests_per_s, None if jobs is None else tuple(sorted(jobs.items())))
    with _lock:
        return _roots.setdefault(key, WatchedRoot(jobs, requests_per_s=requests_per_s))


# --- what a task does -----------------------------------------------------------------------------

MOST_AT_ONCE: Final = 8
"""So many jobs are looked after at a time: each may start a process that submits a driver."""
PATIENCE_S: Final = 300.0
"""How long others wait for a job that hangs: the watch goes on without it, and looks at it again."""


def keep_up(hook: StreamingJobHook, job: str, max_age_s: float | None) -> tuple[JobStatus, Summary | None]:
    """Start a job's driver again if it died, and look at its newest savepoint.

    Args:
        hook: What opens connections.
        job: Which.
        max_age_s: How old the newest savepoint may be; None for any age.

    Returns:
        What the job does, and its newest savepoint; None, too, for a job that is meant to be down.

    Raises:
        DriverFailedError: If its driver said why it failed.
        OldJobRunsError: If the checkpoint that it was adopted from has moved on.
        SavepointStaleError: If the newest savepoint is too old.
    """
    from airflow_flinkstyle.hooks.migration import settle_abandoned
    from airflow_flinkstyle.jobs.errors import SavepointStaleError

    client = hook.client(job)
    settle_abandoned(hook, job)
    found = client.view.status()
    if (failed := failed_before(client.view, found)) is not None:
        raise client.drivers.driver_failed(failed)
    if stays_down(found):
        require_old_job_ended(client.view, f"This one does not run: {describe_status(found)}.")
        return found, None
    status = hook.look_after(job)
    require_old_job_ended(client.view, f"This one runs too: {describe_status(status)}.")
    newest = hook.newest_savepoint(job)
    if max_age_s is not None and (newest is None or not newest.is_at_most(max_age_s)):
        raise SavepointStaleError.of(job, max_age_s, newest.savepoint_id if newest else None)
    log.info("Job %s: %s", job, describe_status(status))
    return status, newest


def keep_all_up(
    hook: StreamingJobHook, ages: Mapping[str, float | None], seen: Mapping[str, Mapping[str, Any]]
) -> dict[str, FlinkstyleError]:
    """Do so for several jobs, some at a time; none waits for what is wrong with another one.

    Args:
        hook: What opens connections.
        ages: Job -> how old its newest savepoint may be.
        seen: Job -> what was seen of its driver elsewhere (``Sightings.as_json``).

    Returns:
        Job -> the error of each that is not well and will not be by itself.
    """
    for sightings in seen.values():
        OF_THIS_PROCESS.merge(sightings)
    threads = StoreThreads("flinkstyle watch", MOST_AT_ONCE)
    begun = {job: threads.submit(partial(keep_up, hook, job, max_age_s)) for job, max_age_s in ages.items()}
    wait(begun.values(), timeout=PATIENCE_S)
    found: dict[str, FlinkstyleError] = {}
    for job, future in begun.items():
        if not future.done():
            log.warning("Job %s is left to the next look: nothing came of it in %g s", job, PATIENCE_S)
            continue
        error = future.exception()
        if isinstance(error, FlinkstyleError) and error.retryable:
            log.warning("Job %s is looked at again: %s", job, error)
        elif isinstance(error, FlinkstyleError):
            found[job] = error
        elif error is not None:
            raise error
    return found
