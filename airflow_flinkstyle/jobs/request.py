"""Ask the running driver of a job for savepoints and stops, and wait for the result."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs import request_slot
from airflow_flinkstyle.jobs.errors import (
    STEP_TIMEOUT,
    STOP_INCOMPLETE,
    JobNotRunningError,
    RequestBusyError,
    RequestFailedError,
    RequestPostponedError,
)
from airflow_flinkstyle.jobs.found import require_known
from airflow_flinkstyle.jobs.request_slot import (
    AS_IT_IS,
    Asked,
    CutMode,
    Ended,
    InProgress,
    Lost,
    PendingRequest,
    newest_attempt,
)
from airflow_flinkstyle.jobs.status import (
    Closed,
    Dead,
    Failed,
    JobStatus,
    NeverStarted,
    Running,
    Starting,
    describe_status,
    stays_down,
)
from airflow_flinkstyle.jobs.stopped.saving import take_stopped
from airflow_flinkstyle.savepoint.capture import copier
from airflow_flinkstyle.types import Incarnation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_flinkstyle.errors import FlinkstyleError
    from airflow_flinkstyle.jobs.request_slot import RequestState, TooLate, Withdrawn
    from airflow_flinkstyle.jobs.start.starts import JobStarts
    from airflow_flinkstyle.jobs.view import JobView
    from airflow_flinkstyle.protocol.records import Progress
    from airflow_flinkstyle.savepoint.capture.copier import CaptureProgress
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.types import Alignment, Generation

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The run has closed at these batches."""

    generation: Generation
    batches: Mapping[str, int]
    savepoint_id: str | None
    savepoint_error: str | None = None
    """Why there is no savepoint, where the caller chose to stop without one then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavepointOnly:
    """The savepoint exists, but the run did not close."""

    savepoint_id: str
    reason: str


StopOutcome = Stopped | SavepointOnly


def stop_incomplete(job: str, outcome: SavepointOnly) -> FlinkstyleError:
    """Return the error for a task that was to stop a job which has its savepoint and did not close."""
    return STOP_INCOMPLETE.with_text(
        f"Job {job} did not stop: {outcome.reason}",
        state_after=f"Savepoint {outcome.savepoint_id} was taken and can be used.",
        remedy="Ask again, as a retry of the task does: it stops the job once a driver of it runs.",
    )


def ignore(_pending: PendingRequest, _progress: Progress | None) -> None:
    """Ignore the progress of a wait."""


@dataclass(kw_only=True)
class JobRequests:
    """Requests to the running driver of one job; holds no state that a retry would miss."""

    view: JobView
    starts: JobStarts

    def request(
        self,
        request_key: str,
        command: Asked,
        *,
        mode: CutMode = AS_IT_IS,
        confirm: Callable[[], None] | None = None,
    ) -> PendingRequest:
        """Ask the running driver; the same key finds the same request, unless that failed and may work now.

        Raises:
            JobNotRunningError: If no driver runs.
            JobNotRunningError: ``JOB_UNKNOWN`` if nothing below the root has the job's name.
            RequestBusyError: If another request has not ended yet.
        """
        status = self.view.status()
        heartbeat = None if isinstance(status, NeverStarted) else status.run.heartbeat
        if isinstance(status, NeverStarted) or heartbeat is None:
            raise self._not_running(status)
        pending = newest_attempt(
            self.view.board, request_key, command, status.run.generation, heartbeat.incarnation, mode
        )
        if isinstance(status, Running):
            sent = request_slot.send(self.view.board, pending, confirm=confirm)
            return replace(pending, found=not sent)
        if pending.request_id != heartbeat.request_id and not self._was_sent(pending):
            raise self._not_running(status)  # else a retry finds its earlier request
        return pending

    def request_savepoint(self, request_key: str, *, mode: CutMode = AS_IT_IS) -> PendingRequest:
        """Ask the running driver for a savepoint."""
        return self.request(request_key, "savepoint", mode=mode)

    def begin_savepoint(
        self,
        key: str,
        *,
        timeout_s: float,
        alignment: Alignment = "none",
        progress: Callable[[CaptureProgress], None] = copier.ignore,
    ) -> PendingRequest | Manifest:
        """Ask the driver for a savepoint, or take one at once if the job has ended.

        A driver that died without reporting why, was told to end, is still coming up, or is to be started
        again after a fault that may pass, is brought up and waited for first: a caller that saves in its
        place closes the job, and no watcher would start it again then.

        Args:
            key: The caller, without the try number: a retry finds its savepoint again.
            timeout_s: How long a driver may take to come up, and then to take the savepoint.
            alignment: Of the queries; aligned only while the job runs.
            progress: Called after each file of a savepoint that is taken at once.

        Raises:
            JobNotRunningError: If an aligned savepoint of a job that has ended is asked for.
            DriverFailedError: If a driver that was started again has failed again.
        """
        mode, status = CutMode(alignment=alignment, timeout_s=timeout_s), self.view.settled_status()
        stays_failed = isinstance(status, Failed) and not self.starts.drivers.is_to_be_retried(status.run)
        has_ended = stays_failed or (isinstance(status, Closed) and stays_down(status))
        if has_ended and alignment == "aligned":
            raise JobNotRunningError(
                f"Job {self.view.job} was expected to run, so that its queries can be aligned, found that "
                f"{describe_status(status)}.",
                state_after="No savepoint was taken.",
                remedy="Start the job, or take the savepoint with alignment='none'.",
            )
        if has_ended:
            return take_stopped(self.view, key, progress=progress)
        if isinstance(status, (Dead, Starting, Failed, Closed)):
            status = self.starts.drivers.look_after(status, follow=self.starts.follow)
            if not isinstance(status, NeverStarted):
                self.starts.drivers.wait_running(status.run.generation, timeout_s=timeout_s)
        return self.request_savepoint(key, mode=mode)

    def finish_savepoint(
        self,
        pending: PendingRequest,
        *,
        timeout_s: float,
        watch: Callable[[PendingRequest, Progress | None], None] = ignore,
    ) -> Manifest:
        """Wait for a requested savepoint, and return it; if its driver dies, the next one is asked for it."""
        pending, end = self.wait(pending, timeout_s=timeout_s, watch=watch)
        if end.outcome != "done" or end.savepoint_id is None:
            raise self.request_failed(pending, end)
        return self.view.repository.read(end.savepoint_id)

    def request_stop(
        self,
        request_key: str,
        *,
        savepoint: bool,
        mode: CutMode = AS_IT_IS,
        confirm: Callable[[], None] | None = None,
    ) -> PendingRequest:
        """Ask the running driver to stop at a batch boundary."""
        command: Asked = "stop_with_savepoint" if savepoint else "stop"
        return self.request(request_key, command, mode=mode, confirm=confirm)

    def ask_to_stop(self, request_key: str, *, started_by: str | None = None) -> None:
        """Ask a run, also one that is starting, to stop without a savepoint; do not wait for it.

        The request to a driver that has not begun waits in its slot.

        Args:
            request_key: Who asks.
            started_by: Claim key of a start: the run of another one is left alone.

        Raises:
            JobNotRunningError: If no driver runs or is coming up.
            RequestBusyError: If another request has not ended yet.
        """
        status = self.view.status()
        if started_by is not None and not isinstance(status, NeverStarted):
            own = self.view.own_claim(started_by)
            if own != status.run.generation:
                log.info("%s has not started generation %d, which runs on", started_by, status.run.generation)
                return
        if not isinstance(status, Starting):
            self.request_stop(request_key, savepoint=False)
            return
        run = status.run
        writer = run.heartbeat.incarnation if run.heartbeat is not None else None
        expected = run.incarnation or Incarnation(0)
        if not run.is_alive and expected == (writer or 0):
            expected = Incarnation(expected + 1)  # no later driver has begun
        elif run.is_alive and writer is not None:
            expected = writer
        request_slot.send(
            self.view.board, request_slot.request_for(request_key, "stop", run.generation, expected)
        )

    def ask_to_attend(self, generation: Generation, seconds: float) -> None:
        """Tell a driver that it will be asked to stop within so many seconds, so that it polls more often."""
        heartbeat = self.view.run(generation).heartbeat
        if heartbeat is not None:
            request_slot.ask_to_attend(self.view.board, heartbeat, generation, seconds)

    def _was_sent(self, pending: PendingRequest) -> bool:
        if self.view.board.end(pending.generation, pending.request_id) is not None:
            return True
        slot = self.view.board.request(pending.generation)
        return slot is not None and slot.value.request_id == pending.request_id

    def poll(self, pending: PendingRequest) -> RequestState:
        """Return how far a request is."""
        state = request_slot.poll(self.view.board, pending)
        if isinstance(state, Lost) and self.published(pending) is not None:
            return Ended(
                outcome="done" if pending.command == "savepoint" else "failed",
                savepoint_id=pending.savepoint_id,
                detail=f"The savepoint was complete, then: {state.reason}",
                batches={},
            )
        if isinstance(state, InProgress) and not self.view.run(pending.generation).is_alive:
            # It may have reported its end after the first poll.
            again = request_slot.poll(self.view.board, pending)
            lost = Lost("The driver has ended without reporting why.")
            return lost if isinstance(again, InProgress) else again
        return state

    def published(self, pending: PendingRequest) -> Manifest | None:
        """Return the savepoint of a request once it is complete; the request may not have ended yet."""
        return None if pending.savepoint_id is None else self.view.repository.find(pending.savepoint_id)

    def cancel(self, pending: PendingRequest) -> Withdrawn | TooLate:
        """Take a request back, if the driver has not gone too far with it."""
        return request_slot.withdraw(self.view.board, pending)

    def wait(
        self,
        pending: PendingRequest,
        *,
        timeout_s: float,
        relaunch: bool = True,
        confirm: Callable[[], None] | None = None,
        watch: Callable[[PendingRequest, Progress | None], None] = ignore,
    ) -> tuple[PendingRequest, Ended]:
        """Wait for the end; if its driver dies, the next driver is sent the request again.

        Args:
            pending: The request.
            timeout_s: How long to wait.
            relaunch: Start a driver again that died without reporting why, or was told to end.
            confirm: As for ``request``, when the request is sent again.
            watch: Called at each poll with the pending request and its progress.

        Returns:
            The request that ended, which may be a later one than ``pending``, and its end.

        Raises:
            JobError: ``STEP_TIMEOUT`` if it has not ended in time; asking again finds what has been done.
            JobNotRunningError: If the driver is gone and nothing starts it again.
        """
        wait = self.view.waiting(timeout_s)
        while True:
            state = self.poll(pending)
            if isinstance(state, Ended):
                again = self._request_again(pending, state, confirm)
                if again is None:
                    return pending, state
                pending = again
                continue
            if isinstance(state, Lost):
                pending = self._request_of_next(pending, state, relaunch=relaunch, confirm=confirm)
            watch(pending, state.progress if isinstance(state, InProgress) else None)
            if not wait.again():
                raise STEP_TIMEOUT.with_text(
                    f"Request {pending.request_id} ({pending.command}) to job {self.view.job} was expected "
                    f"to end within {timeout_s:g} s.",
                    state_after="The driver gives up what it may undo, and ends a plain stop.",
                    remedy="Ask again with the same key, perhaps with more time: it finds what was done.",
                )

    def _request_again(
        self, pending: PendingRequest, end: Ended, confirm: Callable[[], None] | None
    ) -> PendingRequest | None:
        """Ask again if an earlier try sent the request that failed; None if not, or if it cannot be."""
        if not pending.found or end.outcome not in request_slot.CHANGED_NOTHING:
            return None
        try:
            asked = self.request(pending.request_key, pending.command, mode=pending.mode, confirm=confirm)
        except (RequestBusyError, JobNotRunningError):
            return None
        return asked if asked.request_id != pending.request_id else None

    def _request_of_next(
        self,
        pending: PendingRequest,
        lost: Lost,
        *,
        relaunch: bool,
        confirm: Callable[[], None] | None,
    ) -> PendingRequest:
        status = self.view.status()
        if relaunch:
            status = self.starts.drivers.look_after(status, follow=self.starts.follow)
        if isinstance(status, Starting):
            return pending  # poll returns Lost again until the next incarnation runs
        if not isinstance(status, Running):
            raise self._not_running(status)  # a script that ended by itself answers no more
        log.info("Request %s is lost (%s), asking again", pending.request_id, lost.reason)
        try:
            return self.request(pending.request_key, pending.command, mode=pending.mode, confirm=confirm)
        except (RequestBusyError, JobNotRunningError):  # it may have ended since: the next round sees that
            return pending

    def stop(
        self,
        request_key: str,
        *,
        savepoint: bool,
        timeout_s: float,
        mode: CutMode = AS_IT_IS,
        confirm: Callable[[], None] | None = None,
    ) -> StopOutcome:
        """Stop the job at a batch boundary, with a savepoint if asked, and wait for it.

        Raises:
            RequestFailedError: If the driver refused or failed; the job continues.
            RequestPostponedError: If it failed for a reason that may pass; the same key asks again.
        """
        mode = replace(mode, timeout_s=timeout_s)
        try:
            pending = self.request_stop(request_key, savepoint=savepoint, mode=mode, confirm=confirm)
        except JobNotRunningError:
            # A driver that a watcher would start again is started first, so that it closes in order.
            status = self.starts.drivers.look_after(follow=self.starts.follow)
            if not isinstance(status, (Starting, Running)):  # it may have come up since
                raise
            self.starts.drivers.wait_running(status.run.generation, timeout_s=timeout_s)
            pending = self.request_stop(request_key, savepoint=savepoint, mode=mode, confirm=confirm)
        pending, end = self.wait(pending, timeout_s=timeout_s, confirm=confirm)
        if end.outcome == "done":
            return Stopped(
                generation=pending.generation,
                batches=end.batches,
                savepoint_id=end.savepoint_id,
                savepoint_error=end.savepoint_error,
            )
        if pending.savepoint_id is not None and self.published(pending) is not None:
            return SavepointOnly(savepoint_id=pending.savepoint_id, reason=end.detail)
        raise self.request_failed(pending, end)

    def request_failed(self, pending: PendingRequest, end: Ended) -> RequestFailedError:
        """Build the error for a request that ended otherwise than ``done``."""
        kind = RequestPostponedError if end.transient else RequestFailedError
        return kind(
            f"Request {pending.request_id} ({pending.command}) to job {self.view.job} was expected to end "
            f"as done, found {end.outcome}: {end.detail}",
            state_after=f"The job is as follows: {describe_status(self.view.status())}.",
            remedy="Ask again: what was uploaded need not be sent again."
            if end.transient
            else "Correct the cause, then ask again.",
        )

    def _not_running(self, status: JobStatus) -> JobNotRunningError:
        if isinstance(status, NeverStarted):
            require_known(self.view.board.store, self.view.job)
        return JobNotRunningError(
            f"Job {self.view.job} was expected to run, found that {describe_status(status)}.",
            state_after="Nothing was asked of it.",
            remedy="Start it (StartStreamingJobOperator, flinkstyle job start); a savepoint of a stopped job "
            "needs no driver.",
        )
