"""The savepoints of a job at a glance, without reading each manifest again."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.head import read_line
from airflow_flinkstyle.savepoint.repository.folder_cache import read_folder
from airflow_flinkstyle.savepoint.repository.manifest_objects import find_manifest, parse_manifest
from airflow_flinkstyle.savepoint.sequence import SavepointCut, in_order

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_flinkstyle.errors import FlinkstyleError
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.savepoint.repository.stored import JobFolder

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a list shows of one savepoint; see ``Manifest`` for the fields."""

    savepoint_id: str
    taken_at_ms: int
    taken_from_generation: int | None
    batches_run: int
    spark_version: str
    alignment: str
    cut_id: str | None
    parent: str | None
    batches: Mapping[str, int]
    """The committed batch of each query, by its name."""
    files: int
    size_bytes: int
    """If nothing were shared with other savepoints."""

    def is_at_most(self, age_s: float) -> bool:
        """Return whether it is no older, by this machine's clock."""
        return time.time() - self.taken_at_ms / 1000 <= age_s

    @property
    def cut(self) -> SavepointCut:
        """Its place among the job's savepoints."""
        return SavepointCut(
            savepoint_id=self.savepoint_id,
            taken_at_ms=self.taken_at_ms,
            taken_from_generation=self.taken_from_generation,
            parent=self.parent,
            batches_run=self.batches_run,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedSavepoint:
    """A savepoint whose manifest cannot be read, so that nothing is known of it but its id."""

    savepoint_id: str
    problem: str
    """Names the object."""
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """A savepoint that is not on the line of the job's head: it is used only if it is named."""

    savepoint: Summary
    why: str
    """Which start has abandoned it; or that it came from elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavepointListing:
    """All savepoints of a job."""

    savepoints: tuple[Summary, ...]
    """Those on the line of its head, the newest first."""
    beside: tuple[Beside, ...]
    """The others, the newest first."""
    damaged: tuple[DamagedSavepoint, ...]
    """By id."""


def summarize(manifest: Manifest) -> Summary:
    """Return what a list shows of a savepoint."""
    return Summary(
        savepoint_id=manifest.savepoint_id,
        taken_at_ms=manifest.taken_at_ms,
        taken_from_generation=manifest.taken_from_generation,
        batches_run=manifest.batches_run,
        spark_version=manifest.spark_version,
        alignment=manifest.alignment,
        cut_id=manifest.cut_id,
        parent=manifest.parent,
        batches={query.name: int(query.batch_id) for query in manifest.queries},
        files=sum(len(query.files) for query in manifest.queries),
        size_bytes=manifest.total_bytes,
    )


def list_savepoints(repository: JobFolder) -> tuple[Summary, ...]:
    """Return the savepoints on the line of the job's head, the newest first.

    Those that cannot be read are logged.
    """
    listing = read_listing(repository)
    for one in listing.damaged:
        log.warning(
            "Savepoint %s of job %s: %s %s", one.savepoint_id, repository.job, one.problem, one.remedy
        )
    return listing.savepoints


def newest_summary(repository: JobFolder) -> Summary | None:
    """Return the newest savepoint on the line of the job's head; reads no manifest again."""
    return next(iter(list_savepoints(repository)), None)


def newest_savepoint(repository: JobFolder) -> Manifest | None:
    """Return the whole manifest of the newest savepoint on the line of the job's head."""
    newest = newest_summary(repository)
    found = find_manifest(repository, newest.savepoint_id) if newest else None
    return found[0] if found is not None else None


def read_listing(repository: JobFolder) -> SavepointListing:
    """Return all savepoints of the job; those whose manifest cannot be read are listed apart."""
    found, damaged = read_summaries(repository)
    return listing_of(repository, found, damaged)


def listing_of(
    repository: JobFolder, found: Sequence[Summary], damaged: Sequence[DamagedSavepoint]
) -> SavepointListing:
    """Return savepoints along the line of the job's head, which is read."""
    earliest = min((one.taken_from_generation or 0 for one in found), default=0)
    line = read_line(JobBoard(repository.store, repository.job), back_to=earliest)
    ordered = in_order(found, lambda one: one.cut, line)
    return SavepointListing(
        savepoints=ordered.on_line,
        beside=tuple(Beside(savepoint=one, why=str(where)) for one, where in ordered.beside),
        damaged=tuple(damaged),
    )


def read_summaries(repository: JobFolder) -> tuple[tuple[Summary, ...], tuple[DamagedSavepoint, ...]]:
    """Return all savepoints of the job, in no meaningful order, and those that cannot be read."""
    damaged: list[DamagedSavepoint] = []

    def extract(savepoint_id: str, data: bytes) -> dict[str, Any] | None:
        manifest = parse_manifest(repository, savepoint_id, data)
        return asdict(summarize(manifest)) if manifest is not None else None

    def unreadable(savepoint_id: str, error: FlinkstyleError) -> None:
        damaged.append(
            DamagedSavepoint(savepoint_id=savepoint_id, problem=error.problem, remedy=error.remedy)
        )

    values = read_folder(repository, "savepoints", extract, unreadable=unreadable).values()
    return tuple(Summary(**value) for value in values if value is not None), tuple(damaged)
