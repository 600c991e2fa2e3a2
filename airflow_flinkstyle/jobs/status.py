"""What a job is doing: by its heartbeat and lease, by what was submitted, and by what this process sees.

A driver that could not write its heartbeat for its lease has ended itself. So a process that sees no change
for that long, on its own clock, knows that the driver is dead, on whichever host it ran.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.clock import LEASE_CLOCK
from airflow_flinkstyle.jobs.deployments.base import (
    BY_SUPERVISOR,
    PREPARING_S,
    Alive,
    DriverPending,
    DriverState,
    Gone,
    Unknown,
)
from airflow_flinkstyle.python_versions import assert_never
from airflow_flinkstyle.wording import batch_words, counted, moment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_flinkstyle.clock import Clock
    from airflow_flinkstyle.protocol.records import (
        Claim,
        Heartbeat,
        IncarnationRecord,
        Submit,
        TakeoverOrder,
    )
    from airflow_flinkstyle.types import Generation, Incarnation


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """What this process has seen of a record that should change."""

    still_s: float
    """Seconds from when this process first read it as it is now to when it last read it."""
    changed: bool
    """Whether this process saw it change; if not, it may be an old state that was there before."""


MOST_SIGHTINGS = 20_000
"""How many records are remembered at most; the one that was read longest ago is forgotten first."""


class Sightings:
    """What one process has seen, kept over all its reads."""

    def __init__(self, clock: Clock = LEASE_CLOCK) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[object, float, bool]] = {}

    def note(self, what: str, mark: object, *, begun_s: float) -> Sighting:
        """Note what a record was when it was read.

        Args:
            what: Names the record, uniquely over all stores and jobs.
            mark: Equal as long as it has not changed.
            begun_s: When the read began, by ``clock``: it may have changed since.
        """
        with self._lock:
            entry = self._seen.pop(what, None)  # and put back at the end
            if entry is None or entry[0] != mark:
                entry = (mark, self.clock.now_s, entry is not None)
            self._seen[what] = entry
            if len(self._seen) > MOST_SIGHTINGS:
                del self._seen[next(iter(self._seen))]
            _, since_s, changed = entry
        return Sighting(still_s=max(0.0, begun_s - since_s), changed=changed)

    def as_json(self, claim_id: str) -> dict[str, list[Any]]:
        """Return what was seen of a run's driver, for another process: mark, seconds, changed."""
        with self._lock:
            found = {what: self._seen.get(what) for what in (claim_id, f"{claim_id}/heartbeat")}
            now_s = self.clock.now_s
        return {what: [one[0], now_s - one[1], one[2]] for what, one in found.items() if one is not None}

    def merge(self, seen: Mapping[str, Sequence[Any]]) -> None:
        """Add what another process has seen of records that this one has not read yet.

        So a watcher's task need not watch for a whole lease what its trigger has watched before. A record
        that has the same mark now did not change in between, since versions never come back.
        """
        with self._lock:
            for what, (mark, still_s, changed) in seen.items():
                since_s = self.clock.now_s - still_s
                self._seen.setdefault(
                    what, (tuple(mark) if isinstance(mark, list) else mark, since_s, changed)
                )


OF_THIS_PROCESS = Sightings()
"""Shared by all clients: hooks make a new client for each call."""


CLAIM_GRACE_S = 60.0
"""How long a claim, or a submit in state ``asked``, counts as a start without a sign of a driver."""
START_GRACE_S = 300.0
"""How long a submitted driver that cannot be seen from here counts as starting without a heartbeat."""
STUCK_LOOK_S = 30.0
"""How long a process itself watches a driver that its cluster cannot begin, before it ends it."""
LEAST_RETRIES = 8
"""How many drivers in a row are started at least, after one failed, or was not taken, for a reason that may
pass."""
RETRY_FOR_S = 1800.0
"""How long such drivers are started at least; counted from the first, as long as no batch is committed."""
FROZEN_S = 60.0
"""How long at least a process that is seen here may be silent: its watchdog should have ended it before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Successor:
    """A driver that was submitted, or has begun, and has written no heartbeat yet."""

    state: DriverState
    grace_s: float
    """How long it may take to its next sign of life if it cannot be seen."""
    asked_s_ago: float = 0.0
    """Seconds since it was asked for, by the caller's clock, which may be minutes off; 0 if it was not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One generation: everything that was recorded about it, and what this process sees of it."""

    generation: Generation
    claim: Claim
    order: TakeoverOrder | None
    submit: Submit | None
    """The newest."""
    submit_number: int
    """Of the newest; 0 if there is none."""
    incarnation: Incarnation | None
    """The newest driver process that has begun; None before the first."""
    heartbeat: Heartbeat | None
    writer_state: DriverState
    """State of the process that wrote the heartbeat; Gone if there is none."""
    process: IncarnationRecord | None
    """The record by which that process describes itself; None if there is none."""
    successor: Successor | None
    """The newest driver, if it is a later one than wrote the heartbeat; else None."""
    silence: Sighting
    """Of the heartbeat."""
    stillness: Sighting
    """Of the heartbeat, the incarnations and the submits together."""

    @property
    def is_over(self) -> bool:
        """Whether the run's last heartbeat says that it has ended."""
        return self.heartbeat is not None and self.heartbeat.state in ("closed", "failed")

    @property
    def has_reported_end(self) -> bool:
        """Whether its newest driver, not one before it, reported that it has ended."""
        return self.is_over and self.successor is None

    @property
    def may_be_retried(self) -> bool:
        """Whether it failed for a reason that may pass by itself, or that the next submit may not meet.

        A driver that a supervisor has started has the logins of an earlier one: passwords may have changed.
        """
        if self.heartbeat is None or self.heartbeat.state != "failed":
            return False
        by_supervisor = self.submit is not None and self.submit.key.startswith(BY_SUPERVISOR)
        return self.heartbeat.transient or (by_supervisor and self.successor is None)

    @property
    def was_not_taken(self) -> bool:
        """Whether its newest driver could not be started, for a reason that may pass by itself."""
        return self.submit is not None and self.submit.state == "failed" and self.submit.transient

    @property
    def was_told_to_end(self) -> bool:
        """Whether its cluster or a person told it to end, not a request: the job is meant to be up."""
        return self.heartbeat is not None and self.heartbeat.told_to_end and bool(self.claim.launch)

    @property
    def has_run_through(self) -> bool:
        """Whether its script ended by itself, without an error (trigger ``availableNow``)."""
        last = self.heartbeat
        if last is None or not last.incarnation:  # a caller that saves a stopped job runs no script
            return False
        return (last.state, last.request_id, last.error) == ("closed", None, None)

    @property
    def retry(self) -> int:
        """How many times in a row its driver was started again."""
        return self.submit.retry if self.submit is not None else 0

    @property
    def next_retry(self) -> int:
        """The number of the next retry, as ``Submit.next_retry`` counts it."""
        return self.submit.next_retry(self.heartbeat, self.claim.lease_s) if self.submit is not None else 1

    @property
    def failing_since_ms(self) -> int | None:
        """Since when it has been retried without a committed batch; None before the first retry."""
        if self.submit is None or self.next_retry == 1:
            return None
        return self.submit.failing_since_ms or self.submit.asked_at_ms

    @property
    def retried_until_ms(self) -> int | None:
        """Until when at least it is retried; None before the first retry."""
        since_ms = self.failing_since_ms
        return since_ms + int(RETRY_FOR_S * 1000) if since_ms is not None else None

    def was_retried_enough(self, now_ms: int) -> bool:
        """Return whether its driver has been started again often and long enough."""
        until_ms = self.retried_until_ms
        return until_ms is not None and now_ms > until_ms and self.next_retry > LEAST_RETRIES

    @property
    def is_alive(self) -> bool:
        """Whether the driver that wrote the heartbeat lives."""
        if self.heartbeat is None or self.is_over or isinstance(self.writer_state, Gone):
            return False
        if self.successor is None and self.was_given_up and not self.silence.changed:
            return False
        seen_here = isinstance(self.writer_state, Alive)
        lease_s = max(2 * self.claim.lease_s, FROZEN_S) if seen_here else self.claim.lease_s
        return self.silence.still_s <= lease_s

    @property
    def is_coming_up(self) -> bool:
        """Whether a driver that has written no heartbeat yet is still expected."""
        if self.heartbeat is not None and self.heartbeat.state == "closed":
            return False
        if self.successor is None:
            return False
        match self.successor.state:
            case Gone():
                return False
            case Alive():
                return self.stillness.still_s <= PREPARING_S
            case DriverPending():
                return self.why_stuck is None
            case Unknown():
                return self.stillness.still_s <= self.successor.grace_s
            case _:
                assert_never(self.successor.state)

    @property
    def why_stuck(self) -> str | None:
        """Why its cluster cannot begin its newest driver, once it has taken too long; else None.

        Only this wait depends on the clock of the caller that asked: a driver that begins later is fenced.
        """
        if self.successor is None or not isinstance(self.successor.state, DriverPending):
            return None
        state = self.successor.state
        if self.stillness.still_s <= STUCK_LOOK_S or self.successor.asked_s_ago <= state.grace_s:
            return None
        return f"it had not begun {self.successor.asked_s_ago:.0f} s after it was asked for: {state.reason}"

    @property
    def holds_the_job(self) -> bool:
        """Whether this generation has a driver: running, waiting or starting."""
        return self.is_alive or self.is_coming_up

    @property
    def is_certain(self) -> bool:
        """Whether watching longer would show nothing more: it has ended, or was seen to do something."""
        if self.is_alive:
            return self.silence.changed
        state = self.successor.state if self.successor is not None else None
        seen_here = isinstance(state, Alive) or (isinstance(state, DriverPending) and state.may_pass)
        return seen_here or not self.is_coming_up or self.stillness.changed

    @property
    def was_given_up(self) -> bool:
        """Whether the newest submit is recorded as one without a driver: failed, or declared dead."""
        return self.submit is not None and self.submit.state in ("failed", "dead")


@dataclass(frozen=True, slots=True)
class NeverStarted:
    """No driver of this job has ever taken over, and none was ordered to."""


@dataclass(frozen=True, slots=True)
class Starting:
    """A driver was ordered to run and has not taken over yet."""

    run: Run


@dataclass(frozen=True, slots=True)
class Running:
    """A driver holds ``current.json`` and runs, or drains."""

    run: Run
    heartbeat: Heartbeat


@dataclass(frozen=True, slots=True)
class Closed:
    """The last run ended at a batch boundary and reported it."""

    run: Run
    heartbeat: Heartbeat


@dataclass(frozen=True, slots=True)
class Failed:
    """The last run ended with an error and reported it."""

    run: Run
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Dead:
    """The last run's driver has ended without reporting why."""

    run: Run


JobStatus = NeverStarted | Starting | Running | Closed | Failed | Dead


def classify(run: Run, *, is_current: bool) -> JobStatus:
    """Return the status of the run that may run."""
    heartbeat = run.heartbeat
    if heartbeat is not None and heartbeat.state == "closed":
        return Closed(run, heartbeat)
    if heartbeat is not None and run.is_alive and is_current and heartbeat.state in ("running", "draining"):
        return Running(run, heartbeat)
    if run.is_alive or run.is_coming_up:
        return Starting(run)
    if heartbeat is not None and heartbeat.state == "failed":
        code, text = heartbeat.error or ("UNKNOWN", "The driver gave no reason.")
        return Failed(run, code, text)
    return Dead(run)


def stays_down(status: JobStatus) -> bool:
    """Return whether the job is meant to be down: never started, or closed by a stop or its script."""
    return isinstance(status, NeverStarted) or (isinstance(status, Closed) and not status.run.was_told_to_end)


def describe_status(status: JobStatus) -> str:
    """Return the status as half a sentence for messages."""
    match status:
        case NeverStarted():
            return "it was never started"
        case Starting(run):
            again = f" again, start {run.retry} in a row" if run.retry > 1 else " again" if run.retry else ""
            state = run.successor.state if run.successor is not None else None
            why = f"; {state}" if isinstance(state, DriverPending) else ""
            return f"generation {run.generation} ({run.claim.claim_key}) is starting{again}{why}"
        case Running(run, heartbeat):
            failed = ", ".join(name for name, query in sorted(heartbeat.queries.items()) if query.failed)
            ended = f", but an error has ended {failed}: see the driver's log" if failed else ""
            return f"generation {run.generation} ({run.claim.claim_key}) is {heartbeat.state}{ended}"
        case Closed(run, heartbeat):
            why = ", told to end (SIGTERM), and is to be started again" if run.was_told_to_end else ""
            return f"generation {run.generation} has closed at {batch_words(heartbeat.batches())}{why}"
        case Failed(run, code, text):
            return f"generation {run.generation} has failed with {code}{_how_retried(run)}: {text}"
        case Dead(run):
            return f"the driver of generation {run.generation} {_how_it_died(run)}"


def _how_retried(run: Run) -> str:
    """Return how often and since when a failure that may pass is retried, and until when."""
    if not (run.may_be_retried or run.was_not_taken):
        return ""
    since_ms, until_ms = run.failing_since_ms, run.retried_until_ms
    if since_ms is None or until_ms is None:
        return " (it may pass by itself; a watcher starts the job again)"
    return (
        f" (it may pass by itself; started again {counted(run.retry, 'time')} since {moment(since_ms)}, and "
        f"until {moment(until_ms)}, {LEAST_RETRIES} times at least)"
    )


def _how_it_died(run: Run) -> str:
    submit = run.submit
    if submit is not None and submit.state == "failed":
        return f"could not be started{_how_retried(run)}: {submit.detail}"
    if submit is not None and submit.state == "dead":
        return f"was declared dead: {submit.detail}"
    newest = run.successor.state if run.successor is not None else run.writer_state
    if run.why_stuck is not None:
        return f"never came up: {run.why_stuck}"
    if isinstance(newest, Gone):
        return "has ended without reporting why"
    if run.successor is not None:
        return f"never came up: it has shown no sign of life for {run.stillness.still_s:.0f} s"
    return f"has ended without reporting why: its heartbeat has not changed for {run.silence.still_s:.0f} s"
