"""Start a job's driver again after it has died; the steps from top to bottom.

Inspect the driver, judge whether another may be started, end the one before, submit the next: every caller (a
sensor, a cutover, a command) does so in this order, and of several at once only one submits.
"""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.errors import BadInputError, FlinkstyleError
from airflow_flinkstyle.jobs import request_slot
from airflow_flinkstyle.jobs.deployments.base import DriverState, Gone
from airflow_flinkstyle.jobs.errors import (
    BEGINS_ANEW,
    DRIVER_RETRIED,
    STEP_TIMEOUT,
    STILL_BEATING,
    DriverFailedError,
    DriverLostError,
    JobNotRunningError,
    JobRunningError,
    NotTakenError,
)
from airflow_flinkstyle.jobs.spec import from_launch
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
from airflow_flinkstyle.jobs.stopped.offline_lock import give_back_abandoned, is_open_lock
from airflow_flinkstyle.kafka.login import named_connections, require_logins
from airflow_flinkstyle.protocol.records import DriverEnd, Submit
from airflow_flinkstyle.storage.errors import ObjectChangedError, ObjectExistsError
from airflow_flinkstyle.wording import batch_words

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from airflow_flinkstyle.jobs.status import Run
    from airflow_flinkstyle.jobs.view import JobView
    from airflow_flinkstyle.protocol.records import Heartbeat, KafkaOverride
    from airflow_flinkstyle.types import Generation


RETRY_S, MOST_RETRY_S = 5.0, 60.0
"""The wait before the first retry, and the longest before any; each is twice the one before."""
_WATCH_AT_MOST_S = 15.0
"""How long at most a driver is watched before it is recorded as dead: three heartbeats."""
_SENTENCES = 3
"""Of an error: problem, what is left, remedy."""
log = logging.getLogger(__name__)


def retry_pause_s(run: Run) -> float:
    """Return how long after its end to start a driver again that failed for a reason that may pass."""
    return min(RETRY_S * 2.0 ** min(run.next_retry - 1, 10), MOST_RETRY_S)


class Started(Protocol):
    """What a start returns, as far as it is used here: ``jobs.start`` imports this module."""

    @property
    def generation(self) -> Generation:
        """The generation that was started."""


@dataclass(kw_only=True)
class JobDrivers:
    """The driver processes of one job; holds no state that a retry would miss."""

    view: JobView
    kafka_logins: Callable[[Collection[str]], Mapping[str, str]] | None = None
    """Returns the environment variables with the logins of the connections that overrides name; None: this
    process's own environment must hold them."""

    # --- inspect, and judge -------------------------------------------------------------------

    def look_after(self, status: JobStatus | None = None, *, follow: Callable[..., Started]) -> JobStatus:
        """Keep the job up: ``ensure_running``, and start a next generation if a run was told to end.

        Of several callers at once one starts it.

        Args:
            status: What the caller found the job to be doing; None to find out.
            follow: ``JobStarts.follow``.

        Raises:
            DriverFailedError, SignatureError, DiesWithStarterError: As ``ensure_running``.
        """
        status = status or self.view.settled_status()
        if not isinstance(status, Closed) or stays_down(status):
            return self.ensure_running(status)
        ended = status.run.generation
        log.warning("Generation %d was told to end, starting the job again", ended)
        try:
            follower = follow(ended, claim_key=f"look-after/{ended}").generation
        except JobRunningError:  # another caller starts it
            return self.view.status()
        return Starting(self.view.run(follower))

    def ensure_running(self, status: JobStatus | None = None, *, relaunch_failed: bool = False) -> JobStatus:
        """Start one more incarnation if the driver of the run that may run has died without reporting why.

        Of several callers at once one starts it. If the cluster takes none now, the next call asks again.

        Args:
            status: What the caller found the job to be doing; None to find out; callers call repeatedly.
            relaunch_failed: Also relaunch a driver that reported why it failed.

        Raises:
            DriverFailedError: If the driver failed with an error that would happen again, or failed too long
                for a reason that may pass; or its cluster could not begin it, and it was ended.
            SignatureError: If no caller has signed what would be started.
            DiesWithStarterError: If the next driver would end with the task or the worker that starts it.
        """
        status, retry = status or self.view.status(), 0
        match status:
            case Dead(run) if run.why_stuck is not None:
                raise self.driver_failed(self.end_stuck(run))  # the next call starts another
            case Dead(run) if is_open_lock(run):
                give_back_abandoned(self.view, run)
                return self.ensure_running(relaunch_failed=relaunch_failed)
            case Dead(run) if run.claim.launch and run.was_not_taken:
                retry = self._await_retry(run)
            case Dead(run) if run.claim.launch:
                retry = run.next_retry  # counted, for those who tell people; a killed one is not waited for
                log.warning("The driver of generation %d is gone, starting it again", run.generation)
            case Failed(run) if relaunch_failed and run.claim.launch:
                log.warning("Starting generation %d again after %s", run.generation, status.code)
            case Failed(run) if run.claim.launch and run.may_be_retried:
                retry = self._await_retry(run)
            case Failed(run):
                raise self.driver_failed(run)
            case _:
                return status
        self.view.signed_claim(run.generation)  # refuse before anything is ended
        deployment = self.view.deployment_of(run.generation, run.claim)
        deployment.require_able()  # else nothing has changed, and another host may start it
        self.end_for(self.view.run(run.generation), run.generation)  # one that is frozen here would wake up
        try:
            self.submit(run, f"relaunch:{socket.gethostname()}", retry=retry)
        except NotTakenError as error:  # recorded: the next caller waits longer, and gives up in the end
            log.warning("Not started yet: %s", error.problem)
        return Starting(run)

    def is_to_be_retried(self, run: Run) -> bool:
        """Whether a driver failed for a reason that may pass, and its retries are not used up."""
        is_ours = bool(run.claim.launch) and run.may_be_retried
        return is_ours and not run.was_retried_enough(self.view.clock.now_ms())

    def _await_retry(self, run: Run) -> int:
        """Wait before a driver is started again that failed, or was not taken, for a reason that may pass.

        Each wait is longer.

        Returns:
            The number of the retry.

        Raises:
            DriverFailedError: If its retries are used up.
        """
        retry = run.next_retry
        if run.was_retried_enough(self.view.clock.now_ms()):
            raise self.driver_failed(run)
        pause_s = retry_pause_s(run)
        status = Dead(run) if run.was_not_taken else Failed(run, *_reported_error(run))
        log.warning("Retry %d in %g s: %s", retry, pause_s, describe_status(status))
        self.view.clock.sleep(max(0.0, pause_s - run.silence.still_s))
        return retry

    # --- end ----------------------------------------------------------------------------------

    def end_stuck(self, run: Run) -> Run:
        """End the newest driver of a run if it cannot begin, and return the run as it is then.

        If it begins at that very moment, it is killed, or ends itself once a later one is submitted.
        """
        if run.why_stuck is None:
            return run
        log.warning("Ending the driver of generation %d: %s", run.generation, run.why_stuck)
        deployment = self.view.deployment_of(run.generation, run.claim)
        for native_id in self.view.native_ids(run):
            deployment.end(native_id)
        slot = self.view.board.submit(run.generation)
        if slot is not None and slot.value.number == run.submit_number:
            # What it lacks may still come: room, an image, what an operator makes beside the pod.
            given_up = replace(slot.value, state="failed", detail=run.why_stuck, transient=True)
            try:
                self.view.board.put_submit(run.generation, given_up, seen=slot.version)
            except ObjectChangedError:
                log.info("Another caller ended it, or starts the next one")
        return self.view.run(run.generation)

    def end_driver(self, generation: Generation) -> DriverState:
        """Kill a generation's driver without a chance to drain."""
        return self.view.end(self.view.run(generation))

    def end_for(self, run: Run, waiting: Generation) -> None:
        """End a dead driver's processes, and record its end, so that the next one need not wait a lease.

        The record is about the driver that wrote the last heartbeat, and no other; it is signed for the
        drivers of the waiting generation. A driver that another caller has started since is left running.

        Args:
            run: The run of that driver, as it is now.
            waiting: The generation that is started again, or the one that follows it.

        Raises:
            JobError: ``SIGNING_KEY`` if there is no key.
        """
        if run.holds_the_job:
            return
        state = self.view.end(run, is_succeeded=waiting == run.generation)
        end = self._observed_end(run, state)
        if end is None:
            return
        board = self.view.board
        place = board.driver_end_place(waiting, end.generation, end.incarnation)
        claimed = (board.claim_place(waiting), self.view.claim(waiting))
        board.write_driver_end(waiting, self.view.signer.sign_for_driver(end, place, *claimed))

    def _observed_end(self, run: Run, state: DriverState) -> DriverEnd | None:
        """Return how this caller saw the last heartbeat's driver end; None if only a lease can show it.

        That its process is gone counts only if the newest submit started it, whose process a caller has
        signed: drivers describe themselves unsigned. Silence for a lease counts as at the next driver.
        """
        heartbeat, here = run.heartbeat, socket.gethostname()
        if run.is_over or heartbeat is None:
            return None
        end = DriverEnd(
            generation=run.generation, incarnation=heartbeat.incarnation, seen="", seen_at_ms=now_ms()
        )
        if isinstance(state, Gone) and self._is_signed(run, heartbeat):
            deployment = self.view.deployment_of(run.generation, run.claim).name
            return replace(end, seen=f"{state}, as {deployment} on {here} knows")
        silent_s = run.silence.still_s
        if silent_s < run.claim.lease_s:
            return None
        seen = f"its heartbeat did not change for {silent_s:.1f} s, as {here} saw"
        return replace(end, seen=seen, last_beat=heartbeat.beat, silent_s=silent_s)

    def _is_signed(self, run: Run, heartbeat: Heartbeat) -> bool:
        """Return whether a caller has signed which process wrote the last heartbeat."""
        place = self.view.board.submit_place(run.generation)
        if run.submit is None or not self.view.signer.names_process(run.submit, place):
            return False
        process = self.view.board.incarnation(run.generation, heartbeat.incarnation)
        return process is not None and process.submit == run.submit_number

    def dismiss(self, generation: Generation) -> None:
        """End a driver that only waits; it holds nothing, so there is nothing to drain."""
        run = self.view.run(generation)
        if run.is_over or isinstance(self.end_driver(generation), Gone) or run.heartbeat is None:
            return
        pending = request_slot.request_for("dismiss", "stop", generation, run.heartbeat.incarnation)
        request_slot.send(self.view.board, pending)  # it runs where this process cannot end it

    def declare_dead(self, generation: Generation, *, reason: str, by: str) -> None:
        """Record that a person knows a generation's driver to have ended, before any rule can tell.

        The next driver still waits until the heartbeat has not changed for the lease.

        Args:
            generation: The one whose newest driver has ended.
            reason: How the person knows.
            by: The person.

        Raises:
            BadInputError: If no reason is given.
            JobError: ``STILL_BEATING`` if its heartbeat changes.
            JobNotRunningError: If the driver reported its end itself, or there is no such generation.
        """
        if not reason.strip():
            raise BadInputError(
                f"A reason was expected why the driver of generation {generation} is dead, found none.",
                state_after="Nothing was recorded.",
                remedy="Give a reason: how you know. People read it later when they search for a cause.",
            )
        run = self.view.run(generation)
        first, wait = run.heartbeat, self.view.waiting(min(_WATCH_AT_MOST_S, run.claim.lease_s / 2))
        while not run.is_over and run.heartbeat == first and wait.again():
            run = self.view.run(generation)
        if run.is_over:
            raise self._not_to_declare(generation, "reported its end itself")
        if run.heartbeat != first:
            raise STILL_BEATING.with_text(
                f"The driver of generation {generation} of job {self.view.job} was expected to be silent, "
                "found that it writes heartbeats.",
                state_after="Nothing was recorded; it keeps running.",
                remedy="Stop the job instead.",
            )
        self._record_death(run, f"{reason} ({by})")

    def _record_death(self, run: Run, why: str) -> None:
        slot = self.view.board.submit(run.generation)
        if slot is not None and slot.value.number == run.submit_number:
            dead = replace(slot.value, state="dead", detail=why)
            self.view.board.put_submit(run.generation, dead, seen=slot.version)
            return
        name = self.view.deployment_of(run.generation, run.claim).name
        dead = Submit(key=why, deployment=name, state="dead", asked_at_ms=now_ms(), detail=why)
        self.view.board.create_submit(run.generation, 1, dead)

    def _not_to_declare(self, generation: Generation, found: str) -> JobNotRunningError:
        return JobNotRunningError(
            f"Generation {generation} of job {self.view.job} was expected to have a driver whose end "
            f"nobody recorded, found that it has {found}.",
            state_after="Nothing was recorded.",
            remedy="Start the job again.",
        )

    # --- submit -------------------------------------------------------------------------------

    def submit(self, run: Run, key: str, *, retry: int = 0) -> None:
        """Start one more driver of a generation, unless another caller has begun to since ``run`` was read.

        Raises:
            DriverFailedError: If no process could be started; that is recorded, so that nobody waits for it.
                ``NotTakenError`` if a later try may succeed.
            SignatureError: If its claim is not signed by a caller.
        """
        generation, number = run.generation, run.submit_number + 1
        # run.claim comes from the store, or from its copy in current.json: nothing has verified it.
        signed = self.view.signed_claim(generation)
        claim = signed.claim
        submission = self.view.submission(generation, claim, number, signed.digest)
        env = {
            **submission.env,
            **self.login_env(claim.overrides),
            **self.view.signer.order_environment(self.view.board.claim_place(generation), claim),
        }
        submission = replace(submission, env=env)
        deployment = self.view.deployment_for(from_launch(claim.launch, secret_env={})[1])
        asked = Submit(
            key=key,
            deployment=deployment.name,
            state="asked",
            asked_at_ms=now_ms(),
            retry=retry,
            retried_at=run.heartbeat.batches() if retry and run.heartbeat is not None else {},
            failing_since_ms=(run.failing_since_ms or self.view.clock.now_ms()) if retry else None,
        )
        try:
            version = self.view.board.create_submit(generation, number, asked)
        except (ObjectExistsError, ObjectChangedError):
            log.info("Another caller starts the driver of generation %d", generation)
            return
        try:
            native_id = deployment.submit(submission)
        except FlinkstyleError as error:
            problem, passes = str(error.problem), error.retryable
            failed = replace(asked, number=number, state="failed", detail=problem, transient=passes)
            self._record_result(generation, failed, version)
            raise
        started = replace(asked, number=number, state="submitted")
        named = self.view.signer.sign_process(native_id, self.view.board.submit_place(generation), started)
        self._record_result(generation, replace(started, native_id=named), version)

    def _record_result(self, generation: Generation, submit: Submit, seen: str) -> None:
        """Record the result of a submit, unless another caller has submitted a later one meanwhile."""
        try:
            self.view.board.put_submit(generation, submit, seen=seen)
        except ObjectChangedError:
            log.warning(
                "Generation %d has a later submit than %d: this driver ends itself", generation, submit.number
            )

    def login_env(self, overrides: tuple[KafkaOverride, ...]) -> Mapping[str, str]:
        """Read the logins again for each driver: passwords change while a job runs."""
        names = named_connections(rule.options for rule in overrides)
        if names and self.kafka_logins is not None:
            return self.kafka_logins(names)
        return require_logins(names, self.view.base_env)

    # --- wait ---------------------------------------------------------------------------------

    def wait_running(self, generation: Generation, *, timeout_s: float) -> Running:
        """Wait until the generation's driver holds ``current.json``.

        Raises:
            DriverFailedError: If it ended before; its own error and the end of its log are in the message.
            DriverLostError: If it ended without reporting why; the same start may be tried again.
            DriverFailedError: ``DRIVER_RETRIED`` if it failed for a reason that may pass.
            JobRunningError: If another generation took over.
            JobError: ``STEP_TIMEOUT`` if it neither came up nor ended in time.
        """
        status = self.wait_begun(generation, timeout_s=timeout_s)
        if isinstance(status, Closed):
            raise self.driver_failed(status.run)
        return status

    def wait_begun(self, generation: Generation, *, timeout_s: float) -> Running | Closed:
        """Wait until the generation's driver holds ``current.json``, or its script has ended by itself.

        Raises:
            DriverFailedError, DriverLostError, JobRunningError: As ``wait_running``.
            JobError: ``STEP_TIMEOUT``, as ``wait_running``.
        """
        wait = self.view.waiting(timeout_s)
        while True:
            current = self.view.board.current()
            holder = current.value.generation if current else None
            run = self.view.run(generation)
            status = classify(run, is_current=holder == generation)
            if isinstance(status, Running) or (isinstance(status, Closed) and run.has_run_through):
                return status
            if holder is not None and holder != generation and holder != run.claim.follows:
                raise JobRunningError.of(
                    self.view.job, f"generation {holder} took over before generation {generation}"
                )
            if isinstance(status, (Failed, Dead, Closed)):
                raise self.driver_failed(self.end_stuck(run))
            if not wait.again():
                raise STEP_TIMEOUT.with_text(
                    f"Generation {generation} of job {self.view.job} was expected to take over within "
                    f"{timeout_s:g} s, found that {describe_status(status)}.",
                    state_after="Its driver is still starting." + self.view.log_end(run),
                    remedy="Look at its log; wait again, or stop it.",
                )

    # --- errors about how a run ended ---------------------------------------------------------

    def driver_failed(self, run: Run) -> FlinkstyleError:
        """Build the error for a run that ended by itself."""
        heartbeat = run.heartbeat
        code, text = _reported_error(run)
        sentences = text.split("\n")  # the driver's own three, if it is of this version
        if code == BEGINS_ANEW.code and len(sentences) == _SENTENCES:
            return BEGINS_ANEW.with_text(*sentences)
        if heartbeat is not None and heartbeat.state == "closed":
            return self._closed(run, heartbeat)
        how = f"it failed with {code}: {text}" if code else "it ended without reporting why"
        if run.was_given_up and run.submit is not None and not run.is_over:
            return self._not_begun(run, run.submit.detail)
        problem = f"Generation {run.generation} of job {self.view.job} was expected to run, found that {how}."
        state_after = (
            f"Its checkpoint {run.claim.checkpoint_location} is as it left it.{self.view.log_end(run)}"
        )
        if not run.is_over and not run.was_given_up:
            remedy = "Try again: the same start continues. If it is lost again, find out what ends it."
            return DriverLostError(problem, state_after, remedy)
        if self.is_to_be_retried(run):
            remedy = "Nothing, if it passes: a watcher starts the job again, and a retry of the task does. "
            return DRIVER_RETRIED.with_text(problem, state_after, f"{remedy}If it stays: correct the cause.")
        remedy = "Correct the cause, then start the job again from its checkpoint or a savepoint."
        return DriverFailedError(problem, state_after, remedy)

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
            f"Generation {run.generation} of job {self.view.job} was expected to run, found that {how}.",
            f"Nothing has to be corrected: its checkpoint {run.claim.checkpoint_location} is as it left it.",
            "To start it again where it was, clear the task, trigger a new run of the DAG, or start it under "
            f"another key.{ends if run.has_run_through else ''}",
        )

    def _not_begun(self, run: Run, why: str) -> DriverFailedError:
        problem = (
            f"Generation {run.generation} of job {self.view.job} was expected to run, found that its driver "
            f"could not be started: {why}"
        )
        state_after = f"No driver runs; its checkpoint {run.claim.checkpoint_location} is as it was."
        if run.was_not_taken and not run.was_retried_enough(self.view.clock.now_ms()):
            again = "Nothing, if it passes: a watcher starts the next driver, and a retry of the task does. "
            return NotTakenError(problem, state_after, f"{again}If it stays: correct the cause.")
        remedy = "Correct the cause, then do the same again: it starts the next driver."
        return DriverFailedError(problem, state_after, remedy)


def _reported_error(run: Run) -> tuple[str, str]:
    """Return code and text of the error that a run failed with; empty if it reported none."""
    return (run.heartbeat.error if run.heartbeat is not None else None) or ("", "")
