"""``JobRuns``: look at a job's runs, start them, and start a dead driver again."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs import lineage, requests
from airflow_flinkstyle.jobs.deployments.base import Alive, DriverState, Gone, Unknown
from airflow_flinkstyle.jobs.errors import (
    DriverFailedError,
    JobNotRunningError,
    JobRunningError,
    StepTimeoutError,
)
from airflow_flinkstyle.jobs.spec import from_launch, launch_of, submission_of
from airflow_flinkstyle.jobs.status import (
    CLAIM_GRACE_S,
    Closed,
    Dead,
    Failed,
    JobStatus,
    NeverStarted,
    Run,
    Running,
    Starting,
    classify,
    describe_status,
    now_ms,
)
from airflow_flinkstyle.kafka.driver_login import named_connections, require_logins
from airflow_flinkstyle.protocol.records import Claim, Go, Handle
from airflow_flinkstyle.savepoint.intents import hold_intent
from airflow_flinkstyle.storage.errors import ObjectExistsError
from airflow_flinkstyle.storage.open import open_store
from airflow_flinkstyle.types import Generation, Incarnation

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from airflow_flinkstyle.jobs.deployments.base import Deployment
    from airflow_flinkstyle.jobs.lineage import Origin
    from airflow_flinkstyle.jobs.spec import JobSpec, Submission, SubmitTarget
    from airflow_flinkstyle.protocol.board import JobBoard
    from airflow_flinkstyle.protocol.records import Current, KafkaOverride
    from airflow_flinkstyle.savepoint.repository import SavepointRepository
    from airflow_flinkstyle.storage.base import ObjectStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHandle:
    """A start as it was asked for; small and free of secrets, so that it can stand in XCom."""

    job: str
    generation: Generation
    checkpoint_location: str
    deployment: str
    native_id: Mapping[str, str]


@dataclass(kw_only=True)
class JobRuns:
    """The runs of one job, seen by a caller; holds no state that a retry would miss."""

    board: JobBoard
    repository: SavepointRepository
    deployment: Deployment
    secret_env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Store credentials for drivers that are relaunched."""
    open_checkpoint: Callable[[str], ObjectStore] = open_store
    """Opens a checkpoint location, for what callers do with stopped jobs."""
    kafka_logins: Callable[[Collection[str]], Mapping[str, str]] | None = None
    """From the connections that overrides name to the environment that brings their logins; None: they
    must stand in this process's own environment."""
    poll_s: float = 0.25
    base_env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)

    # --- look ---------------------------------------------------------------------------------

    def status(self) -> JobStatus:
        """Return what the run that may run is doing."""
        current = self.board.current()
        run = self._active(current.value if current else None)
        if run is None:
            return NeverStarted()
        return classify(run, is_current=current is not None and current.value.generation == run.generation)

    def run(self, generation: Generation) -> Run:
        """Return everything recorded about a generation.

        Raises:
            JobNotRunningError: If nobody claimed it.
        """
        claim = self.board.claim(generation)
        if claim is None:
            raise JobNotRunningError(
                f"Generation {generation} of job {self.board.job} was expected, found none of that number.",
                left="Nothing was changed.",
                remedy="List the job's runs; the savepoint root or the job name may be another one.",
            )
        incarnations = self.board.incarnations(generation)
        handle, beat = self.board.handle(generation), self.board.heartbeat(generation)
        driver = self._driver(generation, claim, handle, incarnations)
        relaunching = (
            driver == Gone()
            and bool(claim.launch)
            and self.deployment.find(self._submission(generation, claim)) is not None
        )
        return Run(
            generation=generation,
            claim=claim,
            go=self.board.go(generation),
            handle=handle,
            incarnation=incarnations[-1] if incarnations else None,
            heartbeat=beat.value if beat else None,
            driver=Alive() if relaunching else driver,
            relaunching=relaunching,
        )

    def _active(self, current: Current | None) -> Run | None:
        """Return the newest run that was told to go and may take over, else the current one."""
        named = current.generation if current else None
        for generation in reversed(self.board.generations()):
            if named is not None and generation <= named:
                break
            claim, go = self.board.claim(generation), self.board.go(generation)
            if (
                claim is not None
                and claim.follows == named
                and go is not None
                and self._may_follow(named, go)
            ):
                return self.run(generation)
        return self.run(named) if named is not None else None

    def _may_follow(self, named: Generation | None, go: Go) -> bool:
        """Return whether the guard would let a driver with this ``go`` take over now."""
        if go.closed_at is None or named is None:
            return True
        slot = self.board.heartbeat(named)
        return slot is not None and slot.value.state == "closed" and slot.value.batches() == go.closed_at

    def _driver(
        self,
        generation: Generation,
        claim: Claim,
        handle: Handle | None,
        incarnations: list[Incarnation],
    ) -> DriverState:
        """Ask the deployment about the newest driver known; an unknown one is never taken for gone."""
        if handle is not None and handle.deployment != self.deployment.name:
            return Unknown(f"it was started by deployment {handle.deployment}")
        ids = [handle.native_id] if handle else []
        if incarnations and (record := self.board.incarnation(generation, incarnations[-1])):
            ids.append(self.deployment.native_id(record))
        states = [self.deployment.state(native_id) for native_id in ids]
        if not states:
            age_s = (now_ms() - claim.claimed_at_ms) / 1000
            ended = not claim.launch and age_s > CLAIM_GRACE_S  # a caller's own claim: it has no driver
            return Gone() if ended else Unknown("no driver was recorded")
        return next((state for state in states if not isinstance(state, Gone)), Gone())

    # --- start --------------------------------------------------------------------------------

    def start(
        self, spec: JobSpec, target: SubmitTarget, *, claim_key: str, origin: Origin | None = None
    ) -> RunHandle:
        """Start the job; a retry with the same ``claim_key`` finds its start and goes on with it.

        Raises:
            JobRunningError: If a run is up or being started; its holder is named.
            RewindError: If the savepoint is older than what the job has committed since.
            SavepointMissingError: If it was disposed of meanwhile; nothing was claimed.
            DriverFailedError: If the driver process could not be started.
        """
        generation = self.own_claim(claim_key)
        if generation is None or self.board.go(generation) is None:
            if generation is None:
                self._require_stopped()
            # Outside the intent: it may take or derive a savepoint, under an intent of its own, and a prune
            # that waited for the first one would keep the second one waiting.
            plan = lineage.plan_start(self, origin or lineage.Fresh(), claim_key)
            # From here to the go that names it, only this keeps a prune off the savepoint.
            with hold_intent(self.repository, "restore", holder=f"the start {claim_key}"):
                if plan.go.savepoint_id is not None:
                    self.repository.read(plan.go.savepoint_id)  # it may have gone meanwhile
                if generation is None:
                    generation = self._claim(spec, target, claim_key, plan.checkpoint_location, None)
                self._go(generation, plan.go)
        return self._submit_once(generation)

    def standby(
        self, spec: JobSpec, target: SubmitTarget, *, claim_key: str, prepare_savepoint_id: str | None
    ) -> RunHandle:
        """Start a driver that comes up, restores a hot savepoint, and waits for ``go``."""
        generation = self.own_claim(claim_key)
        if generation is None:
            self._require_no_waiting_run()
            generation = self._claim(spec, target, claim_key, None, prepare_savepoint_id)
        return self._submit_once(generation)

    def follow(self, generation: Generation, *, claim_key: str) -> RunHandle:
        """Start a way back: what a closed generation ran, in its own checkpoint, following it."""
        run = self.run(generation)
        if run.heartbeat is None or run.heartbeat.state != "closed":
            raise JobRunningError(
                f"Generation {generation} of job {self.board.job} was expected to have closed.",
                left="Nothing was started.",
                remedy="Stop it first.",
            )
        own = self.own_claim(claim_key)
        if own is None:
            spec, target = from_launch(run.claim.launch, secret_env=self.secret_env)
            own = self._claim(spec, target, claim_key, run.claim.checkpoint_location, None, generation)
        self._go(own, lineage.go_on(run.heartbeat))
        return self._submit_once(own)

    def go(self, generation: Generation, go: Go) -> None:
        """Let a waiting driver take over; telling it the same again is no error."""
        self._go(generation, go)

    def _go(self, generation: Generation, go: Go) -> None:
        try:
            self.board.create_go(generation, go)
        except ObjectExistsError:
            log.info("Generation %d was told to go before", generation)

    def own_claim(self, claim_key: str) -> Generation | None:
        """Return the generation that was claimed under this key, or None."""
        for generation in reversed(self.board.generations()):
            claim = self.board.claim(generation)
            if claim is not None and claim.claim_key == claim_key:
                return generation
        return None

    def _claim(
        self,
        spec: JobSpec,
        target: SubmitTarget,
        claim_key: str,
        checkpoint_location: str | None,
        prepare_savepoint_id: str | None,
        follows: Generation | None = None,
    ) -> Generation:
        self._login_env(spec.overrides)  # what it refuses is refused before anything is claimed
        current = self.board.current()
        generations = self.board.generations()
        generation = Generation(generations[-1] + 1 if generations else 1)
        claim = Claim(
            claim_key=claim_key,
            follows=follows or (current.value.generation if current else None),
            checkpoint_location=checkpoint_location or spec.checkpoint_location(generation),
            prepare_savepoint_id=prepare_savepoint_id,
            overrides=spec.overrides,
            lease_s=spec.lease_s,
            launch=launch_of(spec, target),
            claimed_at_ms=now_ms(),
        )
        try:
            self.board.create_claim(generation, claim)
        except ObjectExistsError as error:
            raise self._running(f"another caller has just claimed generation {generation}") from error
        log.info("Claimed generation %d of job %s for %s", generation, self.board.job, claim_key)
        return generation

    def _submit_once(self, generation: Generation) -> RunHandle:
        """Submit the driver unless it was before: by its handle, its own record, or its command line."""
        run = self.run(generation)
        if run.handle is None:
            handle = Handle(
                deployment=self.deployment.name,
                native_id=self._known_driver(run) or self._submit(generation, run.claim),
                submitted_at_ms=now_ms(),
            )
            try:
                self.board.create_handle(generation, handle)
            except ObjectExistsError:
                log.info("Another attempt recorded the driver of generation %d first", generation)
        else:
            handle = run.handle
        return RunHandle(
            job=self.board.job,
            generation=generation,
            checkpoint_location=run.claim.checkpoint_location,
            deployment=handle.deployment,
            native_id=handle.native_id,
        )

    def _known_driver(self, run: Run) -> Mapping[str, str] | None:
        found = self.deployment.find(self._submission(run.generation, run.claim))
        if found is not None or run.incarnation is None:
            return found
        record = self.board.incarnation(run.generation, run.incarnation)
        return self.deployment.native_id(record) if record else None

    def _submit(self, generation: Generation, claim: Claim) -> Mapping[str, str]:
        submission = self._submission(generation, claim)
        env = {**submission.env, **self._login_env(claim.overrides)}
        return self.deployment.submit(replace(submission, env=env))

    def _login_env(self, overrides: tuple[KafkaOverride, ...]) -> Mapping[str, str]:
        """Read the logins anew for each driver: passwords change while a job runs."""
        names = named_connections(rule.options for rule in overrides)
        if names and self.kafka_logins is not None:
            return self.kafka_logins(names)
        return require_logins(names, self.base_env)

    def _submission(self, generation: Generation, claim: Claim) -> Submission:
        spec, target = from_launch(claim.launch, secret_env=self.secret_env)
        return submission_of(
            spec,
            target,
            root=self.board.store.uri,
            generation=generation,
            claim_id=claim.claim_id,
            base_env=self.base_env,
        )

    def _require_stopped(self) -> None:
        status = self.status()
        if isinstance(status, (Starting, Running)):
            raise self._running(describe_status(status))
        self._require_no_waiting_run()

    def _require_no_waiting_run(self) -> None:
        current = self.board.current()
        for generation in reversed(self.board.generations()):
            if current is not None and generation <= current.value.generation:
                return
            run = self.run(generation)
            if run.holds_the_job():
                raise self._running(f"generation {generation} is waiting or starting ({run.claim.claim_key})")

    def _running(self, holder: str) -> JobRunningError:
        return JobRunningError(
            f"Job {self.board.job} was expected not to run, found that {holder}.",
            left="Nothing was started; that run goes on.",
            remedy="Stop it first (StopStreamingJobOperator), or use another job name.",
        )

    # --- keep it running ----------------------------------------------------------------------

    def ensure_running(self, *, relaunch_failed: bool = False) -> JobStatus:
        """Start one more incarnation if the driver of the run that may run has died without a word.

        Args:
            relaunch_failed: Also relaunch a driver that said why it failed.

        Raises:
            DriverFailedError: If the driver failed with an error, which would happen again.
        """
        status = self.status()
        match status:
            case Dead(run) if run.claim.launch:
                log.warning("The driver of generation %d is gone, starting it again", run.generation)
            case Failed(run) if relaunch_failed and run.claim.launch:
                log.warning("Starting generation %d again after %s", run.generation, status.code)
            case Failed(run):
                raise self.driver_failed(run)
            case _:
                return status
        self._submit(run.generation, run.claim)
        return Starting(run)

    def wait_running(self, generation: Generation, *, timeout_s: float) -> Running:
        """Wait until the generation's driver holds ``current.json``.

        Raises:
            DriverFailedError: If it ended before; its own error and the end of its log are in the message.
            JobRunningError: If another generation took over.
            StepTimeoutError: If it neither came up nor ended in time.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            current = self.board.current()
            named = current.value.generation if current else None
            run = self.run(generation)
            status = classify(run, is_current=named == generation)
            if isinstance(status, Running):
                return status
            if named is not None and named != generation and named != run.claim.follows:
                raise self._running(f"generation {named} took over before generation {generation}")
            if isinstance(status, (Failed, Dead, Closed)):
                raise self.driver_failed(run)
            if time.monotonic() > deadline:
                raise StepTimeoutError(
                    f"Generation {generation} of job {self.board.job} was expected to take over within "
                    f"{timeout_s:g} s, found that {describe_status(status)}.",
                    left="Its driver goes on starting. End of its log: " + self.log_tail(run),
                    remedy="Look at its log; wait again, or stop it.",
                )
            time.sleep(self.poll_s)

    def end_driver(self, generation: Generation) -> DriverState:
        """Kill a generation's driver without a chance to drain."""
        run = self.run(generation)
        state = run.driver if run.handle is None else self.deployment.end(run.handle.native_id)
        if run.incarnation is not None and (record := self.board.incarnation(generation, run.incarnation)):
            state = self.deployment.end(self.deployment.native_id(record))
        log.info("Ended the driver of generation %d: %s", generation, state)
        return state

    def dismiss(self, generation: Generation) -> None:
        """End a driver that only waits; it holds nothing, so there is nothing to drain."""
        run = self.run(generation)
        if run.is_over or isinstance(self.end_driver(generation), Gone) or run.heartbeat is None:
            return
        pending = requests.request_for("dismiss", "stop", generation, run.heartbeat.incarnation)
        requests.send(self.board, pending)  # it runs where nobody here can reach it

    def log_tail(self, run: Run) -> str:
        """Return the end of the driver's log, as far as it can be read from here."""
        if run.handle is None:
            return "(no log)"
        return self.deployment.log_tail(run.handle.native_id) or "(no log)"

    def driver_failed(self, run: Run) -> DriverFailedError:
        """Build the error for a run that ended by itself."""
        heartbeat = run.heartbeat
        code, text = (heartbeat.error if heartbeat else None) or ("", "")
        said = f"it failed with {code}: {text}" if code else "it ended without a word"
        if heartbeat is not None and heartbeat.state == "closed":
            said = f"its script ended at {heartbeat.batches() or 'no batch'}"
        return DriverFailedError(
            f"Generation {run.generation} of job {self.board.job} was expected to run, found that {said}.",
            left=f"Its checkpoint {run.claim.checkpoint_location} is as it left it. End of its log:\n"
            f"{self.log_tail(run)}\n",
            remedy="Correct the cause, then start the job again from its checkpoint or a savepoint.",
        )
