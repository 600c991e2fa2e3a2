"""What a job keeps in its stores, how much that is, and why."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.retention import ended_references, open_journal, savepoints_in_use
from airflow_flinkstyle.protocol.head import read_line
from airflow_flinkstyle.protocol.line import Abandoned, batches_run
from airflow_flinkstyle.protocol.places import is_own
from airflow_flinkstyle.savepoint.blobs.needs import Needs
from airflow_flinkstyle.savepoint.blobs.references import references
from airflow_flinkstyle.savepoint.retention.checkpoints import plan_checkpoints
from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy, plan_retention
from airflow_flinkstyle.savepoint.retention.prune import read_contents
from airflow_flinkstyle.storage.open import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.protocol.board import JobBoard
    from airflow_flinkstyle.protocol.line import Line
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from airflow_flinkstyle.savepoint.retention.checkpoints import OldCheckpoint
    from airflow_flinkstyle.storage.base import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSavepoint:
    """A savepoint, and what it takes up."""

    savepoint_id: str
    size_bytes: int
    """Of all its files, however many savepoints share them."""
    own_bytes: int
    """Of the files that only it needs: freed with it."""
    reason: str
    """Why a prune without limits keeps it, or does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptReference:
    """A reference that keeps a savepoint."""

    savepoint_id: str
    holder: str
    by: str
    reason: str
    since_ms: int
    has_ended: bool
    """The next prune releases it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a job keeps."""

    job: str
    savepoints: tuple[KeptSavepoint, ...]
    """The newest first."""
    references: tuple[KeptReference, ...]
    checkpoints: tuple[OldCheckpoint, ...]
    """The newest first; those that cannot be read from here have no size."""
    blob_bytes: int
    """Of all files of savepoints, each counted once."""
    unneeded_bytes: int
    """Of files that no savepoint needs: the next prune frees them."""
    checkpoint_bytes: int
    """Of those that can be read from here."""

    @property
    def total_bytes(self) -> int:
        """Everything together."""
        return self.blob_bytes + self.checkpoint_bytes


def usage_of(
    board: JobBoard,
    repository: SavepointRepository,
    *,
    open_checkpoint: Callable[[str], ObjectStore] = open_store,
) -> Usage:
    """Measure everything that a job keeps; changes nothing.

    Raises:
        ManifestFormatError: If a manifest cannot be read, so that what it needs is unknown.
    """
    ended = ended_references(board, repository)
    contents = read_contents(repository, Needs(repository), savepoints_in_use(board, repository), ended)
    plan = plan_retention(repository.job, contents.candidates, RetentionPolicy(), now_ms=now_ms())
    times: dict[str, int] = {}
    for need in contents.needs.values():
        for blob, _ in need.blobs:
            times[blob] = times.get(blob, 0) + 1
    savepoints = tuple(
        KeptSavepoint(
            savepoint_id=one.savepoint_id,
            size_bytes=sum(size for _, size in contents.needs[one.savepoint_id].blobs),
            own_bytes=sum(size for blob, size in contents.needs[one.savepoint_id].blobs if times[blob] == 1),
            reason=one.reason,
        )
        for one in plan.decisions
    )
    held = tuple(
        KeptReference(
            savepoint_id=savepoint_id,
            holder=holder,
            by=one.by,
            reason=one.reason,
            since_ms=one.at_ms,
            has_ended=(savepoint_id, holder) in ended,
        )
        for savepoint_id, holders in references(repository).items()
        for holder, one in holders.items()
    )
    line = read_line(board)
    planned = plan_checkpoints(board, repository, needed_by=open_journal(board))
    checkpoints = tuple(_measured(_placed(one, board, line), board, open_checkpoint) for one in planned)
    return Usage(
        job=repository.job,
        savepoints=savepoints,
        references=held,
        checkpoints=checkpoints,
        blob_bytes=sum(contents.blob_sizes.values()),
        unneeded_bytes=contents.bytes_of(contents.orphans(())),
        checkpoint_bytes=sum(one.size_bytes or 0 for one in checkpoints),
    )


def _placed(one: OldCheckpoint, board: JobBoard, line: Line | None) -> OldCheckpoint:
    """Return a checkpoint; if a later start abandoned its last batches, its reason names that start."""
    last = one.generations[-1]
    slot = board.heartbeat(last) if line is not None and last < line.head else None
    if line is None or slot is None:
        return one
    where = line.where(last, batches_run(slot.value.batches().values()))
    return replace(one, reason=f"{one.reason}; {where}") if isinstance(where, Abandoned) else one


def _measured(
    one: OldCheckpoint, board: JobBoard, open_checkpoint: Callable[[str], ObjectStore]
) -> OldCheckpoint:
    """Return a checkpoint with its size, if this machine can read it, as the owner's mark shows."""
    try:
        place = open_checkpoint(one.location)
        sizes = [info.size_bytes for info in place.list()] if is_own(place, board) else []
    except FlinkstyleError:
        return one
    return replace(one, size_bytes=sum(sizes)) if sizes else one
