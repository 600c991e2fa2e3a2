"""What an upgrade did, for the log and XCom."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.jobs.cutover.downtime import Downtime, of_cutover
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
    downtime: Downtime | None
    """None if there was nothing to read."""
    rehearsal: Mapping[str, str] | None
    """What the new version did on a scratch copy before the old one stopped: ``summary``, a line, and
    ``table``, markdown; None without a rehearsal."""
    health: str | None
    """What was seen of the new version after its first batch, in a line; None if it was not observed."""
    phases_s: Mapping[str, float]
    """Seconds per phase, retries included."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for XCom; ``downtime_s`` is the whole of ``downtime``."""
        return {**asdict(self), "downtime_s": self.downtime.total_s if self.downtime is not None else None}

    def as_markdown(self) -> str:
        """Render the times."""
        times = "\n".join(f"| {phase} | {seconds:.2f} |" for phase, seconds in self.phases_s.items())
        downtime = "Downtime: nothing to read." if self.downtime is None else self.downtime.as_markdown()
        rehearsed = f"{self.rehearsal['table']}\n\n" if self.rehearsal else ""
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
        health=summary(observed) if observed else None,
        phases_s=journal.seconds(),
    )
