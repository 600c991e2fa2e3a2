"""Watched jobs: how a trigger inspects many of them at once, and what a task does for those that need it.

The trigger makes as few requests as it can: a listing shows the pulses of all jobs, and it inspects only jobs
without a sign of life (``jobs.rounds``). It starts nothing. A task does: it starts a driver again, settles
unfinished migrations and upgrades, and reports what is wrong.
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
from airflow_flinkstyle.hooks.errors import ConnectionMissingError
from airflow_flinkstyle.hooks.store_threads import StoreThreads
from airflow_flinkstyle.jobs.relaunch import retry_pause_s
from airflow_flinkstyle.jobs.rounds import QUIET_S, Rounds
from airflow_flinkstyle.jobs.start.home import require_old_job_ended, require_order_stands
from airflow_flinkstyle.jobs.status import (
    OF_THIS_PROCESS,
    RETRY_FOR_S,
    Dead,
    Failed,
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
from airflow_flinkstyle.savepoint.files.verified import why_stale
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.savepoint.repository.summary import newest_summary
from airflow_flinkstyle.storage.errors import StoreUnavailableError
from airflow_flinkstyle.storage.meter import Meter, MeteredStore

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from airflow_flinkstyle.clock import Clock
    from airflow_flinkstyle.hooks.job import StreamingJobHook
    from airflow_flinkstyle.jobs.client import JobClient
    from airflow_flinkstyle.jobs.status import JobStatus, Run
    from airflow_flinkstyle.savepoint.repository.summary import Summary

log = logging.getLogger(__name__)
BURST_MINUTES: Final = 30
"""After a rest, so many minutes' requests may be made at once: a lost host ends many jobs together."""
_NOT_URGENT: Final = 10
"""How many of these requests may be for what can wait."""
_NO_PULSES_S: Final = 30.0
"""How often the pulses of a root that has none are listed."""
_NAMES_S: Final = 60.0
"""How long the names of the jobs below a root count."""
LONGEST_ROUND_S: Final = 10.0
"""How long one round may take; jobs that it has not reached are due in the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InNeed:
    """A job that needs a task."""

    mark: str
    """Names what is wrong: a trigger does not fire twice for the same mark."""
    seen: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Versions of its driver's records, and for how long each has not changed (``Sightings.as_json``)."""
    lasts: bool = False
    """It has needed one for ``RETRY_FOR_S``: reported, also if the reason may still pass."""


class WatchedRoot:
    """Some jobs of one root, or all of them, as one process watches them; one thread at a time."""

    def __init__(
        self,
        jobs: Mapping[str, float | None] | None = None,
        *,
        requests_per_s: float = 2.0,
        clock: Clock = CLOCK,
    ) -> None:
        """Begin knowing nothing of the jobs.

        Args:
            jobs: Their names, and how old the newest savepoint of each may be, in seconds; None for all jobs
                below the root, whose savepoints may be of any age.
            requests_per_s: How many requests may be made to the store, on average.
            clock: Times the rounds.
        """
        per_minute = round(requests_per_s * 60)
        self.meter = Meter(per_minute, burst_minutes=BURST_MINUTES, now_s=lambda: clock.now_s)
        self._jobs, self._rounds, self._clock = jobs, Rounds(clock), clock
        self._listed_s = self._named_s = float("-inf")
        self._work: dict[str, str] = {}
        """Job -> its unfinished migrations and upgrades with their versions, as last read."""
        self._wrong_since_s: dict[tuple[str, str], float] = {}
        """Job and part of it -> since when that needs a task, or cannot be inspected."""

    def inspect_due(self, hook: StreamingJobHook, reported: Mapping[str, str]) -> dict[str, InNeed]:
        """Inspect once each job that is due; blocking.

        Args:
            hook: On the root.
            reported: Job -> mark that was reported before.

        Returns:
            The jobs that need a task.

        Raises:
            FlinkstyleError: If the store does not answer. A fault of one job is in the result instead.
        """
        store: Any = MeteredStore(hook.store, self.meter)
        until_s, rounds = self._clock.now_s + LONGEST_ROUND_S, self._rounds
        self._refresh_rounds(store)
        in_need: dict[str, InNeed | None] = {}
        for job in rounds.due():
            if self.meter.may_ask() and self._clock.now_s < until_s:
                in_need[job] = self._inspect(hook, store, job, reported)
        if self._may_ask_not_urgent and (whole := rounds.whole()) is not None and whole not in in_need:
            need = in_need[whole] = self._inspect(hook, store, whole, reported, whole=True)
            rounds.was_whole(whole, is_urgent=bool(self._work.get(whole)), has_need=need is not None)
        for job in rounds.in_turn():
            if self._may_ask_not_urgent and self._clock.now_s < until_s:
                in_need[job] = self._inspect(hook, store, job, reported)
        return {job: need for job, need in in_need.items() if need is not None}

    @property
    def _may_ask_not_urgent(self) -> bool:
        """Whether requests that can wait may be made: most of the burst is for jobs that end together."""
        return self.meter.may_ask(of_newest=_NOT_URGENT)

    def _refresh_rounds(self, store: Any) -> None:  # noqa: ANN401 - a store that is counted
        now_s = self._clock.now_s
        if self._jobs is not None:
            self._rounds.watch(self._jobs)
        elif now_s - self._named_s >= _NAMES_S:
            self._rounds.watch(
                filter(is_job_name, store.folders())
            )  # a folder of another name was never a job
            self._named_s = now_s
        if self._rounds.has_pulses or now_s - self._listed_s >= _NO_PULSES_S:
            self._rounds.saw_pulses(pulses(store))
            self._listed_s = now_s

    # --- one job ------------------------------------------------------------------------------

    def _inspect(
        self,
        hook: StreamingJobHook,
        store: Any,  # noqa: ANN401 - a store that is counted
        job: str,
        reported: Mapping[str, str],
        *,
        whole: bool = False,
    ) -> InNeed | None:
        """Inspect one job, and note when it is due again; None if it needs nothing, or nothing new."""
        client = _counted(hook.client(job), store)
        try:
            if not whole and self._has_new_heartbeat(client):
                self._lasts(job, "driver", is_wrong=False)
                return None
            need = self._need_of_driver(client, client.view.status())
        except StoreUnavailableError:
            raise
        except FlinkstyleError as error:
            need = self._need_of_unreadable(job, "driver", error)
        else:
            lasts = self._lasts(job, "driver", is_wrong=need is not None)
            need = need and replace(need, lasts=lasts)
        if need is not None:
            is_new = reported.get(job) != need.mark
            (self._rounds.called if is_new else self._rounds.is_down)(job)
            return need if is_new else None
        return self._need_beside_driver(client, reported.get(job)) if whole else None

    def _need_of_unreadable(self, job: str, part: str, error: FlinkstyleError) -> InNeed | None:
        """Return what a job needs that cannot be inspected: the others are watched all the same."""
        lasts = self._lasts(job, part, is_wrong=True)
        if lasts or not error.retryable:
            return InNeed(mark=f"{error.code} lasts" if error.retryable else _mark(error), lasts=lasts)
        log.warning(
            "The %s of job %s cannot be inspected now, and is tried again: %s", part, job, error.problem
        )
        self._rounds.was_unreadable(job)
        return None

    def _lasts(self, job: str, part: str, *, is_wrong: bool) -> bool:
        """Note whether something is wrong with a part of a job; return whether it has been for long."""
        if not is_wrong:
            self._wrong_since_s.pop((job, part), None)
            return False
        now_s = self._clock.now_s
        return now_s - self._wrong_since_s.setdefault((job, part), now_s) >= RETRY_FOR_S

    def _has_new_heartbeat(self, client: JobClient) -> bool:
        """Return whether a job that runs without pulses has written a heartbeat; one request."""
        before = self._rounds.heartbeat_of(client.view.job)
        if before is None:
            return False
        version = client.view.board.heartbeat_version(before[0])
        if version is None or version == before[1]:
            return False
        self._rounds.lives(client.view.job, (before[0], version))
        return True

    def _need_of_driver(self, client: JobClient, status: JobStatus) -> InNeed | None:
        """Return what a job's driver needs; if nothing now, note when it is inspected again."""
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
            last_beat = (run.heartbeat.incarnation, run.heartbeat.beat) if run.heartbeat is not None else ()
            # Each try for the same reason has a number of its own, and is no other fault.
            refused = run.submit if run.submit is not None and run.submit.state == "failed" else None
            submit = run.submit_number if refused is None else refused.detail
            mark = f"{type(status).__name__} {run.generation} {submit} {last_beat}"
            if run.was_retried_enough(client.view.clock.now_ms()):
                mark = f"generation {run.generation} dies again and again"  # then it is tried once an hour
            return InNeed(mark=mark, seen=client.view.sightings.as_json(run.claim.claim_id))
        return None

    def _is_heard(self, job: str, run: Run) -> bool:
        return run.silence.still_s < QUIET_S and (run.silence.changed or not self._rounds.is_suspect(job))

    def _need_beside_driver(self, client: JobClient, reported: str | None) -> InNeed | None:
        """Return what needs a task though the job runs, or is down on purpose."""
        job = client.view.job
        try:
            mark = self._fault(client)
        except FlinkstyleError as error:  # also of a store that is not the root's: the old checkpoint's
            need = self._need_of_unreadable(job, "state", error)
        else:
            lasts = self._lasts(job, "state", is_wrong=mark is not None)
            need = None if mark is None else InNeed(mark=mark, lasts=lasts)
        return None if need is None or need.mark == reported else need

    def _fault(self, client: JobClient) -> str | None:
        """Return what is wrong beside the driver: an abandoned upgrade, a savepoint that is too old."""
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
        why = why_stale(client.view.repository, newest, max_age_s)
        return f"savepoints: {why}" if why is not None else None


def _counted(client: JobClient, store: Any) -> JobClient:  # noqa: ANN401 - as above
    """Return a client whose requests are counted."""
    job = client.view.job
    view = replace(client.view, board=JobBoard(store, job), repository=SavepointRepository(store, job))
    return replace(client, view=view)


def _waits_s(client: JobClient, run: Run) -> float:
    """Return how long to wait until a driver that failed of a passing cause is started again; else 0."""
    is_to_wait = (run.may_be_retried or run.was_not_taken) and not run.was_retried_enough(
        client.view.clock.now_ms()
    )
    return retry_pause_s(run) - run.silence.still_s if is_to_wait else 0.0


def _may_pass(error: FlinkstyleError) -> bool:
    """Return whether the next round may succeed; Airflow calls a connection missing while it cannot ask."""
    return error.retryable or isinstance(error, ConnectionMissingError)


def _mark(error: FlinkstyleError) -> str:
    return f"{error.code}: {error.problem}"


_roots: dict[tuple[object, ...], WatchedRoot] = {}
_lock = threading.Lock()


def watched_root(conn_id: str, jobs: Mapping[str, float | None] | None, requests_per_s: float) -> WatchedRoot:
    """Return what this process knows of these jobs, so that the next trigger continues from there."""
    key = (conn_id, requests_per_s, None if jobs is None else tuple(sorted(jobs.items())))
    with _lock:
        return _roots.setdefault(key, WatchedRoot(jobs, requests_per_s=requests_per_s))


# --- what a task does -----------------------------------------------------------------------------

MOST_AT_ONCE: Final = 8
"""How many jobs a task keeps up at a time: each may start a process that submits a driver."""
PATIENCE_S: Final = 300.0
"""How long others wait for a job that hangs; then they continue, and the next round inspects it again."""
SETTLES_S: Final = 600.0
"""How long they wait beside that for a job whose abandoned cutover is settled: its lease, a takeover and a
first batch take longer than ``PATIENCE_S``, and what this task leaves behind ends with its process."""


def keep_up(
    hook: StreamingJobHook, job: str, max_age_s: float | None, *, settling: Callable[[], object] = tuple
) -> tuple[JobStatus, Summary | None]:
    """Start a job's driver again if it died, and check the age of its newest savepoint.

    Args:
        hook: What opens connections.
        job: Which.
        max_age_s: How old the newest savepoint may be; None for any age.
        settling: Called if a cutover of the job may have to be settled.

    Returns:
        What the job does, and its newest savepoint; None, too, for a job that is meant to be down.

    Raises:
        DriverFailedError: If its driver recorded why it failed.
        JobError: ``OLD_JOB_RUNS`` if the checkpoint that it was adopted from has moved on.
        JobError: ``DRIVER_KEEPS_DYING`` if its driver, which is started again, has died many times in a row.
        JobError: ``SAVEPOINT_STALE`` if the newest savepoint is too old.
    """
    from airflow_flinkstyle.hooks.migration import settle_abandoned
    from airflow_flinkstyle.jobs.errors import DRIVER_KEEPS_DYING, SAVEPOINT_STALE
    from airflow_flinkstyle.wording import moment

    client = hook.client(job)
    settle_abandoned(hook, job, found=settling)
    before = client.view.status()
    if (failed := failed_before(client.view, before)) is not None:
        raise client.drivers.driver_failed(failed)
    if stays_down(before):
        require_old_job_ended(client.view, f"This one does not run: {describe_status(before)}.")
        return before, None
    if isinstance(before, (Dead, Failed)):
        require_order_stands(client.view, before.run.order)
    status = hook.look_after(job)
    require_old_job_ended(client.view, f"This one runs too: {describe_status(status)}.")
    if isinstance(before, Dead) and before.run.was_retried_enough(client.view.clock.now_ms()):
        since = moment(before.run.failing_since_ms or 0)
        raise DRIVER_KEEPS_DYING.error(
            job=job, generation=before.run.generation, times=before.run.retry, since=since
        )
    newest = hook.newest_savepoint(job)
    why = why_stale(client.view.repository, newest, max_age_s) if max_age_s is not None else None
    if why is not None:
        raise SAVEPOINT_STALE.error(job=job, max_age_s=max_age_s, found=why)
    log.info("Job %s: %s", job, describe_status(status))
    return status, newest


def keep_all_up(
    hook: StreamingJobHook,
    ages: Mapping[str, float | None],
    seen: Mapping[str, Mapping[str, Any]],
    lasting: Collection[str] = (),
) -> dict[str, FlinkstyleError]:
    """Keep several jobs up, some at a time; a fault of one holds up none of the others.

    Args:
        hook: What opens connections.
        ages: Job -> how old its newest savepoint may be.
        seen: Job -> what the trigger knows of its driver (``Sightings.as_json``).
        lasting: Jobs whose errors have lasted, so that those that may pass are returned, too.

    Returns:
        Job -> its error, for each job that does not recover by itself.
    """
    for sighting in seen.values():
        OF_THIS_PROCESS.merge(sighting)
    threads = StoreThreads("flinkstyle watch", MOST_AT_ONCE)
    settling: set[str] = set()
    begun = {
        job: threads.submit(partial(keep_up, hook, job, max_age_s, settling=partial(settling.add, job)))
        for job, max_age_s in ages.items()
    }
    wait(begun.values(), timeout=PATIENCE_S)
    wait([begun[job] for job in tuple(settling)], timeout=SETTLES_S)  # the threads still add to it
    errors: dict[str, FlinkstyleError] = {}
    for job, future in begun.items():
        if not future.done():
            log.warning("Job %s was not finished within %g s: the next round inspects it", job, PATIENCE_S)
            continue
        error = future.exception()
        if isinstance(error, FlinkstyleError) and _may_pass(error) and job not in lasting:
            log.warning("Job %s is inspected again in the next round: %s", job, error)
        elif isinstance(error, FlinkstyleError):
            errors[job] = error
        elif error is not None:
            raise error
    return errors
