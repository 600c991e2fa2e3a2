"""The window of a migration: from holding the producers to running on the new cluster, or back.

Phases, each journalled (``journal``): standby, hold (which puts up the fence), caught-up, ends, stop,
translate, rewrite, go (all in ``window``), takeover, release, running (in ``arrival``). Before the new
driver has ``current.json`` every error goes back (``wayback``); after it nothing goes back by itself.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.errors import (
    AttemptSupersededError,
    JobNotRunningError,
    MigrationBusyError,
    MigrationEndedError,
    StaleTokenError,
    WentBackError,
)
from airflow_flinkstyle.jobs.journal import read_phases
from airflow_flinkstyle.jobs.migration import arrival, fence_phase, wayback, window
from airflow_flinkstyle.jobs.migration.producers import TokenCounter
from airflow_flinkstyle.jobs.migration.report import CutoverReport, build_report
from airflow_flinkstyle.jobs.requests import AS_IT_IS
from airflow_flinkstyle.jobs.status import Running, describe_status
from airflow_flinkstyle.storage.errors import StoreError
from airflow_flinkstyle.types import Generation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_flinkstyle.jobs.journal import CutoverJournal
    from airflow_flinkstyle.jobs.migration.kafka_side import KafkaSide
    from airflow_flinkstyle.jobs.migration.producers import ProducerSwitch
    from airflow_flinkstyle.jobs.requests import CutMode
    from airflow_flinkstyle.jobs.running.client import JobClient
    from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget
    from airflow_flinkstyle.savepoint.manifest import Manifest

log = logging.getLogger(__name__)

PHASES = (
    "standby",
    "hold",
    fence_phase.PHASE,
    "caught-up",
    fence_phase.ENDS_PHASE,
    "stop",
    "translate",
    "rewrite",
    "go",
    "takeover",
    "release",
    "running",
    "back",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CutoverSettings:
    """How long each part of the window may take, in seconds."""

    standby_timeout_s: float = 180.0
    """For the next driver to come up; nothing is held meanwhile."""
    hold_timeout_s: float = 60.0
    """For producers to obey; people who hold them by hand need more."""
    steady_window_s: float = 1.0
    """How long nothing may arrive; longer than the producers' ``linger.ms`` plus a request."""
    caught_up_timeout_s: float = 120.0
    stop_timeout_s: float = 300.0
    takeover_timeout_s: float = 180.0
    first_commit_timeout_s: float = 180.0


@dataclass(kw_only=True)
class Cutover:
    """One migration of one job; ``run`` and ``settle`` may be called again and again."""

    client: JobClient
    journal: CutoverJournal
    """Made with ``PHASES``."""
    switch: ProducerSwitch
    kafka: KafkaSide
    spec: JobSpec
    """The job as it runs on the new cluster: usually the same, with overrides."""
    target: SubmitTarget
    hot_savepoint_id: str | None
    """Restored by the standby driver while it waits."""
    settings: CutoverSettings = CutoverSettings()
    stop_mode: CutMode = AS_IT_IS
    """Drained, where a source must be read to its end before it moves."""
    group: str | None = None
    """Consumer group whose offsets on the new cluster are set, for those who watch its lag."""

    # --- the window ---------------------------------------------------------------------------

    def run(self) -> CutoverReport:
        """Migrate, or go on with a migration that an earlier attempt began.

        Raises:
            WentBackError: If it was given up: the job runs on the old cluster, producers are released to it.
            MigrationEndedError: If it went back before.
            StepTimeoutError: If the job took over on the new cluster and does not commit.
        """
        self.begin()
        self._refuse_if_ended()
        old = self.old()
        if self.journal.read("standby") is None:
            self._refuse_beside_another(old)
        try:
            rewritten = self._until_taken_over(old)
        except (AttemptSupersededError, StaleTokenError, StoreError):
            raise  # a newer attempt is in charge, or no way back could be recorded: a retry goes on
        except FlinkstyleError as error:
            raise self._give_up(error) from error
        self.release()
        self._phase("running", {}, lambda: arrival.arrive(self, rewritten))
        return build_report(self.client, self.journal)

    def begin(self) -> None:
        """Take charge; every older attempt finds its token replaced."""
        tokens = TokenCounter(self.client.board.store, self.client.board.job)
        attempt = self.journal.begin(tokens.next)
        log.info("Attempt %d of migration %s", attempt.attempt, self.journal.migration_id)

    def _refuse_if_ended(self) -> None:
        back = self.journal.read("back")
        if back is None:
            return
        winner = back.result or wayback.go_back(self)
        raise MigrationEndedError(
            f"Migration {self.journal.migration_id} was expected to be open, found that it went back.",
            left=f"Generation {winner['winner']} runs the job; producers: {winner['position']}.",
            remedy="Trigger a new migration.",
        )

    def _refuse_beside_another(self, old: Generation) -> None:
        """Refuse while another migration moves the same run, or brought it here, and is not at rest."""
        board, client = self.client.board, self.client
        journals = read_phases(board.store, board.job, only=("standby", "release", "back"))
        for migration_id in journals.keys() - {self.journal.migration_id}:
            begun = {record.phase: record for record in journals[migration_id]}
            rests = any(name in begun and begun[name].result is not None for name in ("release", "back"))
            if "standby" not in begun or rests:
                continue
            made = {client.own_claim(f"{migration_id}/{which}") for which in ("next", "back")}
            if old in made | {begun["standby"].intent.get("old")}:
                raise MigrationBusyError(
                    f"Generation {old} of job {board.job} was expected to be in no migration, found "
                    f"migration {migration_id} under way.",
                    left="This migration changed nothing; the other one goes on.",
                    remedy="Wait until the other one's last task has settled it, or clear that task.",
                )

    def _until_taken_over(self, old: Generation) -> Manifest:
        self._phase("standby", {"old": old}, lambda: window.start_standby(self))
        if self.journal.result("stop") is None:  # proved anew by every attempt, until the job has stopped
            self._refuse_beside_another(old)  # once more: two may have begun at the same moment
            self._phase("hold", {"position": "hold"}, lambda: window.hold(self), again=True)
            self._phase("caught-up", {}, lambda: window.caught_up(self), again=True)
            fence_phase.note_ends(self.journal, self.kafka.watch, self.topics)
        stopped = self._phase("stop", {}, lambda: window.stop(self))
        manifest = self.client.repository.read(stopped["savepoint_id"])
        planned = self._phase(
            "translate", {"savepoint_id": manifest.savepoint_id}, lambda: window.translate(self, manifest)
        )
        written = self._phase("rewrite", {}, lambda: window.rewrite(self, planned, manifest))
        rewritten = self.client.repository.read(written["savepoint_id"])
        self._phase("go", written, lambda: window.go(self, rewritten, stopped["batches"]))
        self._phase("takeover", {}, lambda: arrival.takeover(self))
        return rewritten

    def release(self) -> None:
        """Release the producers to the new cluster, where the job has taken over; once."""
        self._phase("release", {"position": "release_new"}, lambda: arrival.release_new(self))

    def _phase(
        self,
        name: str,
        intent: Mapping[str, Any],
        action: Callable[[], Mapping[str, Any]],
        *,
        again: bool = False,
    ) -> Mapping[str, Any]:
        """Do a phase unless its result stands in the journal; ``again`` does it anyway."""
        phase = self.journal.open(name, intent)
        if phase.record.result is not None:
            if again:
                action()
            return phase.record.result
        log.info("Phase %s", name)
        return self.journal.close(phase, action())

    def generation(self, which: str) -> Generation:
        """Return generation ``old`` or ``new`` as the journal has it."""
        found = (self.journal.result("standby") or {})[which]
        return Generation(int(found))

    def old(self) -> Generation:
        """Return the generation to move: as first journalled, else the one that runs now."""
        record = self.journal.read("standby")
        if record is not None:
            return Generation(int(record.intent["old"]))
        status = self.client.ensure_running(self.client.settled_status())
        if not isinstance(status, Running):
            raise JobNotRunningError(
                f"Job {self.client.board.job} was expected to run, found that {describe_status(status)}.",
                left="Nothing was changed.",
                remedy="Start it on the old cluster, then migrate it.",
            )
        return status.run.generation

    @property
    def sources(self) -> dict[str, list[str]]:
        """``query/source`` -> topics that the old generation reads on the old cluster, as journalled."""
        noted = (self.journal.result("standby") or {}).get("sources")
        return dict(noted) if noted else window.sources_read(self, self.generation("old"))

    @property
    def topics(self) -> list[str]:
        """The topics of all sources, each once."""
        return sorted({topic for topics in self.sources.values() for topic in topics})

    @property
    def stop_key(self) -> str:
        """The stop request's key: the same for every attempt."""
        return f"{self.journal.migration_id}/stop"

    # --- back, and the last task --------------------------------------------------------------

    def _give_up(self, error: FlinkstyleError) -> FlinkstyleError:
        """Go back, and say so; if the new driver had won meanwhile, say that."""
        log.warning("Giving up: %s", error)
        winner = wayback.go_back(self)
        job = wayback.job_after(self)
        if winner["position"] == "release_new":
            return MigrationEndedError(
                f"The migration failed late: {error.problem}",
                left=f"The new driver had taken over: job and producers are on the new cluster. {job}",
                remedy="Check that it commits; only a migration in the other direction brings it back.",
            )
        return WentBackError(
            f"The migration was given up: {error.problem}",
            left=f"The job is on the old cluster as generation {winner['winner']}, and its producers write "
            f"there. {job} {error.left}",
            remedy=error.remedy,
        )

    def settle(self) -> wayback.Settled:
        """Bring everything to rest, whatever became of ``run``: the last task, with ``all_done``."""
        return wayback.settle(self)
