"""``JobRuns``: start a dead driver again, wait for one, and end one."""

from __future__ import annotations

import logging
import socket
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs import requests
from airflow_flinkstyle.jobs.deployments.base import DriverPages, DriverState, Gone, Unknown
from airflow_flinkstyle.jobs.errors import (
    BeginsAnewError,
    DriverFailedError,
    DriverLostError,
    JobNotRunningError,
    JobRunningError,
    NotTakenError,
    StepTimeoutError,
    StillBeatingError,
)
from airflow_flinkstyle.jobs.running.offline_lock import give_back_abandoned, is_open_lock
from airflow_flinkstyle.jobs.running.starts import JobStarts
from airflow_flinkstyle.jobs.running.stuck import end_stuck
from airflow_flinkstyle.jobs.status import (
    Closed,
    Dead,
    Failed,
    JobStatus,
    Running,
    Starting,
    classify,
    describe_status,
    stays_down,
)
from airflow_flinkstyle.protocol.records import Submit
from airflow_flinkstyle.wording import batch_words

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.status import Run
    from airflow_flinkstyle.protocol.records import Heartbeat
    from airflow_flinkstyle.types import Generation

RETRY_S, MOST_RETRY_S = 5.0, 60.0
"""How long to wait before the first of them, and before any; each wait is twice the one before."""
_MOST_LOOK_S = 15.0
"""How long a driver that is declared dead is looked at at most: three heartbeats."""
_SENTENCES = 3
"""Of an error: problem, what is left, remedy."""
log = logging.getLogger(__name__)


class JobRuns(JobStarts):
    """The job's runs, their begin, and how they continue and end."""

    def ensure_running(self, status: JobStatus | None = None, *, relaunch_failed: bool = False) -> JobStatus:
        """Start one more incarnation if the driver of the run that may run has died without a word.

        Of several callers at once one starts it. A cluster that takes none now is asked by the next look.

        Args:
            status: What the caller found the job to be doing; None to look once, for who looks repeatedly.
            relaunch_failed: Also relaunch a driver that said why it failed.

        Raises:
            DriverFailedError: If the driver failed with an error, which would happen again, or did so too
                long of a cause that may pass; or its cluster could not begin it, and it was ended.
            SignatureError: If no caller has signed what would be started.
            DiesWithStarterError: If the next driver would end with the task or the worker that starts it.
        """
        status, retry = status or self.status(), 0
        match status:
            case Dead(run) if run.why_stuck is not None:
                raise self.driver_failed(end_stuck(self, run))
            case Dead(run) if is_open_lock(run):
                give_back_abandoned(self, run)
                return self.ensure_running(relaunch_failed=relaunch_failed)
            case Dead(run) if run.claim.launch and run.was_not_taken:
                retry = self._await_retry(run)
            case Dead(run) if run.claim.launch:
                log.warning("The driver of generation %d is gone, starting it again", run.generation)
            case Failed(run) if relaunch_failed and run.claim.launch:
                log.warning("Starting generation %d again after %s", run.generation, status.code)
            case Failed(run) if run.claim.launch and run.may_be_retried:
                retry = self._await_retry(run)
            case Failed(run):
                raise self.driver_failed(run)
            case _:
                return status
        self.signed_claim(run.generation)  # what is refused is refused before anything is ended
        self.deployment_of(
            run.generation, run.claim
        ).require_able()  # else another host may start it, which finds the job as it is
        self.end_driver(run.generation)  # one that is frozen here would wake up
        try:
            self._submit(run, f"relaunch:{socket.gethostname()}", retry=retry)
        except NotTakenError as error:  # it is recorded: who looks next waits longer, and gives up in the end
            log.warning("Not started yet: %s", error.problem)
        return Starting(run)

    def look_after(self, status: JobStatus | None = None) -> JobStatus:
        """Keep the job up: ``ensure_running``, and let another generation follow a run that was told to end.

        Of several callers at once one starts it.

        Raises:
            DriverFailedError, SignatureError, DiesWithStarterError: As ``ensure_running``.
        """
        status = status or self.settled_status()
        if not isinstance(status, Closed) or stays_down(status):
            return self.ensure_running(status)
        told = status.run.generation
        log.warning("Generation %d was told to end, starting the job again", told)
        try:
            follower = self.follow(told, claim_key=f"look-after/{told}").generation
        except JobRunningError:  # another caller does
            return self.status()
        return Starting(self.run(follower))

    def is_to_be_retried(self, run: Run) -> bool:
        """Whether a driver failed of a cause that may pass, and has not been started again long enough."""
        is_ours = bool(run.claim.launch) and run.may_be_retried
        return is_ours and not run.was_retried_enough(self.clock.now_ms())

    def _await_retry(self, run: Run) -> int:
        """Wait before a driver is started again that failed, or was not taken, of a cause that may pass.

        Each wait is longer.

        Returns:
            The number of the retry.

        Raises:
            DriverFailedError: If it was tried long enough.
        """
        retry = run.next_retry
        if run.was_retried_enough(self.clock.now_ms()):
            raise self.driver_failed(run)
        pause_s = min(RETRY_S * 2.0 ** min(retry - 1, 10), MOST_RETRY_S)
        found = Dead(run) if run.was_not_taken else Failed(run, *_said(run))
        log.warning("Retry %d in %g s: %s", retry, pause_s, describe_status(found))
        self.clock.sleep(max(0.0, pause_s - run.silence.still_s))
        return retry

    def wait_running(self, generation: Generation, *, timeout_s: float) -> Running:
        """Wait until the generation's driver holds ``current.json``.

        Raises:
            DriverFailedError: If it ended before; its own error and the end of its log are in the message.
            DriverLostError: If it had begun and ended without a word; the same start may be tried again.
            JobRunningError: If another generation took over.
            StepTimeoutError: If it neither came up nor ended in time.
        """
        status = self.wait_begun(generation, timeout_s=timeout_s)
        if isinstance(status, Closed):
            raise self.driver_failed(status.run)
        return status

    def wait_begun(self, generation: Generation, *, timeout_s: float) -> Running | Closed:
        """Wait until the generation's driver holds ``current.json``, or its script has ended by itself.

        Raises:
            DriverFailedError, DriverLostError, JobRunningError, StepTimeoutError: As ``wait_running``.
        """
        wait = self.waiting(timeout_s)
        while True:
            current = self.board.current()
            named = current.value.generation if current else None
            run = self.run(generation)
            status = classify(run, is_current=named == generation)
            if isinstance(status, Running) or (isinstance(status, Closed) and run.has_run_through):
                return status
            if named is not None and named != generation and named != run.claim.follows:
                raise self._running(f"generation {named} took over before generation {generation}")
            if isinstance(status, (Failed, Dead, Closed)):
                raise self.driver_failed(end_stuck(self, run))
            if not wait.again():
                raise StepTimeoutError(
                    f"Generation {generation} of job {self.board.job} was expected to take over within "
                    f"{timeout_s:g} s, found that {describe_status(status)}.",
                    state_after="Its driver is still starting." + self.log_end(run),
                    remedy="Look at its log; wait again, or stop it.",
                )

    def pages(self, run: Run) -> DriverPages:
        """Return the pages about a run's newest driver."""
        ask = getattr(self.deployment_of(run.generation, run.claim), "pages", None)
        native_id = self.submitted_process(run)
        found: DriverPages = ask(native_id) if ask is not None and native_id else DriverPages()
        ui_url = (run.heartbeat.ui_url if run.heartbeat is not None else None) or ""
        return found if found.spark_ui else replace(found, spark_ui=ui_url)

    def end_driver(self, generation: Generation) -> DriverState:
        """Kill a generation's driver without a chance to drain."""
        run = self.run(generation)
        deployment = self.deployment_of(generation, run.claim)
        states = [deployment.end(native_id) for native_id in self.native_ids(run)]
        state = next((one for one in states if not isinstance(one, Gone)), Gone())
        if not states:
            state = Unknown("no driver was recorded that is known to be this run's")
        log.info("Ended the driver of generation %d: %s", generation, state)
        return state

    def declare_dead(self, generation: Generation, *, reason: str, by: str) -> None:
        """Record a person's word that a generation's driver has ended, which no rule could tell yet.

        The driver that is started next still waits until the heartbeat has not changed for the lease.

        Args:
            generation: Whose newest driver.
            reason: How the person knows.
            by: Who says so.

        Raises:
            BadInputError: If no reason is given.
            StillBeatingError: If it does change.
            JobNotRunningError: If the generation has ended by its own word, or nobody claimed it.
        """
        if not reason.strip():
            raise BadInputError(
                f"A reason was expected why the driver of generation {generation} is dead, found none.",
                state_after="Nothing was recorded.",
                remedy="Say how you know; people who look for a cause later read it.",
            )
        run = self.run(generation)
        first, wait = run.heartbeat, self.waiting(min(_MOST_LOOK_S, run.claim.lease_s / 2))
        while not run.is_over and run.heartbeat == first and wait.again():
            run = self.run(generation)
        if run.is_over:
            raise self._not_to_declare(generation, "ended by its own word")
        if run.heartbeat != first:
            raise StillBeatingError(
                f"The driver of generation {generation} of job {self.board.job} was expected to be silent, "
                "found that it writes heartbeats.",
                state_after="Nothing was recorded; it keeps running.",
                remedy="Stop the job instead.",
            )
        self._record_death(run, f"{reason} ({by})")

    def _record_death(self, run: Run, why: str) -> None:
        slot = self.board.submit(run.generation)
        if slot is not None and slot.value.number == run.submit_number:
            dead = replace(slot.value, state="dead", detail=why)
            self.board.put_submit(run.generation, dead, seen=slot.version)
            return
        name = self.deployment_of(run.generation, run.claim).name
        dead = Submit(key=why, deployment=name, state="dead", asked_at_ms=now_ms(), detail=why)
        self.board.create_submit(run.generation, 1, dead)

    def _not_to_declare(self, generation: Generation, found: str) -> JobNotRunningError:
        return JobNotRunningError(
            f"Generation {generation} of job {self.board.job} was expected to have a driver of which nobody "
            f"knows, found that it has {found}.",
            state_after="Nothing was recorded.",
            remedy="Start the job again.",
        )

    def dismiss(self, generation: Generation) -> None:
        """End a driver that only waits; it holds nothing, so there is nothing to drain."""
        run = self.run(generation)
        if run.is_over or isinstance(self.end_driver(generation), Gone) or run.heartbeat is None:
            return
        pending = requests.request_for("dismiss", "stop", generation, run.heartbeat.incarnation)
        requests.send(self.board, pending)  # it runs where nobody here can reach it

    def driver_failed(self, run: Run) -> DriverFailedError:
        """Build the error for a run that ended by itself."""
        heartbeat = run.heartbeat
        code, text = _said(run)
        sentences = text.split("\n")  # the driver's own three, if it is of this version
        if code == BeginsAnewError.code and len(sentences) == _SENTENCES:
            return BeginsAnewError(*sentences)
        if heartbeat is not None and heartbeat.state == "closed":
            return self._closed(run, heartbeat)
        said = f"it failed with {code}: {text}" if code else "it ended without a word"
        if run.was_given_up and run.submit is not None and not run.is_over:
            return self._not_begun(run, run.submit.detail)
        problem = (
            f"Generation {run.generation} of job {self.board.job} was expected to run, found that {said}."
        )
        left = f"Its checkpoint {run.claim.checkpoint_location} is as it left it.{self.log_end(run)}"
        if run.incarnation is not None and not run.is_over and not run.was_given_up:
            remedy = "Try again: the same start continues. If it is lost again, look for what ends it."
            return DriverLostError(problem, left, remedy)
        remedy = "Correct the cause, then start the job again from its checkpoint or a savepoint."
        return DriverFailedError(problem, left, remedy)

    def _closed(self, run: Run, heartbeat: Heartbeat) -> DriverFailedError:
        """Build the error for a run that has ended in order: nothing is wrong with it."""
        where = batch_words(heartbeat.batches())
        if run.was_told_to_end:
            how = f"it was told to end (SIGTERM), and closed at {where}"
        elif run.has_run_through:
            how = f"its script ended at {where}"
        else:
            how = f"it was stopped at {where}"
        kind = DriverLostError if run.was_told_to_end else DriverFailedError
        ends = " For a script that ends by itself (availableNow) pass ends_by_itself=True."
        return kind(
            f"Generation {run.generation} of job {self.board.job} was expected to run, found that {how}.",
            f"Nothing has to be corrected: its checkpoint {run.claim.checkpoint_location} is as it left it.",
            "To start it again where it was, clear the task, trigger a new run of the DAG, or start it under "
            f"another key.{ends if run.has_run_through else ''}",
        )

    def _not_begun(self, run: Run, why: str) -> DriverFailedError:
        return DriverFailedError(
            f"Generation {run.generation} of job {self.board.job} was expected to run, found that its driver "
            f"could not be started: {why}",
            state_after=f"No driver runs; its checkpoint {run.claim.checkpoint_location} is as it was.",
            remedy="Correct the cause, then do the same again: it starts the next driver.",
        )


def _said(run: Run) -> tuple[str, str]:
    """Return code and text of what a run failed of, as far as it said so."""
    return (run.heartbeat.error if run.heartbeat is not None else None) or ("", "")
