"""``<job>/prune.json``: who frees blobs; ``<job>/condemned/<id>.json``: which.

The slot is never deleted, only replaced if unchanged, so that a process that wakes late cannot free a slot
that another holds. A list of condemned blobs is written before the first delete, and removed by its writer
after the last one. As long as a list is there, a delete may still be under way, so no new savepoint relies on
a key that is in one. The savepoints in a list count as condemned only while its writer, or the process that
took the slot from the writer, holds the slot. A writer that gives the slot back has disposed of them, or its
delete was certainly refused: such a savepoint stays an ordinary one, and may have been pinned since.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.protocol.record import Record
from airflow_flinkstyle.savepoint.blobs.leases import Leased, LeasedRecord
from airflow_flinkstyle.savepoint.repository.stored import parse_stored
from airflow_flinkstyle.storage.base import write_over
from airflow_flinkstyle.storage.errors import ObjectChangedError, ObjectExistsError
from airflow_flinkstyle.storage.keys import Name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneSlot(Leased):
    """``prune.json``; free if it has no holder."""

    what: ClassVar[str] = "prune"

    prune_id: str
    in_force: tuple[str, ...] = ()
    """Prunes that were given up, the newest last: the holder disposes of the savepoints in their lists."""

    def freed(self) -> PruneSlot:
        """Return the slot as it is given back."""
        return replace(self, holder=None, in_force=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Condemned(Record):
    """``condemned/<prune id>.json``: what one prune is deleting.

    ``altered-<savepoint id>.json`` and ``mended-<savepoint id>.json``: blobs that are, or may be, damaged.
    """

    what: ClassVar[str] = "list of condemned blobs"

    holder: str | None
    """Once this process has certainly ended, a list that is still there can be deleted by hand."""
    savepoints: tuple[Name, ...]
    """Ids that the prune disposes of; they count only while the slot names the prune."""
    blobs: tuple[str, ...]


def read_slot(repository: SavepointRepository) -> LeasedRecord[PruneSlot] | None:
    """Return the slot; None if it was never held."""
    key = slot_key(repository)
    found = repository.store.get(key)
    if found is None:
        return None
    return LeasedRecord(record=parse_stored(PruneSlot, repository, key, found.data), version=found.version)


def take_slot(
    repository: SavepointRepository, seen: LeasedRecord[PruneSlot] | None, *, holder: str, lease_s: float
) -> LeasedRecord[PruneSlot] | None:
    """Take the slot as it was seen, free or expired; returns None if another process was first."""
    gave_up = (*seen.record.in_force, seen.record.prune_id) if seen and seen.record.holder is not None else ()
    mine = PruneSlot(
        prune_id=uuid.uuid4().hex, holder=holder, lease_s=lease_s, begun_at_ms=now_ms(), in_force=gave_up
    )
    key, store = slot_key(repository), repository.store
    try:
        version = write_over(store, key, mine.to_bytes(), seen=seen.version if seen else None)
    except (ObjectExistsError, ObjectChangedError):
        return None
    if seen is not None and gave_up:
        log.warning("Gave up the %s: it was not renewed for %g s", seen.record, seen.record.lease_s)
        _end_disposals(repository, gave_up)
    return LeasedRecord(record=mine, version=version)


def free_slot(repository: SavepointRepository, taken: LeasedRecord[PruneSlot]) -> None:
    """Give the slot back, unless it was given up."""
    try:
        repository.store.replace(
            slot_key(repository), taken.record.freed().to_bytes(), expected=taken.version
        )
    except ObjectChangedError:
        log.warning("The %s was given up", taken.record)


def condemned_blobs(repository: SavepointRepository) -> frozenset[str]:
    """Return the blobs that a prune may still delete, or that may be damaged."""
    folder = f"{repository.job}/condemned/"
    lists = (read_condemned(repository, info.key) for info in repository.store.list(folder))
    return frozenset(blob for found in lists if found is not None for blob in found.blobs)


def slot_key(repository: SavepointRepository) -> str:
    """Return the key of the slot."""
    return f"{repository.job}/prune.json"


def condemned_key(repository: SavepointRepository, prune_id: str) -> str:
    """Return the key of one prune's list."""
    return f"{repository.job}/condemned/{prune_id}.json"


def _end_disposals(repository: SavepointRepository, prune_ids: Sequence[str]) -> None:
    """Dispose of the savepoints of which prunes that were given up may still delete manifests and blobs."""
    for prune_id in prune_ids:
        condemned = read_condemned(repository, condemned_key(repository, prune_id))
        for savepoint_id in condemned.savepoints if condemned is not None else ():
            repository.dispose_with_tombstone(savepoint_id, "a prune that was given up was disposing of it")


def read_condemned(repository: SavepointRepository, key: str) -> Condemned | None:
    """Return one list; None if there is none under that key."""
    found = repository.store.get(key)
    return parse_stored(Condemned, repository, key, found.data) if found is not None else None
