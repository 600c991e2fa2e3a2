"""One savepoint as a folder or an archive that needs nothing else, and back into any repository.

``blobs/<sha256>`` holds each content once, ``SHA256SUMS`` what ``sha256sum -c`` expects, and
``savepoint.json``, written last, the manifest with every file keyed by its content. An import reads every
byte before the manifest exists; whatever ends it half-way leaves blobs that the next prune frees.
"""

from __future__ import annotations

import hashlib
import logging
import re
import stat
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.savepoint import manifest_json
from airflow_flinkstyle.savepoint.archive import ArchiveReader, ArchiveWriter
from airflow_flinkstyle.savepoint.errors import (
    ExportFormatError,
    SavepointConflictError,
    SavepointDamagedError,
    TargetOccupiedError,
)
from airflow_flinkstyle.savepoint.intents import hold_intent
from airflow_flinkstyle.savepoint.transfer import (
    Copied,
    Damaged,
    Readable,
    Writable,
    altered,
    copy_file,
    each_file,
    ignore,
    known_sha256,
)
from airflow_flinkstyle.savepoint.verify import verify_savepoint
from airflow_flinkstyle.storage.errors import ObjectExistsError, ObjectMissingError
from airflow_flinkstyle.storage.streams import sha256_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

    from airflow_flinkstyle.savepoint.manifest import FileEntry, Manifest
    from airflow_flinkstyle.savepoint.progress import FileProgress
    from airflow_flinkstyle.savepoint.repository import SavepointRepository
    from airflow_flinkstyle.storage.base import ObjectInfo, ObjectStore

log = logging.getLogger(__name__)
MANIFEST: Final = "savepoint.json"
SUMS: Final = "SHA256SUMS"
_BLOBS: Final = "blobs/"
_SHA256: Final = re.compile("[0-9a-f]{64}")
_MANIFEST_LIMIT_BYTES: Final = 256 << 20
"""Some thousand times what a job of hundreds of state stores has."""
_NO_MANIFEST: Final = "The export has no manifest: it cannot be imported."
_ONLY_BLOBS: Final = "The savepoint was not made; blobs copied so far are freed by the next prune."


class ExportSource(Readable, Protocol):
    """A folder in a store, or an archive."""

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield every file whose key starts with ``prefix``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What an export holds."""

    savepoint_id: str
    uri: str
    files_written: int
    files_kept: int
    """Files that an earlier call had written."""
    size_bytes: int
    """Of all blobs, each once."""


def export_savepoint(
    repository: SavepointRepository,
    savepoint_id: str,
    target: ObjectStore,
    *,
    threads: int = 8,
    progress: Callable[[FileProgress], None] = ignore,
) -> Exported:
    """Export a savepoint into an empty folder; a repeated call writes only what is missing.

    Raises:
        SavepointMissingError: If there is none of that id.
        SavepointDamagedError: If a file is missing or altered; the folder stays without a manifest.
        TargetOccupiedError: If the folder holds anything else.
    """
    with hold_intent(repository, "export", holder=f"export of {savepoint_id}"):
        manifest = repository.read(savepoint_id)
        listed = {info.key: info.size_bytes for info in target.list()}
        _require_free(target, listed, manifest)
        kept = _kept(target, listed, manifest, threads=threads)
        export = _Export(
            repository=repository, manifest=manifest, kept=kept, threads=threads, progress=progress
        )
        return export.write(target, target.uri, finish=partial(_put_once, target))


def export_archive(
    repository: SavepointRepository,
    savepoint_id: str,
    path: Path,
    *,
    progress: Callable[[FileProgress], None] = ignore,
) -> Exported:
    """Export a savepoint as one ``.tar`` file, which appears when it is whole.

    Raises:
        SavepointMissingError: If there is none of that id.
        SavepointDamagedError: If a file is missing or altered.
        TargetOccupiedError: If another file is there.
    """
    with hold_intent(repository, "export", holder=f"export of {savepoint_id}"):
        manifest = repository.read(savepoint_id)
        with ArchiveWriter(path) as target:  # one thread: equal savepoints give equal archives
            export = _Export(repository=repository, manifest=manifest, kept=(), threads=1, progress=progress)
            return export.write(target, target.uri, finish=target.write)


def import_savepoint(
    source: ExportSource,
    repository: SavepointRepository,
    *,
    from_job: str | None = None,
    threads: int = 8,
    progress: Callable[[FileProgress], None] = ignore,
) -> Manifest:
    """Import a savepoint; if the repository has it already, that one is returned.

    Under another job's name it is a savepoint of that job from outside: it names no generation. Cluster
    and topic ids stay, and are checked when a job starts from it.

    Args:
        source: A folder or an ``ArchiveReader``.
        repository: Of the job that the savepoint is to belong to.
        from_job: Name of the job it was taken from; needed where that is another one.
        threads: Files copied at a time.
        progress: Told after each file.

    Raises:
        ExportFormatError: If the source is no whole export.
        BadInputError: If it is another job's and ``from_job`` does not say so.
        SavepointDamagedError: If a file is missing or altered, or they do not fit together.
        SavepointConflictError: If the job has another savepoint of this id.
    """
    listed = {info.key: info.size_bytes for info in source.list()}
    manifest = _adopted(_read_manifest(source, listed), repository.job, from_job)
    holder = f"import of {manifest.savepoint_id}"
    with hold_intent(repository, "take", holder=holder, publishes=manifest.savepoint_id) as held:
        existing = repository.find(manifest.savepoint_id)
        if existing is not None:
            return _same(existing, manifest, repository)
        manifest = _with_keys(manifest, {blob: repository.key_for(blob) for blob in manifest.blobs})
        stored = repository.reusable_blobs()
        missing = [entry for blob, entry in manifest.blobs.items() if stored.get(blob) != entry.size_bytes]

        def copy(entry: FileEntry) -> Copied | Damaged:
            key = f"{_BLOBS}{known_sha256(entry)}"
            _require_plain_file(source, key)
            return copy_file(entry, (source, key), repository.place(entry.blob))

        outcomes = each_file(copy, missing, threads=threads, progress=progress)
        _require_whole(manifest, outcomes, left=_ONLY_BLOBS)
        verify_savepoint(manifest, repository, level="full")  # as stored now, those of before included
        held.publish(repository, manifest)
    log.info("Savepoint %s: imported from %s", manifest.savepoint_id, source.uri)
    return manifest


def import_archive(
    path: Path,
    repository: SavepointRepository,
    *,
    from_job: str | None = None,
    progress: Callable[[FileProgress], None] = ignore,
) -> Manifest:
    """Import a savepoint from a ``.tar`` file; see ``import_savepoint``."""
    return import_savepoint(ArchiveReader(path), repository, from_job=from_job, progress=progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Export:
    """What is exported, and how."""

    repository: SavepointRepository
    manifest: Manifest
    kept: Collection[str]
    """Contents that the target has, by SHA-256."""
    threads: int
    progress: Callable[[FileProgress], None]

    def write(self, target: Writable, uri: str, *, finish: Callable[[str, bytes], object]) -> Exported:
        """Write blobs, sums and manifest, in this order; the last two by ``finish``."""
        entries = sorted(self.manifest.blobs.values(), key=lambda entry: entry.path)
        outcomes = each_file(
            partial(self._copy, target), entries, threads=self.threads, progress=self.progress
        )
        copied = _require_whole(self.manifest, outcomes, left=_NO_MANIFEST)
        digests = {entry.blob: done.sha256 for entry, done in zip(entries, copied, strict=True)}
        portable = _with_files(
            self.manifest,
            lambda entry: replace(entry, blob=digests[entry.blob], digest=f"sha256:{digests[entry.blob]}"),
        )
        text = manifest_json.to_json(portable).encode()
        finish(SUMS, _sums(portable, text))
        finish(MANIFEST, text)
        return Exported(
            savepoint_id=self.manifest.savepoint_id,
            uri=uri,
            files_written=len(portable.blobs) - len(self.kept),
            files_kept=len(self.kept),
            size_bytes=sum(entry.size_bytes for entry in portable.blobs.values()),
        )

    def _copy(self, target: Writable, entry: FileEntry) -> Copied | Damaged:
        sha256 = known_sha256(entry)
        if sha256 is None:  # the store made this copy, so nothing has read it yet
            if not self.repository.digest_matches(entry):
                return altered(entry)
            sha256 = self.repository.digest_of(entry.blob)[0]
        if sha256 in self.kept:
            return Copied(sha256)
        by_content = replace(entry, digest=f"sha256:{sha256}")
        return copy_file(by_content, self.repository.place(entry.blob), (target, _BLOBS + sha256))


def _require_whole(manifest: Manifest, outcomes: Iterator[Copied | Damaged], *, left: str) -> list[Copied]:
    copied, findings = [], []
    for outcome in outcomes:
        if isinstance(outcome, Copied):
            copied.append(outcome)
        else:
            findings.append(outcome.finding)
    if findings:
        raise SavepointDamagedError.of(manifest.savepoint_id, findings, left=left)
    return copied


def _require_free(target: ObjectStore, listed: Mapping[str, int], manifest: Manifest) -> None:
    """Refuse a folder that holds anything but an export of this savepoint, or the begin of one."""
    expected = f"empty, or an export of savepoint {manifest.savepoint_id} of job {manifest.job}"
    foreign = [key for key in listed if not key.startswith(_BLOBS) and key not in {SUMS, MANIFEST}]
    if foreign:
        raise TargetOccupiedError.of(target.uri, expected=expected, found=f"{len(foreign)} other files")
    if MANIFEST in listed:
        found = manifest_json.from_json(target.read(MANIFEST).decode("utf-8", "replace"))
        if (found.job, found.savepoint_id) != (manifest.job, manifest.savepoint_id):
            named = f"savepoint {found.savepoint_id} of job {found.job}"
            raise TargetOccupiedError.of(target.uri, expected=expected, found=named)


def _kept(target: ObjectStore, listed: Mapping[str, int], manifest: Manifest, *, threads: int) -> set[str]:
    """Return the contents that the folder has already, by reading them."""

    def is_there(entry: FileEntry) -> bool:
        sha256 = known_sha256(entry)
        key = f"{_BLOBS}{sha256}"
        return listed.get(key) == entry.size_bytes and sha256_of(target, key)[0] == sha256

    entries = list(manifest.blobs.values())
    found = zip(entries, each_file(is_there, entries, threads=threads), strict=True)
    return {known_sha256(entry) or "" for entry, there in found if there}


def _put_once(target: ObjectStore, key: str, content: bytes) -> None:
    """Create a file; one that is there must be the same."""
    try:
        target.create(key, content)
    except ObjectExistsError:
        if target.read(key) != content:
            raise TargetOccupiedError.of(
                target.uri, expected=f"without {key}, or with the same", found="another one"
            ) from None


def _with_keys(manifest: Manifest, keys: Mapping[str, str]) -> Manifest:
    """Return the manifest with other blob keys."""
    return _with_files(manifest, lambda entry: replace(entry, blob=keys[entry.blob]))


def _with_files(manifest: Manifest, change: Callable[[FileEntry], FileEntry]) -> Manifest:
    queries = (replace(query, files=tuple(map(change, query.files))) for query in manifest.queries)
    return replace(manifest, queries=tuple(queries))


def _sums(manifest: Manifest, text: bytes) -> bytes:
    """Render what ``sha256sum -c`` expects; it follows from the manifest alone."""
    lines = [f"{blob}  {_BLOBS}{blob}\n" for blob in sorted(manifest.blobs)]
    return "".join([*lines, f"{hashlib.sha256(text).hexdigest()}  {MANIFEST}\n"]).encode()


def _read_manifest(source: ExportSource, listed: Mapping[str, int]) -> Manifest:
    """Read the manifest of an export and check that its sums are there and right."""
    for key in (MANIFEST, SUMS):
        if key not in listed:
            raise ExportFormatError.of(source.uri, f"a file {key}, which an export ends with", "none")
        if listed[key] > _MANIFEST_LIMIT_BYTES:
            raise ExportFormatError.of(source.uri, f"a {key} of any use", f"{listed[key]} bytes")
        _require_plain_file(source, key)
    text = source.read(MANIFEST)
    manifest = manifest_json.from_json(text.decode("utf-8", "replace"))
    for query in manifest.queries:
        for entry in query.files:
            if not _SHA256.fullmatch(entry.blob) or entry.digest != f"sha256:{entry.blob}":
                raise ExportFormatError.of(source.uri, "files keyed by their SHA-256", f"{entry.blob!r}")
    if source.read(SUMS) != _sums(manifest, text):
        raise ExportFormatError.of(source.uri, f"{SUMS} that fits {MANIFEST}", "another one")
    return manifest


def _require_plain_file(source: ExportSource, key: str) -> None:
    """Refuse a link, a pipe or a device in a local folder; a read of one may not end."""
    place = source.local_path(key)
    if place is None:
        return
    try:
        mode = place.lstat().st_mode
    except OSError:
        raise ObjectMissingError.at(source.uri, key) from None
    if not stat.S_ISREG(mode):
        raise ExportFormatError.of(source.uri, f"a plain file {key}", stat.filemode(mode))


def _adopted(manifest: Manifest, job: str, from_job: str | None) -> Manifest:
    """Return the manifest as one of ``job``."""
    if manifest.job == job:
        return manifest
    if from_job != manifest.job:
        raise BadInputError(
            f"Expected an export of a savepoint of job {from_job or job}, found one of job {manifest.job}.",
            left="Nothing was written.",
            remedy=f"To import it as a savepoint of job {job}, say from_job={manifest.job!r}.",
        )
    return replace(manifest, job=job, taken_from_generation=None)


def _same(existing: Manifest, manifest: Manifest, repository: SavepointRepository) -> Manifest:
    """Return the savepoint that is there if it is this one, however its blobs are keyed."""

    def content(one: Manifest) -> Manifest:
        unkeyed = _with_files(one, lambda entry: replace(entry, blob="", digest=None))
        return replace(unkeyed, taken_from_generation=None)

    if content(existing) != content(manifest):
        raise SavepointConflictError.of(manifest.savepoint_id, repository.uri)
    return existing
