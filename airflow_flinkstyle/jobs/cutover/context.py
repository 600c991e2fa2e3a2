"""What every phase of a cutover is given, how an attempt shows that it is at work, and where it all ends."""

from __future__ import annotations

import logging
import os
import socket
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from airflow_flinkstyle.clock import LEASE_CLOCK, now_ms
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.errors import STEP_TIMEOUT, JobNotRunningError
from airflow_flinkstyle.jobs.request_slot import AS_IT_IS
from airflow_flinkstyle.jobs.status import Dead, Running, Starting, describe_status
from airflow_flinkstyle.jobs.stopped.last_run import failed_before
from airflow_flinkstyle.protocol.records import WorkRecord
from airflow_flinkstyle.storage.errors import StoreError
from airflow_flinkstyle.types import Generation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from typing_extensions import Self

    from airflow_flinkstyle.jobs.client import JobClient
    from airflow_flinkstyle.jobs.journal import CutoverJournal
    from airflow_flinkstyle.jobs.request_slot import CutMode
    from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget
    from airflow_flinkstyle.jobs.status import Successor
    from airflow_flinkstyle.protocol.board import JobBoard
    from airflow_flinkstyle.protocol.records import CutoverKind
    from airflow_flinkstyle.protocol.rehearsal_records import Rehearse

log = logging.getLogger(__name__)

Where = Literal["untouched", "old", "new"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Where the job and its producers are, for good."""

    where: Where
    """``old`` and ``new``: the cluster of a migration, the version of an upgrade."""
    generation: int | None
    detail: str


UNTOUCHED = Settled(where="untouched", generation=None, detail="The window never began.")


_WINDOW_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class CutoverSettings:
    """How long each part of the window may take, in seconds."""

    standby_timeout_s: float = 180.0
    """For the next driver to come up, beside what a rehearsal may take; nothing is held meanwhile."""
    hold_timeout_s: float = 60.0
    """For producers to obey; people who hold them by hand need more."""
    steady_window_s: float = 1.0
    """How long nothing may arrive; longer than the producers' ``linger.ms`` plus a request."""
    broker_timeout_s: float = 60.0
    """For how long a request to a cluster is repeated: a broker restarts, partitions change leaders."""
    hold_lease_s: float = 120.0
    """How long a hold of the producers lasts without a renewal; after as long without a beat another caller
    may bring the cutover to rest. Longer than a store or a machine may be away for."""
    caught_up_timeout_s: float = 120.0
    stop_timeout_s: float = 300.0
    takeover_timeout_s: float = 180.0
    first_commit_timeout_s: float = 180.0


@dataclass(kw_only=True)
class CutoverContext:
    """One cutover of one job, as every attempt and every task of it knows it."""

    NEXT: ClassVar[str] = "next"
    """Ends the claim key of the next driver."""
    CUTOVER: ClassVar[CutoverKind] = "migration"

    client: JobClient
    journal: CutoverJournal
    """Made with the phases of the cutover."""
    spec: JobSpec
    """The job as it runs then."""
    target: SubmitTarget
    hot_savepoint_id: str | None = None
    """Restored by the standby driver while it waits."""
    rehearse: Rehearse | None = None
    """What the standby driver tries on a copy of the hot savepoint; None: nothing."""
    settings: CutoverSettings = CutoverSettings()
    stop_mode: CutMode = AS_IT_IS
    part_of: str | None = None
    """The cutover that this one is made for, which stays open meanwhile."""
    work: Work | None = None
    """What shows that this attempt is at work; None while none is."""

    def at_work(self) -> Work:
        """Return the context manager that shows, while an attempt works on the cutover, that it does."""
        self.work = Work(
            self.client.view.board,
            self.journal,
            cutover=self.CUTOVER,
            lease_s=self.settings.hold_lease_s,
            renew=self.renew_held,
        )
        return self.work

    def renew_held(self) -> float:
        """Renew what this cutover holds; see ``Work``."""
        return 0.0

    def show_work(self) -> None:
        """Show now that this attempt is at work: a driver waits for that before it takes over.

        Raises:
            JobError: ``HOLD_LOST`` if it is too late for that.
        """
        if self.work is not None:
            self.work.beat_if_due()

    def phase(
        self,
        name: str,
        intent: Mapping[str, Any],
        action: Callable[[], Mapping[str, Any]],
        *,
        again: bool = False,
    ) -> Mapping[str, Any]:
        """Do a phase unless the journal has its result; ``again`` does it anyway."""
        phase = self.journal.open(name, intent)
        if phase.record.result is not None:
            if again:
                action()
            return phase.record.result
        log.info("Phase %s", name)
        return self.journal.close(phase, action())

    def in_window(self) -> Self:
        """Return the same with a client that polls often, for as long as the job is down."""
        client = self.client
        return replace(
            self,
            client=replace(client, view=replace(client.view, poll_s=min(client.view.poll_s, _WINDOW_POLL_S))),
        )

    def generation(self, which: str) -> Generation:
        """Return generation ``old`` or ``new`` as the journal has it."""
        number = (self.journal.result("standby") or {})[which]
        return Generation(int(number))

    def old(self) -> Generation:
        """Return the generation to move: as first journalled, else the one that runs now.

        A driver that has died is started again, and one that is coming up is waited for: it is to save and
        stop.

        Raises:
            JobNotRunningError: If the job has ended, or was never started.
            DriverFailedError: As ``wait_running``.
            JobError: ``STEP_TIMEOUT``, as ``wait_running``.
        """
        record = self.journal.read("standby")
        if record is not None:
            return Generation(int(record.intent["old"]))
        status = self.client.drivers.ensure_running(self.client.view.settled_status())
        if isinstance(status, (Dead, Starting)):
            timeout_s = self.settings.stop_timeout_s
            status = self.client.drivers.wait_running(status.run.generation, timeout_s=timeout_s)
        if (failed := failed_before(self.client.view, status)) is not None:  # and a savepoint was taken since
            raise self.client.drivers.driver_failed(failed)
        if not isinstance(status, Running):
            raise JobNotRunningError(
                f"Job {self.client.view.job} was expected to run, found that {describe_status(status)}.",
                state_after="Nothing was changed.",
                remedy="Start it as it ran before, then try again.",
            )
        return status.run.generation

    def require_same_run(self) -> None:
        """Require that the run which an earlier attempt has named still has the job.

        Raises:
            JobNotRunningError: If another run was started since: its script may read other topics.
        """
        old, current = self.old(), self.client.view.board.current()
        if current is not None and current.value.head != old:
            raise JobNotRunningError(
                f"Generation {old} of job {self.client.view.job} was expected to run, found that generation "
                f"{current.value.head} was started since.",
                state_after="That one has the job; nothing was held or stopped.",
                remedy="Trigger this again as a new run.",
            )

    @property
    def new(self) -> Generation | None:
        """The next generation, if it was ever claimed."""
        return self.client.view.own_claim(self.next_key)

    @property
    def next_key(self) -> str:
        """The claim key of the next driver."""
        return f"{self.journal.migration_id}/{self.NEXT}"

    @property
    def stop_key(self) -> str:
        """The stop request's key: the same for every attempt."""
        return f"{self.journal.migration_id}/stop"


def late(who: str, what: str, timeout_s: float, *, found: Successor | None = None) -> FlinkstyleError:
    """Return the error for a step that took too long; it names the state of the driver ``found``."""
    state = f", found that {found.state}" if found is not None else ""
    return STEP_TIMEOUT.with_text(
        f"{who} was expected to {what} within {timeout_s:g} s{state}.",
        state_after="It may still be starting.",
        remedy="Look at the end of its log for what holds it up, then try again.",
    )


# Shows that an attempt works on a cutover, and renews what it holds, for as long as its process lives.
#
# A caller that sees no new beat for a whole lease may bring the cutover to rest. That is a courtesy, not a
# fence: an attempt that was taken for dead finds itself replaced in the journal.

_BEATS_PER_LEASE: Final = 5
DUE_S: Final = 0.5
"""How often the attempt beats while a driver waits for that."""


class Work:
    """One attempt at work, as a context manager around it."""

    def __init__(
        self,
        board: JobBoard,
        journal: CutoverJournal,
        *,
        cutover: CutoverKind,
        lease_s: float,
        renew: Callable[[], float],
    ) -> None:
        """Describe an attempt that has begun.

        Args:
            board: The job's records.
            journal: The cutover's.
            cutover: What it is.
            lease_s: After how many seconds without a beat other callers take it for dead.
            renew: Renews what is held; returns for how many seconds producers are certain to be held from now
                on, 0 if no driver may take over for that.
        """
        self._board, self._journal, self._cutover = board, journal, cutover
        self._lease_s, self._renew = lease_s, renew
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._number, self._beaten_s = 0, 0.0

    def __enter__(self) -> None:
        """Beat once, and again until it is left."""
        self.beat()
        threading.Thread(target=self._keep, name="flinkstyle-cutover", daemon=True).start()

    def __exit__(self, *_: object) -> None:
        """Beat no more; what is held ends by itself unless it was released."""
        self._ended.set()

    def beat(self) -> None:
        """Renew what is held, and record that this attempt is at work."""
        with self._lock:
            held_s = self._renew()
            self._number += 1
            work = WorkRecord(
                cutover=self._cutover,
                attempt=self._journal.attempt,
                beat=self._number,
                holder=f"{socket.gethostname()}, process {os.getpid()}",
                lease_s=self._lease_s,
                held_s=held_s,
                written_at_ms=now_ms(),
            )
            self._board.write_work(self._journal.migration_id, work)
            self._beaten_s = LEASE_CLOCK.now_s

    def beat_if_due(self) -> None:
        """Beat, unless that was done a moment ago."""
        if LEASE_CLOCK.now_s - self._beaten_s >= DUE_S:
            self.beat()

    def _keep(self) -> None:
        while not self._ended.wait(self._lease_s / _BEATS_PER_LEASE):
            try:
                self._journal.check()
                self.beat()
            except StoreError as error:
                log.warning("It could not be shown that this attempt works: %s", error)
            except FlinkstyleError as error:  # a later attempt is in charge, or the hold has ended
                if not self._ended.is_set():
                    log.warning("%s", error)
                return
