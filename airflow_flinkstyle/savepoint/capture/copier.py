"""Bring the files of a cut into the repository, each in the cheapest way that is safe.

A file that an earlier savepoint holds under the same unique name is not read again; a file on the
repository's own service is copied there and never fetched; all others are read, and stored by SHA-256.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import tempfile
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_flinkstyle.checkpoint.state_files import is_unique_sst
from airflow_flinkstyle.grouping import groups_within
from airflow_flinkstyle.savepoint.blobs.packing import PACK_BYTES, SmallFile, put_pack, worn_packs
from airflow_flinkstyle.savepoint.errors import TakeCancelledError
from airflow_flinkstyle.savepoint.manifest import FileEntry
from airflow_flinkstyle.storage.errors import ObjectMissingError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from concurrent.futures import Future

    from airflow_flinkstyle.savepoint.capture.patience import StorePatience
    from airflow_flinkstyle.savepoint.manifest import QuerySnapshot
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from airflow_flinkstyle.storage.base import ObjectInfo, ObjectStore, ServerCopy

_IN_MEMORY_BYTES = 1 << 20
_READ_BYTES, _READ_FILES = 1 << 20, 64
"""How many bytes and how many small files one thread reads at a time, at most."""
_PACKS_AHEAD = 2
"""Packs that are being sent while the next one is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureProgress:
    """How far a capture is."""

    query: str
    files_done: int
    files_total: int
    bytes_done: int
    """Including files that were in the repository before."""
    bytes_total: int
    """As listed before the first file was copied."""


def never() -> bool:
    """Return False: the capture is not cancelled."""
    return False


def ignore(_: CaptureProgress | str) -> None:
    """Ignore what a capture reports."""


class StoredBlobs:
    """The blobs that a take may rely on, listed once for all its queries: a listing is a request per 1,000.

    The take adds its uploads. Its intent keeps every blob that was listed (``savepoint.blobs.intents``).
    """

    def __init__(self, repository: SavepointRepository) -> None:
        self._repository = repository
        self._sizes: dict[str, int] | None = None

    def sizes(self, patience: StorePatience) -> dict[str, int]:
        """Return key and size in bytes of each; threads may add to it."""
        if self._sizes is None:
            self._sizes = dict(patience(self._repository.reusable_blobs))
        return self._sizes


@dataclass(slots=True, kw_only=True)
class FileCopier:
    """Copies files of one query's checkpoint into the repository, several at a time."""

    checkpoint: ObjectStore
    repository: SavepointRepository
    query: str
    previous: QuerySnapshot | None
    """The same query in an earlier savepoint."""
    cancelled: Callable[[], bool]
    progress: Callable[[CaptureProgress], None]
    uploaded: Callable[[str], None]
    threads: int
    patience: StorePatience
    packed_below_bytes: int
    """Smaller files that are read go into packs."""
    stored: StoredBlobs
    _stored: dict[str, int] = field(init=False, default_factory=dict)
    """Blobs that are there, with their sizes in bytes."""
    _kept: Mapping[str, FileEntry] = field(init=False, default_factory=dict)
    """Files of the earlier savepoint whose blobs are still stored, by path."""
    _in_pack: Mapping[str, FileEntry] = field(init=False, default_factory=dict)
    """Those of them that are in packs, by content."""
    _server_copy: ServerCopy | None = field(init=False, default=None)

    def copy(
        self, query_id: str, contents: Mapping[str, bytes], files: Mapping[str, ObjectInfo]
    ) -> tuple[FileEntry, ...]:
        """Copy everything that the repository lacks and return all entries, sorted by path.

        Args:
            query_id: From the checkpoint's metadata.
            contents: Files that were read already, by path; stored exactly as read.
            files: Files still to be read, as they were listed.
        """
        self._stored = self.stored.sizes(self.patience)
        self._server_copy = self.repository.copier_from(self.checkpoint)
        self._kept = self._still_stored(query_id)
        sizes = {path: info.size_bytes for path, info in files.items()}
        sizes |= {path: len(content) for path, content in contents.items()}
        self._drop_worn_packs(sizes)
        unchanged = {path: same for path, info in files.items() if (same := self._unchanged(info, query_id))}
        rest = [path for path in sizes if path not in unchanged]
        small = [path for path in rest if self._goes_into_a_pack(path, sizes[path], contents)]
        packed = frozenset(small)
        alone = [path for path in rest if path not in packed]

        def copy_one(path: str) -> FileEntry:
            self._require_not_cancelled()
            if path in contents:
                return self._store(path, contents[path])
            if self._server_copy is not None:
                return self._copy_inside(self._server_copy, files[path], query_id)
            return self._copy_through(files[path])

        def pooled(what: str) -> ThreadPoolExecutor:
            return ThreadPoolExecutor(max_workers=self.threads, thread_name_prefix=what)

        with pooled("capture") as pool, pooled("packs") as packs:
            entries = pool.map(lambda path: self.patience(lambda: copy_one(path)), alone)
            by_pack = self._in_packs(packs, {path: sizes[path] for path in sorted(small)}, contents)
            try:
                every = itertools.chain(by_pack, entries)
                done = list(self._reported(every, unchanged.values(), len(sizes), sum(sizes.values())))
            except BaseException:
                packs.shutdown(wait=True, cancel_futures=True)
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        return tuple(sorted([*unchanged.values(), *done], key=lambda entry: entry.path))

    def _reported(
        self,
        entries: Iterable[FileEntry],
        unchanged: Collection[FileEntry],
        files_total: int,
        bytes_total: int,
    ) -> Iterable[FileEntry]:
        bytes_done = sum(entry.size_bytes for entry in unchanged)
        for done, entry in enumerate(entries, start=len(unchanged) + 1):
            bytes_done += entry.size_bytes
            self.progress(
                CaptureProgress(
                    query=self.query,
                    files_done=done,
                    files_total=files_total,
                    bytes_done=bytes_done,
                    bytes_total=bytes_total,
                )
            )
            yield entry

    def _require_not_cancelled(self) -> None:
        if self.cancelled():
            raise TakeCancelledError.of(f"query {self.query}")

    def _goes_into_a_pack(self, path: str, size_bytes: int, contents: Mapping[str, bytes]) -> bool:
        """Tell whether a file is small and is read: the service copies other files by itself."""
        return size_bytes < self.packed_below_bytes and (path in contents or self._server_copy is None)

    def _drop_worn_packs(self, sizes: Mapping[str, int]) -> None:
        """Rely on no pack of which this savepoint would need little: its files are packed again."""
        kept = self._kept
        likely = [
            same for path, size in sizes.items() if (same := kept.get(path)) and same.size_bytes == size
        ]
        worn = worn_packs(likely)
        self._kept = {path: entry for path, entry in kept.items() if entry.blob not in worn}
        self._in_pack = {entry.content: entry for entry in self._kept.values() if entry.offset is not None}

    def _in_packs(
        self, pool: ThreadPoolExecutor, sizes: Mapping[str, int], contents: Mapping[str, bytes]
    ) -> Iterator[FileEntry]:
        """Read small files, and put those that no earlier pack holds into new packs as they come.

        Both run a bounded way ahead, so what is in memory does not grow with the number of files.
        """
        new: list[SmallFile] = []
        new_bytes = 0
        sent: deque[Future[list[FileEntry]]] = deque()

        def put(files: list[SmallFile]) -> list[FileEntry]:
            entries = self.patience(lambda: put_pack(self.repository, files, is_new=self._is_new))
            self._stored.update((entry.blob, entry.stored_bytes) for entry in entries)
            return entries

        most_files = self._read_at_once(len(sizes))
        groups = groups_within(sizes, sizes.__getitem__, most=_READ_BYTES, most_items=most_files)
        for files in self._read_ahead(pool, groups, contents):
            for file in files:
                same = self._same(file)
                if same is not None:
                    yield same
                    continue
                new.append(file)
                new_bytes += len(file.content)
                if new_bytes >= PACK_BYTES:
                    sent.append(pool.submit(put, new))
                    new, new_bytes = [], 0
                if len(sent) > _PACKS_AHEAD:
                    yield from sent.popleft().result()
        if new:
            sent.append(pool.submit(put, new))
        for pack in sent:
            yield from pack.result()

    def _read_at_once(self, files: int) -> int:
        """Return how many files one thread reads before it is given others."""
        return max(1, min(_READ_FILES, files // (4 * self.threads)))

    def _read_ahead(
        self, pool: ThreadPoolExecutor, groups: Iterable[list[str]], contents: Mapping[str, bytes]
    ) -> Iterator[list[SmallFile]]:
        def read_one(path: str) -> SmallFile:
            self._require_not_cancelled()
            return SmallFile.of(path, contents[path] if path in contents else self.checkpoint.read(path))

        def read(paths: list[str]) -> list[SmallFile]:
            return [self.patience(partial(read_one, path)) for path in paths]

        ahead: deque[Future[list[SmallFile]]] = deque()
        for group in groups:
            ahead.append(pool.submit(read, group))
            if len(ahead) > self.threads:
                yield ahead.popleft().result()
        for last in ahead:
            yield last.result()

    def _same(self, file: SmallFile) -> FileEntry | None:
        """Return the entry of a file whose content the repository has, in a pack or as a blob."""
        digest, size_bytes = f"sha256:{file.sha256}", len(file.content)
        packed = self._in_pack.get(digest)
        if packed is not None:
            return replace(packed, path=file.path) if packed.path != file.path else packed
        blob = self.repository.key_for(file.sha256)
        if self._stored.get(blob) != size_bytes:
            return None
        return FileEntry(path=file.path, size_bytes=size_bytes, blob=blob, digest=digest)

    def _still_stored(self, query_id: str) -> dict[str, FileEntry]:
        """Return what an earlier savepoint of the query holds and the repository still has, by path.

        A file without a digest is copied again, which adds one: else no check could ever find it altered.
        """
        if self.previous is None or self.previous.query_id != query_id:
            return {}
        return {
            entry.path: entry
            for entry in self.previous.files
            if entry.digest is not None and self._stored.get(entry.blob) == entry.stored_bytes
        }

    def _unchanged(self, info: ObjectInfo, query_id: str) -> FileEntry | None:
        """Return the entry of a file that an earlier savepoint holds and that need not be read again."""
        same = self._kept.get(info.key)
        if same is None or same.size_bytes != info.size_bytes:
            return None
        if is_unique_sst(info.key):
            return same
        is_copy = self._server_copy is not None
        return same if is_copy and same.blob == self._origin_blob(info, query_id) else None

    def _origin_blob(self, info: ObjectInfo, query_id: str) -> str:
        return self.repository.key_for(origin_key(info, query_id))

    def _copy_inside(self, server_copy: ServerCopy, info: ObjectInfo, query_id: str) -> FileEntry:
        """Let the service copy; a copy that fails since the file changed makes the capture start over."""
        blob = self._origin_blob(info, query_id)
        self.uploaded(blob)
        digest = server_copy(info, self.repository.place(blob)[1]).digest
        if digest is None:  # the service reports none: read the file once
            sha256, found_bytes = self.repository.digest_of(blob)
            if found_bytes != info.size_bytes:
                what = f"it sent {found_bytes} of {info.size_bytes} bytes"
                raise StoreUnavailableError.during(f"read {blob}", self.repository.uri, what)
            digest = f"sha256:{sha256}"
        self._stored[blob] = info.size_bytes
        return FileEntry(path=info.key, size_bytes=info.size_bytes, blob=blob, digest=digest)

    def _copy_through(self, info: ObjectInfo) -> FileEntry:
        if info.size_bytes <= _IN_MEMORY_BYTES:
            return self._store(info.key, self.checkpoint.read(info.key))
        place = self.checkpoint.local_path(info.key)
        if place is not None:
            return self._store_file(info.key, place)
        with tempfile.TemporaryDirectory(prefix="flinkstyle-") as folder:
            copy = Path(folder) / "file"
            self.checkpoint.download(info.key, copy)
            return self._store_file(info.key, copy)

    def _store(self, path: str, content: bytes) -> FileEntry:
        digest = hashlib.sha256(content).hexdigest()
        blob = self.repository.key_for(digest)
        if self._is_new(blob, len(content)):
            self.repository.put_blob(content)
            self._stored[blob] = len(content)
        return FileEntry(path=path, size_bytes=len(content), blob=blob, digest=f"sha256:{digest}")

    def _store_file(self, path: str, place: Path) -> FileEntry:
        try:
            blob, digest, size_bytes = self.repository.put_file(place, is_new=self._is_new)
        except FileNotFoundError:
            raise ObjectMissingError.at(self.checkpoint.uri, path) from None
        self._stored[blob] = size_bytes
        return FileEntry(path=path, size_bytes=size_bytes, blob=blob, digest=f"sha256:{digest}")

    def _is_new(self, blob: str, size_bytes: int) -> bool:
        """Return whether a blob has to be uploaded; if so, call ``uploaded`` with its key."""
        if self._stored.get(blob) == size_bytes:
            return False
        self.uploaded(blob)
        return True


def origin_key(info: ObjectInfo, query_id: str) -> str:
    """Return the blob key of a file that the service copies: it was not read, so its SHA-256 is unknown.

    For a name that Spark uses again (``5.zip``, ``5.changelog``) the key holds the file's version.
    """
    folder, _, name = info.key.rpartition("/")
    if is_unique_sst(info.key):
        return f"origin/{query_id}/{name}-{info.size_bytes}"
    version = re.sub(r"[^A-Za-z0-9]+", "-", info.version).strip("-")
    return f"origin/{query_id}/{folder}/{name}-{version}" if folder else f"origin/{query_id}/{name}-{version}"
