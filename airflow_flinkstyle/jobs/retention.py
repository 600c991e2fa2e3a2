"""Which savepoints a job still needs, and pruning or disposing of them with that in mind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.jobs.journal import has_ended, read_phases
from airflow_flinkstyle.jobs.old_records import prune_records
from airflow_flinkstyle.savepoint.blobs.owned import owners
from airflow_flinkstyle.savepoint.retention.dispose import dispose_savepoint
from airflow_flinkstyle.savepoint.retention.prune import prune

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from airflow_flinkstyle.jobs.journal import PhaseRecord
    from airflow_flinkstyle.protocol.board import JobBoard
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from airflow_flinkstyle.savepoint.retention.dispose import Disposed, Protection
    from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy
    from airflow_flinkstyle.savepoint.retention.prune import PruneReport
    from airflow_flinkstyle.types import Generation


def prune_job(
    board: JobBoard,
    repository: SavepointRepository,
    policy: RetentionPolicy,
    *,
    holder: str,
    dry_run: bool = False,
    wait_s: float = 300.0,
) -> PruneReport:
    """Dispose of what the policy does not keep and the job does not need; raises as ``prune`` does.

    Records of requests and processes that nobody asks for any more go too (``old_records``).
    """
    report = prune(
        repository,
        policy,
        in_use=lambda: savepoints_in_use(board, repository),
        holder=holder,
        dry_run=dry_run,
        wait_s=wait_s,
    )
    if not dry_run:
        prune_records(board, now_ms=now_ms())
    return report


def dispose_of(
    board: JobBoard,
    repository: SavepointRepository,
    savepoint_id: str,
    *,
    holder: str,
    despite: Collection[Protection] = (),
    wait_s: float = 300.0,
) -> Disposed:
    """Dispose of one savepoint unless the job needs it; raises as ``dispose_savepoint`` does."""
    return dispose_savepoint(
        repository,
        savepoint_id,
        in_use=lambda: savepoints_in_use(board, repository),
        holder=holder,
        despite=despite,
        wait_s=wait_s,
    )


def savepoints_in_use(
    board: JobBoard,
    repository: SavepointRepository,
    *,
    journals: Mapping[str, Sequence[PhaseRecord]] | None = None,
) -> dict[str, str]:
    """Return savepoint id -> who needs it: the run that may run, those that wait, and open migrations.

    Args:
        board: The job's records.
        repository: The job's savepoints.
        journals: Of its migrations and upgrades, where they were read before; None reads them.
    """
    owned = owners(repository)
    found: dict[str, str] = {}
    phases = read_phases(board.store, board.job) if journals is None else journals
    for savepoint_id, migration_id in _of_migrations(phases):
        found[savepoint_id] = f"migration or upgrade {migration_id} has not ended"
    current = board.current()
    named = current.value.generation if current else 0
    for generation in board.generations():
        if generation == named:
            found |= _of_current(board, generation, owned)
        elif generation > named:
            found |= _of_waiting(board, generation)
    return found


def _of_current(board: JobBoard, generation: Generation, owned: Collection[str]) -> dict[str, str]:
    """Return what the run that may run started from, and what it ended with."""
    found = {}
    order, slot = board.takeover_order(generation), board.heartbeat(generation)
    if order is not None and order.savepoint_id is not None and order.savepoint_id not in owned:
        found[order.savepoint_id] = f"generation {generation} started from it"
    if slot is not None and slot.value.savepoint_id is not None:
        found[slot.value.savepoint_id] = f"generation {generation} stopped with it"
    return found


def _of_waiting(board: JobBoard, generation: Generation) -> dict[str, str]:
    """Return what a run that has not taken over yet restores, unless it has ended for good.

    One that failed of a cause that may pass is started again as it is.
    """
    claim, order, slot = (
        board.claim(generation),
        board.takeover_order(generation),
        board.heartbeat(generation),
    )
    if slot is not None and slot.value.is_final:
        return {}
    if claim is not None and claim.is_drill:
        return {}  # it holds an intent while it restores, and needs it no longer than that
    wanted = [claim.prepare_savepoint_id if claim else None, order.savepoint_id if order else None]
    return {name: f"generation {generation} is to start from it" for name in wanted if name is not None}


def _of_migrations(journals: Mapping[str, Sequence[PhaseRecord]]) -> Iterator[tuple[str, str]]:
    """Yield the savepoints that journals without an end name, each with its migration."""
    for migration_id, phases in journals.items():
        if has_ended(phases):
            continue
        for phase in phases:
            for part in (phase.intent, phase.result or {}):
                if isinstance(part.get("savepoint_id"), str):
                    yield part["savepoint_id"], migration_id
