"""The savepoints of one job as the page lists them, and how much of each was new."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.plugin.views.savepoint_documents import savepoint_document
from airflow_flinkstyle.savepoint.blobs.references import pins
from airflow_flinkstyle.savepoint.files.verified import damaged_records, verified_records
from airflow_flinkstyle.savepoint.repository.summary import listing_of, read_summaries

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from airflow_flinkstyle.savepoint.repository.summary import SavepointListing, Summary
    from airflow_flinkstyle.storage.base import ObjectStore


class Folders:
    """Folders of one job, each read again once it has changed; threads that read at once may read twice."""

    def __init__(self, store: ObjectStore, job: str) -> None:
        self._store, self._job = store, job
        self._read: dict[str, tuple[dict[str, str], Any]] = {}
        """Folder -> the versions in it, and what was made of them."""

    def remembered(self, folder: str, read: Callable[[], Any], *also: str) -> Any:  # noqa: ANN401 - as ``read``
        """Return what ``read`` makes of a folder, and of others beside it; read again once they change."""
        versions = {
            info.key: info.version
            for name in (folder, *also)
            for info in self._store.list(f"{self._job}/{name}/")
        }
        before = self._read.get(folder)
        if before is None or before[0] != versions:
            before = (versions, read())
            self._read[folder] = before
        return before[1]


MANIFESTS_A_READING = 10
"""So many manifests are read at a time to find out how much of a savepoint was new: the newest first."""
MOST_FILES = 20_000
"""For savepoints with more files that is not found out: their manifests are large."""
NEWEST = 50
"""Savepoints for which it is found out."""


class SavepointReader:
    """Reads the savepoints of one job; remembers what cannot have changed."""

    def __init__(self, repository: SavepointRepository) -> None:
        self._repository = repository
        self.folders = Folders(repository.store, repository.job)
        self._new_bytes: dict[str, int] = {}

    def listed(
        self, in_use: Mapping[str, str] | None = None, *, more: int = MANIFESTS_A_READING
    ) -> list[dict[str, Any]]:
        """Return all savepoints, the newest first; those beside the line of the job's head after the others.

        Args:
            in_use: Savepoint id -> which run or migration needs it.
            more: How many manifests may be read to find out how much of a savepoint was new.
        """
        passed = self.folders.remembered("verified", lambda: verified_records(self._repository), "damaged")
        failed = self._failed()
        pinned = self.folders.remembered("references", lambda: pins(self._repository))
        listing = self._listing()
        beside = {one.savepoint.savepoint_id: one.why for one in listing.beside}
        savepoints = (*listing.savepoints, *(one.savepoint for one in listing.beside))
        self._count_new_bytes(savepoints, more)
        return [
            savepoint_document(
                one,
                passed.get(one.savepoint_id),
                failed.get(one.savepoint_id),
                pinned[one.savepoint_id].reason if one.savepoint_id in pinned else None,
                (in_use or {}).get(one.savepoint_id),
                self._new_bytes.get(one.savepoint_id),
                beside.get(one.savepoint_id),
            )
            for one in savepoints
        ]

    def unreadable(self) -> list[dict[str, str]]:
        """Return those whose manifest cannot be read."""
        return [
            {"savepoint_id": one.savepoint_id, "problem": one.problem, "remedy": one.remedy}
            for one in self.folders.remembered("savepoints", lambda: read_summaries(self._repository))[1]
        ]

    def damaged_at_ms(self) -> dict[str, int]:
        """Return savepoint id -> when a check found it damaged."""
        return {savepoint_id: one.at_ms for savepoint_id, one in self._failed().items()}

    def _failed(self) -> Any:  # noqa: ANN401 - by id
        return self.folders.remembered("damaged", lambda: damaged_records(self._repository))

    def _listing(self) -> SavepointListing:
        read = self.folders.remembered("savepoints", lambda: read_summaries(self._repository))
        return listing_of(self._repository, *read)

    def _count_new_bytes(self, savepoints: Sequence[Summary], most: int) -> None:
        """Compare some of the newest savepoints with the one before each."""
        blobs: dict[str, dict[str, int]] = {}
        for one, older in itertools.pairwise(savepoints[: NEWEST + 1]):
            if one.savepoint_id in self._new_bytes or max(one.files, older.files) > MOST_FILES:
                continue
            wanted = [name for name in (one.savepoint_id, older.savepoint_id) if name not in blobs]
            if len(blobs) + len(wanted) > most:
                return
            blobs.update({name: self._blobs(name) for name in wanted})
            before, now = blobs[older.savepoint_id], blobs[one.savepoint_id]
            self._new_bytes[one.savepoint_id] = sum(now[blob] for blob in now.keys() - before.keys())

    def _blobs(self, savepoint_id: str) -> dict[str, int]:
        manifest = self._repository.find(savepoint_id)
        return dict(manifest.blobs) if manifest else {}
