"""Where the savepoints of one job live: ``<job>/savepoints/<id>.json`` and ``<job>/blobs/<key>``.

Blobs are shared by all savepoints of the job; a manifest is created last, and never changed.
"""

from __future__ import annotations

import contextlib
import hashlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from airflow_flinkstyle.protocol.board import check_job_name
from airflow_flinkstyle.savepoint.digests import matches
from airflow_flinkstyle.savepoint.errors import (
    SAVEPOINT_TOMBSTONED,
    SavepointConflictError,
    SavepointMissingError,
)
from airflow_flinkstyle.savepoint.repository.manifest_objects import (
    find_manifest,
    is_tombstone,
    manifest_bytes,
    manifest_key,
    reason_of,
    require_own,
    tombstone_of,
)
from airflow_flinkstyle.savepoint.repository.packs import blob_key, read_packed
from airflow_flinkstyle.savepoint.repository.summary import list_savepoints
from airflow_flinkstyle.storage.errors import ObjectChangedError, ObjectExistsError, ObjectMissingError
from airflow_flinkstyle.storage.streams import chunks, sha256_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

    from airflow_flinkstyle.savepoint.manifest import FileEntry, Manifest
    from airflow_flinkstyle.storage.base import ObjectStore, ServerCopy

_NEWEST = 5
_THREADS = 16
_AT_A_TIME = 256
"""How many manifests are read ahead of the caller's iteration."""


class SavepointRepository:
    """The savepoints of one job below a savepoint root."""

    def __init__(self, store: ObjectStore, job: str) -> None:
        self._store = store
        self._job = check_job_name(job)
        self._avoided: Collection[str] = frozenset()

    @property
    def store(self) -> ObjectStore:
        """The store at the savepoint root."""
        return self._store

    @property
    def job(self) -> str:
        """Name of the job, unique under the savepoint root."""
        return self._job

    @property
    def uri(self) -> str:
        """Where the job's savepoints are, for messages."""
        return f"{self._store.uri}/{self._job}"

    def ids(self) -> tuple[str, ...]:
        """Return the ids of all savepoints, in no meaningful order."""
        return tuple(self.versions())

    def versions(self) -> Mapping[str, str]:
        """Return the version of each manifest by savepoint id, tombstoned ids included, by one listing."""
        folder = f"{self._job}/savepoints/"
        return {
            info.key.removeprefix(folder).removesuffix(".json"): info.version
            for info in self._store.list(folder)
            if info.key.endswith(".json")
        }

    def each(self) -> Iterator[Manifest]:
        """Yield all savepoints, in no meaningful order; few are in memory at a time."""
        return (manifest for manifest, _ in self.each_of(self.ids()))

    def each_of(self, ids: Collection[str]) -> Iterator[tuple[Manifest, str]]:
        """Yield those of the savepoints that exist, each with its manifest's version; as ``each`` does."""
        wanted = tuple(ids)
        with ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="manifests") as pool:
            for start in range(0, len(wanted), _AT_A_TIME):
                for found in pool.map(partial(find_manifest, self), wanted[start : start + _AT_A_TIME]):
                    if found is not None:
                        yield found

    def find(self, savepoint_id: str) -> Manifest | None:
        """Return the savepoint, or None if there is none of that id."""
        found = find_manifest(self, savepoint_id)
        return found[0] if found is not None else None

    def read(self, savepoint_id: str) -> Manifest:
        """Return the savepoint.

        Raises:
            SavepointMissingError: If there is none of that id; the newest ids are listed.
            ManifestFormatError: If its manifest is malformed, or belongs to another job or id.
        """
        manifest = self.find(savepoint_id)
        if manifest is None:
            newest = [found.savepoint_id for found in list_savepoints(self)[:_NEWEST]]
            raise SavepointMissingError.of(savepoint_id, job=self._job, uri=self._store.uri, newest=newest)
        return manifest

    def publish(self, manifest: Manifest) -> None:
        """Create the savepoint's manifest; all its blobs must be there. To publish it again is no error.

        Raises:
            SavepointConflictError: If another savepoint of this id exists.
            FlinkstyleError: ``SAVEPOINT_TOMBSTONED`` if the id was taken from its taker, whose intent had
                expired.
        """
        require_own(manifest, self._job, manifest.savepoint_id)
        data = manifest_bytes(self, manifest)
        key = self._manifest_key(manifest.savepoint_id)
        try:
            self._store.create(key, data)
        except ObjectExistsError:
            self.require_not_tombstoned(manifest.savepoint_id)
            if self.find(manifest.savepoint_id) != manifest:
                raise SavepointConflictError.of(manifest.savepoint_id, self.uri) from None

    def tombstone(self, savepoint_id: str, why: str) -> None:
        """Make every later publish under this id fail; an existing savepoint stays."""
        try:
            self._store.create(self._manifest_key(savepoint_id), tombstone_of(why))
        except ObjectExistsError:
            return

    def dispose_with_tombstone(self, savepoint_id: str, why: str) -> None:
        """Dispose of the savepoint, and make every later publish under its id fail."""
        key = self._manifest_key(savepoint_id)
        found = self._store.get(key)
        if found is None:
            self.tombstone(savepoint_id, why)
        elif not is_tombstone(found.data):
            with contextlib.suppress(ObjectChangedError):
                self._store.replace(key, tombstone_of(why), expected=found.version)

    def delete_manifest(self, savepoint_id: str) -> None:
        """Dispose of the savepoint; its blobs stay. Only under ``garbage_collection.hold_prune``."""
        self._store.delete(self._manifest_key(savepoint_id))

    def delete_blob(self, blob: str) -> None:
        """Delete a blob. Only under ``garbage_collection.hold_prune``."""
        self._store.delete(self._blob_key(blob))

    def require_not_tombstoned(self, savepoint_id: str) -> None:
        """Require that a savepoint of this id can still be published; raises ``SAVEPOINT_TOMBSTONED``."""
        why = self.why_tombstoned(savepoint_id)
        if why is not None:
            raise SAVEPOINT_TOMBSTONED.error(savepoint_id=savepoint_id, uri=self.uri, why=why)

    def why_tombstoned(self, savepoint_id: str) -> str | None:
        """Return why no savepoint of this id can be published any more; None if one can, or exists."""
        key = self._manifest_key(savepoint_id)
        found = self._store.get(key)
        return reason_of(found.data, key) if found is not None and is_tombstone(found.data) else None

    def blob_sizes(self) -> Mapping[str, int]:
        """Return key and size in bytes of every blob, by one listing."""
        folder = f"{self._job}/blobs/"
        return {info.key.removeprefix(folder): info.size_bytes for info in self._store.list(folder)}

    def avoid(self, blobs: Collection[str]) -> None:
        """Reuse none of these keys from now on: a prune may still delete them."""
        self._avoided = frozenset(blobs)

    def reusable_blobs(self) -> Mapping[str, int]:
        """Return key and size in bytes of every blob that a new savepoint may rely on, by one listing."""
        return {blob: size for blob, size in self.blob_sizes().items() if blob not in self._avoided}

    def key_for(self, digest: str) -> str:
        """Return the key that a blob of this content goes under: the digest, or one beside it to avoid."""
        key, number = digest, 0
        while key in self._avoided:
            number += 1
            key = f"{digest}.{number}"
        return key

    def put_blob(self, content: bytes) -> str:
        """Store content and return its key: ``key_for`` its SHA-256."""
        blob = self.key_for(hashlib.sha256(content).hexdigest())
        self._store.write(self._blob_key(blob), content)
        return blob

    def put_file(self, source: Path, *, is_new: Callable[[str, int], bool]) -> tuple[str, str, int]:
        """Store a local file, streamed, and return its key, SHA-256 in hex and size in bytes.

        Args:
            source: The file.
            is_new: Called with key and size in bytes; False means that the blob is there already.

        Raises:
            FileNotFoundError: If there is no such file.
        """
        seen: tuple[str, int] = ("", 0)

        def name(sha256: str, size_bytes: int) -> str | None:
            nonlocal seen
            seen = (self.key_for(sha256), size_bytes)
            return seen[0] if is_new(*seen) else None

        sha256 = self._store.upload_by_content(source, f"{self._job}/blobs", name)
        return (seen[0], sha256, seen[1])

    def copier_from(self, origin: ObjectStore) -> ServerCopy | None:
        """Return how the store itself copies another's objects; None if they pass through this process."""
        return self._store.copier_from(origin)

    def read_file(self, entry: FileEntry) -> bytes:
        """Return a file's content at once, wherever it is stored; for logs and other small files.

        Raises:
            ObjectMissingError: If its blob is gone.
        """
        if entry.offset is None:
            return self._store.read(self._blob_key(entry.blob))
        content = read_packed(self, [entry])[entry.place]
        if content is None:
            raise ObjectMissingError.at(self._store.uri, self._blob_key(entry.blob))
        return content

    def open(self, blob: str) -> Iterator[bytes]:
        """Yield a blob's content in pieces of 8 MiB; raises ``ObjectMissingError``."""
        return chunks(self._store, self._blob_key(blob))

    def digest_of(self, blob: str) -> tuple[str, int]:
        """Read a blob and return the SHA-256 in hex and the size in bytes of its content."""
        return sha256_of(self._store, self._blob_key(blob))

    def digest_matches(self, entry: FileEntry) -> bool:
        """Read a file's content and tell whether it has the manifest's digest; without one, its size.

        Raises:
            ObjectMissingError: If there is no such blob.
        """
        content = self.open(entry.blob) if entry.offset is None else [self.read_file(entry)]
        return matches(content, size_bytes=entry.size_bytes, digest=entry.digest)

    def place(self, blob: str) -> tuple[ObjectStore, str]:
        """Return the store and the key of a blob, to copy it from or to."""
        return self._store, self._blob_key(blob)

    def _manifest_key(self, savepoint_id: str) -> str:
        return manifest_key(self._job, savepoint_id)

    def _blob_key(self, blob: str) -> str:
        return blob_key(self._job, blob)
