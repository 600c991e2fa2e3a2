"""Stop with a savepoint, start a new version from it, and go back if that fails before it commits.

Once the new version has committed a batch, or moved a sink and may have written there, going back would
repeat batches or lose them: then a person must have chosen ``fork`` or ``re-emit`` beforehand.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.checkpoint.inventory import list_batches
from airflow_flinkstyle.jobs.deployments.base import Gone
from airflow_flinkstyle.jobs.errors import (
    DriverFailedError,
    RequestFailedError,
    UpgradeChoiceError,
    UpgradeRolledBackError,
)
from airflow_flinkstyle.jobs.running import last_run, stopped
from airflow_flinkstyle.jobs.running.client import SavepointOnly, Stopped
from airflow_flinkstyle.jobs.running.compat import require_fitting
from airflow_flinkstyle.jobs.running.start_plan import FromSavepoint
from airflow_flinkstyle.jobs.status import Dead, Running
from airflow_flinkstyle.jobs.upgrade.failed_version import carry_planned, look_at
from airflow_flinkstyle.savepoint.errors import SinkSkipsError
from airflow_flinkstyle.savepoint.sinks import may_skip
from airflow_flinkstyle.types import Generation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_flinkstyle.jobs.journal import CutoverJournal
    from airflow_flinkstyle.jobs.running.client import JobClient
    from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget
    from airflow_flinkstyle.protocol.records import Rewind

log = logging.getLogger(__name__)

UPGRADE_PHASES = ("stop", "start", "verify", "rollback")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeReport:
    """A new version that runs."""

    job: str
    generation: int
    savepoint_id: str
    first_batch: Mapping[str, int] | None
    """Query name -> batch seen committed; None if there was nothing to read yet."""
    phases_s: Mapping[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for XCom."""
        return asdict(self)


@dataclass(kw_only=True)
class Upgrade:
    """One upgrade of one job; ``run`` may be called again after a failed try."""

    client: JobClient
    journal: CutoverJournal
    """Made with ``UPGRADE_PHASES``."""
    spec: JobSpec
    """The new version."""
    target: SubmitTarget
    if_committed: Rewind = "continue"
    """How to go back from a version that had committed, or moved a sink; ``continue`` cannot, and raises."""
    skip_known_batches: bool = False
    """Accept, for the rollback, that a sink or a function leaves out batch ids that it has seen."""
    stop_timeout_s: float = 300.0
    first_commit_timeout_s: float = 180.0
    """For the new version to come up and commit its first batch."""

    def run(self) -> UpgradeReport:
        """Upgrade, or continue an upgrade that an earlier attempt began.

        Raises:
            UpgradeRolledBackError: If the new version failed; the old one runs again.
            UpgradeChoiceError: If it failed after it had committed, and nothing was chosen.
            SinkSkipsError: If the rollback would use batch ids again that a sink may leave out; nothing was
                stopped.
            SparkIncompatibleError: If the new version could not continue; nothing was stopped.
            DiesWithStarterError: If its driver would end with this task or worker; nothing was stopped.
        """
        self.journal.begin(lambda: 0)
        stop = self._phase("stop", self._stop)
        if self.journal.read("rollback") is None:
            new = Generation(self._phase("start", lambda: self._start(stop))["generation"])
            verified = self._phase("verify", lambda: self._verify(new, stop["batches"]))
            if verified["failure"] is None:
                return UpgradeReport(
                    job=self.client.board.job,
                    generation=new,
                    savepoint_id=stop["savepoint_id"],
                    first_batch=verified["batches"],
                    phases_s=self.journal.seconds(),
                )
        failure = (self.journal.result("verify") or {}).get("failure", "It did not start.")
        back = self._phase("rollback", lambda: self._roll_back(stop))
        raise UpgradeRolledBackError(
            f"The new version of job {self.client.board.job} was expected to commit a batch: {failure}",
            state_after=f"The old version runs again as generation {back['generation']} ({back['how']}).",
            remedy="Correct the new version, then upgrade again.",
        )

    def _phase(self, name: str, action: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        phase = self.journal.open(name, {})
        if phase.record.result is not None:
            return phase.record.result
        log.info("Phase %s", name)
        return self.journal.close(phase, action())

    def _stop(self) -> Mapping[str, Any]:
        self._require_rollback_possible()
        require_fitting(self.client, self.spec, self.target)
        self.client.deployment_for(self.target).require_able()
        key = f"{self.journal.migration_id}/stop"
        outcome = self.client.stop(
            key, savepoint=True, timeout_s=self.stop_timeout_s, confirm=self.journal.check
        )
        match outcome:
            case Stopped(generation=generation, batches=batches, savepoint_id=str(savepoint_id)):
                return {"generation": generation, "batches": dict(batches), "savepoint_id": savepoint_id}
            case SavepointOnly(reason=reason):
                found = f"savepoint {outcome.savepoint_id} only: {reason}"
            case _:
                found = "that it closed by itself, without a savepoint"
        raise RequestFailedError(
            f"Job {self.client.board.job} was expected to stop with a savepoint, found {found}",
            state_after="The new version was not started.",
            remedy="Start the job from its checkpoint, then upgrade again.",
        )

    def _require_rollback_possible(self) -> None:
        """Require that the rollback that was chosen loses nothing silently, before anything stops."""
        if self.if_committed != "re-emit" or self.skip_known_batches:
            return
        board = self.client.board
        current = board.current()
        slot = board.heartbeat(current.value.generation) if current else None
        told = slot.value.queries if slot else {}
        found = [name for name, beat in sorted(told.items()) if may_skip(beat.sink, beat.sinks)]
        if found:
            named = ", ".join(f"{told[name].sink} of query {name}" for name in found)
            raise SinkSkipsError.of(
                f"{named}, which leaves out, or may leave out, batches whose ids it has seen "
                "(if_committed='re-emit')",
                state_after="Nothing was stopped; the job keeps running.",
            )

    def _start(self, stop: Mapping[str, Any]) -> Mapping[str, Any]:
        self.journal.check()
        origin = FromSavepoint(savepoint_id=stop["savepoint_id"])
        key = f"{self.journal.migration_id}/new"
        return {
            "generation": self.client.start(self.spec, self.target, claim_key=key, origin=origin).generation
        }

    # --- did it work --------------------------------------------------------------------------

    def _verify(self, new: Generation, before: Mapping[str, int]) -> Mapping[str, Any]:
        """Wait for the first committed batch; ``failure`` says why there was none."""
        wait = self.client.waiting(self.first_commit_timeout_s)
        while True:
            try:
                status = self.client.ensure_running()
            except DriverFailedError as error:
                status, failure = None, str(error)
            else:
                failure = f"it committed none within {self.first_commit_timeout_s:g} s."
            run = self.client.run(new)
            batches = run.heartbeat.batches() if run.heartbeat else {}
            if any(batch > before.get(name, -1) for name, batch in batches.items()) and status is not None:
                return {"failure": None, "batches": batches}
            if status is None or (run.is_over and not isinstance(status, Dead)):
                return {"failure": failure if status is None else "its script ended.", "batches": None}
            if not wait.again():
                idle = isinstance(status, Running) and not self._has_planned(new, before)
                return {"failure": None if idle else failure, "batches": None}
            self.journal.check()

    def _has_planned(self, new: Generation, before: Mapping[str, int]) -> bool:
        """Return whether any query found something to read: Spark plans no batch without data."""
        run = self.client.run(new)
        for name in run.heartbeat.queries if run.heartbeat else ():
            planned = list_batches(last_run.read_checkpoint(self.client, run, name), "offsets")
            if max(planned, default=-1) > before.get(name, -1):
                return True
        return False

    # --- back ---------------------------------------------------------------------------------

    def _roll_back(self, stop: Mapping[str, Any]) -> Mapping[str, Any]:
        """End the new version's driver; then its logs decide how the old version continues."""
        client, key = self.client, f"{self.journal.migration_id}/rollback"
        old = client.run(Generation(stop["generation"]))
        new, own = client.own_claim(f"{self.journal.migration_id}/new"), client.own_claim(key)
        if (
            own is not None and client.board.takeover_order(own) is not None
        ):  # an earlier attempt came this far
            spec, target = client.launch_of(old.generation)
            back, how = client.start(spec, target, claim_key=key), "by an earlier attempt"
        else:
            ended = new is None or isinstance(client.end_driver(new), Gone)
            current = client.board.current()
            if current is not None and current.value.generation == old.generation:
                back = client.follow(old.generation, claim_key=key)
                how = "in its own checkpoint: the new version never took over"
            else:
                back, how = self._roll_back_from_new(stop, driver_has_ended=ended)
        client.wait_running(back.generation, timeout_s=self.first_commit_timeout_s)
        return {"generation": back.generation, "how": how}

    def _roll_back_from_new(self, stop: Mapping[str, Any], *, driver_has_ended: bool) -> tuple[Any, str]:
        client, key = self.client, f"{self.journal.migration_id}/rollback"
        manifest = client.repository.read(stop["savepoint_id"])
        saved = {query.name for query in manifest.queries}
        lock = stopped.lock_offline(client, key, driver_has_ended=driver_has_ended, needed=saved)
        failed = look_at(client, lock)
        stopped.unlock(client, lock, failed.committed, under_way=failed.planned.keys())
        why_not = failed.why_no_rollback(manifest)
        if why_not is None:
            carried = carry_planned(manifest, failed, client)
            origin = FromSavepoint(savepoint_id=carried.savepoint_id)
            which = ", ".join(sorted(failed.planned)) or "no query"
            how = f"from {carried.savepoint_id}, planned batch of {which} carried over"
        elif self.if_committed == "continue":
            raise UpgradeChoiceError(
                f"The new version was expected to fail before it wrote anything, found that {why_not}.",
                state_after=f"The job is stopped. Savepoint {stop['savepoint_id']} is from before the "
                "upgrade.",
                remedy="Correct the new version and start it from the checkpoint (FromCheckpoint), or the "
                "old one from that savepoint with rewind='fork' or rewind='re-emit'.",
            )
        else:
            origin = FromSavepoint(
                savepoint_id=manifest.savepoint_id,
                rewind=self.if_committed,
                skip_known_batches=self.skip_known_batches,
            )
            how = f"from {manifest.savepoint_id} ({self.if_committed}), although {why_not}"
        spec, target = client.launch_of(Generation(stop["generation"]))
        return client.start(spec, target, claim_key=key, origin=origin), how
