"""Apply retention: dispose of savepoints by policy, and free blobs that none needs any more.

Manifests go first, blobs after them: a crash in between leaves blobs that the next prune frees, never a
savepoint with missing files. Everything that a decision needs is read while ``prune.json`` is held, except
manifests that were read just before and did not change.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.clock import CLOCK, Clock
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.head import read_line
from airflow_flinkstyle.savepoint.blobs.garbage_collection import hold_prune
from airflow_flinkstyle.savepoint.blobs.leases import LEASE_S
from airflow_flinkstyle.savepoint.blobs.needs import Needs
from airflow_flinkstyle.savepoint.blobs.references import PIN, references
from airflow_flinkstyle.savepoint.files.verified import damaged_records, verified_records
from airflow_flinkstyle.savepoint.retention.checkpoints import as_markdown
from airflow_flinkstyle.savepoint.retention.policy import Candidate, RetentionPlan, plan_retention
from airflow_flinkstyle.savepoint.sequence import in_order
from airflow_flinkstyle.storage.versions import versioning_of
from airflow_flinkstyle.wording import size

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from airflow_flinkstyle.savepoint.blobs.needs import Need
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from airflow_flinkstyle.savepoint.retention.checkpoints import OldCheckpoint
    from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy
    from airflow_flinkstyle.storage.versions import Versioning

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneReport:
    """What a prune did, or would do."""

    plan: RetentionPlan
    dry_run: bool
    freed_blobs: int
    """Blobs that no kept savepoint needs, those of takes that never ended included."""
    freed_bytes: int
    """0 where the bucket keeps versions: they are freed once these expire."""
    noncurrent_bytes: int = 0
    """Deleted, and kept by the bucket as noncurrent versions."""
    versioning: Versioning | None = None
    """Of the bucket, if it keeps versions."""
    checkpoints: tuple[OldCheckpoint, ...] = ()
    """Those of the job's generations, with the outcome for each."""

    @property
    def freed_checkpoints(self) -> tuple[OldCheckpoint, ...]:
        """The checkpoints that went, or would go."""
        return tuple(one for one in self.checkpoints if one.goes)

    def as_markdown(self) -> str:
        """Return the decisions, and what they free."""
        tables = [self.plan.as_markdown()]
        if self.checkpoints:
            tables.append(as_markdown(self.checkpoints))
        return "\n\n".join((*tables, self.sum_up()))

    def sum_up(self) -> str:
        """Return how many savepoints stay and go, and what that frees, as one sentence."""
        verb = "freed" if self.versioning is None else "deleted, and 0 bytes freed so far"
        done = f"would be {verb}" if self.dry_run else f"were {verb}"
        later = f" {self.versioning}" if self.versioning is not None else ""
        if self.freed_checkpoints:
            old = sum(one.size_bytes or 0 for one in self.freed_checkpoints)
            later = f" {len(self.freed_checkpoints)} old checkpoints of {size(old)} {done}.{later}"
        disposed, size_bytes = len(self.plan.disposed), self.freed_bytes + self.noncurrent_bytes
        return (
            f"{len(self.plan.decisions) - disposed} savepoints kept, {disposed} disposed of; "
            f"{self.freed_blobs} blobs of {size(size_bytes)} {done}.{later}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What a repository holds, by one listing of each kind."""

    candidates: tuple[Candidate, ...]
    """Those on the line of the job's head first, the newest first; then those beside it."""
    needs: Mapping[str, Need]
    """By savepoint id."""
    blob_sizes: Mapping[str, int]

    def orphans(self, disposed: Collection[str]) -> set[str]:
        """Return the blobs that no savepoint but the disposed ones needs."""
        needed = {
            blob
            for savepoint_id, need in self.needs.items()
            if savepoint_id not in disposed
            for blob, _ in need.blobs
        }
        return self.blob_sizes.keys() - needed

    def bytes_of(self, blobs: Collection[str]) -> int:
        """Return the size of blobs in bytes."""
        return sum(self.blob_sizes[blob] for blob in blobs)


def prune(
    repository: SavepointRepository,
    policy: RetentionPolicy,
    *,
    in_use: Callable[[], Mapping[str, str]],
    holder: str,
    ended: Callable[[], Collection[tuple[str, str]]] = tuple,
    dry_run: bool = False,
    wait_s: float = 300.0,
    lease_s: float = LEASE_S,
    clock: Clock = CLOCK,
) -> PruneReport:
    """Dispose of savepoints that the policy does not keep, and free every blob that none needs.

    Args:
        repository: The job's savepoints.
        policy: How much history to keep.
        in_use: Returns savepoint id -> who needs it; called when no process can begin to rely on one.
        holder: Who prunes, for the messages of processes that wait for it.
        ended: Returns savepoint id and holder of each reference whose need has ended.
        dry_run: Only report what would be done; needs no right to free, and makes no process wait.
        wait_s: How long to wait for takes, restores and exports to end.
        lease_s: After so long without a renewal another process may take over.
        clock: The clock of the wait, and of the savepoints' age.

    Raises:
        RepositoryBusyError: If a process still relied on blobs after ``wait_s``; nothing was deleted.
        ManifestFormatError: If a manifest cannot be read: what it needs is unknown, so nothing was deleted.
    """
    needs = Needs(repository)
    if dry_run:
        contents = read_contents(repository, needs, in_use(), ended())
        return _report(contents, repository, policy, clock, dry_run=True)[0]
    needs.read()  # before others have to wait
    with hold_prune(repository, holder=holder, wait_s=wait_s, lease_s=lease_s, clock=clock) as held:
        contents = read_contents(repository, needs, in_use(), ended())
        report, orphans = _report(contents, repository, policy, clock, dry_run=False)
        held.delete(savepoints=report.plan.disposed, blobs=orphans)
    log.info("Pruned %s:\n%s", repository.uri, report.as_markdown())
    return report


def _report(
    contents: Contents,
    repository: SavepointRepository,
    policy: RetentionPolicy,
    clock: Clock,
    *,
    dry_run: bool,
) -> tuple[PruneReport, set[str]]:
    plan = plan_retention(repository.job, contents.candidates, policy, now_ms=clock.now_ms())
    orphans = contents.orphans(plan.disposed)
    versioning, deleted_bytes = versioning_of(repository.store), contents.bytes_of(orphans)
    report = PruneReport(
        plan=plan,
        dry_run=dry_run,
        freed_blobs=len(orphans),
        freed_bytes=0 if versioning else deleted_bytes,
        noncurrent_bytes=deleted_bytes if versioning else 0,
        versioning=versioning,
    )
    return report, orphans


def read_contents(
    repository: SavepointRepository,
    needs: Needs,
    in_use: Mapping[str, str],
    ended: Collection[tuple[str, str]] = (),
) -> Contents:
    """Read everything that the decisions need."""
    needed = needs.read()
    stored = repository.blob_sizes()
    held = references(repository)
    verified, damaged = verified_records(repository), damaged_records(repository)

    def candidate(savepoint_id: str, beside: str | None = None) -> Candidate:
        holders = held.get(savepoint_id, {})
        pin, check = holders.get(PIN), verified.get(savepoint_id)
        claimed = [one for name, one in holders.items() if one.claims and (savepoint_id, name) not in ended]
        return Candidate(
            savepoint_id=savepoint_id,
            taken_at_ms=needed[savepoint_id].cut.taken_at_ms,
            missing_blobs=sum(stored.get(blob) != size for blob, size in needed[savepoint_id].blobs),
            verified=check.level if check else None,
            pinned=f"by {pin.by}: {pin.reason}" if pin else None,
            in_use=in_use.get(savepoint_id),
            owned=max(claimed, key=lambda one: one.at_ms, default=None),
            taken_from_generation=needed[savepoint_id].cut.taken_from_generation,
            damaged=savepoint_id in damaged,
            beside=beside,
        )

    line = read_line(JobBoard(repository.store, repository.job))
    found = in_order(needed, lambda savepoint_id: needed[savepoint_id].cut, line)
    beside = (candidate(savepoint_id, str(where)) for savepoint_id, where in found.beside)
    return Contents(candidates=(*map(candidate, found.on_line), *beside), needs=needed, blob_sizes=stored)
