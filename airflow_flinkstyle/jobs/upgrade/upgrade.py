"""Replace a running job by a new version: standby, stop with a savepoint, takeover, first batch; or back.

The steps are those of every cutover (``jobs.cutover``). Until the new version has taken the job over, every
error leads back by itself; before the stop the old version just runs on. Once the new version has committed a
batch, or moved a sink and may have written there, going back would repeat batches or lose them: then a person
must have chosen ``fork`` or ``re-emit`` beforehand.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.cutover import beside, steps
from airflow_flinkstyle.jobs.errors import AttemptSupersededError, UpgradeRolledBackError
from airflow_flinkstyle.jobs.requests import PendingRequest
from airflow_flinkstyle.jobs.running.compat import require_fitting
from airflow_flinkstyle.jobs.running.savepoints import begin_savepoint, finish_savepoint
from airflow_flinkstyle.jobs.running.start_plan import FromSavepoint, plan_savepoint
from airflow_flinkstyle.jobs.status import Dead, Starting
from airflow_flinkstyle.jobs.upgrade import first_batch, way_back
from airflow_flinkstyle.jobs.upgrade.context import UpgradeContext
from airflow_flinkstyle.jobs.upgrade.report import UpgradeReport, build_report
from airflow_flinkstyle.storage.errors import StoreError
from airflow_flinkstyle.types import Generation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.savepoint.manifest import Manifest

log = logging.getLogger(__name__)

UPGRADE_PHASES = ("savepoint", "standby", "stop", "takeover-order", "takeover", "verify", "rollback")


@dataclass(kw_only=True)
class Upgrade(UpgradeContext):
    """One upgrade of one job; ``run`` may be called again after a failed try."""

    def run(self) -> UpgradeReport:
        """Upgrade, or continue an upgrade that an earlier attempt began.

        Raises:
            UpgradeRolledBackError: If the new version failed; the old one runs, and was never stopped if the
                error says so.
            UpgradeChoiceError: If it failed after it had committed, and nothing was chosen.
            SinkSkipsError: If the rollback would use batch ids again that a sink may leave out; nothing was
                stopped.
            SparkIncompatibleError: If the new version could not continue; nothing was stopped.
            DiesWithStarterError: If its driver would end with this task or worker; nothing was stopped.
            MigrationBusyError: If another upgrade or migration of the job is under way.
        """
        self.journal.begin(lambda: 0)
        begun = self.journal.read("rollback")
        if begun is not None:
            raise self._went_back(begun.intent.get("failure") or self._failure())
        if not self._has_begun():
            self._require_possible()
        try:
            self._until_taken_over()
        except (AttemptSupersededError, StoreError):
            raise  # a newer attempt is in charge, or no rollback could be recorded: a retry continues
        except FlinkstyleError as error:
            if not self._has_begun():
                raise  # nothing was started or stopped
            raise self._went_back(f"{error.problem} {error.state_after}") from error
        verified = self.phase("verify", {}, self._verify)
        if verified["failure"] is not None:
            raise self._went_back(verified["failure"])
        return build_report(self)

    def _has_begun(self) -> bool:
        """Return whether anything was started or stopped for this upgrade."""
        return any(self.journal.read(name) is not None for name in ("standby", "stop"))

    def _failure(self) -> str:
        return str((self.journal.result("verify") or {}).get("failure", "It did not start."))

    def _went_back(self, failure: str) -> UpgradeRolledBackError:
        """Go back, and return the error that says so."""
        back = self.phase("rollback", {"failure": failure}, lambda: way_back.roll_back(self))
        again = "runs" if back.get("untouched") else "runs again"
        return UpgradeRolledBackError(
            f"The new version of job {self.client.board.job} was expected to commit a batch: {failure}",
            state_after=f"The old version {again} as generation {back['generation']} ({back['how']}).",
            remedy="Correct the new version, then upgrade again.",
        )

    # --- what is looked at before anything is started or stopped ------------------------------

    def _require_possible(self) -> None:
        way_back.require_possible(self.client, self.if_committed, skip_known=self.skip_known_batches)
        require_fitting(self.client, self.spec, self.target)
        self.client.deployment.require_able()

    # --- until the new version runs -----------------------------------------------------------

    def _until_taken_over(self) -> None:
        if self.journal.result("stop") is None:
            self._prepare()
        stopped = self.phase("stop", {}, lambda: steps.stop(self.in_window()))
        manifest = self.client.repository.read(stopped["savepoint_id"])
        self.phase(
            "takeover-order", {"savepoint_id": manifest.savepoint_id}, lambda: self._let_take_over(manifest)
        )
        self.phase("takeover", {}, lambda: steps.takeover(self.in_window()))

    def _prepare(self) -> None:
        """Bring the new version up beside the old one; without a standby only note which one that is."""
        if not self._has_begun():
            self._require_up()
        if self.standby == "warm" and self.hot_savepoint_id is None:
            self.hot_savepoint_id = self.phase("savepoint", {}, self._save)["savepoint_id"]
        old = self.old()
        if self.journal.read("standby") is None:
            beside.refuse_another(self, old)
        self.phase("standby", {"old": old}, lambda: self._stand_by(old))
        beside.refuse_another(self, old)  # once more: two may have begun at the same moment

    def _require_up(self) -> None:
        """Have a driver that died started again first, so that it can save and stop."""
        status = self.client.settled_status()
        if isinstance(status, (Dead, Starting)):
            self.client.ensure_running(status)
            self.client.wait_running(status.run.generation, timeout_s=self.settings.stop_timeout_s)

    def _save(self) -> Mapping[str, Any]:
        """Take a hot savepoint, so that little is left to copy in the window."""
        key, timeout_s = f"{self.journal.migration_id}/savepoint", self.settings.stop_timeout_s
        begun = begin_savepoint(self.client, key, timeout_s=timeout_s)
        if isinstance(begun, PendingRequest):
            begun = finish_savepoint(self.client, begun, timeout_s=timeout_s)
        return {"savepoint_id": begun.savepoint_id}

    def _stand_by(self, old: Generation) -> Mapping[str, Any]:
        return {"old": old, "new": None} if self.standby == "none" else steps.start_standby(self)

    def _let_take_over(self, manifest: Manifest) -> Mapping[str, Any]:
        """Tell the driver that waits; where none does, start one."""
        self.journal.check()
        origin, new = FromSavepoint(savepoint_id=manifest.savepoint_id), self.new
        if new is None or self.client.claim(new).prepare_savepoint_id is None:
            handle = self.client.start(self.spec, self.target, claim_key=self.next_key, origin=origin)
            return {"generation": handle.generation}
        self.client.order_takeover(new, plan_savepoint(self.client, origin, self.next_key).order)
        return {"generation": new}

    def _verify(self) -> Mapping[str, Any]:
        stopped = self.journal.result("stop") or {}
        new = Generation((self.journal.result("takeover") or {})["generation"])
        return first_batch.await_first(self.in_window(), new, stopped["batches"])
