"""Stop with a savepoint, start a new version from it, and go back if that fails before it commits.

Once the new version has committed a batch, going back would repeat batches or lose them: then a person
must have chosen ``fork`` or ``re-emit`` beforehand.
"""

from __future__ import annotations

import hashlib
import logging
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.checkpoint.inventory import list_batches
from airflow_flinkstyle.jobs import stopped
from airflow_flinkstyle.jobs.client import SavepointOnly, Stopped
from airflow_flinkstyle.jobs.compat import require_fitting
from airflow_flinkstyle.jobs.deployments.base import Gone
from airflow_flinkstyle.jobs.errors import (
    DriverFailedError,
    RequestFailedError,
    UpgradeChoiceError,
    UpgradeWentBackError,
)
from airflow_flinkstyle.jobs.lineage import FromSavepoint
from airflow_flinkstyle.jobs.spec import from_launch
from airflow_flinkstyle.jobs.status import Dead, Running
from airflow_flinkstyle.savepoint.derive import publish_derived
from airflow_flinkstyle.types import BatchId, Generation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_flinkstyle.jobs.client import JobClient
    from airflow_flinkstyle.jobs.journal import CutoverJournal
    from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget
    from airflow_flinkstyle.protocol.records import QueryBeat, Rewind
    from airflow_flinkstyle.savepoint.manifest import Manifest, QuerySnapshot

log = logging.getLogger(__name__)

UPGRADE_PHASES = ("stop", "start", "verify", "back")


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
    """How to go back from a version that had committed; ``continue`` cannot, so that it raises."""
    stop_timeout_s: float = 300.0
    first_commit_timeout_s: float = 180.0
    """For the new version to come up and commit its first batch."""

    def run(self) -> UpgradeReport:
        """Upgrade, or go on with an upgrade that an earlier attempt began.

        Raises:
            UpgradeWentBackError: If the new version failed; the old one runs again.
            UpgradeChoiceError: If it failed after it had committed, and nothing was chosen.
            SparkIncompatibleError: If the new version could not go on; nothing was stopped.
        """
        self.journal.begin(lambda: 0)
        stop = self._phase("stop", self._stop)
        if self.journal.read("back") is None:
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
        back = self._phase("back", lambda: self._back(stop))
        raise UpgradeWentBackError(
            f"The new version of job {self.client.board.job} was expected to commit a batch: {failure}",
            left=f"The old version runs again as generation {back['generation']} ({back['how']}).",
            remedy="Correct the new version, then upgrade again.",
        )

    def _phase(self, name: str, action: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        phase = self.journal.open(name, {})
        if phase.record.result is not None:
            return phase.record.result
        log.info("Phase %s", name)
        return self.journal.close(phase, action())

    def _stop(self) -> Mapping[str, Any]:
        require_fitting(self.client, self.spec, self.target)
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
            left="The new version was not started.",
            remedy="Start the job from its checkpoint, then upgrade again.",
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
        deadline = time.monotonic() + self.first_commit_timeout_s
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
            if time.monotonic() > deadline:
                idle = isinstance(status, Running) and not self._has_planned(new, before)
                return {"failure": None if idle else failure, "batches": None}
            self.journal.check()
            time.sleep(self.client.poll_s)

    def _has_planned(self, new: Generation, before: Mapping[str, int]) -> bool:
        """Return whether any query found something to read: Spark plans no batch without data."""
        run = self.client.run(new)
        for name in run.heartbeat.queries if run.heartbeat else ():
            planned = list_batches(stopped.read_checkpoint(self.client, run, name), "offsets")
            if max(planned, default=-1) > before.get(name, -1):
                return True
        return False

    # --- back ---------------------------------------------------------------------------------

    def _back(self, stop: Mapping[str, Any]) -> Mapping[str, Any]:
        """End the new version's driver; then its logs decide how the old version goes on."""
        client, key = self.client, f"{self.journal.migration_id}/back"
        old = client.run(Generation(stop["generation"]))
        new, own = client.own_claim(f"{self.journal.migration_id}/new"), client.own_claim(key)
        if own is not None and client.board.go(own) is not None:  # an earlier attempt came this far
            spec, target = from_launch(old.claim.launch, secret_env=client.secret_env)
            back, how = client.start(spec, target, claim_key=key), "by an earlier attempt"
        else:
            ended = new is None or isinstance(client.end_driver(new), Gone)
            current = client.board.current()
            if current is not None and current.value.generation == old.generation:
                back = client.follow(old.generation, claim_key=key)
                how = "in its own checkpoint: the new version never took over"
            else:
                back, how = self._back_from_new(stop, driver_has_ended=ended)
        client.wait_running(back.generation, timeout_s=self.first_commit_timeout_s)
        return {"generation": back.generation, "how": how}

    def _back_from_new(self, stop: Mapping[str, Any], *, driver_has_ended: bool) -> tuple[Any, str]:
        client, key = self.client, f"{self.journal.migration_id}/back"
        manifest = client.repository.read(stop["savepoint_id"])
        fence = stopped.raise_fence(client, key, driver_has_ended=driver_has_ended)
        committed, pending = _logs(client, fence)
        stopped.lift_fence(client, fence, committed, under_way=pending.keys())
        ran_on = {name: batch for name, batch in committed.items() if batch > stop["batches"].get(name, -1)}
        if not ran_on:
            carried = carry_pending(manifest, pending, client, fence.last_words.queries)
            origin = FromSavepoint(savepoint_id=carried.savepoint_id)
            how = (
                f"from {carried.savepoint_id}, pending batch of {sorted(pending) or 'no query'} carried over"
            )
        elif self.if_committed == "continue":
            raise UpgradeChoiceError(
                f"The new version was expected to fail before its first commit, found batches {ran_on}.",
                left=f"The job is stopped. Savepoint {stop['savepoint_id']} is from before the upgrade.",
                remedy="Correct the new version and start it from the checkpoint (FromCheckpoint), or the "
                "old one from that savepoint with rewind='fork' or rewind='re-emit'.",
            )
        else:
            origin = FromSavepoint(savepoint_id=manifest.savepoint_id, rewind=self.if_committed)
            how = f"from {manifest.savepoint_id} ({self.if_committed}), behind it {ran_on} was committed"
        old = client.run(Generation(stop["generation"]))
        spec, target = from_launch(old.claim.launch, secret_env=client.secret_env)
        return client.start(spec, target, claim_key=key, origin=origin), how


def _logs(
    client: JobClient, fence: stopped.Fence
) -> tuple[dict[str, BatchId], dict[str, tuple[BatchId, str]]]:
    """Return per query the newest committed batch, and the batch that was planned behind it."""
    committed, pending = {}, {}
    for name in fence.last_words.queries:
        checkpoint = stopped.read_checkpoint(client, fence.last, name)
        done, planned = list_batches(checkpoint, "commits"), list_batches(checkpoint, "offsets")
        committed[name] = BatchId(max(done, default=-1))
        if planned and max(planned) == committed[name] + 1:
            pending[name] = (max(planned), checkpoint.read(f"offsets/{max(planned)}").decode())
    return committed, pending


def carry_pending(
    manifest: Manifest,
    pending: Mapping[str, tuple[BatchId, str]],
    client: JobClient,
    last_words: Mapping[str, QueryBeat],
) -> Manifest:
    """Publish the savepoint with the batches that were planned behind it, by id and offsets.

    What the sinks had written comes from the last words of who planned them: a part may stand there.
    """
    if not pending:
        return manifest
    text = "".join(f"{name}\0{batch}\0{raw}\0" for name, (batch, raw) in sorted(pending.items()))
    digest = hashlib.sha256(f"{manifest.savepoint_id}\0{text}".encode()).hexdigest()[:20]

    def carry(query: QuerySnapshot) -> QuerySnapshot:
        if query.name not in pending:
            return query
        told = last_words[query.name].sinks or query.sinks
        return replace(query, pending_offsets=pending[query.name][1], sinks=told)

    return publish_derived(manifest, client.repository, f"sp-carry-{digest}", carry)
