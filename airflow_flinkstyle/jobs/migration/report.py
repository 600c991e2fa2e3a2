"""What a migration did, for the log, XCom and the demo's tables."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.jobs.cutover.downtime import Downtime, of_cutover
from airflow_flinkstyle.jobs.migration import fence_phase
from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan
from airflow_flinkstyle.wording import escape, size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.journal import CutoverJournal
    from airflow_flinkstyle.jobs.view import JobView


@dataclass(frozen=True, slots=True, kw_only=True)
class CutoverReport:
    """A finished migration."""

    migration_id: str
    job: str
    generation: int
    """The one that runs on the new cluster."""
    savepoint_id: str
    """Taken by the stop."""
    rewritten_id: str
    savepoint_bytes: int
    phases_s: Mapping[str, float]
    """Seconds per phase, retries included."""
    held_s: float
    """From the switch to hold until the release."""
    downtime: Downtime | None
    """From the last commit on the old cluster to the first on the new; None if there was nothing to read."""
    rehearsal: Mapping[str, str] | None
    """What the next driver did on a scratch copy before the window: ``summary``, a line, and ``table``,
    markdown; None without a rehearsal."""
    notes: tuple[str, ...]
    """What else there is to know: the fence, records left behind on the old cluster, group offsets."""
    decided: Mapping[str, Any] | None
    """Who approved it: ``by``, ``at`` (ISO 8601) and ``choice``; None if no person was asked."""
    plan: OffsetRewritePlan

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for XCom."""
        plain = {"phases_s": dict(self.phases_s), "notes": list(self.notes), "table": self.plan.as_markdown()}
        fields = {
            name: getattr(self, name) for name in self.__slots__ if name not in ("plan", "downtime", *plain)
        }
        downtime = asdict(self.downtime) if self.downtime is not None else None
        return {**fields, **plain, "downtime": downtime, "downtime_s": self.downtime_s}

    @property
    def downtime_s(self) -> float | None:
        """How long the job was down; None if it had nothing to read."""
        return self.downtime.total_s if self.downtime is not None else None

    def as_event(self) -> dict[str, Any]:
        """Return the fields of an asset's event."""
        return {
            "job": self.job,
            "migration_id": self.migration_id,
            "source_cluster_id": self.plan.source_cluster_id,
            "target_cluster_id": self.plan.target_cluster_id,
            "savepoint_id": self.rewritten_id,
            "held_s": self.held_s,
            "downtime_s": self.downtime_s,
        }

    def as_markdown(self) -> str:
        """Render the table of positions and the times."""
        times = ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in self.phases_s.items())
        downtime = "Downtime: nothing to read." if self.downtime is None else self.downtime.as_markdown()
        rehearsed = f"{self.rehearsal['table']}\n\n" if self.rehearsal else ""
        who = self.decided
        decided = f"Approved by {escape(str(who['by']))} at {escape(str(who['at']))}.\n\n" if who else ""
        return (
            f"{self.plan.as_markdown()}\n\n{decided}{rehearsed}"
            f"{downtime} Producers held {self.held_s:.1f} s, "
            f"savepoint {size(self.savepoint_bytes)}. Phases: {times}."
            + "".join(f"\n\n{escape(note)}" for note in self.notes)
        )


def build_report(runs: JobView, journal: CutoverJournal) -> CutoverReport:
    """Read the report of a finished migration from its journal."""
    standby, stop = _result(journal, "standby"), _result(journal, "stop")
    rewritten_id = _result(journal, "rewrite")["savepoint_id"]
    hold, release = journal.read("hold"), journal.read("release")
    held_ms = release.result_at_ms - hold.intent_at_ms if hold and release and release.result_at_ms else 0
    slot, running = runs.board.heartbeat(standby["old"]), _result(journal, "running")
    old, new = slot.value if slot else None, runs.run(standby["new"]).heartbeat
    return CutoverReport(
        migration_id=journal.migration_id,
        job=runs.job,
        generation=standby["new"],
        savepoint_id=stop["savepoint_id"],
        rewritten_id=rewritten_id,
        savepoint_bytes=runs.repository.read(stop["savepoint_id"]).total_bytes,
        phases_s=journal.seconds(),
        held_s=held_ms / 1000,
        downtime=of_cutover(journal, old, new, began="hold", seen=running),
        rehearsal=standby.get("rehearsal"),
        notes=_notes(journal),
        decided=journal.decided(),
        plan=plan_of(journal),
    )


def plan_of(journal: CutoverJournal) -> OffsetRewritePlan:
    """Return what a window has translated."""
    return OffsetRewritePlan.from_json(_result(journal, "translate")["plan"])


def _notes(journal: CutoverJournal) -> tuple[str, ...]:
    fence = _result(journal, fence_phase.PHASE).get("fence")
    arrived, released = _result(journal, "running"), _result(journal, "release")
    written = arrived.get("late_writes") or released.get("late_writes")
    left_behind = (
        f"WARNING: producers wrote to the old cluster after the proof. {written}" if written else None
    )
    return tuple(note for note in (fence, left_behind, arrived.get("group")) if note)


def _result(journal: CutoverJournal, phase: str) -> Mapping[str, Any]:
    return journal.result(phase) or {}
