"""``JobView``: what is recorded of a job's runs, and what their drivers are doing."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.deployments.base import Alive, DriverState, Gone, Unknown
from airflow_flinkstyle.jobs.errors import JobNotRunningError
from airflow_flinkstyle.jobs.spec import from_launch, submission_of
from airflow_flinkstyle.jobs.status import CLAIM_GRACE_S, JobStatus, NeverStarted, Run, classify, now_ms
from airflow_flinkstyle.storage.open import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_flinkstyle.jobs.deployments.base import Deployment
    from airflow_flinkstyle.jobs.spec import Submission
    from airflow_flinkstyle.protocol.board import JobBoard
    from airflow_flinkstyle.protocol.records import Claim, Current, Go, Handle
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from airflow_flinkstyle.storage.base import ObjectStore
    from airflow_flinkstyle.types import Generation, Incarnation


@dataclass(kw_only=True)
class JobView:
    """The runs of one job, seen by a caller; holds no state that a retry would miss."""

    board: JobBoard
    repository: SavepointRepository
    deployment: Deployment
    secret_env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Store credentials for drivers that are relaunched."""
    open_checkpoint: Callable[[str], ObjectStore] = open_store
    """Opens a checkpoint location, for what callers do with stopped jobs."""
    poll_s: float = 0.25
    base_env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)

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

    def log_tail(self, run: Run) -> str:
        """Return the end of the driver's log, as far as it can be read from here."""
        if run.handle is None:
            return "(no log)"
        return self.deployment.log_tail(run.handle.native_id) or "(no log)"

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
