"""A store in a folder, safe between threads and processes of machines that share it.

Content becomes visible at once or not at all: every write goes to a temporary file beside its target
and is then linked (``create``) or renamed. ``replace`` compares and renames under a lock on the folder.
Nothing is written or deleted through a link that leads outside of the folder.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import time
import uuid
from pathlib import Path
from typing import IO, TYPE_CHECKING

from airflow_flinkstyle.storage.base import ObjectInfo, Versioned
from airflow_flinkstyle.storage.errors import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectMissingError,
    StoreDeniedError,
    StoreFullError,
    StoreUnavailableError,
)
from airflow_flinkstyle.storage.keys import checked_key, checked_prefix, file_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from airflow_flinkstyle.storage.base import ObjectStore

_TEMPORARY = ".flinkstyle-"
_CHUNK_BYTES = 1 << 20
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class LocalStore:
    """``ObjectStore`` in a folder; the folder is made by the first write."""

    def __init__(self, root: Path) -> None:
        self._root = Path(os.path.abspath(root))  # noqa: PTH100 - resolve() would follow the root's symlink

    @property
    def uri(self) -> str:
        """``file:///path``."""
        return file_uri(str(self._root))

    def local_path(self, key: str) -> Path:
        """Return where the object is, or would be, in this machine's file system."""
        return self._root / checked_key(key)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        """Yield every object whose key starts with ``prefix``, in key order, from behind ``after``."""
        folder = checked_prefix(prefix).rpartition("/")[0]
        with self._translated("list", prefix):
            yield from self._walk(f"{folder}/" if folder else "", prefix, after)

    def folders(self, prefix: str = "") -> Iterator[str]:
        """Yield, in order, the names of the folders directly below ``prefix``."""
        place = self._root / checked_prefix(prefix)
        with contextlib.suppress(ObjectMissingError), self._translated("list", prefix):
            yield from sorted(entry.name for entry in os.scandir(place) if entry.is_dir())

    def head(self, key: str) -> ObjectInfo | None:
        """Return the object's size and version, or None if it does not exist."""
        path = self.local_path(key)
        try:
            with self._translated("read", key):
                status = path.stat()
        except ObjectMissingError:
            return None
        return ObjectInfo(key=key, size_bytes=status.st_size, version=_version(status))

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """Return the content or a range of it."""
        with self._translated("read", key), self.local_path(key).open("rb") as file:
            file.seek(start)
            return file.read() if length is None else file.read(length)

    def get(self, key: str, *, unless: str | None = None) -> Versioned | None:
        """Return content and version; None if the key is missing or its version is still ``unless``."""
        try:
            with self._translated("read", key), self.local_path(key).open("rb") as file:
                version = _version(os.fstat(file.fileno()))
                return None if version == unless else Versioned(data=file.read(), version=version)
        except ObjectMissingError:
            return None

    def write(self, key: str, data: bytes) -> str:
        """Create or overwrite; returns the new version."""
        with self._translated("write", key), self._temporary(key) as (file, path):
            file.write(data)
            version = _finish(file)
            with _locked(path.parent):
                path.rename(self.local_path(key))
            return version

    def write_many(self, contents: Sequence[tuple[str, bytes]]) -> None:
        """Create or overwrite several; where files are many, what each costs besides its bytes counts."""
        by_folder: dict[str, list[tuple[str, bytes]]] = {}
        for key, data in contents:
            by_folder.setdefault(checked_key(key).rpartition("/")[0], []).append((key, data))
        for files in by_folder.values():
            with self._translated("write", files[0][0]):
                self._write_beside(files)

    def _write_beside(self, files: Sequence[tuple[str, bytes]]) -> None:
        """Write files of one folder: each whole and on the disk before it has its name."""
        folder = self._folder_to_change(files[0][0])
        folder.mkdir(parents=True, exist_ok=True)
        places = {f"{folder}/{_TEMPORARY}{uuid.uuid4().hex}": f"{self._root}/{key}" for key, _ in files}
        try:
            for path, (_, data) in zip(places, files, strict=True):
                with open(path, "xb", buffering=0) as file:  # noqa: PTH123 - a Path for each costs as much
                    rest = memoryview(data)
                    while rest:  # the last write before a disk is full may be short, and raises nothing
                        rest = rest[file.write(rest) :]
                    _finish(file)
            with _locked(folder):
                for path, place in places.items():
                    os.rename(path, place)  # noqa: PTH104 - the same
        finally:
            for path in places:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)  # noqa: PTH108 - the same

    def create(self, key: str, data: bytes) -> str:
        """Create; raises ``ObjectExistsError`` if the key exists. Exactly one of racing callers wins."""
        with self._translated("create", key), self._temporary(key) as (file, path):
            file.write(data)
            version = _finish(file)
            try:
                os.link(path, self.local_path(key))
            except FileExistsError:
                raise ObjectExistsError.at(self.uri, key) from None
            return version

    def replace(self, key: str, data: bytes, *, expected: str) -> str:
        """Overwrite if the version is still ``expected``; raises ``ObjectChangedError`` otherwise."""
        with self._translated("replace", key), self._temporary(key) as (file, path):
            file.write(data)
            version = _finish(file)
            with _locked(path.parent):
                info = self.head(key)
                if info is None or info.version != expected:
                    found = f"version {info.version}" if info else "nothing"
                    raise ObjectChangedError.at(self.uri, key, expected=f"version {expected}", found=found)
                path.rename(self.local_path(key))
            return version

    def upload(self, key: str, source: Path, *, sha256: str | None = None) -> str:
        """Create or overwrite from a local file, streamed; returns the new version.

        Raises:
            ObjectChangedError: If ``sha256`` is given and the file's content is not that; nothing is written.
        """
        digest = hashlib.sha256()
        with (
            self._translated("write", key),
            source.open("rb") as reader,
            self._temporary(key) as (file, path),
        ):
            while chunk := reader.read(_CHUNK_BYTES):
                digest.update(chunk)
                file.write(chunk)
            if sha256 is not None and digest.hexdigest() != sha256:
                raise ObjectChangedError.at(self.uri, key, expected=sha256, found=digest.hexdigest())
            version = _finish(file)
            with _locked(path.parent):
                path.rename(self.local_path(key))
            return version

    def upload_by_content(self, source: Path, folder: str, name: Callable[[str, int], str | None]) -> str:
        """Store a local file under a name that depends on its content, hashed while it is copied."""
        digest = hashlib.sha256()
        with (
            source.open("rb") as reader,
            self._translated("write", folder),
            self._temporary(f"{folder}/{_TEMPORARY}") as (file, path),
        ):
            while chunk := reader.read(_CHUNK_BYTES):
                digest.update(chunk)
                file.write(chunk)
            chosen = name(digest.hexdigest(), file.tell())
            if chosen is not None:
                _finish(file)
                place = self._folder_to_change(f"{folder}/{chosen}")
                place.mkdir(parents=True, exist_ok=True)
                with _locked(place):
                    path.rename(self.local_path(f"{folder}/{chosen}"))
        return digest.hexdigest()

    def download(self, key: str, target: Path) -> None:
        """Write the content to a local file, streamed."""
        path = self.local_path(key)
        with self._translated("read", key), path.open("rb") as reader, target.open("wb") as writer:
            shutil.copyfileobj(reader, writer, _CHUNK_BYTES)

    def copier_from(self, origin: ObjectStore) -> None:
        """Answer that there is none: this process is the one that copies files."""
        del origin

    def delete(self, key: str) -> None:
        """Delete; a missing key is not an error."""
        folder, path = self._folder_to_change(key), self.local_path(key)
        with contextlib.suppress(ObjectMissingError), self._translated("delete", key), _locked(folder):
            path.unlink()

    def _walk(self, folder: str, prefix: str, after: str) -> Iterator[ObjectInfo]:
        """Yield the files below a folder that are asked for, in key order, without reading the others.

        What vanishes meanwhile is left out, as a listing may.
        """
        pending = sorted(self._entries(folder, prefix, after), reverse=True)
        while pending:
            key, entry = pending.pop()
            if key.endswith("/"):
                pending += sorted(self._entries(key, prefix, after), reverse=True)
                continue
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat()
                yield ObjectInfo(key=key, size_bytes=status.st_size, version=_version(status))

    def _entries(self, folder: str, prefix: str, after: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Yield the files and folders directly in one that are asked for; a folder's key ends in a slash."""
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self._root / folder):
                key = f"{folder}{entry.name}"
                if entry.is_dir():
                    below = f"{key}/"
                    is_behind = below > after or after.startswith(below)
                    if is_behind and (below.startswith(prefix) or prefix.startswith(below)):
                        yield below, entry
                elif key > after and key.startswith(prefix) and not entry.name.startswith(_TEMPORARY):
                    yield key, entry

    def _folder_to_change(self, key: str) -> Path:
        """Return the folder of a key's place, if no link leads from the root to outside of it.

        Raises:
            StoreDeniedError: If one does.
        """
        folder = self.local_path(key).parent
        if not is_inside(folder, self._root):
            raise StoreDeniedError(
                f"{key} was expected inside {self.uri}, found a link that leads outside, to "
                f"{os.path.realpath(folder)}.",
                state_after="Nothing was changed.",
                remedy="Take the link away, or mount what it leads to in its place.",
            )
        return folder

    @contextlib.contextmanager
    def _temporary(self, key: str) -> Iterator[tuple[IO[bytes], Path]]:
        """Open a file that listings leave out, beside the key's place; it is gone afterwards."""
        folder = self._folder_to_change(key)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{_TEMPORARY}{uuid.uuid4().hex}"
        try:
            with path.open("xb") as file:
                yield file, path
        finally:
            path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _translated(self, action: str, key: str) -> Iterator[None]:
        """Turn the operating system's errors into the store's."""
        try:
            yield
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise ObjectMissingError.at(self.uri, key) from error
        except PermissionError as error:
            raise StoreDeniedError.during(f"{action} {key}", self.uri, error.strerror) from error
        except OSError as error:
            name = errno.errorcode.get(error.errno or 0, "OSError")
            if error.errno == errno.EROFS:  # no wait makes it one that is written to
                raise StoreDeniedError.during(f"{action} {key}", self.uri, error.strerror) from error
            kind = StoreFullError if error.errno in _FULL else StoreUnavailableError
            raise kind.during(f"{action} {key}", self.uri, f"{name} {error.strerror}") from error


def is_inside(place: Path, folder: Path) -> bool:
    """Tell whether a place, or where it would be, is in a folder once all links are followed."""
    return Path(os.path.realpath(place)).is_relative_to(os.path.realpath(folder))


def _version(status: os.stat_result) -> str:
    """Return what changes with every write: each makes a new file with its own nanosecond."""
    return f"{status.st_mtime_ns:x}-{status.st_ino:x}-{status.st_size:x}"


def _finish(file: IO[bytes]) -> str:
    """Bring the content to disk and return its version.

    File systems count time in milliseconds, and a freed inode is used again at once; so the time is set.
    """
    file.flush()
    now_ns = time.time_ns()
    os.utime(file.fileno(), ns=(now_ns, now_ns))
    os.fsync(file.fileno())
    return _version(os.fstat(file.fileno()))


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Exclude every other writer of the folder; the lock ends with the process at the latest."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
