"""``<job>/prune.json``: who frees blobs; ``<job>/condemned/<id>.json``: which.

The slot is never deleted, only replaced if unchanged, so that nobody who wakes late can give away what
another holds. A list of the condemned is written before the first delete, and removed by its writer after
the last one. Where the writer was given up it stays: nobody knows whether that process will wake, so no
new savepoint may rely on a key that is in one.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.protocol.record import Record
from airflow_flinkstyle.savepoint.blobs.leases import Leased, Seen
from airflow_flinkstyle.savepoint.repository.stored import parse_stored
from airflow_flinkstyle.storage.base import write_over
from airflow_flinkstyle.storage.errors import ObjectChangedError, ObjectExistsError
from airflow_flinkstyle.storage.keys import Name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneSlot(Leased):
    """``prune.json``; free if it has no holder."""

    what: ClassVar[str] = "prune"

    prune_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Condemned(Record):
    """``condemned/<prune id>.json``: what one prune is deleting; ``altered-<savepoint id>``: what is bad."""

    what: ClassVar[str] = "list of condemned blobs"

    holder: str | None
    """Once this process has certainly ended, a list that was left can be deleted by hand."""
    savepoints: tuple[Name, ...]
    """Ids whose manifests may still be deleted; empty once they were tombstoned."""
    blobs: tuple[str, ...]


def read_slot(repository: SavepointRepository) -> Seen[PruneSlot] | None:
    """Return the slot, or None if nobody ever held it."""
    key = slot_key(repository)
    found = repository.store.get(key)
    if found is None:
        return None
    return Seen(record=parse_stored(PruneSlot, repository, key, found.data), version=found.version)


def take_slot(
    repository: SavepointRepository, seen: Seen[PruneSlot] | None, *, holder: str, lease_s: float
) -> Seen[PruneSlot] | None:
    """Take the slot as it was seen, free or expired; returns None if somebody else was first."""
    mine = PruneSlot(prune_id=uuid.uuid4().hex, holder=holder, lease_s=lease_s, begun_at_ms=now_ms())
    key, store = slot_key(repository), repository.store
    try:
        version = write_over(store, key, mine.to_bytes(), seen=seen.version if seen else None)
    except (ObjectExistsError, ObjectChangedError):
        return None
    if seen is not None and seen.record.holder is not None:
        log.warning("Gave up the %s: it was not renewed for %g s", seen.record, seen.record.lease_s)
        _tombstone_condemned(repository)
    return Seen(record=mine, version=version)


def free_slot(repository: SavepointRepository, taken: Seen[PruneSlot]) -> None:
    """Give the slot back, unless it was given up."""
    free = replace(taken.record, holder=None)
    try:
        repository.store.replace(slot_key(repository), free.to_bytes(), expected=taken.version)
    except ObjectChangedError:
        log.warning("The %s was given up", taken.record)


def condemned_blobs(repository: SavepointRepository) -> frozenset[str]:
    """Return the blobs that somebody may still delete."""
    return frozenset(blob for _, condemned, _ in _condemned(repository) for blob in condemned.blobs)


def slot_key(repository: SavepointRepository) -> str:
    """Return the key of the slot."""
    return f"{repository.job}/prune.json"


def condemned_key(repository: SavepointRepository, prune_id: str) -> str:
    """Return the key of one prune's list."""
    return f"{repository.job}/condemned/{prune_id}.json"


def _tombstone_condemned(repository: SavepointRepository) -> None:
    """Dispose of the savepoints of which the prune that was given up may still delete the blobs."""
    for key, condemned, version in _condemned(repository):
        for savepoint_id in condemned.savepoints:
            repository.dispose_with_tombstone(savepoint_id, "a prune that was given up was disposing of it")
        try:
            tombstoned = replace(condemned, savepoints=())
            repository.store.replace(key, tombstoned.to_bytes(), expected=version)
        except ObjectChangedError:
            log.info("%s was changed by another process", key)


def _condemned(repository: SavepointRepository) -> Iterator[tuple[str, Condemned, str]]:
    for info in repository.store.list(f"{repository.job}/condemned/"):
        found = repository.store.get(info.key)
        if found is not None:
            yield info.key, parse_stored(Condemned, repository, info.key, found.data), found.version
