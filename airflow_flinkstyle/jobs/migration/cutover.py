"""The window of a migration: from holding the producers to running on the new cluster, or back.

Phases, each journalled (``journal``): standby, precopy, hold (which puts up the fence), caught-up, ends,
stop, translate, rewrite, takeover-order (all in ``window``), takeover, release, running.
Before the new driver has ``current.json`` every error is rolled back; after that nothing is undone by itself.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Literal

from airflow_flinkstyle.errors import BadInputError, FlinkstyleError
from airflow_flinkstyle.jobs.cutover import race, steps
from airflow_flinkstyle.jobs.cutover.context import UNTOUCHED, Settled
from airflow_flinkstyle.jobs.cutover.downtime import batch_ms
from airflow_flinkstyle.jobs.errors import (
    MIGRATION_ENDED,
    PRODUCERS_NOT_HELD,
    ROLLED_BACK,
    STEP_TIMEOUT,
    AttemptSupersededError,
    StaleTokenError,
)
from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.migration import fence_phase, window
from airflow_flinkstyle.jobs.migration.approved import Approved
from airflow_flinkstyle.jobs.migration.context import MigrationContext
from airflow_flinkstyle.jobs.migration.report import CutoverReport, build_report, plan_of
from airflow_flinkstyle.jobs.status import Dead, Starting, describe_status
from airflow_flinkstyle.jobs.stopped.last_run import recorded_launch
from airflow_flinkstyle.storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_flinkstyle.jobs.client import JobClient
    from airflow_flinkstyle.jobs.cutover.context import Where
    from airflow_flinkstyle.jobs.migration.approved import Migration
    from airflow_flinkstyle.jobs.migration.kafka_side import KafkaSide
    from airflow_flinkstyle.jobs.migration.producers import ProducerSwitch
    from airflow_flinkstyle.jobs.status import Run
    from airflow_flinkstyle.jobs.view import JobView
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
            JobError: ``ROLLED_BACK`` if it was given up: the job runs on the old cluster, and its producers
                too.
            JobError: ``MIGRATION_ENDED`` if it went back before.
            JobError: ``STEP_TIMEOUT`` if the job took over on the new cluster and does not commit.
            JobError: ``DONE_BEFORE`` if it was done before, and the job reads another cluster by now.
        """
        self.begin()
        with self.at_work():
            return self._run()

    def _run(self) -> CutoverReport:
        self._refuse_if_ended()
        if self.journal.result("running") is not None:
            steps.require_still(self, "read the new cluster", self._is_there)
            return build_report(self.client.view, self.journal)
        old = self.old()
        if self.journal.read("standby") is None:
            steps.refuse_another(self, old)
        try:
            rewritten = self._until_taken_over(old)
        except (AttemptSupersededError, StaleTokenError, StoreError):
            raise  # a newer attempt is in charge, or no rollback could be recorded: a retry continues
        except FlinkstyleError as error:
            raise self._give_up(error) from error
        release(self)
        self.phase("running", {}, lambda: complete_cutover(self.in_window(), rewritten))
        return build_report(self.client.view, self.journal)

    def _has_taken_over(self) -> bool:
        """Return whether the new driver has the job, as the journal or ``current.json`` says."""
        current = self.client.view.board.current()
        is_current = current is not None and current.value.generation == self.new
        return is_current or self.journal.result("takeover") is not None

    def _is_there(self, run: Run) -> bool:
        """Return whether a later run of the job reads the new cluster too."""
        queries = run.heartbeat.queries.values() if run.heartbeat is not None else ()
        read = {source.cluster_id for query in queries for source in query.sources.values()}
        return build_report(self.client.view, self.journal).plan.target_cluster_id in read

    def _refuse_if_ended(self) -> None:
        back = self.journal.read("rollback")
        if back is None:
            return
        winner = back.result or roll_back(self)
        raise MIGRATION_ENDED.with_text(
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
        manifest = self.client.view.repository.read(stopped["savepoint_id"])
        planned = self.phase(
            "translate", {"savepoint_id": manifest.savepoint_id}, lambda: window.translate(self, manifest)
        )
        written = self.phase("rewrite", {}, lambda: window.rewrite(self, planned, manifest))
        rewritten = self.client.view.repository.read(written["savepoint_id"])
        self.phase(
            "takeover-order", written, lambda: window.order_takeover(self, rewritten, stopped["batches"])
        )
        self.phase("takeover", {}, lambda: steps.takeover(self.in_window()))
        return rewritten

    # --- back, and the last task --------------------------------------------------------------

    def _give_up(self, error: FlinkstyleError) -> FlinkstyleError:
        """Go back, and return the error that says so, or that the new driver had taken over meanwhile."""
        log.warning("Giving up: %s", error)
        winner = roll_back(self)
        job = job_after(self)
        if winner["position"] == "release_new":
            return MIGRATION_ENDED.with_text(
                f"The migration failed late: {error.problem}",
                state_after=f"The new driver had taken over: job and producers are on the new cluster. {job}",
                remedy="Check that it commits; only a migration in the other direction brings it back.",
            )
        return ROLLED_BACK.with_text(
            f"The migration was given up: {error.problem}",
            state_after=f"The job is on the old cluster as generation {winner['winner']}, and its producers "
            f"write there. {job} {error.state_after}",
            remedy=error.remedy,
        )

    def settle(self) -> Settled:
        """Bring everything to rest, however ``run`` ended: the last task, with ``all_done``."""
        return settle(self)


# What the phases of a migration's window do once the new driver may take over: complete it.


def release(context: MigrationContext) -> None:
    """Release the producers to the new cluster, where the job has taken over; once."""
    context.phase("release", {"position": "release_new"}, lambda: _release_new(context))


def _release_new(context: MigrationContext) -> Mapping[str, Any]:
    """Release the producers to the new cluster; records left behind on the old one are named, never lost."""
    written = warned(lambda: fence_phase.late_writes(context.journal, context.kafka.watch))
    context.hold.release("release_new")
    return {"position": "release_new", "late_writes": written}


def complete_cutover(context: MigrationContext, rewritten: Manifest) -> Mapping[str, Any]:
    """Wait for the first batch, check for late writes once more, and commit for the group that is watched."""
    group = context.group
    return {
        **_first_commit(context, rewritten),
        "late_writes": warned(lambda: fence_phase.late_writes(context.journal, context.kafka.watch)),
        "group": warned(lambda: context.kafka.commit_for(group, plan_of(context.journal))) if group else None,
    }


def warned(check: Callable[[], str | None]) -> str | None:
    """Return what a check finds, or why it failed: the job has moved, nothing may fail the migration now."""
    try:
        return check()
    except FlinkstyleError as error:
        log.warning("The migration is done, but: %s", error)
        return f"WARNING: {error}"


def _first_commit(context: MigrationContext, rewritten: Manifest) -> Mapping[str, Any]:
    """Wait for a batch beyond the savepoint's, or for proof that there is nothing to read.

    Returns:
        ``first_commit_at_ms``, epoch milliseconds, None for nothing to read; ``first_batch_ms``, what the
        batch consisted of, as far as Spark has reported it.
    """
    client, new = context.client, context.generation("new")
    before = {query.name: query.batch_id for query in rewritten.queries}
    timeout_s = context.settings.first_commit_timeout_s
    wait = client.view.waiting(timeout_s)
    while True:
        status = client.drivers.ensure_running()
        slot = client.view.board.heartbeat(new)
        commits = [
            query.batch_committed_at_ms
            for name, query in (slot.value.queries if slot else {}).items()
            if query.batch_id is not None and query.batch_id > before.get(name, -1)
        ]
        # A driver that was started again names a batch that the one before it committed, without a time.
        if commits_ms := [at for at in commits if at is not None]:
            first_ms = min(commits_ms)
            parts_ms = batch_ms(slot.value, before) if slot else {}
            return {"first_commit_at_ms": first_ms, "first_batch_ms": parts_ms}
        if wait.again():
            continue
        if not isinstance(status, Dead):
            if context.kafka.unread(rewritten) == 0:
                return {"first_commit_at_ms": None, "first_batch_ms": {}}
            raise STEP_TIMEOUT.with_text(
                f"Generation {new} was expected to commit a batch on the new cluster within "
                f"{timeout_s:g} s, found that {describe_status(status)}.",
                state_after="The job has moved: it runs on the new cluster and producers write there.",
                remedy="Look at the driver's log; correct it there (UpgradeStreamingJobOperator).",
            )
        client.view.clock.sleep(client.view.poll_s)  # it is being started again


# The rollback to where the job ran before the window, and the last task of a migration.
#
# Producers are released only once it is known who runs (``cutover.race``), to the winner's side.

_WHERE: dict[str, Where] = {"release_new": "new", "release_old": "old", "untouched": "untouched"}


def roll_back(context: MigrationContext) -> Mapping[str, Any]:
    """Let the job run where it ran before, unless the new driver has taken over; a retry continues it.

    Returns:
        ``winner``, the generation that runs, and ``position``, where producers were released to.
    """
    phase = context.journal.open("rollback", {})
    if phase.record.result is not None:
        return phase.record.result
    if context.journal.read("standby") is None:
        return context.journal.close(phase, {"winner": None, "position": "untouched"})
    winner, new = race.winner(context)
    position: Literal["release_new", "release_old"] = "release_new" if winner == new else "release_old"
    context.journal.check()
    if context.journal.read("hold") is not None:
        if position == "release_old":
            fence_phase.drop_fence(context.journal, context.kafka.watch)
        context.hold.release(position)
    return context.journal.close(phase, {"winner": winner, "position": position})


def settle(context: MigrationContext) -> Settled:
    """Finish a migration in whichever direction it can still go, and prove where producers write."""
    if not context.journal.has_begun:
        return UNTOUCHED
    context.begin()
    with context.at_work():
        return _settle(context)


def _settle(context: MigrationContext) -> Settled:
    journal, client = context.journal, context.client
    current, new = _current_generation(context), client.view.own_claim(f"{journal.migration_id}/next")
    if journal.read("rollback") is None and (
        current == new is not None or journal.result("takeover") is not None
    ):
        release(context)
        if current == new:
            return _on_the_new_cluster(context, current)
        return Settled(where="new", generation=current, detail="The job had moved; a later run has it now.")
    back = roll_back(context)
    if back["position"] == "release_new" and back["winner"] == _current_generation(context):
        return _on_the_new_cluster(context, back["winner"])
    where = _WHERE[back["position"]]
    detail = f"Producers: {back['position']}. {job_after(context)}"
    return Settled(where=where, generation=back["winner"], detail=detail)


def job_after(context: MigrationContext) -> str:
    """Start the job again if its driver died, and return a sentence on its status after that."""
    client, timeout_s = context.client, context.settings.takeover_timeout_s
    wait = client.view.waiting(timeout_s)
    while True:
        try:
            status = client.drivers.ensure_running(
                client.view.settled_status(at_most_s=timeout_s, afresh=True)
            )
        except FlinkstyleError as error:
            return f"It does not run: {error.problem}"
        if not isinstance(status, Starting) or not wait.again():
            return f"As seen now, {describe_status(status)}."


def _current_generation(context: MigrationContext) -> Generation | None:
    current = context.client.view.board.current()
    return current.value.generation if current else None


def _on_the_new_cluster(context: MigrationContext, generation: Generation | None) -> Settled:
    job = job_after(context)
    _require_quiet_old(context)
    written = fence_phase.late_writes(context.journal, context.kafka.watch)
    detail = f" WARNING: a producer wrote to the old one after the proof. {written}" if written else ""
    return Settled(where="new", generation=generation, detail=f"The job is on the new cluster. {job}{detail}")


def _require_quiet_old(context: MigrationContext) -> None:
    """Require that no producer writes to the old cluster any more: people may have forgotten one."""
    writes = context.kafka.who_writes(context.topics, context.settings.steady_window_s)
    if writes is not None:
        raise PRODUCERS_NOT_HELD.with_text(
            f"No producer was expected to write to the old cluster any more. {writes}",
            state_after="The job runs on the new cluster and gets these records only while MirrorMaker runs.",
            remedy="Move them to the new cluster before MirrorMaker is stopped, then clear this task.",
        )


# A migration by its journal alone: enough for any caller that finds it unfinished to bring it to rest.


def approved_of(runs: JobView, migration_id: str) -> Approved:
    """Return what was approved of a migration that has begun.

    Raises:
        BadInputError: If nothing was stored: a program moves the job by itself, without the operators.
        SignatureError: If no caller with the key has stored it.
    """
    job = runs.job
    journal = CutoverJournal(runs.board.store, job, migration_id, PHASES, signer=runs.signer)
    fields = journal.approved()
    if fields is None:
        raise BadInputError(
            f"What was approved of migration {migration_id} of job {job} was expected in its journal, found "
            "nothing.",
            state_after="Nothing was changed.",
            remedy="Let the program that began it continue, or settle it.",
        )
    return Approved.from_fields(fields)


def resumed(
    client: JobClient, moving: Migration, migration_id: str, *, kafka: KafkaSide, switch: ProducerSwitch
) -> Cutover:
    """Return the migration, to be settled; to run its window it would need the next driver's settings.

    Args:
        client: Of the job.
        moving: What was approved.
        migration_id: Names its journal.
        kafka: Both clusters.
        switch: As this migration calls its positions.
    """
    journal = CutoverJournal(
        client.view.board.store, client.view.job, migration_id, PHASES, signer=client.view.signer
    )
    spec, target = recorded_launch(client.view)
    return Cutover(
        client=client,
        journal=journal,
        switch=switch,
        kafka=kafka,
        spec=spec,
        target=target,
        settings=moving.settings,
        group=moving.group,
    )
