"""``JobStarts``: claim a generation of a job, and submit its driver, once however often it is asked for."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.errors import JobRunningError
from airflow_flinkstyle.jobs.running import lineage, start_plan, stopped
from airflow_flinkstyle.jobs.spec import from_launch, launch_of, require_recordable
from airflow_flinkstyle.jobs.status import Running, Starting, describe_status, now_ms
from airflow_flinkstyle.jobs.view import JobView
from airflow_flinkstyle.kafka.login.driver import named_connections, require_logins
from airflow_flinkstyle.protocol.records import Claim, Handle
from airflow_flinkstyle.savepoint.blobs.intents import hold_intent
from airflow_flinkstyle.storage.errors import ObjectExistsError
from airflow_flinkstyle.types import Generation

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from airflow_flinkstyle.jobs.running.lineage import Origin
    from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget
    from airflow_flinkstyle.jobs.status import Run
    from airflow_flinkstyle.protocol.records import Go, KafkaOverride

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
class JobStarts(JobView):
    """The job's runs, and how one more begins."""

    kafka_logins: Callable[[Collection[str]], Mapping[str, str]] | None = None
    """From the connections that overrides name to the environment that brings their logins; None: they
    must stand in this process's own environment."""

    def start(
        self, spec: JobSpec, target: SubmitTarget, *, claim_key: str, origin: Origin | None = None
    ) -> RunHandle:
        """Start the job; a retry with the same ``claim_key`` finds its start and goes on with it.

        Args:
            spec: What to run.
            target: Where.
            claim_key: Who asks, without the try number.
            origin: Where to start; None for where the job was, or fresh if it has no history.

        Raises:
            BadInputError: If a setting holds a secret, which would be recorded.
            JobRunningError: If a run is up or being started; its holder is named.
            RewindError: If the savepoint is older than what the job has committed since.
            LastStateError: If where the job was is out of reach, and nothing else is that state.
            HistoryError: If a job with a history would begin anew, and what it gives up was not named.
            SavepointMissingError: If it was disposed of meanwhile; nothing was claimed.
            DriverFailedError: If the driver process could not be started.
        """
        require_recordable(spec, target)
        generation = self.own_claim(claim_key)
        if generation is None or self.board.go(generation) is None:
            if generation is None:
                self._require_stopped(claim_key)
            # Outside the intent: it may take or derive a savepoint, under an intent of its own, and a prune
            # that waited for the first one would keep the second one waiting.
            plan = start_plan.plan_start(self, origin or lineage.LastState(), claim_key)
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
        require_recordable(spec, target)
        generation = self.own_claim(claim_key)
        if generation is None:
            self._require_no_waiting_run(claim_key)
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

    def _require_stopped(self, claim_key: str) -> None:
        status = self.status()
        if isinstance(status, (Starting, Running)) and not _is_own_fence(status.run, claim_key):
            raise self._running(describe_status(status))
        self._require_no_waiting_run(claim_key)

    def _require_no_waiting_run(self, claim_key: str) -> None:
        current = self.board.current()
        for generation in reversed(self.board.generations()):
            if current is not None and generation <= current.value.generation:
                return
            run = self.run(generation)
            if run.holds_the_job() and not _is_own_fence(run, claim_key):
                raise self._running(f"generation {generation} is waiting or starting ({run.claim.claim_key})")

    def _running(self, holder: str) -> JobRunningError:
        return JobRunningError(
            f"Job {self.board.job} was expected not to run, found that {holder}.",
            left="Nothing was started; that run goes on.",
            remedy="Stop it first (StopStreamingJobOperator), or use another job name.",
        )


def _is_own_fence(run: Run, claim_key: str) -> bool:
    """Return whether an earlier attempt of the same start held the job to copy its checkpoint."""
    return run.claim.claim_key == stopped.fence_key(lineage.copy_key(claim_key))
