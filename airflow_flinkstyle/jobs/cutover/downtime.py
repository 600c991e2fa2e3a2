"""How long a job stood still in a cutover, and which part of that each side took.

From the last commit of the old run to the first of the new one, by the clocks of the drivers and of the
process that stopped the job.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.journal import CutoverJournal
    from airflow_flinkstyle.protocol.records import Heartbeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Downtime:
    """One time without commits."""

    total_s: float
    before_s: float
    """From the last commit until the window began: the trigger's own wait."""
    ours_s: float
    """From there until Spark was told to start the first query."""
    spark_s: float
    """From there until the first commit: Spark's start of the query and its first batch."""
    batch_ms: Mapping[str, int]
    """What the first batch consisted of, by Spark's names; empty if that is not known."""

    def as_markdown(self) -> str:
        """Return it in a line."""
        parts = ", ".join(f"{name} {ms} ms" for name, ms in sorted(self.batch_ms.items()) if ms)
        return (
            f"Downtime: {self.total_s:.2f} s, of which {self.before_s:.2f} s before the window began, "
            f"{self.ours_s:.2f} s until Spark was told to start, {self.spark_s:.2f} s until its first commit"
            f"{f' ({parts})' if parts else ''}."
        )


def of_cutover(
    journal: CutoverJournal,
    old: Heartbeat | None,
    new: Heartbeat | None,
    *,
    began: str,
    seen: Mapping[str, Any],
) -> Downtime | None:
    """Return the downtime of a finished cutover; None if there was nothing to read.

    Args:
        journal: Its records.
        old: The last heartbeat of the old run.
        new: The heartbeat of the new one.
        began: The phase with which its window began.
        seen: The result of the phase that saw the first batch: ``first_commit_at_ms``, ``first_batch_ms``.
    """
    phase, first_ms = journal.read(began), seen.get("first_commit_at_ms")
    commits = [query.batch_committed_at_ms for query in old.queries.values()] if old is not None else []
    last_ms = max((at for at in commits if at is not None), default=None)
    if first_ms is None or last_ms is None or phase is None:
        return None
    starts = [query.started_at_ms for query in new.queries.values()] if new is not None else []
    window_ms = max(last_ms, phase.intent_at_ms)
    started_ms = min((at for at in starts if at is not None and at >= window_ms), default=first_ms)
    return Downtime(
        total_s=(first_ms - last_ms) / 1000,
        before_s=(window_ms - last_ms) / 1000,
        ours_s=(min(started_ms, first_ms) - window_ms) / 1000,
        spark_s=max(0, first_ms - started_ms) / 1000,
        batch_ms=seen.get("first_batch_ms") or {},
    )


def batch_ms(heartbeat: Heartbeat, before: Mapping[str, int]) -> dict[str, int]:
    """Return what the first batch of a run consisted of, as far as Spark has reported it; else nothing.

    Args:
        heartbeat: Of the new run.
        before: Query name -> last batch of the old run.
    """
    for name, query in sorted(heartbeat.queries.items()):
        pace = query.pace
        if pace is not None and pace.batch_id == before.get(name, -1) + 1:
            return {name: int(ms) for name, ms in pace.parts_ms.items()}
    return {}
