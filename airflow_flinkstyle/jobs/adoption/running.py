"""Adopt a job while plain Spark runs it: a driver waits with its state, the old one ends, the next continues.

Until the old driver is told to end, every error leaves it as it was. From then on nothing is undone
by itself: this package cannot start what it did not start. A retry continues; or a person gives the adoption
up and starts the old job again, whose checkpoint is as its driver left it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.adoption.outside import await_still, inspect_queries, still_for
from airflow_flinkstyle.jobs.adoption.stopped import finish, require_of_nobody_else
from airflow_flinkstyle.jobs.adoption.taking import read_outside, require_outside, take_outside
from airflow_flinkstyle.jobs.cutover import steps
from airflow_flinkstyle.jobs.cutover.context import CutoverContext, late
from airflow_flinkstyle.jobs.cutover.steps import require_room
from airflow_flinkstyle.jobs.errors import ROLLED_BACK, CheckpointWrittenError, DriverFailedError
from airflow_flinkstyle.jobs.journal import is_last
from airflow_flinkstyle.jobs.start.home import from_home
from airflow_flinkstyle.jobs.start.origins import FromSavepoint, plan_savepoint
from airflow_flinkstyle.jobs.upgrade.health import await_first

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_flinkstyle.jobs.adoption.ending import Ending
    from airflow_flinkstyle.jobs.adoption.outside import Outside
    from airflow_flinkstyle.jobs.adoption.taking import WatchedCheckpoint
    from airflow_flinkstyle.protocol.records import Heartbeat
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.types import Generation

log = logging.getLogger(__name__)
ADOPTION_PHASES = (
    "savepoint",
    "standby",
    steps.PRECOPY,
    "end",
    "adopt",
    "takeover-order",
    "takeover",
    "verify",
    "rollback",
)
_MOMENT_S = 0.5
"""How long a checkpoint must stand still whose writer is known to be gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedRunning:
    """A job that was adopted while it ran."""

    job: str
    savepoint_id: str
    generation: int
    batches: Mapping[str, int]
    """Where it was adopted."""
    ended: str
    """How the end of the old driver is known."""
    stood_s: float
    """For how long its checkpoint stood still after that."""
    down_s: float | None
    """From the request that ended the old driver, or a person's answer that it had ended, to the first batch
    of this one; None if there was nothing to read."""

    def as_dict(self) -> dict[str, object]:
        """Return plain values."""
        return {name: getattr(self, name) for name in self.__slots__} | {"batches": dict(self.batches)}


@dataclass(kw_only=True)
class RunningAdoption(CutoverContext):
    """One adoption of one job, at once (``run``) or in two parts (``bring_up``, ``finish``).

    Each may be called again after a failed try.
    """

    NEXT: ClassVar[str] = "adopt"

    watched: WatchedCheckpoint
    ending: Ending
    by: str
    still_s: float | None = None
    mark: bool = True

    def run(self) -> AdoptedRunning:
        """Adopt it, or continue an adoption that an earlier try began.

        Raises:
            JobError: ``ROLLED_BACK`` if it was given up before; the old job was never touched, or the error
                says so.
            JobError: ``OLD_JOB_RUNS`` if the old driver did not end.
            CheckpointWrittenError: If its checkpoint is written although it should have ended.
            DriverFailedError: If the next driver did not come up, or failed.
            FlinkstyleError: Whatever ``take_outside`` raises; nothing was ended then.
        """
        self.bring_up()
        return self._take_over()

    def bring_up(self) -> Mapping[str, Any] | None:
        """Let the next driver come up with a copy of the state and rehearse; return its report of that.

        Raises:
            JobError: ``ROLLED_BACK`` if it was given up before, or is given up because that driver failed.
            FlinkstyleError: As ``run`` does until the old driver is told to end.
        """
        self._begin()
        try:
            self._prepare()
        except FlinkstyleError as error:
            if (
                self.journal.read("standby") is None
                or error.retryable
                or self.journal.read("end") is not None
            ):
                raise
            raise self._gave_up(f"{error.problem} {error.state_after}") from error
        report: Mapping[str, Any] | None = (self.journal.result("standby") or {}).get("rehearsal")
        return report

    def finish(self) -> AdoptedRunning:
        """Do what follows ``bring_up``, maybe hours later; give up an adoption that did not get so far.

        Raises:
            JobError: ``ROLLED_BACK`` if it was given up, before or now.
            FlinkstyleError: As ``run`` does once the old driver is told to end.
        """
        self._begin()
        if self.journal.result(steps.PRECOPY) is None:
            raise self._gave_up("No driver waits with the job's state.")
        return self._take_over()

    def abandon(self, why: str) -> FlinkstyleError:
        """Give up what ``bring_up`` has begun, and return the error that says so; raises as ``give_up``."""
        self._begin()
        return self._gave_up(why)

    def _gave_up(self, why: str) -> FlinkstyleError:
        if self.journal.read("standby") is not None:
            self.give_up(why)
        return self._given_up(why)

    def _begin(self) -> None:
        self.journal.begin(lambda: 0)
        if (begun := self.journal.read("rollback")) is not None:
            raise self._given_up(str(begun.intent.get("failure", "")))

    def _take_over(self) -> AdoptedRunning:
        """End the old driver, capture the rest, and let the next one take over; or find that done."""
        if is_last(self.journal.read("verify")):
            return self._report()
        ended = self.phase("end", self._to_end(), self._end)
        manifest = self.phase("adopt", {}, self._adopt)
        saved = self.client.view.repository.read(manifest["savepoint_id"])
        self.phase("takeover-order", {"savepoint_id": saved.savepoint_id}, lambda: self._let_take_over(saved))
        self.phase("takeover", {}, self._await_takeover)
        before = {query.name: int(query.batch_id) for query in saved.queries}
        verified = self.phase("verify", {}, partial(self._verify, before))
        if verified["failure"] is not None:
            raise DriverFailedError(
                f"Job {self.client.view.job} was expected to commit a batch after it was adopted, found: "
                f"{verified['failure']}",
                state_after=f"The old driver has ended ({ended['known']}), and the job is this package's.",
                remedy="Correct what the error names and start the job again: it continues at that batch. "
                "Or give it back (flinkstyle job leave).",
            )
        return self._report()

    def give_up(self, why: str) -> None:
        """End the driver that waits; the old job, if it was not ended, runs on.

        Raises:
            JobError: ``ROLLED_BACK`` if the next driver was told to take over: then the job is adopted.
        """
        new = self.new
        if new is not None and self.client.view.board.takeover_order(new) is not None:
            raise ROLLED_BACK.with_text(
                f"The adoption of job {self.client.view.job} was expected not to have come to the takeover, "
                f"found that generation {new} was told to take over.",
                state_after="The job is adopted.",
                remedy="Give it back with flinkstyle job leave.",
            )
        self.phase("rollback", {"failure": why}, lambda: self._dismiss(new))

    @property
    def old_job(self) -> str:
        """What has become of the old job, as a sentence without its end."""
        touched = self.journal.read("end") is not None
        return "The old driver was told to end; start it as before" if touched else "The old job runs on"

    def _dismiss(self, new: Generation | None) -> Mapping[str, Any]:
        if new is not None:
            self.client.drivers.dismiss(new)
        return {"generation": new}

    def _given_up(self, why: str) -> FlinkstyleError:
        return ROLLED_BACK.with_text(
            f"Job {self.client.view.job} was expected to be adopted while it runs, found: {why}",
            state_after=f"{self.old_job}; its checkpoint is as it left it.",
            remedy="Correct the cause, then adopt it again (with another key, by another run of the DAG).",
        )

    # --- until the old driver is told to end ---------------------------------------------------

    def _prepare(self) -> None:
        """Bring the next driver up with a copy of the state."""
        if self.journal.read("end") is not None:
            return
        if self.journal.read("savepoint") is None:
            require_outside(self.client.view, {"watched", "left"}, self.watched.checkpoints)
            queries = inspect_queries(self.watched.checkpoints, self.client.view.open_checkpoint)
            require_of_nobody_else(self.client.view, queries)
            self.client.view.deployment_for(self.target).require_able()
            require_room(self.client.view, self.spec, self.target)
            self.ending.prepare()
        saved = self.phase("savepoint", {}, lambda: self._save("savepoint"))
        self.hot_savepoint_id = saved["savepoint_id"]
        self.phase("standby", {"old": 0}, self._stand_by)
        self.phase(steps.PRECOPY, {}, self._precopy)

    def _save(self, name: str) -> Mapping[str, Any]:
        key = f"{self.journal.migration_id}/{name}"
        return {"savepoint_id": take_outside(self.client.view, self.watched, key, by=self.by).savepoint_id}

    def _stand_by(self) -> Mapping[str, Any]:
        timeout_s = self.settings.standby_timeout_s
        timeout_s += self.rehearse.timeout_s if self.rehearse is not None else 0
        handle = self.client.starts.standby(
            self.spec,
            self.target,
            claim_key=self.next_key,
            prepare_savepoint_id=self.hot_savepoint_id,
            rehearse=self.rehearse,
        )

        def has_come_up(heartbeat: Heartbeat) -> bool:
            return heartbeat.state == "standby" and bool(heartbeat.application_id)

        steps.await_heartbeat(self.client, handle.generation, has_come_up, "come up and wait", timeout_s)
        report = (
            steps.rehearsal_report(self.client.view, handle.generation) if self.rehearse is not None else None
        )
        return {"old": 0, "new": handle.generation, "rehearsal": report}

    def _precopy(self) -> Mapping[str, Any]:
        new, saved = self.generation("new"), self._save(steps.PRECOPY)
        self.client.view.board.write_precopy(new, saved["savepoint_id"])

        def has_copied(heartbeat: Heartbeat) -> bool:
            return bool(heartbeat.precopied == saved["savepoint_id"])

        timeout_s = self.settings.standby_timeout_s
        steps.await_heartbeat(self.client, new, has_copied, "copy a savepoint", timeout_s, self.journal.check)
        return saved

    # --- the window ----------------------------------------------------------------------------

    def _to_end(self) -> Mapping[str, Any]:
        begun = self.journal.read("end")
        return begun.intent if begun is not None else self.ending.prepare()

    def _end(self) -> Mapping[str, Any]:
        begun = self.journal.read("end")
        return {"known": self.ending.end(begun.intent if begun is not None else {})}

    def _adopt(self) -> Mapping[str, Any]:
        """Capture what the old driver left, once its checkpoint stands still."""
        since = read_outside(self.client.view)
        queries, still_s = self._await_still()
        self.journal.check()
        manifest = finish(
            self.client.view,
            queries,
            key=self.journal.migration_id,
            by=self.by,
            watched=self.watched,
            mark=self.mark,
            stood_s=still_s,
            since=since,
        )
        return {"savepoint_id": manifest.savepoint_id, "stood_s": still_s}

    def _await_still(self) -> tuple[Sequence[Outside], float]:
        """Wait until nothing is written any more: a cluster takes its time to end a driver."""
        wait = self.client.view.waiting(self.settings.stop_timeout_s)
        while True:
            seen = inspect_queries(self.watched.checkpoints, self.client.view.open_checkpoint)
            still_s = _MOMENT_S if self.ending.proves_itself else still_for(seen)
            still_s = still_s if self.still_s is None else self.still_s
            try:
                open_checkpoint, clock = self.client.view.open_checkpoint, self.client.view.clock
                return await_still(seen, open_checkpoint, still_s=still_s, clock=clock), still_s
            except CheckpointWrittenError:
                if not wait.again():
                    raise
                log.info("The old driver still writes")
                self.journal.check()

    def _let_take_over(self, manifest: Manifest) -> Mapping[str, Any]:
        self.journal.check()
        new, origin = self.generation("new"), FromSavepoint(savepoint_id=manifest.savepoint_id)
        if self.client.view.board.takeover_order(new) is None:
            from_home(self.client.view, origin)  # a try before this one may have adopted, and died
            plan = plan_savepoint(self.client.view, origin, self.next_key)
            self.client.starts.order_takeover(new, plan.order)
        return {"generation": new}

    def _await_takeover(self) -> Mapping[str, Any]:
        client, new = self.in_window().client, self.generation("new")
        wait = client.view.waiting(self.settings.takeover_timeout_s)
        while True:
            current = client.view.board.current()
            if current is not None and current.value.generation >= new:
                return {"generation": current.value.generation}
            client.drivers.ensure_running()
            if not wait.again():
                raise late("The new driver", "take over", self.settings.takeover_timeout_s)
            self.journal.check()

    def _verify(self, before: Mapping[str, int]) -> Mapping[str, Any]:
        return await_first(self.in_window(), self.generation("new"), before)

    def _report(self) -> AdoptedRunning:
        adopted, end = self.journal.result("adopt") or {}, self.journal.read("end")
        verified = self.journal.result("verify") or {}
        saved = self.client.view.repository.read(adopted["savepoint_id"])
        first_ms = verified.get("first_commit_at_ms")
        ended_ms = end.intent.get("said_at_ms", end.intent_at_ms) if end is not None else None
        return AdoptedRunning(
            job=self.client.view.job,
            savepoint_id=saved.savepoint_id,
            generation=int((self.journal.result("takeover") or {})["generation"]),
            batches={query.name: int(query.batch_id) for query in saved.queries},
            ended=(end.result or {})["known"] if end is not None else "",
            stood_s=adopted["stood_s"],
            down_s=(first_ms - ended_ms) / 1000 if first_ms is not None and ended_ms is not None else None,
        )
