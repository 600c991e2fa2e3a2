"""Claim a generation of a job and submit its driver, only once however often a caller asks."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.jobs.deployments.base import Alive, DriverPending
from airflow_flinkstyle.jobs.errors import CheckpointUnreadError, JobRunningError, LastStateError
from airflow_flinkstyle.jobs.found import queries_elsewhere
from airflow_flinkstyle.jobs.request_slot import key_of_kill, request_for
from airflow_flinkstyle.jobs.spec import from_launch, launch_of, require_recordable
from airflow_flinkstyle.jobs.start import choice, origins, same_driver
from airflow_flinkstyle.jobs.start.home import order_stands
from airflow_flinkstyle.jobs.start.tables import write_tables_to_restore
from airflow_flinkstyle.jobs.status import (
    Dead,
    Failed,
    NeverStarted,
    Running,
    Starting,
    describe_status,
)
from airflow_flinkstyle.jobs.stopped import offline_lock
from airflow_flinkstyle.jobs.stopped.last_run import driver_of
from airflow_flinkstyle.protocol.errors import PREDECESSOR, CheckpointFoundError
from airflow_flinkstyle.protocol.head import placed
from airflow_flinkstyle.protocol.records import Claim
from airflow_flinkstyle.savepoint.blobs.intents import hold_intent
from airflow_flinkstyle.savepoint.blobs.references import Reference, of_claim, of_generation, write_reference
from airflow_flinkstyle.savepoint.repository.summary import list_savepoints
from airflow_flinkstyle.storage.errors import ObjectExistsError
from airflow_flinkstyle.types import Generation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.relaunch import JobDrivers
    from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget
    from airflow_flinkstyle.jobs.start.origins import Origin, StartPlan
    from airflow_flinkstyle.jobs.status import Run
    from airflow_flinkstyle.jobs.view import JobView
    from airflow_flinkstyle.protocol.board import Slot
    from airflow_flinkstyle.protocol.records import Current, TakeoverOrder
    from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
    from airflow_flinkstyle.savepoint.blobs.intents import Held

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHandle:
    """A start; small and without secrets, so that XCom can hold it."""

    job: str
    generation: Generation
    checkpoint_location: str
    deployment: str
    native_id: Mapping[str, str]


@dataclass(kw_only=True)
class JobStarts:
    """Starts runs of a job; holds no state that a retry would miss."""

    view: JobView
    drivers: JobDrivers
    asked_by: Mapping[str, str] = field(default_factory=dict)
    """Written into each claim that this caller makes, so that people find the task that asked."""

    def start(
        self,
        spec: JobSpec,
        target: SubmitTarget,
        *,
        claim_key: str,
        origin: Origin | None = None,
        again: bool = False,
    ) -> RunHandle:
        """Start the job; a retry with the same ``claim_key`` finds its start and continues it.

        Args:
            spec: What to run.
            target: Where to run it.
            claim_key: The caller, without the try number.
            origin: Where to start; None for where the job was, or fresh if it has no history.
            again: A person asks for the same start again: if its run has ended in order, start another.

        Raises:
            BadInputError: If a setting holds a secret, which would be recorded.
            DiesWithStarterError: If the driver would end with the task or the worker that starts it.
            JobRunningError: If a run is up or being started, or another was started since an earlier try of
                this one; its holder is named.
            RewindError: If the savepoint is older than what the job has committed since.
            LastStateError: If the job's last state is out of reach, and no savepoint is the same state.
            JobError: ``HISTORY`` if a job with a history would start fresh, and that history was not named.
            SavepointMissingError: If it was disposed of meanwhile; nothing was claimed.
            FlinkstyleError: ``ROOT_COPIED`` if the savepoint root was created elsewhere.
            DriverFailedError: If the driver process could not be started.
            JobError: ``SIGNING_KEY`` if there is no key to sign the start with.
        """
        self.view.signer.require_keys()
        require_recordable(spec, target)
        self.view.deployment_for(target).require_able()
        generation, order = self._own_start(claim_key, spec, target, again=again), None
        if generation is not None:
            self._require_newest(generation, claim_key)
            order = self.view.board.takeover_order(generation)
            if not order_stands(self.view, order, origin or origins.LastState()):
                log.warning("The job was adopted again since generation %d was ordered to begin", generation)
                generation = None
        if generation is None or order is None:
            before = self._last_number()  # a generation claimed after this outdates the plan
            ended = self._require_stopped(claim_key)
            # Outside the intent: the plan may take or derive a savepoint under an intent of its own, and a
            # prune that waits for the first intent would keep the second one waiting.
            plan = self._plan(origin or origins.LastState(), claim_key).behind(ended)
            # Until the generation's reference is written, only this intent keeps a prune off the savepoint.
            with hold_intent(self.view.repository, "restore", holder=f"the start {claim_key}") as held:
                if plan.order.savepoint_id is not None:
                    self.view.repository.read(plan.order.savepoint_id)  # it may have been deleted meanwhile
                if generation is not None and not self._has_place_of(generation, spec, plan):
                    generation = None
                if generation is None:
                    own = (offline_lock.lock_key(origins.copy_key(claim_key)), _same_driver_key(claim_key))
                    last = max(before, *(self.view.own_claim(one) or before for one in own))
                    generation = self._claim(
                        spec,
                        target,
                        claim_key,
                        checkpoint_location=plan.checkpoint_location,
                        last=last,
                        begins=plan.order.savepoint_id is None,
                    )
                if ended is not None and plan.order.closed_at is None:
                    dead = self.view.run(ended.generation)
                    if not dead.is_over:
                        self.drivers.end_for(dead, generation)
                self._hold(generation, plan.order.savepoint_id, claims=plan.order.claim_mode == "claim")
                held.require_alive()  # else a prune may have read the references before this one was written
                write_tables_to_restore(self.view, generation, plan.own_ids)
                self._order(generation, plan.order)
        return self._submit_once(generation, claim_key)

    def _plan(self, origin: Origin, claim_key: str) -> StartPlan:
        """Plan a start; before a state counts as out of reach, the job's own driver tries it.

        Raises:
            LastStateError: If that driver cannot continue from it either.
        """
        try:
            return choice.plan_start(self.view, origin, claim_key)
        except LastStateError as error:
            why_not = same_driver.close_in_place(
                self.view,
                lambda run: self.drivers.submit(run, f"relaunch:{claim_key}"),
                lambda closed: self.follow(closed, claim_key=_same_driver_key(claim_key)).generation,
                claim_key,
                why=error.__cause__,
            )
        try:
            return choice.plan_start(self.view, origin, claim_key)
        except LastStateError as error:
            if why_not is not None:
                raise error.after_trying(why_not) from error
            if isinstance(error.__cause__, CheckpointUnreadError):  # its driver has just read it, and closed
                return origins.plan_closed(self.view)
            raise error.after_trying("its own driver was started in it again, and closed there") from error

    def standby(
        self,
        spec: JobSpec,
        target: SubmitTarget,
        *,
        claim_key: str,
        prepare_savepoint_id: str | None,
        rehearse: Rehearse | None = None,
    ) -> RunHandle:
        """Start a driver that restores a hot savepoint, rehearses, and waits for its takeover order."""
        self.view.signer.require_keys()
        require_recordable(spec, target)
        self.view.deployment_for(target).require_able()
        generation = self._own_start(claim_key, spec, target)
        if generation is None:
            self._require_no_waiting_run(claim_key)
            with hold_intent(self.view.repository, "restore", holder=f"the standby {claim_key}") as held:
                if prepare_savepoint_id is not None:
                    self.view.repository.read(prepare_savepoint_id)
                generation = self._claim(
                    spec,
                    target,
                    claim_key,
                    prepare_savepoint_id=prepare_savepoint_id,
                    rehearse=rehearse,
                    held=held,
                )
        return self._submit_once(generation, claim_key)

    def follow(self, generation: Generation, *, claim_key: str) -> RunHandle:
        """Start what a closed generation ran again, in the same checkpoint, as the generation after it."""
        run = self.view.run(generation)
        self.view.deployment_of(generation, run.claim).require_able()
        if run.heartbeat is None or run.heartbeat.state != "closed":
            raise JobRunningError(
                f"Generation {generation} of job {self.view.job} was expected to have closed.",
                state_after="Nothing was started.",
                remedy="Stop it first.",
            )
        own = self.view.own_claim(claim_key)
        if own is None:
            spec, target = self.view.launch_of(generation)
            location = run.claim.checkpoint_location
            own = self._claim(spec, target, claim_key, checkpoint_location=location, follows=generation)
        self.order_takeover(own, origins.order_to_continue(run.heartbeat, driver_of(self.view, run)))
        return self._submit_once(own, claim_key)

    def order_takeover(
        self,
        generation: Generation,
        order: TakeoverOrder,
        own_ids: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    ) -> None:
        """Let a waiting driver take over: sign and write its order, unless there is one.

        Until now an open journal kept the savepoint that the order names; from now on the generation does.

        Args:
            generation: Of the driver.
            order: The takeover order.
            own_ids: What is taken back from the queries' tables, as in ``StartPlan``.

        Raises:
            SignatureError: If there is an order that no caller with the key wrote.
        """
        self._hold(generation, order.savepoint_id, claims=order.claim_mode == "claim")
        write_tables_to_restore(self.view, generation, own_ids)
        self._order(generation, order)

    def _has_place_of(self, generation: Generation, spec: JobSpec, plan: StartPlan) -> bool:
        """Return whether a claim without an order is for the place where the plan continues.

        An earlier try on another machine may have seen another state: in a new place, an order to continue
        would find no checkpoint, and the driver would start from the beginning.
        """
        claim = self.view.claim(generation)
        own = spec.checkpoint_location(generation, claim.claim_id)
        return claim.checkpoint_location == (plan.checkpoint_location or own)

    def _hold(self, generation: Generation, savepoint_id: str | None, *, claims: bool = False) -> None:
        """Keep a savepoint until the generation has ended, or has a newer one."""
        if savepoint_id is not None:
            reference = _reference(generation, self.view.claim(generation), need="start", claims=claims)
            write_reference(self.view.repository, savepoint_id, of_generation(generation), reference)

    def _order(self, generation: Generation, order: TakeoverOrder) -> None:
        board, order = self.view.board, placed(self.view.board, generation, order)
        claimed = (board.claim_place(generation), self.view.claim(generation))
        place = board.takeover_order_place(generation)
        try:
            board.create_takeover_order(generation, self.view.signer.sign_for_driver(order, place, *claimed))
        except ObjectExistsError:
            self.view.signer.require_order(board.takeover_order_data(generation) or b"", place, *claimed)
            log.info("Generation %d has a takeover order already", generation)

    def _own_start(
        self, claim_key: str, spec: JobSpec, target: SubmitTarget, *, again: bool = False
    ) -> Generation | None:
        """Return the generation that an earlier try claimed; None if it is to be given up for a new one."""
        own = self.view.own_claim(claim_key)
        if own is None:
            return None
        run = self.view.run(own)
        never_ran = run.incarnation is None and (run.submit is None or not run.submit.native_id)
        if never_ran and not _is_seen(run) and _as_recorded(run.claim.launch) != launch_of(spec, target):
            log.warning("Generation %d was never started; the job's start was changed since", own)
            return None
        if _was_refused(run):
            log.info("Generation %d was refused for what its driver found: starting another", own)
            return None
        is_closed = run.heartbeat is not None and run.heartbeat.state == "closed"
        if is_closed and (again or run.was_told_to_end):
            log.info("Generation %d has ended in order: starting the job again", own)
            return None
        if self._was_killed(run, claim_key):
            log.info("Generation %d was stopped when its start's task was killed: starting another", own)
            return None
        return own

    def _was_killed(self, run: Run, claim_key: str) -> bool:
        """Return whether its start's task was killed and stopped it: a clear of the task starts it again."""
        heartbeat = run.heartbeat
        if heartbeat is None or heartbeat.state != "closed":
            return False
        kill = request_for(key_of_kill(claim_key), "stop", run.generation, heartbeat.incarnation)
        return heartbeat.request_id == kill.request_id

    def _claim(
        self,
        spec: JobSpec,
        target: SubmitTarget,
        claim_key: str,
        *,
        checkpoint_location: str | None = None,
        prepare_savepoint_id: str | None = None,
        follows: Generation | None = None,
        last: Generation | None = None,
        rehearse: Rehearse | None = None,
        begins: bool = False,
        held: Held | None = None,
    ) -> Generation:
        """Claim the next generation; ``last`` is the last one at the time of the plan, if there was one.

        ``begins``: it restores no savepoint, so if no run has held the job, its queries start from the
        beginning. ``held`` keeps a prune off ``prepare_savepoint_id`` until the claim's own reference does.
        """
        self.drivers.login_env(spec.overrides)  # refuse missing logins before anything is claimed
        self.view.board.root.require_at(self.view.board.store.uri)
        claim_id = uuid.uuid4().hex
        current = self.view.board.current()
        generation = Generation((self._last_number() if last is None else last) + 1)
        while (
            last is not None and (other := self.view.board.claim(generation)) is not None and other.is_drill
        ):
            generation = Generation(generation + 1)  # a drill never takes over: the plan still holds
        if rehearse is None or not rehearse.only:
            self._require_no_lock(current)
        claim = Claim(
            claim_key=claim_key,
            follows=follows or (current.value.generation if current else None),
            claim_id=claim_id,
            checkpoint_location=checkpoint_location or spec.checkpoint_location(generation, claim_id),
            prepare_savepoint_id=prepare_savepoint_id,
            rehearse=rehearse,
            overrides=spec.overrides,
            lease_s=spec.lease_s,
            launch=launch_of(spec, target),
            claimed_at_ms=now_ms(),
            leave_checkpoints=spec.leave_checkpoints,
            elsewhere=queries_elsewhere(self.view.board) if begins and current is None else {},
            asked_by=self.asked_by,
        )
        if prepare_savepoint_id is not None and held is not None:
            # Before the claim: a caller that finds the claim submits its driver, also if this one has died.
            reference = _reference(generation, claim, need="prepare")
            write_reference(
                self.view.repository, prepare_savepoint_id, of_claim(generation, claim.claim_id), reference
            )
            held.require_alive()
        try:
            self.view.board.create_claim(
                generation, self.view.signer.sign(claim, self.view.board.claim_place(generation))
            )
        except ObjectExistsError as error:
            raise JobRunningError.of(
                self.view.job, f"another caller has just claimed generation {generation}"
            ) from error
        log.info("Claimed generation %d of job %s for %s", generation, self.view.job, claim_key)
        return generation

    def _last_number(self) -> Generation:
        """Return the number of the last generation; 0 if there is none.

        If the records of all generations are gone, it is the newest that a savepoint was taken from: no other
        generation may get its number.
        """
        generations = self.view.board.generations()
        if generations:
            return generations[-1]
        savepoints = list_savepoints(self.view.repository)
        return Generation(max((one.taken_from_generation or 0 for one in savepoints), default=0))

    def _require_no_lock(self, current: Slot[Current] | None) -> None:
        """Require that no caller holds the job: a driver that follows its generation would wait for ever."""
        if current is not None and current.value.incarnation == offline_lock.CALLER:
            run = self.view.run(current.value.generation)
            if offline_lock.is_open_lock(run):
                raise JobRunningError.of(
                    self.view.job, f"{run.claim.claim_key} holds it as generation {run.generation}"
                )

    def _submit_once(self, generation: Generation, claim_key: str) -> RunHandle:
        """Submit the driver unless one runs, is coming up or has reported its end."""
        run = self.view.run(generation)
        mine = run.submit is not None and (run.submit.state, run.submit.key) == ("asked", claim_key)
        is_over = run.is_over and not run.may_be_retried
        if (
            not is_over
            and not run.is_alive
            and (not run.is_coming_up or self._is_unsubmitted(run, mine=mine))
        ):
            self.drivers.submit(run, claim_key)  # a new request: retries are counted from 1
            run = self.view.run(generation)
        submit = run.submit
        return RunHandle(
            job=self.view.job,
            generation=generation,
            checkpoint_location=run.claim.checkpoint_location,
            deployment=submit.deployment
            if submit is not None
            else self.view.deployment_of(generation, run.claim).name,
            native_id=next(iter(self.view.native_ids(run)), {}),
        )

    def _is_unsubmitted(self, run: Run, *, mine: bool) -> bool:
        """Return whether an expected driver was only claimed, or asked for by an earlier try of this caller.

        If that try still starts it, it ends itself before it runs a batch: its submit is not the newest.
        """
        return not _is_seen(run) and run.incarnation is None and (run.submit is None or mine)

    def _require_newest(self, generation: Generation, claim_key: str) -> None:
        """Refuse to continue a start if another was ordered to run since: they would wait for each other."""
        status = self.view.status()
        if not isinstance(status, NeverStarted) and offline_lock.is_open_lock(status.run):
            status = self.view.settled_status()  # a lock whose caller was killed counts for nothing
            if isinstance(status, (Dead, Failed)):
                self._give_back_or_end(status.run, claim_key)
                status = self.view.status()
        if not isinstance(status, NeverStarted) and status.run.generation > generation:
            raise JobRunningError(
                f"Generation {generation} of job {self.view.job}, which this start has begun, was expected "
                f"to be its newest, found that {describe_status(status)}.",
                state_after="Nothing was started.",
                remedy="If the job is to be started once more, trigger a new run of the DAG.",
            )

    def _require_stopped(self, claim_key: str) -> Current | None:
        """Require that no other run has the job or is coming up; returns the driver that has ended."""
        while True:
            # Read before the status: a caller that continues the job after that changes it.
            current = self.view.board.current()
            status = self.view.settled_status(unless=lambda run: _is_own(run, claim_key))
            if isinstance(status, (Starting, Running)) and not _is_own(status.run, claim_key):
                raise JobRunningError.of(self.view.job, describe_status(status))
            if isinstance(status, (Dead, Failed)) and self._give_back_or_end(status.run, claim_key):
                continue  # now check the run that it was taken from
            self._require_no_waiting_run(claim_key)
            return current.value if current is not None else None

    def _give_back_or_end(self, run: Run, claim_key: str) -> bool:
        """Give the job back from a caller that has ended, and return True; else end a stuck driver."""
        if not offline_lock.is_open_lock(run):
            self.drivers.end_stuck(run)
            return False
        if not run.is_over and _is_own(run, claim_key):
            return False
        # A run that is over was killed between its last heartbeat and giving the job back.
        offline_lock.give_back_abandoned(self.view, run)
        return True

    def _require_no_waiting_run(self, claim_key: str) -> None:
        current = self.view.board.current()
        for generation in reversed(self.view.board.generations()):
            if current is not None and generation <= current.value.generation:
                return
            if self.view.claim(generation).is_drill or _is_own(self.view.run(generation), claim_key):
                continue
            run = self.view.settled_run(generation)
            self.drivers.end_stuck(run)
            if run.holds_the_job:
                raise JobRunningError.of(
                    self.view.job, f"generation {generation} is waiting or starting ({run.claim.claim_key})"
                )


def _reference(
    generation: Generation, claim: Claim, *, need: Literal["start", "prepare"], claims: bool = False
) -> Reference:
    return Reference(
        need=need,
        by=claim.claim_key,
        reason=f"generation {generation} {'starts from it' if need == 'start' else 'copies it ahead'}",
        at_ms=now_ms(),
        generation=generation,
        claim_id=claim.claim_id,
        claims=claims,
    )


def _same_driver_key(claim_key: str) -> str:
    """Return the key under which a start claims one more run of the driver that has closed."""
    return f"{claim_key}/same-driver"


def _is_own(run: Run, claim_key: str) -> bool:
    """Return whether it is of an earlier try of the same start: its claim, or one that it made before."""
    copied = offline_lock.lock_key(origins.copy_key(claim_key))
    return run.claim.claim_key in (claim_key, copied, _same_driver_key(claim_key))


def _was_refused(run: Run) -> bool:
    """Return whether its driver found a checkpoint, or that the job has continued since it was planned.

    A clear of the task then starts another, by a new plan.
    """
    heartbeat = run.heartbeat
    refused = (CheckpointFoundError.code, PREDECESSOR.code)
    if heartbeat is None or heartbeat.state != "failed":
        return False
    return (heartbeat.error or ("",))[0] in refused


def _is_seen(run: Run) -> bool:
    return run.successor is not None and isinstance(run.successor.state, (Alive, DriverPending))


def _as_recorded(launch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a claim's launch as ``launch_of`` would write it now; empty if the claim has none."""
    if not launch:
        return {}
    spec, target = from_launch(launch, secret_env={})
    return launch_of(spec, target)
