"""``<job>/verified/<savepoint id>.json``: which savepoints were checked, how deeply, and when."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.protocol.record import Record
from airflow_flinkstyle.savepoint.blobs.intents import hold_intent
from airflow_flinkstyle.savepoint.blobs.notes import note_key, read_notes
from airflow_flinkstyle.savepoint.blobs.prune_slot import Condemned, condemned_key
from airflow_flinkstyle.savepoint.errors import SavepointDamagedError
from airflow_flinkstyle.savepoint.files.transfer import ignore
from airflow_flinkstyle.savepoint.files.verify import Level, verify_savepoint

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from airflow_flinkstyle.savepoint.files.verify import Verified
    from airflow_flinkstyle.savepoint.progress import FileProgress
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

log = logging.getLogger(__name__)
_FOLDER = "verified"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedRecord(Record):
    """The newest check that a savepoint passed."""

    what: ClassVar[str] = "record of a check"

    level: Level
    at_ms: int
    """Epoch milliseconds, UTC."""


def record_verified(repository: SavepointRepository, verified: Verified, *, at_ms: int) -> VerifiedRecord:
    """Write down that a savepoint passed a check."""
    record = VerifiedRecord(level=verified.level, at_ms=at_ms)
    repository.store.write(note_key(repository, _FOLDER, verified.savepoint_id), record.to_bytes())
    return record


def forget_verified(repository: SavepointRepository, savepoint_id: str) -> None:
    """Take the word back: the savepoint was found damaged since."""
    repository.store.delete(note_key(repository, _FOLDER, savepoint_id))


def check_savepoint(
    repository: SavepointRepository,
    savepoint_id: str,
    *,
    level: Level,
    by: str,
    progress: Callable[[FileProgress], None] = ignore,
) -> Verified:
    """Check a savepoint, keep every prune off it meanwhile, and write down how it went.

    A file that was altered is relied on no more: the next savepoint stores its content again, and other
    savepoints that need it count as verified no more either.

    Args:
        repository: The job's savepoints.
        savepoint_id: Which one.
        level: How much to read.
        by: Who checks, for those who wait.
        progress: Told after each file of a full check.

    Raises:
        SavepointMissingError: If there is none of that id.
        SavepointDamagedError: If it is not whole; it counts as verified no more.
    """
    with hold_intent(repository, "verify", holder=by):
        try:
            manifest = repository.read(savepoint_id)
            verified = verify_savepoint(manifest, repository, level=level, progress=progress)
        except SavepointDamagedError as error:
            forget_verified(repository, savepoint_id)
            _distrust(repository, savepoint_id, error.altered, by=by)
            raise
        record_verified(repository, verified, at_ms=now_ms())
        return verified


def _distrust(
    repository: SavepointRepository, savepoint_id: str, altered: Collection[str], *, by: str
) -> None:
    """Let no later savepoint rely on altered blobs, and none that does count as verified."""
    if not altered:
        return
    listed = Condemned(holder=by, savepoints=(), blobs=tuple(sorted(altered)))
    try:
        repository.store.write(condemned_key(repository, f"altered-{savepoint_id}"), listed.to_bytes())
        for manifest in repository.each():
            if not manifest.blobs.keys().isdisjoint(altered):
                forget_verified(repository, manifest.savepoint_id)
    except FlinkstyleError as error:  # never in the way of what the check found
        log.warning("Other savepoints may still rely on the altered files of %s: %s", savepoint_id, error)


def verified_records(repository: SavepointRepository) -> Mapping[str, VerifiedRecord]:
    """Return the newest check of each savepoint that passed one, by savepoint id."""
    return read_notes(repository, _FOLDER, VerifiedRecord)
