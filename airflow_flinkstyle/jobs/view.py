"""``JobView``: what is recorded of a job's runs, and what their drivers are doing."""

from __future__ import annotations

import hashlib
import logging
import math
import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.clock import CLOCK, Clock, Wait, now_ms
from airflow_flinkstyle.errors import SignatureError
from airflow_flinkstyle.jobs.deployments.base import (
    CLAIM,
    OF_ANOTHER,
    SUCCEEDED,
    Alive,
    DriverPages,
    DriverState,
    Gone,
    Unknown,
)
from airflow_flinkstyle.jobs.errors import JobError, JobNotRunningError
from airflow_flinkstyle.jobs.signing import PROCESS_SIGNATURE, Signer
from airflow_flinkstyle.jobs.spec import from_launch, submission_of
from airflow_flinkstyle.jobs.status import (
    CLAIM_GRACE_S,
    OF_THIS_PROCESS,
    START_GRACE_S,
    JobStatus,
    NeverStarted,
    Run,
    Sightings,
    Successor,
    classify,
)
from airflow_flinkstyle.jobs.target import Deployments
from airflow_flinkstyle.protocol.records import AsRecorded, Claim
from airflow_flinkstyle.storage.open import open_as_hadoop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_flinkstyle.jobs.deployments.base import Deployment, Submission
    from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget
    from airflow_flinkstyle.protocol.board import JobBoard, LaterRecords, Slot
    from airflow_flinkstyle.protocol.records import (
        Current,
        Heartbeat,
        IncarnationRecord,
        Submit,
        TakeoverOrder,
    )
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from airflow_flinkstyle.storage.base import ObjectStore
    from airflow_flinkstyle.types import Generation, Incarnation

LOG_FOLLOWS = " End of its log:"
"""What stands before the end of a driver's log in an error: only who may read logs is shown what follows."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedClaim:
    """A claim whose signature by its caller was verified."""

    claim: Claim
    digest: str
    """SHA-256 of the object in hex; the driver that it starts obeys no other one."""


@dataclass(kw_only=True)
class JobView:
    """The runs of one job, seen by a caller; holds no state that a retry would miss."""

    board: JobBoard
    repository: SavepointRepository
    deployment: Deployment
    """For drivers of this machine."""
    signer: Signer = field(default_factory=Signer)
    """Without a key nothing is started."""
    secret_env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Store credentials for drivers that are relaunched."""
    open_checkpoint: Callable[[str], ObjectStore] = open_as_hadoop
    """Opens a checkpoint location, for callers that read those of stopped jobs."""
    poll_s: float = 0.25
    clock: Clock = field(default=CLOCK, repr=False)
    clusters: Deployments = field(default_factory=Deployments, repr=False)
    """For drivers elsewhere."""
    sightings: Sightings = field(default_factory=lambda: OF_THIS_PROCESS, repr=False)
    """What this process has seen of the jobs' heartbeats."""
    base_env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)

    @property
    def job(self) -> str:
        """The job's name."""
        return self.board.job

    def waiting(self, timeout_s: float) -> Wait:
        """Begin to wait for something of the job."""
        return self.clock.wait(timeout_s, every_s=self.poll_s)

    def status(self) -> JobStatus:
        """Return the status of the run that may run, as far as this process has seen so far."""
        begun_s = self.sightings.clock.now_s
        slot = self.board.current()
        current = slot.value if slot is not None else None
        later = self.board.behind(current)
        holder = current.generation if current is not None else None
        run = self._ordered_run(current, later)
        if run is None and current is not None:
            run = self._as_recorded(current, later, begun_s) or self.run(current.generation)
        return NeverStarted() if run is None else classify(run, is_current=holder == run.generation)

    def settled_status(
        self,
        *,
        at_most_s: float = math.inf,
        unless: Callable[[Run], bool] = lambda _: False,
        afresh: bool = False,
    ) -> JobStatus:
        """Return the status of the run that may run, once it is certain.

        A driver elsewhere is believed to live once its heartbeat was seen to change, which takes the time
        between two, and to be dead once it has not changed for its lease.

        Args:
            at_most_s: How long to wait for that; then the status so far is returned.
            unless: Returns whether the status of a run may be returned at once.
            afresh: Count only a heartbeat that is written during this call as a sign of life.
        """
        wait, before = self.waiting(at_most_s), None
        while True:
            status = self.status()
            if isinstance(status, NeverStarted) or unless(status.run):
                return status
            before = before or status.run.heartbeat
            is_old = afresh and status.run.is_alive and status.run.heartbeat == before
            if (status.run.is_certain and not is_old) or not wait.again():
                return status

    def settled_run(self, generation: Generation) -> Run:
        """Return a run once it is certain whether it still has a driver."""
        while not (run := self.run(generation)).is_certain:
            self.clock.sleep(self.poll_s)
        return run

    def run(self, generation: Generation) -> Run:
        """Return everything recorded about a generation.

        Raises:
            JobNotRunningError: If there is no such generation.
        """
        claim = self.claim(generation)
        begun_s = self.sightings.clock.now_s
        incarnations, heartbeat = self.board.incarnations(generation), self.board.heartbeat(generation)
        submit = self.board.submit(generation)
        recorded = AsRecorded(
            claim=claim,
            order=self.board.takeover_order(generation),
            process=self.board.incarnation(generation, heartbeat.value.incarnation) if heartbeat else None,
            submit=submit.value if submit else None,
            submit_version=submit.version if submit else "",
        )
        newest = incarnations[-1] if incarnations else None
        return self._run_from(generation, recorded, newest, heartbeat, begun_s)

    def claim(self, generation: Generation) -> Claim:
        """Return the claim of a generation; raises as ``run`` does."""
        claim = self.board.claim(generation)
        if claim is None:
            raise self._not_claimed(generation)
        return claim

    def signed_claim(self, generation: Generation) -> SignedClaim:
        """Return the claim of a generation as its caller wrote it: the only one from which a process starts.

        Raises:
            SignatureError: If no caller with the key wrote it.
            JobError: ``SIGNING_KEY`` if there is no key to verify with.
            JobNotRunningError: If there is no such generation.
        """
        data = self.board.claim_data(generation)
        if data is None:
            raise self._not_claimed(generation)
        self.signer.require(data, self.board.claim_place(generation))
        return SignedClaim(claim=Claim.from_bytes(data), digest=hashlib.sha256(data).hexdigest())

    def own_claim(self, claim_key: str) -> Generation | None:
        """Return the newest generation that was claimed under this key, or None."""
        for generation in reversed(self.board.generations()):
            claim = self.board.claim(generation)
            if claim is not None and claim.claim_key == claim_key:
                return generation
        return None

    def launch_of(self, generation: Generation) -> tuple[JobSpec, SubmitTarget]:
        """Return how a generation was started, to start it or what follows it; raises as ``signed_claim``."""
        return from_launch(self.signed_claim(generation).claim.launch, secret_env=self.secret_env)

    def deployment_for(self, target: SubmitTarget) -> Deployment:
        """Return what starts drivers at a target.

        Raises:
            BadInputError: ``DEPLOY_MODE`` if nothing does.
        """
        return self.clusters.make(target) if target.is_remote else self.deployment

    def deployment_of(self, generation: Generation, claim: Claim) -> Deployment:
        """Return what runs a generation's drivers; one that answers Unknown if its claim is not signed."""
        return self.clusters.of_claim(
            claim.claim_id, claim.launch, lambda: self.launch_of(generation)[1], local=self.deployment
        )

    def _not_claimed(self, generation: Generation) -> JobNotRunningError:
        return JobNotRunningError(
            f"Generation {generation} of job {self.job} was expected, found none of that number.",
            state_after="Nothing was changed.",
            remedy="List the job's runs; the savepoint root or the job name may be another one.",
        )

    def _as_recorded(self, current: Current, later: LaterRecords, begun_s: float) -> Run | None:
        """Return the run that took over last, from what ``current.json`` repeats of its records.

        None if that copy is out of date: a later driver process has begun, or wrote the heartbeat.
        """
        generation, recorded = current.generation, current.recorded
        if recorded is None or later.has_incarnation(generation):
            return None
        version = later.submit_version(generation)
        if (version or "") != recorded.submit_version:
            submit = self.board.submit(generation)
            recorded = replace(
                recorded,
                submit=submit.value if submit else None,
                submit_version=submit.version if submit else "",
            )
        heartbeat = self.board.heartbeat(generation)
        if heartbeat is None or heartbeat.value.incarnation != current.incarnation:
            return None
        return self._run_from(generation, recorded, current.incarnation or None, heartbeat, begun_s)

    def _run_from(
        self,
        generation: Generation,
        recorded: AsRecorded,
        newest: Incarnation | None,
        heartbeat: Slot[Heartbeat] | None,
        begun_s: float,
    ) -> Run:
        """Put a run together, with what this process has seen of it."""
        claim, submit, version = recorded.claim, recorded.submit, heartbeat.version if heartbeat else None
        mark = (version, newest, recorded.submit_version)
        run = Run(
            generation=generation,
            claim=claim,
            order=recorded.order,
            submit=submit,
            submit_number=submit.number if submit else 0,
            incarnation=newest,
            heartbeat=heartbeat.value if heartbeat else None,
            writer_state=self._writer_state(generation, recorded, heartbeat),
            process=recorded.process,
            successor=None,
            silence=self.sightings.note(f"{claim.claim_id}/heartbeat", version, begun_s=begun_s),
            stillness=self.sightings.note(claim.claim_id, mark, begun_s=begun_s),
        )
        run = replace(run, successor=self._successor(run, recorded.process))
        return run if run.holds_the_job or run.has_reported_end else self._reread(run, version)

    def _writer_state(
        self, generation: Generation, recorded: AsRecorded, heartbeat: Slot[Heartbeat] | None
    ) -> DriverState:
        if heartbeat is None:
            return Gone()
        if not heartbeat.value.incarnation:
            return Unknown("a caller holds the job in a driver's place")
        deployment = self.deployment_of(generation, recorded.claim)
        return self._state(deployment, recorded.claim.claim_id, recorded.process, recorded.submit)

    def _reread(self, run: Run, version: str | None) -> Run:
        """Return a run whose driver is gone; it may have reported its end after its heartbeat was read."""
        latest = self.board.heartbeat(run.generation)
        return run if (latest.version if latest else None) == version else self.run(run.generation)

    def _ordered_run(self, current: Current | None, later: LaterRecords) -> Run | None:
        """Return the newest run after the current one that has a takeover order and may take over."""
        holder = current.generation if current is not None else None
        for generation in reversed(later.with_takeover_order()):
            if holder is not None and generation <= holder:
                break
            claim, order = self.board.claim(generation), self.board.takeover_order(generation)
            if (
                claim is not None
                and claim.follows == holder
                and order is not None
                and self._may_follow(current, order)
            ):
                return self.run(generation)
        return None

    def _may_follow(self, current: Current | None, order: TakeoverOrder) -> bool:
        """Return whether the guard would let a driver with this ``order`` take over now."""
        if order.closed_at is None or current is None:
            return order.fits(current)
        slot = self.board.heartbeat(current.generation)
        return slot is not None and slot.value.state == "closed" and slot.value.batches() == order.closed_at

    def _state(
        self,
        deployment: Deployment,
        claim_id: str,
        record: IncarnationRecord | None,
        submit: Submit | None,
    ) -> DriverState:
        """Ask the deployment about a driver that described itself."""
        if record is None:
            return Unknown("it did not describe itself")
        if submit is not None and submit.deployment != deployment.name:
            return Unknown(f"it was started by deployment {submit.deployment}")
        return deployment.state({**deployment.native_id(record), CLAIM: claim_id})

    def _successor(self, run: Run, writer: IncarnationRecord | None) -> Successor | None:
        """Ask the deployment about the newest driver, if it is a later one than wrote the heartbeat."""
        begun = run.incarnation if run.incarnation != (run.heartbeat and run.heartbeat.incarnation) else None
        record = self.board.incarnation(run.generation, begun) if begun is not None else None
        if record is not None and record.submit in (0, run.submit_number) and not run.was_given_up:
            grace_s = max(CLAIM_GRACE_S, 3 * run.claim.lease_s)  # it waits for two leases at most
            deployment = self.deployment_of(run.generation, run.claim)
            state = self._state(deployment, run.claim.claim_id, record, run.submit)
            return Successor(state=state, grace_s=grace_s)
        if run.submit is None:
            nobody = Successor(state=Unknown("no driver was asked for"), grace_s=CLAIM_GRACE_S)
            return nobody if run.heartbeat is None else None
        if writer is not None and writer.submit in (0, run.submit_number):
            return None
        return self._submitted(run, run.submit)

    def _submitted(self, run: Run, submit: Submit) -> Successor:
        """Ask the deployment about a driver that was submitted and has not begun."""
        if run.was_given_up:
            return Successor(state=Gone(), grace_s=0)
        grace_s = max(CLAIM_GRACE_S if submit.state == "asked" else START_GRACE_S, run.claim.lease_s)
        deployment = self.deployment_of(run.generation, run.claim)
        if submit.deployment != deployment.name:
            state: DriverState = Unknown(f"it was started by deployment {submit.deployment}")
        elif submit.state == "submitted":
            state = deployment.state({**submit.native_id, CLAIM: run.claim.claim_id})
        elif deployment.find(self.submission(run.generation, run.claim)) is not None:
            state = Alive()
        else:
            state = Unknown("the result of its start was not recorded")
        return Successor(state=state, grace_s=grace_s, asked_s_ago=(now_ms() - submit.asked_at_ms) / 1000)

    def native_ids(self, run: Run) -> list[Mapping[str, str]]:
        """Return the known driver processes of a run that may live: submitted, begun, writing heartbeats.

        Each is bound to the signed claim; none if the claim is not signed.
        """
        try:
            bound = self._bound(run)
        except (JobError, SignatureError) as error:
            log.warning("No driver of generation %d is known: %s", run.generation, error.problem)
            return []
        deployment = self.deployment_of(run.generation, run.claim)
        submitted = self.submitted_process(run)
        known = [submitted] if submitted else []
        writer = run.heartbeat.incarnation if run.heartbeat else None
        for incarnation in {writer, run.incarnation}:
            record = self.board.incarnation(run.generation, incarnation) if incarnation else None
            known += [{**deployment.native_id(record), **bound}] if record is not None else []
        return known

    def end(self, run: Run, *, is_succeeded: bool = False) -> DriverState:
        """Kill every known process of a run; returns Gone if none is left.

        Args:
            run: Of those drivers.
            is_succeeded: Whether the caller starts the next driver of the same run.
        """
        deployment = self.deployment_of(run.generation, run.claim)
        more = {SUCCEEDED: "true"} if is_succeeded else {}
        states = [deployment.end({**native_id, **more}) for native_id in self.native_ids(run)]
        state = next((one for one in states if not isinstance(one, Gone)), Gone())
        if not states:
            state = Unknown("no driver was recorded that is known to be this run's")
        log.info("Ended the driver of generation %d: %s", run.generation, state)
        return state

    def submitted_process(self, run: Run) -> Mapping[str, str]:
        """Return the process that the newest submit started, bound to its claim; empty if that is uncertain.

        The record of a submit is not signed as a whole. Either its caller has signed the process that it
        names, or the deployment itself compares that process with the claim.
        """
        submit, deployment = run.submit, self.deployment_of(run.generation, run.claim)
        if submit is None or not submit.native_id or submit.deployment != deployment.name:
            return {}
        place = self.board.submit_place(run.generation)
        if not getattr(deployment, "binds_claims", False) and not self.signer.names_process(submit, place):
            return {}
        try:
            named = {name: value for name, value in submit.native_id.items() if name != PROCESS_SIGNATURE}
            return {**named, **self._bound(run)}
        except (JobError, SignatureError):
            return {}

    def _bound(self, run: Run) -> dict[str, str]:
        """Return what the signed claim says about its drivers; no other record is used."""
        claim = self.signed_claim(run.generation).claim
        bound = {CLAIM: claim.claim_id}
        if self.deployment_of(run.generation, run.claim) is self.deployment:
            bound["log"] = self.submission(run.generation, claim).log_path
        return bound

    def pages(self, run: Run) -> DriverPages:
        """Return the pages about a run's newest driver."""
        ask = getattr(self.deployment_of(run.generation, run.claim), "pages", None)
        native_id = self.submitted_process(run)
        found: DriverPages = ask(native_id) if ask is not None and native_id else DriverPages()
        ui_url = (run.heartbeat.ui_url if run.heartbeat is not None else None) or ""
        return found if found.spark_ui else replace(found, spark_ui=ui_url)

    def log_tail(self, run: Run, *, lines: int = 30) -> str:
        """Return the last lines of the driver's log, as far as it can be read from here; empty for none.

        Read from the file that a signed claim names, or from the process that is known to be its driver: the
        store must not choose which log is shown.
        """
        if run.submit is None or not run.submit.native_id:
            return ""
        try:
            self.signed_claim(run.generation)
        except (JobError, SignatureError) as error:
            return f"(not shown: {error.code})"
        process = self.submitted_process(run)
        if not process:
            return f"(not shown: {OF_ANOTHER})"
        return self.deployment_of(run.generation, run.claim).log_tail(process, lines=lines)

    def log_end(self, run: Run) -> str:
        """Return the end of the driver's log as the end of an error's sentence; empty for none."""
        tail = self.log_tail(run).strip()
        return f"{LOG_FOLLOWS}\n{tail}\n" if tail else ""

    def submission(
        self, generation: Generation, claim: Claim, submit: int = 0, digest: str = ""
    ) -> Submission:
        """Return what a deployment needs to start a driver of the generation."""
        spec, target = from_launch(claim.launch, secret_env=self.secret_env)
        return submission_of(
            spec,
            target,
            root=self.board.store.uri,
            root_id=self.board.root.root_id,
            generation=generation,
            claim_id=claim.claim_id,
            digest=digest,
            submit=submit,
            base_env=self.base_env,
        )
