"""One savepoint as a folder or an archive that is complete in itself; ``importing`` reads it back.

``blobs/<sha256>`` holds each content once, ``SHA256SUMS`` what ``sha256sum -c`` expects, and
``savepoint.json``, written last, the manifest with every file keyed by its content.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.savepoint import manifest_json
from airflow_flinkstyle.savepoint.blobs.intents import hold_intent
from airflow_flinkstyle.savepoint.errors import TARGET_OCCUPIED, SavepointDamagedError
from airflow_flinkstyle.savepoint.exchange.archive import ArchiveWriter
from airflow_flinkstyle.savepoint.files.transfer import (
    FILES_AT_A_TIME,
    Copied,
    DamagedFile,
    Writable,
    altered,
    copy_file,
    each_file,
    each_window,
    ignore,
    known_sha256,
    read_stored,
)
from airflow_flinkstyle.storage.errors import ObjectExistsError
from airflow_flinkstyle.storage.streams import sha256_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from airflow_flinkstyle.savepoint.manifest import FileEntry, Manifest
    from airflow_flinkstyle.savepoint.progress import FileProgress
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from airflow_flinkstyle.storage.base import ObjectStore

MANIFEST: Final = "savepoint.json"
SUMS: Final = "SHA256SUMS"
BLOBS: Final = "blobs/"
_NO_MANIFEST: Final = "The export has no manifest: it cannot be imported."


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
    progress: Callable[[FileProgress], None] = ignore,
) -> Exported:
    """Export a savepoint into an empty folder; a repeated call writes only what is missing.

    Raises:
        SavepointMissingError: If there is none of that id.
        SavepointDamagedError: If a file is missing or altered; the folder stays without a manifest.
        FlinkstyleError: ``TARGET_OCCUPIED`` if the folder holds anything else.
    """
    with hold_intent(repository, "export", holder=f"export of {savepoint_id}"):
        manifest = repository.read(savepoint_id)
        listed = {info.key: info.size_bytes for info in target.list()}
        _require_free(target, listed, manifest)
        kept = _kept(target, listed, manifest)
        export = _Export(repository=repository, manifest=manifest, kept=kept, progress=progress)
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
        FlinkstyleError: ``TARGET_OCCUPIED`` if another file is there.
    """
    with hold_intent(repository, "export", holder=f"export of {savepoint_id}"):
        manifest = repository.read(savepoint_id)
        with ArchiveWriter(path) as target:  # one thread: equal savepoints give equal archives
            export = _Export(repository=repository, manifest=manifest, kept=(), progress=progress, threads=1)
            return export.write(target, target.uri, finish=target.write)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Export:
    """What is exported, and how."""

    repository: SavepointRepository
    manifest: Manifest
    kept: Collection[str]
    """Contents that the target has, by SHA-256."""
    progress: Callable[[FileProgress], None]
    threads: int = FILES_AT_A_TIME

    def write(self, target: Writable, uri: str, *, finish: Callable[[str, bytes], object]) -> Exported:
        """Write blobs, sums and manifest, in this order; the last two by ``finish``."""
        entries = contents_of(self.manifest)
        outcomes = each_window(
            partial(self._copy, target), entries, threads=self.threads, progress=self.progress
        )
        copied = require_whole(self.manifest, outcomes, state_after=_NO_MANIFEST)
        digests = {entry.content: done.sha256 for entry, done in zip(entries, copied, strict=True)}
        portable = with_files(self.manifest, lambda entry: alone(entry, digests[entry.content]))
        text = manifest_json.to_json(portable).encode()
        finish(SUMS, sums(portable, text))
        finish(MANIFEST, text)
        return Exported(
            savepoint_id=self.manifest.savepoint_id,
            uri=uri,
            files_written=len(portable.blobs) - len(self.kept),
            files_kept=len(self.kept),
            size_bytes=sum(portable.blobs.values()),
        )

    def _copy(self, target: Writable, entries: Sequence[FileEntry]) -> Sequence[Copied | DamagedFile]:
        """Copy one file, of any size, or several out of packs."""
        if entries[0].offset is None:
            return [self._copy_blob(target, entry) for entry in entries]
        contents = read_stored(self.repository, entries)
        outcomes: list[Copied | DamagedFile] = []
        new: list[tuple[str, bytes]] = []
        for entry, content in zip(entries, contents, strict=True):
            if isinstance(content, DamagedFile):
                outcomes.append(content)
                continue
            sha256 = entry.content.removeprefix("sha256:")
            outcomes.append(Copied(sha256))
            if sha256 not in self.kept:
                new.append((BLOBS + sha256, content))
        target.write_many(new)
        return outcomes

    def _copy_blob(self, target: Writable, entry: FileEntry) -> Copied | DamagedFile:
        sha256 = known_sha256(entry)
        if sha256 is None:  # the store made this copy, so nothing has read it yet
            if not self.repository.digest_matches(entry):
                return altered(entry)
            sha256 = self.repository.digest_of(entry.blob)[0]
        if sha256 in self.kept:
            return Copied(sha256)
        by_content = replace(entry, digest=f"sha256:{sha256}")
        return copy_file(by_content, self.repository.place(entry.blob), (target, BLOBS + sha256))


def contents_of(manifest: Manifest) -> list[FileEntry]:
    """Return a file for each content, in an order that does not depend on where it is stored."""
    files = sorted((entry for query in manifest.queries for entry in query.files), key=lambda one: one.path)
    contents = {entry.content: entry for entry in files}
    return sorted(contents.values(), key=lambda entry: entry.path)


def alone(entry: FileEntry, blob: str) -> FileEntry:
    """Return the entry of a file whose content is a blob of its own, keyed by its SHA-256."""
    return replace(entry, blob=blob, digest=f"sha256:{blob}", offset=None, pack_bytes=None)


def require_whole(
    manifest: Manifest, outcomes: Iterator[Copied | DamagedFile], *, state_after: str
) -> list[Copied]:
    """Return what was copied; every damaged file is named in one error."""
    copied, findings = [], []
    for outcome in outcomes:
        if isinstance(outcome, Copied):
            copied.append(outcome)
        else:
            findings.append(outcome.finding)
    if findings:
        raise SavepointDamagedError.of(manifest.savepoint_id, findings, state_after=state_after)
    return copied


def _require_free(target: ObjectStore, listed: Mapping[str, int], manifest: Manifest) -> None:
    """Refuse a folder that holds anything but an export of this savepoint, whole or unfinished."""
    expected = f"empty, or an export of savepoint {manifest.savepoint_id} of job {manifest.job}"
    foreign = [key for key in listed if not key.startswith(BLOBS) and key not in {SUMS, MANIFEST}]
    if foreign:
        raise TARGET_OCCUPIED.error(uri=target.uri, expected=expected, found=f"{len(foreign)} other files")
    if MANIFEST in listed:
        found = manifest_json.from_json(target.read(MANIFEST).decode("utf-8", "replace"))
        if (found.job, found.savepoint_id) != (manifest.job, manifest.savepoint_id):
            named = f"savepoint {found.savepoint_id} of job {found.job}"
            raise TARGET_OCCUPIED.error(uri=target.uri, expected=expected, found=named)


def _kept(target: ObjectStore, listed: Mapping[str, int], manifest: Manifest) -> set[str]:
    """Return the contents that the folder has already, by reading them."""

    def is_there(entry: FileEntry) -> bool:
        sha256 = known_sha256(entry)
        key = f"{BLOBS}{sha256}"
        return listed.get(key) == entry.size_bytes and sha256_of(target, key)[0] == sha256

    entries = contents_of(manifest)
    found = zip(entries, each_file(is_there, entries), strict=True)
    return {known_sha256(entry) or "" for entry, there in found if there}


def _put_once(target: ObjectStore, key: str, content: bytes) -> None:
    """Create a file; an existing one must have the same content."""
    try:
        target.create(key, content)
    except ObjectExistsError:
        if target.read(key) != content:
            raise TARGET_OCCUPIED.error(
                uri=target.uri, expected=f"without {key}, or with the same", found="another one"
            ) from None


def with_files(manifest: Manifest, change: Callable[[FileEntry], FileEntry]) -> Manifest:
    """Return the manifest with every file changed."""
    queries = (replace(query, files=tuple(map(change, query.files))) for query in manifest.queries)
    return replace(manifest, queries=tuple(queries))


def sums(manifest: Manifest, text: bytes) -> bytes:
    """Render what ``sha256sum -c`` expects; it follows from the manifest alone."""
    lines = [f"{blob}  {BLOBS}{blob}\n" for blob in sorted(manifest.blobs)]
    return "".join([*lines, f"{hashlib.sha256(text).hexdigest()}  {MANIFEST}\n"]).encode()
