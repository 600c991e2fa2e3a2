"""Move a savepoint's files between stores, several at a time, comparing size and digest on the way."""

from __future__ import annotations

import hashlib
import itertools
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from airflow_flinkstyle.grouping import groups_within
from airflow_flinkstyle.python_versions import sha256_of
from airflow_flinkstyle.savepoint.digests import matches
from airflow_flinkstyle.savepoint.progress import FileProgress
from airflow_flinkstyle.savepoint.repository.packs import read_packed
from airflow_flinkstyle.storage.errors import ObjectChangedError, ObjectMissingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from airflow_flinkstyle.savepoint.manifest import FileEntry
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

IN_MEMORY_BYTES: Final = 1 << 20
"""Larger files pass from file to file and are never held whole."""
FILES_AT_A_TIME: Final = 8
_SMALL_AT_A_TIME: Final = 256
_SMALL_BYTES: Final = 8 << 20
"""Bytes of files in packs that one thread takes at most: they are read by few requests."""
R = TypeVar("R")


class Readable(Protocol):
    """The part of a store that a file is read from."""

    @property
    def uri(self) -> str:
        """Where it is, for messages."""

    def local_path(self, key: str) -> Path | None:
        """Return the file's place in this machine's file system, or None if it has none."""

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """Return the content or a range of it; raises ``ObjectMissingError``."""

    def download(self, key: str, target: Path) -> None:
        """Write the content to a local file, streamed; raises ``ObjectMissingError``."""


class Writable(Protocol):
    """The part of a store that a file is written to."""

    def write(self, key: str, data: bytes) -> str:
        """Create or overwrite; returns the new version."""

    def write_many(self, contents: Sequence[tuple[str, bytes]]) -> None:
        """Create or overwrite several by key, each as ``write`` does."""

    def upload(self, key: str, source: Path, *, sha256: str | None = None) -> str:
        """Create or overwrite from a local file; ``ObjectChangedError`` if it is not of that digest."""


@dataclass(frozen=True, slots=True)
class Copied:
    """The file was written, and has the size and digest of the manifest."""

    sha256: str
    """Of its content, in hex; also if the manifest has none."""


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """The file differs from the manifest; nothing that Spark would start from was written."""

    finding: str


def copy_file(
    entry: FileEntry, source: tuple[Readable, str], target: tuple[Writable, str]
) -> Copied | DamagedFile:
    """Copy one file of a savepoint from a store's key to another's."""
    if entry.size_bytes <= IN_MEMORY_BYTES:
        content = read_file(entry, source)
        if isinstance(content, DamagedFile):
            return content
        target[0].write(target[1], content)
        return Copied(hashlib.sha256(content).hexdigest())
    store, key = source
    try:
        place = store.local_path(key)
        if place is not None:
            return _copy_large(entry, place, target)
        with tempfile.TemporaryDirectory(prefix="flinkstyle-") as folder:
            copy = Path(folder) / "file"
            store.download(key, copy)
            return _copy_large(entry, copy, target)
    except (ObjectMissingError, FileNotFoundError):
        return _missing(entry)


def read_stored(repository: SavepointRepository, entries: Sequence[FileEntry]) -> list[bytes | DamagedFile]:
    """Read small files of a savepoint, those in packs by few requests, and compare each with its digest."""
    packed = read_packed(repository, [entry for entry in entries if entry.offset is not None])
    return [
        read_file(entry, repository.place(entry.blob))
        if entry.offset is None
        else _judged(entry, packed[entry.place])
        for entry in entries
    ]


def _judged(entry: FileEntry, content: bytes | None) -> bytes | DamagedFile:
    if content is None:
        return _missing(entry)
    if len(content) < entry.size_bytes:
        return other_size(entry, f"{len(content)}")
    if len(content) > entry.size_bytes:
        return other_size(entry, "more")
    if not matches([content], size_bytes=entry.size_bytes, digest=entry.digest):
        return altered(entry)
    return content


def read_file(entry: FileEntry, source: tuple[Readable, str]) -> bytes | DamagedFile:
    """Read one small file that is an object of its own from a store's key."""
    store, key = source
    try:
        return _judged(entry, store.read(key, length=entry.size_bytes + 1))
    except (ObjectMissingError, FileNotFoundError):
        return _missing(entry)


def _copy_large(entry: FileEntry, source: Path, target: tuple[Writable, str]) -> Copied | DamagedFile:
    size_bytes = source.stat().st_size
    if size_bytes != entry.size_bytes:
        return other_size(entry, f"{size_bytes}")
    sha256 = known_sha256(entry)
    if sha256 is None:
        with source.open("rb") as file:
            if not matches(
                iter(partial(file.read, IN_MEMORY_BYTES), b""), size_bytes=size_bytes, digest=entry.digest
            ):
                return altered(entry)
            file.seek(0)
            sha256 = sha256_of(file)
    store, key = target
    try:
        store.upload(key, source, sha256=sha256)
    except ObjectChangedError:
        return altered(entry)
    return Copied(sha256)


def _missing(entry: FileEntry) -> DamagedFile:
    return DamagedFile(f"{entry.path} is missing (blob {entry.blob})")


def other_size(entry: FileEntry, found: str) -> DamagedFile:
    """Return the finding that a file was cut, or grew."""
    return DamagedFile(f"{entry.path} has {found} bytes instead of {entry.size_bytes} (blob {entry.blob})")


def altered(entry: FileEntry) -> DamagedFile:
    """Return the finding that a file has its size, but other content."""
    return DamagedFile(f"{entry.path} was altered (blob {entry.blob})")


def known_sha256(entry: FileEntry) -> str | None:
    """Return the expected SHA-256 in hex; None if the store made the copy, so that no process read it."""
    kind, _, digest = (entry.digest or "").partition(":")
    return digest if kind == "sha256" else None


def ignore(_: FileProgress) -> None:
    """Drop the progress."""


def each_file(
    work: Callable[[FileEntry], R],
    entries: Sequence[FileEntry],
    *,
    threads: int = FILES_AT_A_TIME,
    progress: Callable[[FileProgress], None] = ignore,
) -> Iterator[R]:
    """Yield what ``work`` makes of each file, in order; the first exception ends all of it.

    Args:
        work: Called by several threads.
        entries: The files.
        threads: Files at a time.
        progress: Called after each file, by the thread that iterates.
    """
    return _each(lambda window: [work(window[0])], [[entry] for entry in entries], entries, threads, progress)


def each_window(
    work: Callable[[Sequence[FileEntry]], Sequence[R]],
    entries: Sequence[FileEntry],
    *,
    threads: int = FILES_AT_A_TIME,
    progress: Callable[[FileProgress], None] = ignore,
) -> Iterator[R]:
    """Yield what ``work`` makes of each file, in order, where neighbours in packs are worked on together.

    Args:
        work: Called by several threads, with one file that is a blob of its own, or with several in packs;
            returns a result for each.
        entries: The files.
        threads: Calls at a time.
        progress: Called after each file, by the thread that iterates.
    """
    return _each(work, list(_windows(entries, threads)), entries, threads, progress)


def _windows(entries: Sequence[FileEntry], threads: int) -> Iterator[list[FileEntry]]:
    """Yield neighbours in packs together, and every other file by itself.

    Written to a service, each file is a request; so even a few of them are spread over all threads.
    """
    packed = sum(entry.offset is not None for entry in entries)
    most = min(_SMALL_AT_A_TIME, -(-packed // threads))
    for alone, neighbours in itertools.groupby(entries, lambda entry: entry.offset is None):
        if alone:
            yield from ([entry] for entry in neighbours)
        else:
            yield from groups_within(
                neighbours, lambda entry: entry.size_bytes, most=_SMALL_BYTES, most_items=most
            )


def _each(
    work: Callable[[Sequence[FileEntry]], Sequence[R]],
    windows: Sequence[Sequence[FileEntry]],
    entries: Sequence[FileEntry],
    threads: int,
    progress: Callable[[FileProgress], None],
) -> Iterator[R]:
    total, done = sum(entry.size_bytes for entry in entries), 0
    with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="savepoint-files") as pool:
        try:
            results = (result for found in pool.map(work, windows) for result in found)
            for number, result in enumerate(results, start=1):
                done += entries[number - 1].size_bytes
                progress(
                    FileProgress(
                        files_done=number, files_total=len(entries), bytes_done=done, bytes_total=total
                    )
                )
                yield result
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
