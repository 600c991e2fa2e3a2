"""``<job>/pins/<savepoint id>.json``: people's word that a savepoint stays, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.protocol.record import Record
from airflow_flinkstyle.savepoint.blobs.intents import hold_intent
from airflow_flinkstyle.savepoint.blobs.notes import note_key, read_notes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

_FOLDER = "pins"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin(Record):
    """Keeps a savepoint from every prune."""

    what: ClassVar[str] = "pin"

    reason: str
    by: str
    """Who pinned it, for people."""
    at_ms: int
    """Epoch milliseconds, UTC."""


def pin(
    repository: SavepointRepository,
    savepoint_id: str,
    *,
    reason: str,
    by: str,
    at_ms: int,
    wait_s: float = 600.0,
) -> Pin:
    """Pin a savepoint, or pin it anew for another reason.

    Args:
        repository: The job's savepoints.
        savepoint_id: Which one.
        reason: Why it is kept.
        by: Who pins it.
        at_ms: When, epoch milliseconds.
        wait_s: How long to wait for a prune to end.

    Raises:
        SavepointMissingError: If there is none of that id.
        RepositoryBusyError: If a prune has not ended in time.
        IntentBrokenError: If this process was taken for dead meanwhile; the savepoint may be gone.
    """
    if not reason.strip():
        raise BadInputError(
            f"Expected a reason to keep savepoint {savepoint_id}, found none.",
            state_after="Nothing was pinned.",
            remedy="Say why it is kept, for those who clean up later.",
        )
    made = Pin(reason=reason, by=by, at_ms=at_ms)
    with hold_intent(repository, "pin", holder=by, wait_s=wait_s) as held:
        repository.read(savepoint_id)
        repository.store.write(note_key(repository, _FOLDER, savepoint_id), made.to_bytes())
        held.require_alive()  # else a prune had read the pins before this one was there
    return made


def unpin(repository: SavepointRepository, savepoint_id: str) -> None:
    """Let retention decide on a savepoint again; one that is not pinned stays as it is."""
    repository.store.delete(note_key(repository, _FOLDER, savepoint_id))


def pins(repository: SavepointRepository) -> Mapping[str, Pin]:
    """Return all pins by savepoint id."""
    return read_notes(repository, _FOLDER, Pin)
