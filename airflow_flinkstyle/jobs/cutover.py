"""The window of a migration: from holding the producers to running on the new cluster, or back.

Phases, each journalled (``journal``): standby, hold, caught-up, stop, translate, rewrite, go, takeover,
release, running. Before the new driver has ``current.json`` every error goes back (``wayback``); after
it nothing goes back by itself.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs import wayback
from airflow_flinkstyle.jobs.client import SavepointOnly
from airflow_flinkstyle.jobs.errors import (
    AttemptSupersededError,
    DriverFailedError,
    JobNotRunningError,
    MigrationEndedError,
    ProducersNotHeldError,
    RequestFailedError,
    StaleTokenError,
    StepTimeoutError,
    WentBackError,
)
from airflow_flinkstyle.jobs.lineage import go_restored
from airflow_flinkstyle.jobs.producers import TokenCounter
from airflow_flinkstyle.jobs.report import CutoverReport, build_report
from airflow_flinkstyle.jobs.status import Dead, Running, describe_status
from airflow_flinkstyle.rewrite import plan_json
from airflow_flinkstyle.storage.errors import StoreError
from airflow_flinkstyle.types import Generation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_flinkstyle.jobs.client import JobClient
    from airflow_flinkstyle.jobs.journal import CutoverJournal
    from airflow_flinkstyle.jobs.kafka_side import KafkaSide
    from airflow_flinkstyle.jobs.producers import ProducerSwitch
    from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget
    from airflow_flinkstyle.protocol.records import Heartbeat
    from airflow_flinkstyle.savepoint.manifest import Manifest

log = logging.getLogger(__name__)

PHASES = (
    "standby",
    "hold",
    "caught-up",
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
        try:
            rewritten = self._until_taken_over(old)
        except (AttemptSupersededError, StaleTokenError, StoreError):
            raise  # a newer attempt is in charge, or no way back could be recorded: a retry goes on
        except FlinkstyleError as error:
            raise self._give_up(error) from error
        self._phase("release", {"position": "release_new"}, self._release_new)
        self._phase("running", {}, lambda: self._first_commit(rewritten))
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

    def _until_taken_over(self, old: Generation) -> Manifest:
        self._phase("standby", {"old": old}, self._start_standby)
        if self.journal.result("stop") is None:  # proved anew by every attempt, until the job has stopped
            self._phase("hold", {"position": "hold"}, self._hold, again=True)
            self._phase("caught-up", {}, self._caught_up, again=True)
        stopped = self._phase("stop", {}, self._stop)
        manifest = self.client.repository.read(stopped["savepoint_id"])
        planned = self._phase(
            "translate", {"savepoint_id": manifest.savepoint_id}, lambda: self._plan(manifest)
        )
        rewritten_id = self._phase("rewrite", {}, lambda: self._rewrite(planned, manifest))["savepoint_id"]
        rewritten = self.client.repository.read(rewritten_id)
        self._phase("go", {"savepoint_id": rewritten_id}, lambda: self._go(rewritten, stopped["batches"]))
        self._phase("takeover", {}, self._takeover)
        return rewritten

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
        status = self.client.ensure_running()
        if not isinstance(status, Running):
            raise JobNotRunningError(
                f"Job {self.client.board.job} was expected to run, found that {describe_status(status)}.",
                left="Nothing was changed.",
                remedy="Start it on the old cluster, then migrate it.",
            )
        return status.run.generation

    def _start_standby(self) -> Mapping[str, Any]:
        """Start the next driver and wait until it is ready, before anything is held."""
        handle = self.client.standby(
            self.spec,
            self.target,
            claim_key=f"{self.journal.migration_id}/next",
            prepare_savepoint_id=self.hot_savepoint_id,
        )
        deadline = time.monotonic() + self.settings.standby_timeout_s
        while True:
            run = self.client.run(handle.generation)
            beat = run.heartbeat
            if beat is not None and beat.state == "standby" and beat.application_id:  # its script has come up
                return {"old": self.old(), "new": handle.generation}
            if run.is_over or not run.holds_the_job():
                raise self.client.driver_failed(run)
            if time.monotonic() > deadline:
                raise _late("The next driver", "come up and wait", self.settings.standby_timeout_s)
            time.sleep(self.client.poll_s)

    @property
    def topics(self) -> list[str]:
        """The topics that the old generation reads, all on the old cluster or not moved at all."""
        slot = self.client.board.heartbeat(self.generation("old"))
        return topics_of(slot.value) if slot else []

    def _hold(self) -> Mapping[str, Any]:
        self.switch.apply("hold", self.journal.token)
        deadline = time.monotonic() + self.settings.hold_timeout_s
        while True:
            writes = self.kafka.who_writes("old", self.topics, self.settings.steady_window_s)
            if writes is None:
                return {"position": "hold"}
            if time.monotonic() > deadline:
                raise ProducersNotHeldError(
                    f"Producers were expected to be held within {self.settings.hold_timeout_s:g} s. {writes}",
                    left="Nothing was stopped; the job still reads the old cluster.",
                    remedy="Make every producer of these partitions obey the switch, then migrate again.",
                )
            self.journal.check()

    def _caught_up(self) -> Mapping[str, Any]:
        self.kafka.await_mirrored(self.topics, self.settings.caught_up_timeout_s)
        return {}

    @property
    def stop_key(self) -> str:
        """The stop request's key: the same for every attempt."""
        return f"{self.journal.migration_id}/stop"

    def _stop(self) -> Mapping[str, Any]:
        outcome = self.client.stop(
            self.stop_key,
            savepoint=True,
            timeout_s=self.settings.stop_timeout_s,
            confirm=self.journal.check,
        )
        if isinstance(outcome, SavepointOnly) or outcome.savepoint_id is None:
            found = outcome.reason if isinstance(outcome, SavepointOnly) else "it closed by itself"
            raise RequestFailedError(
                f"The job was expected to stop with a savepoint, found: {found}",
                left="The savepoint, if there is one, is kept.",
                remedy="Migrate again.",
            )
        return {"savepoint_id": outcome.savepoint_id, "batches": dict(outcome.batches)}

    def _plan(self, manifest: Manifest) -> Mapping[str, Any]:
        plan = self.kafka.plan(manifest)
        log.info("Plan:\n%s", plan.as_markdown())
        return {"plan": plan_json.to_json(plan), "table": plan.as_markdown()}

    def _rewrite(self, planned: Mapping[str, Any], manifest: Manifest) -> Mapping[str, Any]:
        plan = plan_json.from_json(planned["plan"])
        return {"savepoint_id": self.kafka.apply(plan, manifest, self.client.repository).savepoint_id}

    def _go(self, rewritten: Manifest, batches: Mapping[str, int]) -> Mapping[str, Any]:
        self.client.go(self.generation("new"), go_restored(rewritten, closed_at=dict(batches)))
        return {}

    def _takeover(self) -> Mapping[str, Any]:
        """Wait until ``current.json`` names the new driver; start it again if it dies without a word."""
        new = self.generation("new")
        deadline = time.monotonic() + self.settings.takeover_timeout_s
        while True:
            current = self.client.board.current()
            if current is not None and current.value.generation == new:
                return {"generation": new}
            named = current.value.generation if current else None
            if named is not None and named != self.generation("old"):
                raise DriverFailedError(
                    f"Generation {new} was expected to take over, found that generation {named} did.",
                    left="The job runs there.",
                    remedy="Look at the newest attempt of this migration.",
                )
            self.client.ensure_running()
            if time.monotonic() > deadline:
                raise _late("The new driver", "take over", self.settings.takeover_timeout_s)
            self.journal.check()
            time.sleep(self.client.poll_s)

    def _release_new(self) -> Mapping[str, Any]:
        self.switch.apply("release_new", self.journal.token)
        return {"position": "release_new"}

    def _first_commit(self, rewritten: Manifest) -> Mapping[str, Any]:
        """Wait for a batch beyond the savepoint's, or for proof that there is nothing to read."""
        new = self.generation("new")
        before = {query.name: query.batch_id for query in rewritten.queries}
        deadline = time.monotonic() + self.settings.first_commit_timeout_s
        while True:
            status = self.client.ensure_running()
            slot = self.client.board.heartbeat(new)
            commits = [
                beat.batch_committed_at_ms
                for name, beat in (slot.value.queries if slot else {}).items()
                if beat.batch_id is not None and beat.batch_id > before.get(name, -1)
            ]
            if commits:
                return {"first_commit_at_ms": min(at for at in commits if at is not None)}
            if time.monotonic() > deadline and not isinstance(status, Dead):
                if self.kafka.unread(rewritten) == 0:
                    return {"first_commit_at_ms": None}
                raise StepTimeoutError(
                    f"Generation {new} was expected to commit a batch on the new cluster within "
                    f"{self.settings.first_commit_timeout_s:g} s, found that {describe_status(status)}.",
                    left="The job has moved: it runs on the new cluster and producers write there.",
                    remedy="Look at the driver's log; correct it there (UpgradeStreamingJobOperator).",
                )
            time.sleep(self.client.poll_s)

    # --- back, and the last task --------------------------------------------------------------

    def _give_up(self, error: FlinkstyleError) -> FlinkstyleError:
        """Go back, and say so; if the new driver had won meanwhile, say that."""
        log.warning("Giving up: %s", error)
        winner = wayback.go_back(self)
        if winner["position"] == "release_new":
            return MigrationEndedError(
                f"The migration failed late: {error.problem}",
                left="The new driver had taken over: the job and its producers are on the new cluster.",
                remedy="Check that it commits; only a migration in the other direction brings it back.",
            )
        return WentBackError(
            f"The migration was given up: {error.problem}",
            left=f"The job runs on the old cluster as generation {winner['winner']}, and its producers write "
            f"there. {error.left}",
            remedy=error.remedy,
        )

    def settle(self) -> wayback.Settled:
        """Bring everything to rest, whatever became of ``run``: the last task, with ``all_done``."""
        return wayback.settle(self)


def topics_of(heartbeat: Heartbeat) -> list[str]:
    """Return all topics that a run's queries read."""
    beats = heartbeat.queries.values()
    return sorted({topic for beat in beats for seen in beat.sources.values() for topic in seen.topic_ids})


def _late(who: str, what: str, timeout_s: float) -> StepTimeoutError:
    return StepTimeoutError(
        f"{who} was expected to {what} within {timeout_s:g} s.",
        left="It may still be starting.",
        remedy="Look at its log, then migrate again with a longer time-out.",
    )
