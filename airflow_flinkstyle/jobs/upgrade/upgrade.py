"""Replace a running job by a new version: standby, stop with a savepoint, takeover, first batch; or back.

The steps are those of every cutover (``jobs.cutover``). Until the new version has taken the job over, every
error is rolled back by itself; before the stop the old version just keeps running. Once the new version has
committed a batch, or moved a sink and may have written there, going back would repeat batches or lose them:
then a person must have chosen ``fork`` or ``re-emit`` beforehand.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs import comparison
from airflow_flinkstyle.jobs.cutover import steps
from airflow_flinkstyle.jobs.cutover.compat import require_fitting
from airflow_flinkstyle.jobs.cutover.context import UNTOUCHED, Settled
from airflow_flinkstyle.jobs.cutover.downtime import Downtime, of_cutover
from airflow_flinkstyle.jobs.cutover.steps import require_room
from airflow_flinkstyle.jobs.errors import (
    UPGRADE_ROLLED_BACK,
    UPGRADE_UNHEALTHY,
    AttemptSupersededError,
    JobNotRunningError,
    JobRunningError,
    NotTestedError,
)
from airflow_flinkstyle.jobs.journal import CutoverJournal, is_last
from airflow_flinkstyle.jobs.spec import from_launch
from airflow_flinkstyle.jobs.start.origins import FromSavepoint, plan_savepoint, require_allowed
from airflow_flinkstyle.jobs.status import Closed, Failed
from airflow_flinkstyle.jobs.stopped.last_run import recorded_launch
from airflow_flinkstyle.jobs.upgrade import health, repartition, rollback
from airflow_flinkstyle.jobs.upgrade.context import UpgradeContext
from airflow_flinkstyle.jobs.upgrade.health import UNWATCHED, observe, summary
from airflow_flinkstyle.savepoint.compat import state_changes_unknown
from airflow_flinkstyle.savepoint.repository.summary import newest_summary
from airflow_flinkstyle.storage.errors import StoreError
from airflow_flinkstyle.types import Generation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.client import JobClient
    from airflow_flinkstyle.jobs.cutover.context import CutoverContext, Where
    from airflow_flinkstyle.jobs.status import Run
    from airflow_flinkstyle.savepoint.manifest import Manifest

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeReport:
    """A new version that runs."""

    job: str
    generation: int
    savepoint_id: str
    """Taken by the stop."""
    first_batch: Mapping[str, int] | None
    """Query name -> batch seen committed; None if there was nothing to read yet."""
    downtime: Downtime | None
    """None if there was nothing to read."""
    rehearsal: Mapping[str, str] | None
    """What the new version did on a scratch copy before the old one stopped: ``summary``, a line, and
    ``table``, markdown; None without a rehearsal."""
    comparison: Mapping[str, Any] | None
    """What both versions computed on the same records: ``verdict``, ``summary``, a line, and ``table``,
    markdown; None if they were not compared."""
    health: str | None
    """What was observed of the new version after its first batch, in a line; None without that."""
    phases_s: Mapping[str, float]
    """Seconds per phase, retries included."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for XCom; ``downtime_s`` is the whole of ``downtime``."""
        return {**asdict(self), "downtime_s": self.downtime.total_s if self.downtime is not None else None}

    def as_markdown(self) -> str:
        """Render the times."""
        times = "\n".join(f"| {phase} | {seconds:.2f} |" for phase, seconds in self.phases_s.items())
        downtime = "Downtime: nothing to read." if self.downtime is None else self.downtime.as_markdown()
        rehearsed = f"Compared: {self.comparison['table']}\n\n" if self.comparison else ""
        rehearsed += f"{self.rehearsal['table']}\n\n" if self.rehearsal else ""
        seen = f"Observed: {self.health}\n\n" if self.health else ""
        return f"{rehearsed}{seen}{downtime}\n\n| phase | seconds |\n|---|---|\n{times}"


def build_report(context: CutoverContext) -> UpgradeReport:
    """Read the report of a finished upgrade from its journal."""
    journal, client = context.journal, context.client
    stop, taken = journal.result("stop") or {}, journal.result("takeover") or {}
    verified, observed = journal.result("verify") or {}, journal.result("observe")
    old, new = client.view.board.heartbeat(context.old()), client.view.run(taken["generation"]).heartbeat
    return UpgradeReport(
        job=client.view.job,
        generation=taken["generation"],
        savepoint_id=stop["savepoint_id"],
        first_batch=verified["batches"],
        downtime=of_cutover(journal, old.value if old else None, new, began="stop", seen=verified),
        rehearsal=(journal.result("standby") or {}).get("rehearsal"),
        comparison=begun.intent.get("comparison") if (begun := journal.read("standby")) else None,
        health=summary(observed) if observed else None,
        phases_s=journal.seconds(),
    )


UPGRADE_PHASES = (
    *("savepoint", "standby", steps.PRECOPY, "stop"),
    *("takeover-order", "takeover", "verify", "observe", "rollback"),
)


@dataclass(kw_only=True)
class Upgrade(UpgradeContext):
    """One upgrade of one job; ``run`` may be called again after a failed try."""

    def run(self) -> UpgradeReport:
        """Upgrade, or continue an upgrade that an earlier attempt began.

        Raises:
            JobError: ``UPGRADE_ROLLED_BACK`` if the new version failed; the old one runs, and was never
                stopped if the error says so.
            JobRunningError: If it failed, and another caller has started the job since; that run is kept.
            JobError: ``UPGRADE_CHOICE`` if it failed after it had committed, and no way back was chosen.
            JobError: ``UPGRADE_UNHEALTHY`` if it commits, is unhealthy, and the old one cannot continue from
                there; it runs on.
            SinkSkipsError: If the rollback would use batch ids again that a sink may leave out; nothing was
                stopped.
            FlinkstyleError: ``SPARK_INCOMPATIBLE`` if the new version could not continue; nothing was
                stopped.
            DiesWithStarterError: If its driver would end with this task or worker; nothing was stopped.
            JobError: ``MIGRATION_BUSY`` if another upgrade or migration of the job is under way.
            JobError: ``DONE_BEFORE`` if it was done before, and the job runs another version by now.
        """
        self.journal.begin(lambda: 0)
        with self.at_work():
            return self._run()

    def _run(self) -> UpgradeReport:
        begun = self.journal.read("rollback")
        if begun is not None:
            raise self._went_back(begun.intent.get("failure") or self._failure(), begun.intent.get("remedy"))
        if self._is_done():
            steps.require_still(self, "run what was asked for", self._is_asked_for)
            return build_report(self)
        if not self._has_begun():
            self._require_possible()
        try:
            self._until_taken_over()
        except (AttemptSupersededError, StoreError):
            raise  # a newer attempt is in charge, or no rollback could be recorded: a retry continues
        except FlinkstyleError as error:
            if not self._has_begun():
                raise  # nothing was started or stopped
            remedy = error.remedy if isinstance(error, NotTestedError) else None
            raise self._went_back(f"{error.problem} {error.state_after}", remedy) from error
        verified = self.phase("verify", {}, self._verify)
        if verified["failure"] is not None:
            raise self._went_back(verified["failure"])
        if verified.get("then"):
            failure = self.phase("observe", {}, self._observe)["failure"]
            if failure is not None:
                raise self._went_back(failure)
        return build_report(self)

    def settle(self) -> Settled:
        """Bring an upgrade to rest that no task works on: finished if the new version runs, else undone.

        Raises:
            JobError: ``UPGRADE_CHOICE`` if the new version failed after it had committed: the job is stopped.
        """
        self.journal.begin(lambda: 0)
        with self.at_work():
            if self._has_begun() and self._has_taken_over() and self.journal.read("rollback") is None:
                # Of a driver that has taken over since its task died; it alone says which generation runs.
                self.phase("takeover", {}, lambda: steps.takeover(self.in_window()))
                verified = self.phase("verify", {}, self._verify)
                failure = verified["failure"]
                if failure is None and verified.get("then"):
                    failure = self.phase("observe", {}, _unobserved)["failure"]
                if failure is None:
                    current = self.client.view.board.current()
                    generation = current.value.generation if current is not None else None
                    return Settled(where="new", generation=generation, detail="The new version runs.")
            else:
                failure = "It was not finished, and no task worked on it any more."
            if not self._has_begun():
                return UNTOUCHED
            back = self.phase("rollback", {"failure": failure}, self._go_back)
        where: Where = "new" if back.get("stays") else "old"
        return Settled(where=where, generation=back["generation"], detail=str(back["how"]))

    def _has_taken_over(self) -> bool:
        current = self.client.view.board.current()
        is_current = current is not None and current.value.generation == self.new
        return is_current or self.journal.result("takeover") is not None

    def _is_done(self) -> bool:
        """Return whether an earlier attempt has come to the end."""
        return is_last(self.journal.read("observe") or self.journal.read("verify"))

    def _is_asked_for(self, run: Run) -> bool:
        """Return whether a later run of the job runs this version; what it did since does not matter."""
        if self.back_to is not None or not run.claim.launch:
            return False
        spec, _ = from_launch(run.claim.launch, secret_env={})
        return (spec.script, spec.args, spec.conf) == (self.spec.script, self.spec.args, self.spec.conf)

    def _has_begun(self) -> bool:
        """Return whether anything was started or stopped for this upgrade."""
        return any(self.journal.read(name) is not None for name in ("standby", "stop"))

    def _failure(self) -> str:
        seen = self.journal.result("observe") or self.journal.result("verify") or {}
        return str(seen.get("failure", "It did not start."))

    def _went_back(self, failure: str, remedy: str | None = None) -> FlinkstyleError:
        """Go back, and return the error that says so; ``remedy`` where it is not to correct the version."""
        intent = {"failure": failure, **({"remedy": remedy} if remedy else {})}
        back = self.phase("rollback", intent, self._go_back)
        expected = "be healthy" if self.journal.read("observe") is not None else "commit a batch"
        problem = f"The new version of job {self.client.view.job} was expected to {expected}: {failure}"
        if back.get("another"):
            return JobRunningError(
                problem,
                state_after=f"Generation {back['generation']} ({back['how']}) has taken the job over since "
                "and was left as it is.",
                remedy="Look at what runs there; upgrade again if the new version is to run.",
            )
        if back.get("stopped"):
            return JobNotRunningError(
                problem,
                state_after=f"Generation {back['generation']} was left as it is: {back['how']}.",
                remedy="Start it if it is to run; then upgrade it if the new version is to run.",
            )
        if back.get("stays"):
            return UPGRADE_UNHEALTHY.with_text(
                problem,
                state_after=f"It runs on as generation {back['generation']}: {back['how']}",
                remedy="Correct it and upgrade again; or roll back to a savepoint, with a choice of what to "
                "do about the batches since (RollBackStreamingJobOperator).",
            )
        again = "runs" if back.get("untouched") else "runs again"
        return UPGRADE_ROLLED_BACK.with_text(
            problem,
            state_after=f"The old version {again} as generation {back['generation']} ({back['how']}).",
            remedy=remedy or "Correct the new version, then upgrade again.",
        )

    def _go_back(self) -> Mapping[str, Any]:
        """Let the old version run again: where the new one is, if that was observed and has not ended."""
        begun, ended = self.journal.part("back").has_begun, (Failed, Closed)
        if not begun and (another := rollback.another(self)) is not None:
            return another
        if self.journal.result("observe") is None:
            return rollback.committed_after_all(self) or rollback.roll_back(self)
        if not begun and isinstance(self.client.view.settled_status(), ended):
            return rollback.roll_back(self)
        return self._back_from_where_it_is()

    def _back_from_where_it_is(self) -> Mapping[str, Any]:
        """Upgrade to the old version: nothing is repeated or lost, if its plan fits the state as it is now.

        If it does not, ``if_committed`` decides; with ``continue`` the new version runs on.
        """
        spec, target = self.client.view.launch_of(self.old())
        if changed := state_changes_unknown(self.spec.conf, spec.conf):
            why = f"The old version does not know what {changed[-1].changes} did to the state."
            return self._stays_or_rewinds(self.new, why)
        spec = repartition.undone(spec, self.spec, self._saved())
        back = replace(
            self,
            journal=self.journal.part("back"),
            part_of=self.journal.migration_id,
            spec=spec,
            target=target,
            bounds=UNWATCHED,
            compare=None,
            comparison=None,
            back_to=None,
            hot_savepoint_id=None,
            rehearse=replace(self.rehearse, allow_untested=True) if self.rehearse is not None else None,
            if_committed="continue",
        )
        try:
            report = back.run()
        except (AttemptSupersededError, StoreError):
            raise
        except FlinkstyleError as error:
            log.warning("The old version cannot continue where the new one is: %s", error)
            current = self.client.view.board.current()
            runs = current.value.generation if current is not None else self.new
            return self._stays_or_rewinds(runs, f"{error.problem} {error.state_after}")
        how = f"from savepoint {report.savepoint_id}, where the new one stopped"
        return {"generation": report.generation, "how": how}

    def _stays_or_rewinds(self, runs: Generation | None, why: str) -> Mapping[str, Any]:
        """Go back to the stop's savepoint as was chosen; else what runs stays."""
        if runs == self.new and self.if_committed != "continue":
            return rollback.roll_back(self)
        return {"generation": runs, "how": why, "stays": True}

    # --- what is checked before anything is started or stopped --------------------------------

    def _require_possible(self) -> None:
        rollback.require_possible(self.client.view, self.if_committed, skip_known=self.skip_known_batches)
        if self.back_to is not None:
            require_allowed(self.client.view, self.back_to)
        require_fitting(self.client.view, self.spec, self.target)
        self.client.view.deployment_for(self.target).require_able()
        if self.standby != "none":
            require_room(self.client.view, self.spec, self.target)

    # --- until the new version runs -----------------------------------------------------------

    def _until_taken_over(self) -> None:
        if self.journal.result("stop") is None:
            self._prepare()
        stopped = self.phase("stop", {}, lambda: steps.stop(self.in_window()))
        manifest = self.client.view.repository.read(stopped["savepoint_id"])
        self.phase(
            "takeover-order", {"savepoint_id": manifest.savepoint_id}, lambda: self._let_take_over(manifest)
        )
        self.phase("takeover", {}, lambda: steps.takeover(self.in_window()))

    def _prepare(self) -> None:
        """Bring the new version up beside the old one; without a standby only note which one that is."""
        compared = self.comparison
        if compared is None and not self._has_begun():
            compared = self.compared()
        old = self.old()
        if self.back_to is not None:
            self.hot_savepoint_id = self.back_to.savepoint_id
        elif self.standby == "warm" and self.hot_savepoint_id is None:
            saved = self.phase("savepoint", {}, lambda: steps.save(self, "savepoint"))
            self.hot_savepoint_id = saved["savepoint_id"]
        if self.journal.read("standby") is None:
            steps.refuse_another(self, old)
        begun = {"old": old, **({"comparison": compared} if compared is not None else {})}
        self.phase("standby", begun, lambda: self._stand_by(old))
        steps.refuse_another(self, old)  # once more: two may have begun at the same moment
        if self.standby == "warm" and self.back_to is None:
            self.phase(steps.PRECOPY, {}, lambda: steps.precopy(self.in_window()))

    def compared(self) -> Mapping[str, Any] | None:
        """Compare both versions on the same records, before anything of this upgrade is begun.

        Returns:
            What ``as_values`` makes of it; None if that is not asked for.

        Raises:
            FlinkstyleError: ``VERSIONS_DIFFER``, ``NOT_COMPARABLE`` or ``COMPARISON_FAILED``.
        """
        if self.compare is None:
            return None
        if self.compare_from is None and newest_summary(self.client.view.repository) is None:
            # No phase yet: a journal without an end would keep every old record of the job.
            self.compare_from = steps.save(self, "savepoint")["savepoint_id"]
        spec, target = self.client.view.launch_of(self.old())
        found = comparison.as_values(
            comparison.compare_versions(
                self.client,
                comparison.Version(spec=spec, target=target),
                comparison.Version(spec=self.spec, target=self.target),
                key=self.journal.migration_id,
                savepoint_id=comparison.savepoint_to_compare(self.client, self.compare_from),
                asked=self.compare,
            )
        )
        comparison.require_expected(found, self.expect, job=self.client.view.job)
        return found

    def _stand_by(self, old: Generation) -> Mapping[str, Any]:
        return {"old": old, "new": None} if self.standby == "none" else steps.start_standby(self)

    def _let_take_over(self, manifest: Manifest) -> Mapping[str, Any]:
        """Order the waiting driver to take over; where none waits, start one."""
        self.journal.check()
        origin, new = self.back_to or FromSavepoint(savepoint_id=manifest.savepoint_id), self.new
        if new is None or self.client.view.claim(new).prepare_savepoint_id is None:
            handle = self.client.starts.start(self.spec, self.target, claim_key=self.next_key, origin=origin)
            return {"generation": handle.generation}
        if self.client.view.board.takeover_order(new) is None:  # else it has its order, and may run already
            plan = plan_savepoint(self.client.view, origin, self.next_key)
            self.client.starts.order_takeover(new, plan.order, plan.own_ids)
        return {"generation": new}

    def _verify(self) -> Mapping[str, Any]:
        stopped = self.journal.result("stop") or {}
        new = self._taken()
        if self.back_to is not None:
            before = self._restored(new)
        else:
            at = stopped["batches"], self.spec, stopped["savepoint_id"]
            before = repartition.begun_at(*at, self.client.view.repository)
        found = health.await_first(self.in_window(), new, before)
        return {**found, "then": "observe"} if self.bounds.observe_s > 0 else found

    def _restored(self, new: Generation) -> Mapping[str, int]:
        """Return the batches at which a driver began that did not begin where the old one stopped.

        That is the savepoint's batch, or a number above every other; its heartbeat shows which. A driver that
        has committed before this first read is one batch above one of the two.
        """
        order, heartbeat = self.client.view.board.takeover_order(new), self.client.view.run(new).heartbeat
        if order is None or order.savepoint_id is None or heartbeat is None:
            return {}
        numbers = order.unused_from if order.rewind == "fork" else {}
        began = {
            one.name: {one.batch_id, numbers.get(one.name)}
            for one in self.client.view.repository.read(order.savepoint_id).queries
        }
        return {
            name: batch - 1 if batch - 1 in began.get(name, ()) and batch not in began[name] else batch
            for name, batch in heartbeat.batches().items()
        }

    def _observe(self) -> Mapping[str, Any]:
        health = observe(self, self._taken(), self.bounds).as_result()
        log.info("The new version is %s", summary(health))
        return health

    def _saved(self) -> Manifest:
        return self.client.view.repository.read((self.journal.result("stop") or {})["savepoint_id"])

    def _taken(self) -> Generation:
        taken = self.journal.result("takeover")
        return Generation(taken["generation"]) if taken is not None else self.generation("new")


def _unobserved() -> Mapping[str, Any]:
    """Return the result of an observation that nobody has ended: what it would have found is not known."""
    unknown = ("Its task ended before it was observed for as long as was asked for.",)
    return health.Health(observed_s=0.0, reasons=(), batches={}, unknown=unknown).as_result()


# An upgrade by its journal alone: enough for any caller that finds it unfinished to bring it to rest.


def resumed(client: JobClient, migration_id: str) -> Upgrade:
    """Return the upgrade, to be settled.

    What only its task knew, and no record has (how to go back from a version that has committed, how long to
    observe it), is for a person to decide.
    """
    journal = CutoverJournal(
        client.view.board.store,
        client.view.job,
        migration_id,
        UPGRADE_PHASES,
        signer=client.view.signer,
    )
    new = client.view.own_claim(f"{migration_id}/{Upgrade.NEXT}")
    spec, target = client.view.launch_of(new) if new is not None else recorded_launch(client.view)
    order = client.view.board.takeover_order(new) if new is not None else None
    stopped = (journal.result("stop") or {}).get("savepoint_id")
    back_to = None
    restored = order.savepoint_id if order is not None else None
    if new is not None and order is not None and restored is not None and restored != stopped:
        back_to = FromSavepoint(
            savepoint_id=restored,
            rewind=order.rewind,
            restore_tables=client.view.board.tables_to_restore_data(new) is not None,
        )
    return Upgrade(client=client, journal=journal, spec=spec, target=target, back_to=back_to)
