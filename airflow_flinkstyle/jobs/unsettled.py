"""Migrations and upgrades that were begun and not ended: any caller may finish or undo them.

Nothing here needs the DAG run that began one: the job's journals hold everything.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.errors import MIGRATION_BUSY
from airflow_flinkstyle.jobs.journal import read_unrested
from airflow_flinkstyle.jobs.migration import fence_phase
from airflow_flinkstyle.jobs.upgrade.upgrade import resumed as resumed_upgrade

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.jobs.client import JobClient
    from airflow_flinkstyle.jobs.cutover.context import Settled
    from airflow_flinkstyle.jobs.migration.cutover import Cutover
    from airflow_flinkstyle.jobs.migration.producers import Released
    from airflow_flinkstyle.jobs.view import JobView
    from airflow_flinkstyle.protocol.board import JobBoard
    from airflow_flinkstyle.protocol.records import WorkRecord

log = logging.getLogger(__name__)
_POLL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsettled:
    """A migration or an upgrade that was begun and has not ended."""

    migration_id: str
    work: WorkRecord
    """The newest sign of life of the caller that works on it, or did."""
    version: str
    """Of that record."""
    phases: tuple[str, ...]
    """The phases that were begun, in order."""
    begun_at_ms: int

    def __str__(self) -> str:
        """Name it as a message does."""
        return f"{self.work.cutover} {self.migration_id} (in phase {self.phases[-1]})"


def find_unsettled(board: JobBoard) -> list[Unsettled]:
    """Return the migrations and upgrades of a job that were begun and have not ended, the oldest first."""
    found = []
    for migration_id, phases in read_unrested(board.store, board.job).items():
        work = board.work(migration_id)
        if work is None:  # it is an adoption
            continue
        begun = sorted(phases, key=lambda one: one.intent_at_ms)
        found.append(
            Unsettled(
                migration_id=migration_id,
                work=work.value,
                version=work.version,
                phases=tuple(one.phase for one in begun),
                begun_at_ms=begun[0].intent_at_ms,
            )
        )
    return sorted(found, key=lambda one: one.begun_at_ms)


def is_abandoned(runs: JobView, found: Unsettled) -> bool:
    """Return whether nobody works on it; watches for its lease, or until its holder writes."""
    wait = runs.clock.wait(found.work.lease_s, every_s=min(_POLL_S, found.work.lease_s / 10))
    while wait.again():
        work = runs.board.work(found.migration_id)
        if work is None or work.version != found.version:
            return False
    return True


def settle(
    client: JobClient, found: Unsettled, *, migration: Callable[[str], Cutover], afresh: bool = False
) -> Settled:
    """Finish it if the next driver has the job; else bring the job back to where it ran.

    Args:
        client: Of the job.
        found: The migration or upgrade.
        migration: Returns the migration of an id.
        afresh: Do not wait to see whether another caller works on it; if one does, it is replaced.

    Raises:
        JobError: ``MIGRATION_BUSY`` if another caller works on it.
    """
    if not afresh and not is_abandoned(client.view, found):
        raise MIGRATION_BUSY.with_text(
            f"Nobody was expected to work on {found} of job {client.view.job}, found that "
            f"{found.work.holder} does.",
            state_after="Nothing was changed; the other one continues.",
            remedy="Wait until it has ended. If it hangs, end it (in Airflow: mark its task as failed), or "
            "settle this without waiting for that (flinkstyle migration settle --now).",
        )
    log.warning("Settling %s of job %s", found, client.view.job)
    if found.work.cutover == "upgrade":
        return resumed_upgrade(client, found.migration_id).settle()
    return migration(found.migration_id).settle()


def release(moved: Cutover, to: Literal["old", "new"] | None = None) -> Released:
    """Release the producers of a migration; starts and stops nothing. A caller that works on it is replaced.

    Args:
        moved: The migration.
        to: Where they are to write; None: where the job runs.

    Returns:
        The position that was applied.

    Raises:
        BadInputError: If ``to`` is None and it is not decided yet where the job runs.
    """
    moved.begin()
    if to is None:
        to = _where_it_runs(moved)
    if to == "old":
        fence_phase.drop_fence(moved.journal, moved.kafka.watch)
    position: Released = "release_new" if to == "new" else "release_old"
    moved.hold.release(position)
    return position


def _where_it_runs(moved: Cutover) -> Literal["old", "new"]:
    current, new = moved.client.view.board.current(), moved.new
    holder = current.value.generation if current is not None else None
    if moved.journal.result("takeover") is not None or holder == new is not None:
        return "new"
    if new is None or moved.client.view.board.takeover_order(new) is None:
        return "old"
    raise BadInputError(
        f"It was expected to be decided which driver of job {moved.client.view.job} runs, found that "
        f"generation {new} was ordered to take over and has not.",
        state_after="Producers are as they were.",
        remedy="Settle the migration, which decides it (flinkstyle migration settle); or choose where "
        "producers are to write.",
    )
