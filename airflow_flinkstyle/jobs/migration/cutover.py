"""The window of a migration: from holding the producers to running on the new cluster, or back.

Phases, each journalled (``journal``): standby, precopy, hold (which puts up the fence), caught-up, ends,
stop, translate, rewrite, takeover-order (all in ``window``), takeover, release, running (in ``completion``).
Before the new driver has ``current.json`` every error is rolled back (``rollback``); after it nothing is by
itself.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.cutover import steps
from airflow_flinkstyle.jobs.errors import (
    AttemptSupersededError,
    MigrationEndedError,
    RolledBackError,
    StaleTokenError,
)
from airflow_flinkstyle.jobs.migration import completion, fence_phase, rollback, window
from airflow_flinkstyle.jobs.migration.context import MigrationContext
from airflow_flinkstyle.jobs.migration.report import CutoverReport, build_report
from airflow_flinkstyle.storage.errors import StoreError

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.cutover.context import Settled
    from airflow_flinkstyle.jobs.status import Run
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.types import Generation

log = logging.getLogger(__name__)

PHASES = (
    "standby",
    steps.PRECOPY,
    "hold",
    fence_phase.PHASE,
    "caught-up",
    fence_phase.ENDS_PHASE,
    "stop",
    "translate",
    "rewrite",
    "takeover-order",
    "takeover",
    "release",
    "running",
    "rollback",
)


class Cutover(MigrationContext):
    """One migration of one job; ``run`` and ``settle`` may be called again and again."""

    # --- the window ---------------------------------------------------------------------------

    def run(self) -> CutoverReport:
        """Migrate, or continue a migration that an earlier attempt began.

        Raises:
            RolledBackError: If it was given up: the job runs on the old cluster, and its producers too.
            MigrationEndedError: If it went back before.
            StepTimeoutError: If the job took over on the new cluster and does not commit.
            DoneBeforeError: If it was done before, and the job has gone elsewhere since.
        """
        self.begin()
        with self.at_work():
            return self._run()

    def _run(self) -> CutoverReport:
        self._refuse_if_ended()
        if self.journal.result("running") is not None:
            steps.require_still(self, "read the new cluster", self._is_there)
            return build_report(self.client, self.journal)
        old = self.old()
        if self.journal.read("standby") is None:
            steps.refuse_another(self, old)
        try:
            rewritten = self._until_taken_over(old)
        except (AttemptSupersededError, StaleTokenError, StoreError):
            raise  # a newer attempt is in charge, or no rollback could be recorded: a retry continues
        except FlinkstyleError as error:
            raise self._give_up(error) from error
        completion.release(self)
        self.phase("running", {}, lambda: completion.complete_cutover(self.in_window(), rewritten))
        return build_report(self.client, self.journal)

    def _has_taken_over(self) -> bool:
        """Return whether the new driver has the job, as the journal or ``current.json`` says."""
        current = self.client.board.current()
        named = current is not None and current.value.generation == self.new
        return named or self.journal.result("takeover") is not None

    def _is_there(self, run: Run) -> bool:
        """Return whether a later run of the job reads the new cluster too."""
        queries = run.heartbeat.queries.values() if run.heartbeat is not None else ()
        read = {source.cluster_id for beat in queries for source in beat.sources.values()}
        return build_report(self.client, self.journal).plan.target_cluster_id in read

    def _refuse_if_ended(self) -> None:
        back = self.journal.read("rollback")
        if back is None:
            return
        winner = back.result or rollback.roll_back(self)
        raise MigrationEndedError(
            f"Migration {self.journal.migration_id} was expected to be open, found that it went back.",
            state_after=f"Generation {winner['winner']} runs the job; producers: {winner['position']}.",
            remedy="Trigger a new migration.",
        )

    def _until_taken_over(self, old: Generation) -> Manifest:
        self.phase("standby", {"old": old}, lambda: window.start_standby(self))
        if self.journal.result("stop") is None:  # proved again by every attempt, until the job has stopped
            steps.refuse_another(self, old)  # once more: two may have begun at the same moment
            self.phase(steps.PRECOPY, {}, lambda: steps.precopy(self.in_window()))
            self.phase("hold", {"position": "hold"}, lambda: window.hold(self), again=True)
            self.phase("caught-up", {}, lambda: window.caught_up(self), again=True)
            fence_phase.note_ends(self.journal, self.kafka.watch, self.topics)
        elif not self._has_taken_over():
            window.hold_again(self)
        stopped = self.phase("stop", {}, lambda: steps.stop(self.in_window()))
        manifest = self.client.repository.read(stopped["savepoint_id"])
        planned = self.phase(
            "translate", {"savepoint_id": manifest.savepoint_id}, lambda: window.translate(self, manifest)
        )
        written = self.phase("rewrite", {}, lambda: window.rewrite(self, planned, manifest))
        rewritten = self.client.repository.read(written["savepoint_id"])
        self.phase(
            "takeover-order", written, lambda: window.order_takeover(self, rewritten, stopped["batches"])
        )
        self.phase("takeover", {}, lambda: steps.takeover(self.in_window()))
        return rewritten

    # --- back, and the last task --------------------------------------------------------------

    def _give_up(self, error: FlinkstyleError) -> FlinkstyleError:
        """Go back, and say so; if the new driver had won meanwhile, say that."""
        log.warning("Giving up: %s", error)
        winner = rollback.roll_back(self)
        job = rollback.job_after(self)
        if winner["position"] == "release_new":
            return MigrationEndedError(
                f"The migration failed late: {error.problem}",
                state_after=f"The new driver had taken over: job and producers are on the new cluster. {job}",
                remedy="Check that it commits; only a migration in the other direction brings it back.",
            )
        return RolledBackError(
            f"The migration was given up: {error.problem}",
            state_after=f"The job is on the old cluster as generation {winner['winner']}, and its producers "
            f"write there. {job} {error.state_after}",
            remedy=error.remedy,
        )

    def settle(self) -> Settled:
        """Bring everything to rest, whatever became of ``run``: the last task, with ``all_done``."""
        return rollback.settle(self)
