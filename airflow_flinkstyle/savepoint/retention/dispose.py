"""Dispose of one savepoint, by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from airflow_flinkstyle.clock import CLOCK, Clock
from airflow_flinkstyle.savepoint.blobs.garbage_collection import hold_prune
from airflow_flinkstyle.savepoint.blobs.leases import LEASE_S
from airflow_flinkstyle.savepoint.blobs.needs import Needs
from airflow_flinkstyle.savepoint.errors import SAVEPOINT_PROTECTED
from airflow_flinkstyle.savepoint.retention.policy import last_good_of
from airflow_flinkstyle.savepoint.retention.prune import read_contents
from airflow_flinkstyle.storage.versions import versioning_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from airflow_flinkstyle.savepoint.retention.prune import Contents

Protection = Literal["pinned", "in_use", "last_good"]
PROTECTIONS: tuple[Protection, ...] = ("pinned", "in_use", "last_good")


@dataclass(frozen=True, slots=True, kw_only=True)
class Disposed:
    """A savepoint that is gone."""

    savepoint_id: str
    freed_blobs: int
    """Blobs that only this savepoint needed."""
    freed_bytes: int
    """0 where the bucket keeps versions: they are freed once these expire."""
    noncurrent_bytes: int = 0
    """Deleted, and kept by the bucket as noncurrent versions."""


def dispose_savepoint(
    repository: SavepointRepository,
    savepoint_id: str,
    *,
    in_use: Callable[[], Mapping[str, str]],
    holder: str,
    despite: Collection[Protection] = (),
    wait_s: float = 300.0,
    lease_s: float = LEASE_S,
    clock: Clock = CLOCK,
) -> Disposed:
    """Dispose of a savepoint, and free the blobs that only it needed.

    Args:
        repository: The job's savepoints.
        savepoint_id: Which one.
        in_use: Returns savepoint id -> who needs it; called when no process can begin to rely on one.
        holder: Who disposes of it, for the messages of processes that wait.
        despite: Protections to override, each by its name.
        wait_s: How long to wait for takes, restores and exports to end.
        lease_s: After so long without a renewal another process may take over.
        clock: The clock of the wait.

    Raises:
        SavepointMissingError: If there is none of that id (any more).
        FlinkstyleError: ``SAVEPOINT_PROTECTED`` if it is pinned, in use, or the last good one; nothing was
            deleted.
        RepositoryBusyError: If a process still relied on blobs after ``wait_s``.
    """
    needs = Needs(repository)
    needs.read()  # before others have to wait
    with hold_prune(repository, holder=holder, wait_s=wait_s, lease_s=lease_s, clock=clock) as held:
        manifest = repository.read(savepoint_id)
        contents = read_contents(repository, needs, in_use())
        for protection, why in _protections(contents, savepoint_id).items():
            if protection not in despite:
                raise SAVEPOINT_PROTECTED.error(savepoint_id=savepoint_id, protection=protection, why=why)
        freed = contents.orphans({savepoint_id}) & manifest.blobs.keys()
        held.delete(savepoints=[savepoint_id], blobs=freed)
    deleted_bytes, stays = contents.bytes_of(freed), versioning_of(repository.store) is not None
    return Disposed(
        savepoint_id=savepoint_id,
        freed_blobs=len(freed),
        freed_bytes=0 if stays else deleted_bytes,
        noncurrent_bytes=deleted_bytes if stays else 0,
    )


def _protections(contents: Contents, savepoint_id: str) -> dict[Protection, str]:
    newest_first = contents.candidates
    (own,) = (found for found in newest_first if found.savepoint_id == savepoint_id)
    found: dict[Protection, str] = {}
    if own.pinned is not None:
        found["pinned"] = f"it is pinned {own.pinned}"
    if own.in_use is not None:
        found["in_use"] = f"it is in use: {own.in_use}"
    others = [candidate for candidate in newest_first if candidate is not own]
    before, after = last_good_of(newest_first), last_good_of(others)
    if own.beside is None:  # an abandoned savepoint replaces none on the line
        after = tuple(one for one in after if one.beside is None)
    if own.is_whole and not after:
        found["last_good"] = f"it is the last complete{' and verified' if own.verified else ''} one"
    elif own in before and own.verified and not any(one.verified for one in after):
        found["last_good"] = "it is the last complete and verified one"
    return found
