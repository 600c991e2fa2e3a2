"""An exported savepoint, from a folder or an archive, back into a repository. See ``export``.

Every byte is read before the manifest exists; an import that ends half-way leaves blobs that the next prune
frees.
"""

from __future__ import annotations

import logging
import re
import stat
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.grouping import groups_within
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.savepoint import manifest_json
from airflow_flinkstyle.savepoint.blobs.intents import hold_intent
from airflow_flinkstyle.savepoint.blobs.packing import (
    MOST_FILES,
    PACK_BYTES,
    PACKED_BELOW_BYTES,
    SmallFile,
    needed_bytes,
    put_pack,
)
from airflow_flinkstyle.savepoint.errors import EXPORT_FORMAT, SavepointConflictError
from airflow_flinkstyle.savepoint.exchange.archive import ArchiveReader
from airflow_flinkstyle.savepoint.exchange.export import (
    BLOBS,
    MANIFEST,
    SUMS,
    contents_of,
    require_whole,
    sums,
    with_files,
)
from airflow_flinkstyle.savepoint.files.transfer import (
    Copied,
    DamagedFile,
    Readable,
    copy_file,
    each_file,
    each_window,
    ignore,
    known_sha256,
    read_file,
    read_stored,
)
from airflow_flinkstyle.savepoint.files.verified import (
    distrust_packs,
    publish_trusted,
    record_verified,
)
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.storage.base import write_over
from airflow_flinkstyle.storage.errors import ObjectChangedError, ObjectExistsError, ObjectMissingError
from airflow_flinkstyle.storage.local import is_inside
from airflow_flinkstyle.types import Generation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from airflow_flinkstyle.savepoint.manifest import FileEntry, Manifest
    from airflow_flinkstyle.savepoint.progress import FileProgress
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from airflow_flinkstyle.storage.base import ObjectInfo

log = logging.getLogger(__name__)
_SCHEME: Final = re.compile("^[a-z0-9+.-]+:/*", re.IGNORECASE)
_SHA256: Final = re.compile("[0-9a-f]{64}")
_MANIFEST_LIMIT_BYTES: Final = 256 << 20
"""Of an export's manifest: some thousand times the size for a job with hundreds of state stores."""
_STILL_DAMAGED: Final = (
    "The savepoint that is there is still damaged; what the source has whole was put back."
)
_ONLY_BLOBS: Final = "The savepoint was not made; blobs copied so far are freed by the next prune."


class ExportSource(Readable, Protocol):
    """A folder in a store, or an archive."""

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield every file whose key starts with ``prefix``."""


def import_savepoint(
    source: ExportSource,
    repository: SavepointRepository,
    *,
    from_job: str | None = None,
    progress: Callable[[FileProgress], None] = ignore,
    packed_below_bytes: int = PACKED_BELOW_BYTES,
) -> Manifest:
    """Import a savepoint; if the repository has it already, its damaged files are put back.

    A savepoint from another job or another root names no generation here. Cluster and topic ids stay, and
    are checked when a job starts from it.

    Args:
        source: A folder or an ``ArchiveReader``.
        repository: Of the job that the savepoint is to belong to.
        from_job: Name of the job it was taken from; needed where that is another one.
        progress: Called after each file.
        packed_below_bytes: Smaller files go into packs.

    Raises:
        FlinkstyleError: ``EXPORT_FORMAT`` if the source is no whole export.
        BadInputError: If it is another job's and ``from_job`` does not name that job.
        SavepointDamagedError: If a file of the source is missing or altered, or they do not fit together.
        SavepointConflictError: If the job has another savepoint of this id.
    """
    listed = {info.key: info.size_bytes for info in source.list()}
    manifest = _adopted(_read_manifest(source, listed), repository, from_job)
    holder = f"import of {manifest.savepoint_id}"
    with hold_intent(repository, "take", holder=holder, publishes=manifest.savepoint_id) as held:
        existing = repository.find(manifest.savepoint_id)
        if existing is not None:
            _put_back(source, _same(existing, manifest, repository), manifest, repository, progress)
            return existing
        manifest = _stored(source, manifest, repository, progress, packed_below_bytes)
        verify_savepoint(manifest, repository, level="full")  # as stored now, with blobs from before
        publish_trusted(held, repository, manifest)
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


def _stored(
    source: ExportSource,
    manifest: Manifest,
    repository: SavepointRepository,
    progress: Callable[[FileProgress], None],
    packed_below_bytes: int,
) -> Manifest:
    """Copy the files of an export that the repository lacks; return the manifest with where each is."""
    manifest = with_files(manifest, lambda entry: replace(entry, blob=repository.key_for(entry.blob)))
    stored = repository.reusable_blobs()
    lacking = {
        entry.blob: entry for entry in contents_of(manifest) if stored.get(entry.blob) != entry.size_bytes
    }
    small = {blob: entry for blob, entry in lacking.items() if entry.size_bytes < packed_below_bytes}
    large = [entry for blob, entry in lacking.items() if blob not in small]
    packs = groups_within(small, lambda blob: small[blob].size_bytes, most=PACK_BYTES, most_items=MOST_FILES)
    copied = each_file(partial(_copy, source, repository), large, progress=progress)
    require_whole(manifest, copied, state_after=_ONLY_BLOBS)
    packed: dict[str, FileEntry] = {}
    for blobs in packs:
        files = _read_small(source, manifest, [small[blob] for blob in blobs], progress)
        entries = put_pack(repository, files, is_new=lambda blob, size: stored.get(blob) != size)
        packed.update(zip(blobs, entries, strict=True))
    return with_files(manifest, lambda entry: _placed(entry, packed.get(entry.blob)))


def _read_small(
    source: ExportSource,
    manifest: Manifest,
    entries: Sequence[FileEntry],
    progress: Callable[[FileProgress], None],
) -> list[SmallFile]:
    """Read the files of one pack from an export, comparing the digest of each."""
    contents = list(each_file(partial(_read, source), entries, progress=progress))
    damaged = (content for content in contents if isinstance(content, DamagedFile))
    require_whole(manifest, damaged, state_after=_ONLY_BLOBS)
    return [
        SmallFile(path=entry.path, content=content, sha256=known_sha256(entry) or "")
        for entry, content in zip(entries, contents, strict=True)
        if isinstance(content, bytes)
    ]


def _placed(entry: FileEntry, stored: FileEntry | None) -> FileEntry:
    if stored is None:
        return entry
    return replace(entry, blob=stored.blob, offset=stored.offset, pack_bytes=stored.pack_bytes)


def _copy(source: ExportSource, repository: SavepointRepository, entry: FileEntry) -> Copied | DamagedFile:
    """Copy one file of an export to its blob."""
    return copy_file(entry, (source, _key_in(source, entry)), repository.place(entry.blob))


def _read(source: ExportSource, entry: FileEntry) -> bytes | DamagedFile:
    """Read one small file of an export."""
    return read_file(entry, (source, _key_in(source, entry)))


def _key_in(source: ExportSource, entry: FileEntry) -> str:
    key = f"{BLOBS}{known_sha256(entry)}"
    _require_plain_file(source, key)
    return key


def _put_back(
    source: ExportSource,
    existing: Manifest,
    manifest: Manifest,
    repository: SavepointRepository,
    progress: Callable[[FileProgress], None],
) -> None:
    """Compare the existing savepoint with the export, byte by byte, and replace files that differ."""
    wanted = _entries_there(existing, manifest)
    fits = each_window(partial(_fit, repository), wanted, progress=progress)
    damaged = [entry for entry, good in zip(wanted, fits, strict=True) if not good]
    alone = [entry for entry in damaged if entry.offset is None]
    copied = each_file(partial(_copy, source, repository), alone, progress=progress)
    require_whole(existing, copied, state_after=_STILL_DAMAGED)
    packs: dict[str, list[FileEntry]] = {}
    for entry in damaged:
        if entry.offset is not None:
            packs.setdefault(entry.blob, []).append(entry)
    _distrust_holed_packs(existing, packs, repository)
    mended = (found for entries in packs.values() for found in _mend(source, repository, entries))
    require_whole(existing, mended, state_after=_STILL_DAMAGED)
    verified = verify_savepoint(existing, repository, level="full" if damaged else "quick")
    record_verified(repository, replace(verified, level="full"), at_ms=now_ms())  # every byte was compared
    if damaged:
        log.info("Savepoint %s: %d files were put back", existing.savepoint_id, len(damaged))


def _distrust_holed_packs(
    existing: Manifest, packs: Mapping[str, Sequence[FileEntry]], repository: SavepointRepository
) -> None:
    """Let no later savepoint rely on a pack that was missing or cut, and of which this one needs only a part.

    Once it is mended it has its size again, and zeros in place of what only other savepoints need.
    """
    stored = repository.blob_sizes() if packs else {}
    held = needed_bytes(existing.contents.values())
    sizes = {blob: entries[0].stored_bytes for blob, entries in packs.items()}
    holed = {blob for blob, size in sizes.items() if held[blob] < size != stored.get(blob)}
    if holed:
        distrust_packs(repository, existing, holed, by=f"import of {existing.savepoint_id}")


def _mend(
    source: ExportSource, repository: SavepointRepository, entries: Sequence[FileEntry]
) -> Sequence[Copied | DamagedFile]:
    """Put damaged files of one pack back in their places; the other bytes stay as they are found.

    If the pack was missing or cut, files of other savepoints in it become zeros, which their digests show.
    """
    contents = [_read(source, entry) for entry in entries]
    good = [(entry, one) for entry, one in zip(entries, contents, strict=True) if isinstance(one, bytes)]
    (store, key), size_bytes = repository.place(entries[0].blob), entries[0].stored_bytes
    is_written = not good
    while not is_written:
        found = store.get(key)
        pack = bytearray((found.data if found is not None else b"")[:size_bytes].ljust(size_bytes, b"\0"))
        for entry, content in good:
            begin = entry.offset or 0
            pack[begin : begin + entry.size_bytes] = content
        # If another import, which puts other files of this pack back, was faster: on top of what it wrote.
        with suppress(ObjectChangedError, ObjectExistsError):
            write_over(store, key, bytes(pack), seen=found.version if found is not None else None)
            is_written = True
    return [
        one if isinstance(one, DamagedFile) else Copied(known_sha256(entry) or "")
        for entry, one in zip(entries, contents, strict=True)
    ]


def _entries_there(existing: Manifest, manifest: Manifest) -> list[FileEntry]:
    """Return the files under the keys that they have here, with the digests that the export has of them."""
    entries = {
        mine.place: replace(mine, digest=exported.digest)
        for here, there in zip(existing.queries, manifest.queries, strict=True)
        for mine, exported in zip(here.files, there.files, strict=True)
    }
    return list(entries.values())


def _fit(repository: SavepointRepository, entries: Sequence[FileEntry]) -> list[bool]:
    if entries[0].offset is None:
        return [_fits(repository, entry) for entry in entries]
    return [isinstance(content, bytes) for content in read_stored(repository, entries)]


def _fits(repository: SavepointRepository, entry: FileEntry) -> bool:
    try:
        return repository.digest_matches(entry)
    except ObjectMissingError:
        return False


def _read_manifest(source: ExportSource, listed: Mapping[str, int]) -> Manifest:
    """Read the manifest of an export and check that its sums are there and right."""
    for key in (MANIFEST, SUMS):
        if key not in listed:
            raise EXPORT_FORMAT.error(
                uri=source.uri, expected=f"a file {key}, which an export ends with", found="none"
            )
        if listed[key] > _MANIFEST_LIMIT_BYTES:
            raise EXPORT_FORMAT.error(
                uri=source.uri, expected=f"a {key} of any use", found=f"{listed[key]} bytes"
            )
        _require_plain_file(source, key)
    text = source.read(MANIFEST)
    manifest = manifest_json.from_json(text.decode("utf-8", "replace"))
    for query in manifest.queries:
        for entry in query.files:
            is_alone = entry.offset is None and _SHA256.fullmatch(entry.blob)
            if not is_alone or entry.digest != f"sha256:{entry.blob}":
                raise EXPORT_FORMAT.error(
                    uri=source.uri, expected="files keyed by their SHA-256", found=f"{entry.blob!r}"
                )
    if source.read(SUMS) != sums(manifest, text):
        raise EXPORT_FORMAT.error(
            uri=source.uri, expected=f"{SUMS} that fits {MANIFEST}", found="another one"
        )
    return manifest


def _require_plain_file(source: ExportSource, key: str) -> None:
    """Refuse a pipe or a device in a local folder, whose read may not end, and a link that leads outside."""
    place = source.local_path(key)
    if place is None:
        return
    if not is_inside(place.parent, place.parents[key.count("/")]):
        raise EXPORT_FORMAT.error(
            uri=source.uri, expected=f"{key} inside the folder", found="a link that leads outside of it"
        )
    try:
        mode = place.lstat().st_mode
    except OSError:
        raise ObjectMissingError.at(source.uri, key) from None
    if not stat.S_ISREG(mode):
        raise EXPORT_FORMAT.error(uri=source.uri, expected=f"a plain file {key}", found=stat.filemode(mode))


def _adopted(manifest: Manifest, repository: SavepointRepository, from_job: str | None) -> Manifest:
    """Return the manifest as one of the repository's job.

    It keeps its generation only if that run was one below this root: another root counts its own runs, and
    its numbers would give the savepoint a wrong place among this root's.
    """
    job = repository.job
    if manifest.job == job:
        return manifest if _ran_here(manifest, repository) else replace(manifest, taken_from_generation=None)
    if from_job != manifest.job:
        raise BadInputError(
            f"Expected an export of a savepoint of job {from_job or job}, found one of job {manifest.job}.",
            state_after="Nothing was written.",
            remedy=f"To import it as a savepoint of job {job}, say from_job={manifest.job!r}.",
        )
    return replace(manifest, job=job, taken_from_generation=None)


def _ran_here(manifest: Manifest, repository: SavepointRepository) -> bool:
    """Return whether the savepoint was copied from checkpoints of this root's run of that generation."""
    generation = manifest.taken_from_generation
    board = JobBoard(repository.store, repository.job)
    claim = board.claim(Generation(generation)) if generation is not None else None
    if claim is None:
        return False
    folder = _path_of(claim.checkpoint_location)
    return all(_path_of(query.checkpoint_location).startswith(folder) for query in manifest.queries)


def _path_of(location: str) -> str:
    """Return a location as ``host/folder/``, without the scheme, in which Spark and callers may differ."""
    return _SCHEME.sub("", location).strip("/") + "/"


def _same(existing: Manifest, manifest: Manifest, repository: SavepointRepository) -> Manifest:
    """Return the existing savepoint if its content is this one's, under whatever blob keys."""

    def content(one: Manifest) -> Manifest:
        unkeyed = with_files(
            one, lambda entry: replace(entry, blob="", digest=None, offset=None, pack_bytes=None)
        )
        return replace(unkeyed, taken_from_generation=None)

    known = _sha256_of(existing)
    # Files of other bytes, of equal size: its blobs would count as damaged, and be written over.
    is_other = any(known.get(file, digest) != digest for file, digest in _sha256_of(manifest).items())
    if is_other or content(existing) != content(manifest):
        raise SavepointConflictError.of(manifest.savepoint_id, repository.uri)
    return existing


def _sha256_of(manifest: Manifest) -> dict[tuple[str, str], str]:
    """Return query and path -> digest, of the files whose SHA-256 is known."""
    return {
        (query.name, entry.path): entry.digest
        for query in manifest.queries
        for entry in query.files
        if entry.digest is not None and entry.digest.startswith("sha256:")
    }
