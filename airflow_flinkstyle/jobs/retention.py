"""Which savepoints a job still needs; prunes and disposes of the others."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.errors import SignatureError
from airflow_flinkstyle.jobs.journal import has_ended, is_under_way, open_since_ms, read_phases
from airflow_flinkstyle.jobs.signing import Signer
from airflow_flinkstyle.protocol.comparison_records import Comparison
from airflow_flinkstyle.protocol.records import End, Progress
from airflow_flinkstyle.protocol.rehearsal_records import Rehearsal
from airflow_flinkstyle.savepoint.blobs.references import forget, references
from airflow_flinkstyle.savepoint.repository.folder_cache import read_folder
from airflow_flinkstyle.savepoint.retention.checkpoints import (
    CheckpointAccess,
    free_checkpoints,
    plan_checkpoints,
    remove_all,
)
from airflow_flinkstyle.savepoint.retention.dispose import dispose_savepoint
from airflow_flinkstyle.savepoint.retention.prune import prune
from airflow_flinkstyle.storage.open import open_store
from airflow_flinkstyle.types import Generation

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from airflow_flinkstyle.errors import FlinkstyleError
    from airflow_flinkstyle.jobs.journal import PhaseRecord
    from airflow_flinkstyle.protocol.board import JobBoard
    from airflow_flinkstyle.protocol.records import Heartbeat
    from airflow_flinkstyle.savepoint.blobs.references import Reference
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from airflow_flinkstyle.savepoint.retention.dispose import Disposed, Protection
    from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy
    from airflow_flinkstyle.savepoint.retention.prune import PruneReport
    from airflow_flinkstyle.storage.base import ObjectStore

log = logging.getLogger(__name__)


def prune_job(
    board: JobBoard,
    repository: SavepointRepository,
    policy: RetentionPolicy,
    *,
    holder: str,
    dry_run: bool = False,
    wait_s: float = 300.0,
    signer: Signer | None = None,
    open_checkpoint: Callable[[str], ObjectStore] = open_store,
) -> PruneReport:
    """Dispose of what the policy does not keep and the job does not need; raises as ``prune`` does.

    Checkpoints that no run can go back to are freed, if ``signer`` verifies their locations. Old records of
    requests and processes are deleted too (``prune_records``).
    """
    report = prune(
        repository,
        policy,
        in_use=lambda: savepoints_in_use(board, repository),
        ended=lambda: ended_references(board, repository),
        holder=holder,
        dry_run=dry_run,
        wait_s=wait_s,
    )
    old = plan_checkpoints(board, repository, needed_by=open_journal(board))
    place = CheckpointAccess(
        open=open_checkpoint, remove=remove_all, vouch=partial(_vouch, board, signer or Signer())
    )
    report = replace(report, checkpoints=free_checkpoints(board, old, place, dry_run=dry_run))
    if not dry_run:
        release_ended(board, repository)
        prune_records(board, now_ms=now_ms())
    return report


def _vouch(board: JobBoard, signer: Signer, generations: Sequence[Generation]) -> None:
    """Require that a caller with the key wrote the checkpoint location of these generations.

    A lock is not signed. It has the location of an earlier run, so it never names one alone.

    Raises:
        SignatureError: If no caller did.
    """
    signed = False
    for generation in generations:
        claim, data = board.claim(generation), board.claim_data(generation)
        if claim is not None and data is not None and claim.launch:
            signer.require(data, board.claim_place(generation))
            signed = True
    if not signed:
        numbers = ", ".join(map(str, generations))
        raise SignatureError(
            f"A signed claim of generation {numbers} was expected, found locks only.",
            state_after="The location that they name was not touched.",
            remedy="Find out who wrote there.",
        )


def open_journal(board: JobBoard) -> str | None:
    """Name a migration or an upgrade that is under way, and may be undone; None if there is none."""
    phases = read_phases(board.store, board.job)
    begun = sorted(name for name, records in phases.items() if is_under_way(records))
    return f"migration or upgrade {begun[0]}" if begun else None


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
    """Return savepoint id -> who needs it: runs that refer to it, the stop of the last one, open migrations.

    Args:
        board: The job's records.
        repository: The job's savepoints.
        journals: Of its migrations and upgrades, where they were read before; None reads them.
    """
    found: dict[str, str] = {}
    phases = read_phases(board.store, board.job) if journals is None else journals
    for savepoint_id, migration_id in _of_migrations(phases):
        found[savepoint_id] = f"migration or upgrade {migration_id} has not ended"
    current = board.current()
    for one in held_by_runs(board, repository, current.value.head if current else 0):
        if one.why is not None:
            found[one.savepoint_id] = one.why
    home = board.home()
    if (
        home is not None
        and home.value.savepoint_id
        and home.value.binds(current.value.head if current else None)
    ):
        kept = (
            "is to continue from it"
            if home.value.state == "adopted"
            else "was given back to plain Spark with it"
        )
        found[home.value.savepoint_id] = f"the job {kept}"
    slot = board.heartbeat(current.value.generation) if current is not None else None
    if current is not None and slot is not None and slot.value.savepoint_id is not None:
        found[slot.value.savepoint_id] = f"generation {current.value.generation} stopped with it"
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldByRun:
    """A reference of a run to a savepoint, and why that run needs it."""

    savepoint_id: str
    holder: str
    reference: Reference
    why: str | None
    """Why the savepoint is needed; None if the need has ended, or the run may dispose of it itself."""
    is_owned: bool = False
    """Claim mode, and the run has committed a batch."""

    @property
    def is_released(self) -> bool:
        """Whether the reference is no longer needed."""
        return self.why is None and not self.is_owned


def held_by_runs(board: JobBoard, repository: SavepointRepository, head: int) -> Iterator[HeldByRun]:
    """Yield the runs' references to savepoints; ``head`` is the job's, 0 before the first.

    ``head`` is not the generation of a caller that holds the job: that may give it back, superseding none.
    """
    for savepoint_id, holders in references(repository).items():
        for holder, reference in holders.items():
            generation = reference.generation
            if generation is None:
                continue
            slot = board.heartbeat(generation) if generation >= head or reference.claims else None
            yield HeldByRun(
                savepoint_id=savepoint_id,
                holder=holder,
                reference=reference,
                why=_why_needed(board, generation, reference, slot.value if slot else None, head),
                is_owned=reference.claims and slot is not None and slot.value.has_committed,
            )


def _why_needed(
    board: JobBoard, generation: Generation, reference: Reference, last: Heartbeat | None, head: int
) -> str | None:
    """Return why a run needs a savepoint; None once it has taken over without it, ended, or was superseded.

    A run that failed for a reason that may pass is started again, so it has not ended.
    """
    if generation < head or (last is not None and last.is_final):
        return None
    if generation == head:
        has_it = reference.need == "prepare" or (reference.claims and last is not None and last.has_committed)
        return None if has_it else f"generation {generation} ({reference.by}) started from it"
    claim = board.claim(generation)
    if claim is not None and claim.claim_id != reference.claim_id:
        return None  # another caller claimed the generation: this one never ran
    verb = "is to start from it" if reference.need == "start" else "copies it ahead"
    return f"generation {generation} ({reference.by}) {verb}"


def ended_references(board: JobBoard, repository: SavepointRepository) -> set[tuple[str, str]]:
    """Return savepoint id and holder of each reference whose need has ended; none is needed again."""
    current = board.current()
    held = held_by_runs(board, repository, current.value.head if current is not None else 0)
    return {(one.savepoint_id, one.holder) for one in held if one.is_released}


def release_ended(board: JobBoard, repository: SavepointRepository) -> None:
    """Delete the references whose need has ended."""
    for savepoint_id, holder in sorted(ended_references(board, repository)):
        forget(repository, savepoint_id, holder)
        log.info("Savepoint %s: %s no longer refers to it", savepoint_id, holder)


def _of_migrations(journals: Mapping[str, Sequence[PhaseRecord]]) -> Iterator[tuple[str, str]]:
    """Yield the savepoints that journals without an end name, each with its migration."""
    for migration_id, phases in journals.items():
        if has_ended(phases):
            continue
        for phase in phases:
            for part in (phase.intent, phase.result or {}):
                if isinstance(part.get("savepoint_id"), str):
                    yield part["savepoint_id"], migration_id


# Records of a job that nothing reads any more: reports of ended requests, and processes of ended runs.
#
# A report is kept as long as the task that asked for it may be retried. The claim, the takeover order and the
# last heartbeat of every run stay: later starts decide by them (which batch numbers were used, what ran after
# a savepoint).

KEPT_MS: Final = 30 * 24 * 3600 * 1000
"""Far longer than clocks differ, and than a task is retried."""
_THREADS = 16
_OF_PROCESSES: Final = ("request.json", "submit.json", "incarnations", "ended")


def prune_records(board: JobBoard, *, now_ms: int) -> None:
    """Delete old records that nothing reads any more.

    Keeps what is younger than ``KEPT_MS``, or than the beginning of a migration or upgrade that has not
    ended; and the report of a request that is still in its slot: without it the driver would act on it again.
    """
    opened_ms = open_since_ms(board.store, board.job)
    before_ms = min(now_ms - KEPT_MS, now_ms if opened_ms is None else opened_ms)
    old = (*_reports(board, before_ms), *_processes(board, before_ms))
    with ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="records") as pool:
        list(pool.map(board.store.delete, old))
    log.info("Job %s: %d old records of requests and processes deleted", board.job, len(old))


def _reports(board: JobBoard, before_ms: int) -> Iterator[str]:
    found = read_folder(board, "reports", _written_at_ms, unreadable=_keep_unreadable)
    in_slot: dict[str, str | None] = {}
    for name, at_ms in sorted(found.items()):
        generation, _, report = name.partition("/")
        if at_ms >= before_ms:
            continue
        if generation not in in_slot:
            slot = board.request(Generation(int(generation)))
            in_slot[generation] = slot.value.request_id if slot is not None else None
        if report.rpartition(".")[0] != in_slot[generation]:
            yield f"{board.job}/reports/{name}.json"


def _written_at_ms(name: str, data: bytes) -> int:
    if name.endswith(".progress"):
        return Progress.from_bytes(data).at_ms
    if name.endswith("/rehearsal"):
        return Rehearsal.from_bytes(data).ended_at_ms
    if name.endswith("/comparison"):
        return Comparison.from_bytes(data).ended_at_ms
    return End.from_bytes(data).ended_at_ms


def _keep_unreadable(name: str, error: FlinkstyleError) -> None:
    log.warning("Report %s cannot be read and is kept: %s", name, error.problem)


def _processes(board: JobBoard, before_ms: int) -> Iterator[str]:
    """Yield the records of processes of the runs before the current one."""
    current = board.current()
    prefix = f"{board.job}/runs/"
    by_generation: dict[Generation, list[str]] = {}
    for info in board.store.list(prefix) if current is not None else ():
        number, _, rest = info.key.removeprefix(prefix).partition("/")
        if rest.partition("/")[0] in _OF_PROCESSES:
            by_generation.setdefault(Generation(int(number)), []).append(info.key)
    for generation, keys in by_generation.items():
        if current is not None and generation < current.value.generation:
            last = board.heartbeat(generation)
            if last is not None and last.value.written_at_ms < before_ms:
                yield from keys
