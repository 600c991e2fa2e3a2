"""``<job>/owned/<savepoint id>.json``: a job was restored from the savepoint in claim mode.

Claim mode means what it does in Flink: the savepoint belongs to the job that was restored from it, and goes
once a newer complete one has taken its place, without anybody disposing of it. In no-claim mode it stays
with whoever made it, under the ordinary retention.

The files are copied in both. Hard links would share them only on one file system, and only while nothing
ever opens one for writing: Spark uses the names ``N.zip``, ``N.changelog`` and ``N.delta`` again when it
runs a batch again, and whether that replaces the file or its content is up to the checkpoint's file manager.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from airflow_flinkstyle.protocol.record import Record
from airflow_flinkstyle.savepoint.blobs.notes import note_key, read_notes
from airflow_flinkstyle.savepoint.repository.stored import parse_stored

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

_FOLDER = "owned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner(Record):
    """Who was restored from the savepoint in claim mode."""

    what: ClassVar[str] = "record of an owner"

    by: str
    """For people: the run of the job, or the location restored to."""
    at_ms: int
    """Epoch milliseconds, UTC."""
    generation: int | None = None
    """The job's run that was restored from it; None if it was restored by hand, to a location."""


def claim_savepoint(
    repository: SavepointRepository, savepoint_id: str, *, by: str, at_ms: int, generation: int | None = None
) -> None:
    """Write down who owns a savepoint from now on; the same owner does since the first time."""
    key = note_key(repository, _FOLDER, savepoint_id)
    found = repository.store.get(key)
    if found is None or parse_stored(Owner, repository, key, found.data).by != by:
        repository.store.write(key, Owner(by=by, at_ms=at_ms, generation=generation).to_bytes())


def owners(repository: SavepointRepository) -> Mapping[str, Owner]:
    """Return the owner of each savepoint that has one, by savepoint id."""
    return read_notes(repository, _FOLDER, Owner)
