"""What a job is doing, read from the board and from its deployment."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.deployments.base import Alive, DriverState, Gone, Unknown

if TYPE_CHECKING:
    from airflow_flinkstyle.protocol.records import Claim, Go, Handle, Heartbeat
    from airflow_flinkstyle.types import Generation, Incarnation

CLAIM_GRACE_S = 60.0
"""How long a claim without a driver counts as a start in progress."""
UNSEEN_GRACE_S = 300.0
"""How long a driver that cannot be looked at and has not written yet counts as starting."""


def now_ms() -> int:
    """Return epoch milliseconds, UTC, by this machine's clock."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One generation, with everything that was recorded about it."""

    generation: Generation
    claim: Claim
    go: Go | None
    handle: Handle | None
    incarnation: Incarnation | None
    """The newest driver process that has begun; None before the first."""
    heartbeat: Heartbeat | None
    driver: DriverState
    relaunching: bool = False
    """Whether the newest driver process has not written a record of its own yet."""

    @property
    def is_over(self) -> bool:
        """Whether the run's own last word was that it has ended."""
        return self.heartbeat is not None and self.heartbeat.state in ("closed", "failed")

    @property
    def silent_for_s(self) -> float:
        """Seconds since the last word by the two machines' clocks: for people, never for a lease."""
        since_ms = self.heartbeat.written_at_ms if self.heartbeat else self.claim.claimed_at_ms
        return max(0.0, (now_ms() - since_ms) / 1000)

    def holds_the_job(self) -> bool:
        """Whether a waiting or starting driver must be expected under this generation."""
        if self.is_over:
            return False
        match self.driver:
            case Alive():
                return True
            case Gone():
                return False
            case Unknown():
                grace_s = CLAIM_GRACE_S if self.handle is None else UNSEEN_GRACE_S
                return self.silent_for_s < max(grace_s, self.claim.lease_s)


@dataclass(frozen=True, slots=True)
class NeverStarted:
    """No driver of this job has ever run a batch, and none was told to."""


@dataclass(frozen=True, slots=True)
class Starting:
    """A driver was told to run and has not taken over yet."""

    run: Run


@dataclass(frozen=True, slots=True)
class Running:
    """A driver holds ``current.json`` and runs, or drains."""

    run: Run
    heartbeat: Heartbeat


@dataclass(frozen=True, slots=True)
class Closed:
    """The last run ended at a batch boundary and said so."""

    run: Run
    heartbeat: Heartbeat


@dataclass(frozen=True, slots=True)
class Failed:
    """The last run ended with an error and said so."""

    run: Run
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Dead:
    """The last run's driver has ended without a word."""

    run: Run


JobStatus = NeverStarted | Starting | Running | Closed | Failed | Dead


def classify(run: Run, *, is_current: bool) -> JobStatus:
    """Return what the run that may run is doing."""
    heartbeat = run.heartbeat
    if heartbeat is not None and heartbeat.state == "closed":
        return Closed(run, heartbeat)
    relaunched = run.relaunching or (heartbeat is not None and run.incarnation != heartbeat.incarnation)
    if heartbeat is not None and heartbeat.state == "failed" and not (relaunched and run.driver == Alive()):
        code, text = heartbeat.error or ("UNKNOWN", "The driver gave no reason.")
        return Failed(run, code, text)
    if isinstance(run.driver, Gone):
        return Dead(run)
    if is_current and heartbeat is not None and heartbeat.state in ("running", "draining") and not relaunched:
        return Running(run, heartbeat)
    return Starting(run)


def describe_status(status: JobStatus) -> str:
    """Return the status as half a sentence for messages."""
    match status:
        case NeverStarted():
            return "it was never started"
        case Starting(run):
            return f"generation {run.generation} ({run.claim.claim_key}) is starting"
        case Running(run, heartbeat):
            return f"generation {run.generation} ({run.claim.claim_key}) is {heartbeat.state}"
        case Closed(run, heartbeat):
            return f"generation {run.generation} has closed at {heartbeat.batches() or 'no batch'}"
        case Failed(run, code, text):
            return f"generation {run.generation} has failed with {code}: {text}"
        case Dead(run):
            return f"the driver of generation {run.generation} has ended without a word"
