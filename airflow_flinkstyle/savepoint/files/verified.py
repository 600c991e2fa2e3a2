"""Which savepoints were checked, at which level, when, and with which result.

``<job>/verified/<savepoint id>.json`` of those that passed, ``<job>/damaged/...`` of those that did not. The
latter outweighs the former: the checking process may have no right to delete.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.protocol.record import Record
from airflow_flinkstyle.savepoint.blobs.intents import hold_intent
from airflow_flinkstyle.savepoint.blobs.notes import note_key, read_notes
from airflow_flinkstyle.savepoint.blobs.prune_slot import (
    Condemned,
    condemned_blobs,
    condemned_key,
    read_condemned,
)
from airflow_flinkstyle.savepoint.errors import SavepointDamagedError
from airflow_flinkstyle.savepoint.files.transfer import ignore
from airflow_flinkstyle.savepoint.files.verify import Level, verify_savepoint
from airflow_flinkstyle.savepoint.repository.stored import parse_stored
from airflow_flinkstyle.storage.errors import StoreDeniedError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from airflow_flinkstyle.savepoint.blobs.intents import Held
    from airflow_flinkstyle.savepoint.files.verify import Verified
    from airflow_flinkstyle.savepoint.manifest import Manifest, StoredAt
    from airflow_flinkstyle.savepoint.progress import FileProgress
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from airflow_flinkstyle.savepoint.repository.summary import Summary

log = logging.getLogger(__name__)
_FOUND_SHOWN = 500
_PASSED, _FAILED = "verified", "damaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedRecord(Record):
    """The newest check that a savepoint passed."""

    what: ClassVar[str] = "record of a check"

    level: Level
    at_ms: int
    """Epoch milliseconds, UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedRecord(Record):
    """The newest check that a savepoint did not pass."""

    what: ClassVar[str] = "record of a failed check"

    level: Level
    at_ms: int
    """Epoch milliseconds, UTC."""
    found: str | None
    """The first finding, for people; None once the savepoint has passed a check again."""


def record_verified(repository: SavepointRepository, verified: Verified, *, at_ms: int) -> None:
    """Record that a savepoint passed a check, whatever an earlier one has found."""
    record = VerifiedRecord(level=verified.level, at_ms=at_ms)
    repository.store.write(note_key(repository, _PASSED, verified.savepoint_id), record.to_bytes())
    key = note_key(repository, _FAILED, verified.savepoint_id)
    if repository.store.get(key) is not None:
        cleared = DamagedRecord(level=verified.level, at_ms=at_ms, found=None)
        repository.store.write(key, cleared.to_bytes())


def record_damaged(repository: SavepointRepository, savepoint_id: str, level: Level, found: str) -> None:
    """Record that a savepoint did not pass a check; it no longer counts as verified."""
    record = DamagedRecord(level=level, at_ms=now_ms(), found=found[:_FOUND_SHOWN])
    repository.store.write(note_key(repository, _FAILED, savepoint_id), record.to_bytes())
    with suppress(StoreDeniedError):  # for readers that do not know the damaged record
        repository.store.delete(note_key(repository, _PASSED, savepoint_id))


def publish_trusted(held: Held, repository: SavepointRepository, manifest: Manifest) -> None:
    """Publish a savepoint; if it relies on a blob that was found altered meanwhile, it counts as damaged.

    Who finds one lists it in ``condemned/``, then looks for savepoints that need it; here the savepoint is
    published, then the lists are read. So one of both sees the other.

    Raises:
        SavepointDamagedError: If it does.
        SavepointError: As ``Held.publish``.
    """
    held.publish(repository, manifest)
    lost = sorted(manifest.blobs.keys() & (condemned_blobs(repository) - held.avoided))
    if lost:
        found = f"blob {lost[0]}, which it shares with others, was found altered while it was made"
        record_damaged(repository, manifest.savepoint_id, "full", found)
        error = SavepointDamagedError.of(manifest.savepoint_id, [found], state_after="It counts as damaged.")
        raise error.rephrased(remedy="Take another one: that stores the file again.")


def check_savepoint(
    repository: SavepointRepository,
    savepoint_id: str,
    *,
    level: Level,
    by: str,
    progress: Callable[[FileProgress], None] = ignore,
) -> Verified:
    """Check a savepoint while no prune can delete from it, and record the result.

    No later savepoint relies on an altered file: the next one stores its content again, and other savepoints
    that need the file no longer count as verified either.

    Args:
        repository: The job's savepoints.
        savepoint_id: Which one.
        level: How much to read.
        by: Who checks, for the messages of processes that wait.
        progress: Called after each file of a full check.

    Raises:
        SavepointMissingError: If there is none of that id.
        SavepointDamagedError: If it is not whole; it no longer counts as verified. Also if a full check has
            found so, and this one would not see it.
    """
    with hold_intent(repository, "verify", holder=by):
        try:
            manifest = repository.read(savepoint_id)
            verified = verify_savepoint(manifest, repository, level=level, progress=progress)
        except SavepointDamagedError as error:
            record_damaged(repository, savepoint_id, level, error.first)
            _distrust(repository, savepoint_id, error.altered, level, by=by)
            raise
        if level != "full":
            _require_no_full_finding(repository, savepoint_id)
        record_verified(repository, verified, at_ms=now_ms())
        return verified


def _require_no_full_finding(repository: SavepointRepository, savepoint_id: str) -> None:
    failed = damage_of(repository, savepoint_id)
    if failed is not None and failed.level == "full":
        error = SavepointDamagedError.of(
            savepoint_id, [str(failed.found)], state_after="Nothing has changed."
        )
        remedy = "Only a full check sees whether it is whole again; else take another savepoint."
        raise error.rephrased(remedy=remedy)


def _distrust(
    repository: SavepointRepository,
    savepoint_id: str,
    altered: Collection[StoredAt],
    level: Level,
    *,
    by: str,
) -> None:
    """Let no later savepoint rely on altered blobs, and no savepoint that needs them count as verified."""
    if not altered:
        return
    listed = Condemned(holder=by, savepoints=(), blobs=tuple(sorted({blob for blob, _, _ in altered})))
    try:
        repository.store.write(condemned_key(repository, f"altered-{savepoint_id}"), listed.to_bytes())
        for manifest in repository.each():
            if manifest.savepoint_id != savepoint_id and not manifest.contents.keys().isdisjoint(altered):
                found = f"a file that it shares with {savepoint_id} was altered"
                record_damaged(repository, manifest.savepoint_id, level, found)
    except FlinkstyleError as error:  # the check's own finding matters more
        log.warning("Other savepoints may still rely on the altered files of %s: %s", savepoint_id, error)


def distrust_packs(
    repository: SavepointRepository, mended: Manifest, packs: Collection[str], *, by: str
) -> None:
    """Let no later savepoint rely on packs that are mended only for what one savepoint needs.

    Other savepoints that need more of them no longer count as verified: the packs have their sizes again, so
    only a full check would find the damage.
    """
    key = condemned_key(repository, f"mended-{mended.savepoint_id}")
    before = read_condemned(repository, key)  # of an earlier import, which mended another pack
    blobs = sorted({*packs, *(before.blobs if before is not None else ())})
    repository.store.write(key, Condemned(holder=by, savepoints=(), blobs=tuple(blobs)).to_bytes())
    for manifest in repository.each():
        lost = [place for place in manifest.contents.keys() - mended.contents.keys() if place[0] in packs]
        if lost:
            found = f"{len(lost)} files were lost with a pack that it shares with {mended.savepoint_id}"
            record_damaged(repository, manifest.savepoint_id, "full", found)


def verified_records(repository: SavepointRepository) -> Mapping[str, VerifiedRecord]:
    """Return the newest check of each savepoint that passed its last one, by savepoint id."""
    passed, failed = read_notes(repository, _PASSED, VerifiedRecord), damaged_records(repository)
    return {savepoint_id: one for savepoint_id, one in passed.items() if savepoint_id not in failed}


def damage_of(repository: SavepointRepository, savepoint_id: str) -> DamagedRecord | None:
    """Return the newest check of one savepoint if it did not pass; reads no other's."""
    key = note_key(repository, _FAILED, savepoint_id)
    noted = repository.store.get(key)
    failed = parse_stored(DamagedRecord, repository, key, noted.data) if noted is not None else None
    return failed if failed is not None and failed.found is not None else None


def why_stale(repository: SavepointRepository, newest: Summary | None, max_age_s: float) -> str | None:
    """Return why the newest savepoint is too old to go back to, or damaged; None if it is neither."""
    if newest is None:
        return "none at all"
    if not newest.is_at_most(max_age_s):
        return f"the newest one, {newest.savepoint_id}, is older"
    damage = damage_of(repository, newest.savepoint_id)
    return None if damage is None else f"the newest one, {newest.savepoint_id}, is damaged: {damage.found}"


def damaged_records(repository: SavepointRepository) -> Mapping[str, DamagedRecord]:
    """Return the newest check of each savepoint that did not pass its last one, by savepoint id."""
    noted = read_notes(repository, _FAILED, DamagedRecord)
    return {savepoint_id: one for savepoint_id, one in noted.items() if one.found is not None}
