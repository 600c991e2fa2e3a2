"""A savepoint of one job handed to another job, as an import without the export in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.savepoint import manifest_json
from airflow_flinkstyle.savepoint.blobs.intents import hold_intent
from airflow_flinkstyle.savepoint.errors import SavepointDamagedError
from airflow_flinkstyle.savepoint.exchange.export import (
    BLOBS,
    MANIFEST,
    SUMS,
    alone,
    contents_of,
    sums,
    with_files,
)
from airflow_flinkstyle.savepoint.exchange.importing import import_savepoint
from airflow_flinkstyle.savepoint.files.transfer import known_sha256
from airflow_flinkstyle.storage.base import ObjectInfo
from airflow_flinkstyle.storage.errors import ObjectMissingError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_flinkstyle.savepoint.manifest import FileEntry, Manifest
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository


def hand_over(source: SavepointRepository, savepoint_id: str, target: SavepointRepository) -> Manifest:
    """Copy a savepoint to another job's repository, as an import does; to repeat it is no error.

    Raises:
        SavepointMissingError: If there is none of that id.
        SavepointDamagedError: If a file is missing or altered.
    """
    with hold_intent(source, "export", holder=f"the copy of {savepoint_id} for job {target.job}"):
        manifest = source.read(savepoint_id)
        return import_savepoint(_AsExported(source, manifest), target, from_job=source.job)


class _AsExported:
    """A savepoint in its repository, under the names that an export would give its files."""

    def __init__(self, repository: SavepointRepository, manifest: Manifest) -> None:
        self._repository = repository
        digests = {entry.content: _sha256(repository, manifest, entry) for entry in contents_of(manifest)}
        portable = with_files(manifest, lambda entry: alone(entry, digests[entry.content]))
        text = manifest_json.to_json(portable).encode()
        self._own = {MANIFEST: text, SUMS: sums(portable, text)}
        self._entries = {f"{BLOBS}{digests[entry.content]}": entry for entry in contents_of(manifest)}

    @property
    def uri(self) -> str:
        return self._repository.uri

    def local_path(self, key: str) -> Path | None:
        """Return None: a file may be in a pack."""

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        sizes = {key: len(data) for key, data in self._own.items()}
        sizes |= {key: entry.size_bytes for key, entry in self._entries.items()}
        for key in sorted(sizes):
            if key.startswith(prefix):
                yield ObjectInfo(key=key, size_bytes=sizes[key], version="")

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        data = self._own.get(key)
        if data is None:
            data = self._repository.read_file(self._entry(key))
        return data[start:] if length is None else data[start : start + length]

    def download(self, key: str, target: Path) -> None:
        entry = self._entry(key)
        if entry.offset is not None:
            target.write_bytes(self._repository.read_file(entry))
        else:
            store, blob = self._repository.place(entry.blob)
            store.download(blob, target)

    def _entry(self, key: str) -> FileEntry:
        if key not in self._entries:
            raise ObjectMissingError.at(self.uri, key)
        return self._entries[key]


def _sha256(repository: SavepointRepository, manifest: Manifest, entry: FileEntry) -> str:
    """Return a file's SHA-256; a file that the store copied by itself is read, and checked, to get it."""
    known = known_sha256(entry)
    if known is not None:
        return known
    if not repository.digest_matches(entry):
        found = [f"{entry.path} was altered (blob {entry.blob})"]
        raise SavepointDamagedError.of(manifest.savepoint_id, found, state_after="Nothing was copied.")
    return repository.digest_of(entry.blob)[0]
