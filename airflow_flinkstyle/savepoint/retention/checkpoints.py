"""Checkpoints of earlier generations: freed once the job has no way back to them.

Each start from a savepoint copies the whole state into a folder of its own, and no run continues in the
earlier one once the new run has committed and a savepoint of it was verified. A savepoint shares no file with
a checkpoint, so a reference to a savepoint needs no folder. Freed checkpoints are recorded, so that a prune
checks only the remaining ones, however many there were.
"""

from __future__ import annotations

import logging
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.errors import BadInputError, FlinkstyleError
from airflow_flinkstyle.protocol.places import MARK_KEY, is_own
from airflow_flinkstyle.protocol.record import Record
from airflow_flinkstyle.savepoint.files.verified import verified_records
from airflow_flinkstyle.savepoint.repository.folder_cache import read_folder
from airflow_flinkstyle.savepoint.repository.summary import list_savepoints
from airflow_flinkstyle.storage.errors import StoreUnavailableError
from airflow_flinkstyle.types import Generation
from airflow_flinkstyle.wording import row, size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from airflow_flinkstyle.protocol.board import JobBoard
    from airflow_flinkstyle.protocol.records import Claim
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from airflow_flinkstyle.storage.base import ObjectStore

_THREADS = 16
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FreedCheckpoint(Record):
    """``freed/<generation>.json``: the checkpoint of this generation is gone, or never was."""

    what: ClassVar[str] = "record of a freed checkpoint"

    location: str
    size_bytes: int
    reason: str
    at_ms: int
    """Epoch milliseconds, UTC: for people."""
    claim_version: str
    """Of the generation's claim in this store. A claim of another version is another run's: a job whose
    ``runs`` were deleted by hand counts its generations from 1 again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OldCheckpoint:
    """A checkpoint location, and whether it is freed."""

    generations: tuple[Generation, ...]
    """Those that had it, the newest last: a later one may continue in a closed one's checkpoint."""
    location: str
    goes: bool
    reason: str
    """Why it goes or stays."""
    size_bytes: int | None = None
    """None if it was not measured, or cannot be seen from this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointAccess:
    """How one process reaches checkpoints."""

    open: Callable[[str], ObjectStore]
    """Raises ``BadInputError`` for a place that only Spark's own client reaches."""
    remove: Callable[[str, ObjectStore], None]
    """Removes a location with everything below it."""
    vouch: Callable[[Sequence[Generation]], None]
    """Raises ``FlinkstyleError`` unless a caller's record gives these generations the place."""


def plan_checkpoints(
    board: JobBoard, repository: SavepointRepository, *, needed_by: str | None = None
) -> tuple[OldCheckpoint, ...]:
    """Decide on every checkpoint that was not freed yet, the newest first.

    Args:
        board: The job's records.
        repository: Its savepoints.
        needed_by: What may still go back to an old one, and keeps them all; None if nothing does.
    """
    current = board.current()
    if current is None:
        return ()
    named, freed = current.value.generation, _freed(board)
    users: dict[str, list[tuple[Generation, Claim]]] = {}
    for generation, version in sorted(board.claim_versions().items()):
        claim = board.claim(generation) if freed.get(f"{generation:06d}") != version else None
        if claim is not None:
            users.setdefault(claim.checkpoint_location.rstrip("/"), []).append((generation, claim))
    proof = _proof(board, repository, named)
    found = []
    for location, claimed in users.items():
        generations = tuple(generation for generation, _ in claimed)
        why = _why_kept(generations, named, proof, needed_by)
        reason = (
            why or f"generation {proof[0]} has committed since, and savepoint {proof[1]} of it was verified"
        )
        found.append(
            OldCheckpoint(generations=generations, location=location, goes=why is None, reason=reason)
        )
    return tuple(sorted(found, key=lambda one: one.generations[-1], reverse=True))


def _why_kept(
    generations: tuple[Generation, ...], named: Generation, proof: tuple[int, str], needed_by: str | None
) -> str | None:
    last = generations[-1]
    if last >= named:
        return f"generation {last} runs in it, ran in it last, or is to run in it"
    if needed_by is not None:
        return f"{needed_by} has not ended"
    if last >= proof[0]:
        return "no savepoint was verified of a later generation that has committed a batch"
    return None


def _proof(board: JobBoard, repository: SavepointRepository, named: Generation) -> tuple[int, str]:
    """Return the newest generation that has committed and has a verified savepoint, and its id; 0 if none."""
    passed = verified_records(repository)
    taken: dict[int, str] = {}
    for one in list_savepoints(repository):
        if one.savepoint_id in passed and one.taken_from_generation is not None:
            taken.setdefault(one.taken_from_generation, one.savepoint_id)
    for number in sorted(taken, reverse=True):
        slot = board.heartbeat(Generation(number)) if number <= named else None
        if slot is not None and slot.value.has_committed:
            return number, taken[number]
    return 0, ""


def free_checkpoints(
    board: JobBoard, planned: Iterable[OldCheckpoint], place: CheckpointAccess, *, dry_run: bool
) -> tuple[OldCheckpoint, ...]:
    """Free what goes, and return each with its outcome; one that cannot be freed stays, with the reason."""
    return tuple(_free(board, one, place, dry_run=dry_run) if one.goes else one for one in planned)


def _free(board: JobBoard, old: OldCheckpoint, place: CheckpointAccess, *, dry_run: bool) -> OldCheckpoint:
    try:
        place.vouch(old.generations)
        store = place.open(old.location)
        if not is_own(store, board):
            if any(True for _ in store.folders()):
                return replace(old, goes=False, reason="it bears no mark of this job")
            return _gone_or_unseen(board, old, store, dry_run=dry_run)
        size_bytes = sum(info.size_bytes for info in store.list())
        if not dry_run:
            place.remove(old.location, store)
            _record(board, old, size_bytes)
        return replace(old, size_bytes=size_bytes)
    except BadInputError:
        return replace(old, goes=False, reason="only Spark's own client reaches it: the next driver frees it")
    except FlinkstyleError as error:
        return replace(old, goes=False, reason=f"it could not be freed: {error.code}: {error.problem}")


def _gone_or_unseen(
    board: JobBoard, old: OldCheckpoint, store: ObjectStore, *, dry_run: bool
) -> OldCheckpoint:
    """Tell a checkpoint that is gone from one on the disk of another machine."""
    path = store.local_path("x")
    if path is not None and not (path.parent.parent.is_dir() and _was_here(board, old)):
        return replace(old, goes=False, reason="it is not to be seen from here: the next driver frees it")
    if not dry_run:
        _record(board, old, 0)
    return replace(old, size_bytes=0)


def _was_here(board: JobBoard, old: OldCheckpoint) -> bool:
    """Return whether a folder without a mark means that the checkpoint is gone: no other machine has it.

    That is so if its driver ran on this machine, or if none ever started.
    """
    for generation in old.generations:
        processes = board.incarnations(generation)
        if not processes:
            if board.heartbeat(generation) is not None:  # records of old processes are deleted
                return False
            continue
        record = board.incarnation(generation, processes[-1])
        if record is None or record.host != socket.gethostname():
            return False
    return True


def _freed(board: JobBoard) -> Mapping[str, str]:
    """Return generation, as keys have it -> version of the claim whose checkpoint was freed."""

    def extract(_: str, data: bytes) -> str:
        return FreedCheckpoint.from_bytes(data).claim_version

    return read_folder(board, "freed", extract, unreadable=_log_unreadable)


def _log_unreadable(name: str, error: FlinkstyleError) -> None:
    log.warning("Whether the checkpoint of generation %s was freed is checked again: %s", name, error.problem)


def _record(board: JobBoard, old: OldCheckpoint, size_bytes: int) -> None:
    versions = board.claim_versions()
    for generation in reversed(old.generations):  # the first generation vouches for later locks
        record = FreedCheckpoint(
            location=old.location,
            size_bytes=size_bytes,
            reason=old.reason,
            at_ms=now_ms(),
            claim_version=versions.get(generation, ""),
        )
        board.store.write(f"{board.job}/freed/{generation:06d}.json", record.to_bytes())
    log.info("Checkpoint %s: %s freed; %s", old.location, size(size_bytes), old.reason)


def remove_all(location: str, store: ObjectStore) -> None:
    """Remove a checkpoint in a folder of this machine or in a bucket, the owner's mark last.

    Without the mark the files that remain after a crash would have no owner, and stay for ever.
    """
    path = store.local_path("x")
    if path is not None:
        _remove_folder(path.parent, location)
        return
    keys = [info.key for info in store.list() if info.key != MARK_KEY]
    with ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="checkpoints") as pool:
        list(pool.map(store.delete, keys))
    store.delete(MARK_KEY)


def _remove_folder(folder: Path, location: str) -> None:
    try:
        for child in folder.iterdir():
            if child.is_dir():
                shutil.rmtree(child)
        shutil.rmtree(folder)
    except OSError as error:
        raise StoreUnavailableError.during("delete", location, error) from error


def as_markdown(checkpoints: Iterable[OldCheckpoint]) -> str:
    """Return one row per checkpoint."""
    lines = ["| checkpoint of generation | decision | size | reason |", "|---|---|---|---|"]
    for one in checkpoints:
        taken = size(one.size_bytes) if one.size_bytes is not None else ""
        numbers = ", ".join(map(str, one.generations))
        lines.append(row((numbers, "free" if one.goes else "keep", taken, one.reason)))
    return "\n".join(lines)
