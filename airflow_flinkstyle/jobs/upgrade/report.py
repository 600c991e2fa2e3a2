"""What an upgrade did, for the log and XCom."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.jobs.upgrade.health import summary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.cutover.context import CutoverContext


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeReport:
    """A new version that runs."""

    job: str
    generation: int
    savepoint_id: str
    """Taken by the stop."""
    first_batch: Mapping[str, int] | None
    """Query name -> batch seen committed; None if there was nothing to read yet."""
    downtime_s: float | None
    """From the last commit of the old version to the first of the new one that was seen, by the drivers' own
    clocks; None if there was nothing to read."""
    rehearsal: Mapping[str, str] | None
    """What the new version did on a scratch copy before the old one stopped: ``summary``, a line, and
    ``table``, markdown; None without a rehearsal."""
    health: str | None
    """What was seen of the new version after its first batch, in a line; None if it was not observed."""
    phases_s: Mapping[str, float]
    """Seconds per phase, retries included."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for XCom."""
        return asdict(self)

    def as_markdown(self) -> str:
        """Render the times."""
        times = "\n".join(f"| {phase} | {seconds:.2f} |" for phase, seconds in self.phases_s.items())
        downtime = "nothing to read" if self.downtime_s is None else f"{self.downtime_s:.2f} s"
        rehearsed = f"{self.rehearsal['table']}\n\n" if self.rehearsal else ""
        seen = f"Observed: {self.health}\n\n" if self.health else ""
        return f"{rehearsed}{seen}Downtime: {downtime}.\n\n| phase | seconds |\n|---|---|\n{times}"


def build_report(context: CutoverContext) -> UpgradeReport:
    """Read the report of a finished upgrade from its journal."""
    journal, client = context.journal, context.client
    stop, taken = journal.result("stop") or {}, journal.result("takeover") or {}
    verified, observed = journal.result("verify") or {}, journal.result("observe")
    slot, first_ms = client.board.heartbeat(context.old()), verified.get("first_commit_at_ms")
    commits = [beat.batch_committed_at_ms for beat in slot.value.queries.values()] if slot else []
    last_ms = max((at for at in commits if at is not None), default=None)
    return UpgradeReport(
        job=client.board.job,
        generation=taken["generation"],
        savepoint_id=stop["savepoint_id"],
        first_batch=verified["batches"],
        downtime_s=None if first_ms is None or last_ms is None else (first_ms - last_ms) / 1000,
        rehearsal=(journal.result("standby") or {}).get("rehearsal"),
        health=summary(observed) if observed else None,
        phases_s=journal.seconds(),
    )
