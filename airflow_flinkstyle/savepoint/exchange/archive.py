"""An exported savepoint as one ``.tar`` file: plain files only, anything else in it is refused.

Nothing is ever unpacked by name: the importer asks for the files it knows, and each is checked by its
digest. Equal savepoints give equal archives, byte for byte.
"""

from __future__ import annotations

import contextlib
import filecmp
import hashlib
import io
import os
import tarfile
import uuid
from typing import IO, TYPE_CHECKING, Final

from airflow_flinkstyle.savepoint.errors import EXPORT_FORMAT, TARGET_OCCUPIED
from airflow_flinkstyle.storage.base import ObjectInfo
from airflow_flinkstyle.storage.errors import (
    BadKeyError,
    ObjectChangedError,
    ObjectMissingError,
    StoreUnavailableError,
)
from airflow_flinkstyle.storage.keys import checked_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

_BLOCK_BYTES: Final = tarfile.BLOCKSIZE
_CHUNK_BYTES: Final = 1 << 20


class ArchiveReader:
    """The files of an archive, read where they lie in it."""

    def __init__(self, path: Path) -> None:
        """Read the headers.

        Raises:
            FlinkstyleError: ``EXPORT_FORMAT`` if it is no tar file, is cut short, or holds a link, a
                device, a name twice, or one that would leave a folder.
        """
        self._path = path
        with self._translated("read"), path.open("rb") as file:
            self._members = dict(sorted(_index(file, self.uri).items()))

    @property
    def uri(self) -> str:
        """``file:///path``."""
        return f"file://{self._path.absolute()}"

    def local_path(self, key: str) -> Path | None:
        """Return None: the files lie inside another."""
        checked_key(key)
        return None

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield every file whose name starts with ``prefix``, in order."""
        for key, (start, size_bytes) in self._members.items():
            if key.startswith(prefix):
                yield ObjectInfo(key=key, size_bytes=size_bytes, version=str(start))

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """Return the content or a range of it."""
        with self._opened(key) as (file, size_bytes):
            file.seek(start, os.SEEK_CUR)
            remaining = max(0, size_bytes - start)
            return file.read(remaining if length is None else min(length, remaining))

    def download(self, key: str, target: Path) -> None:
        """Write the content to a local file, streamed."""
        with self._opened(key) as (file, remaining), target.open("wb") as writer:
            while remaining and (piece := file.read(min(remaining, _CHUNK_BYTES))):
                writer.write(piece)
                remaining -= len(piece)

    @contextlib.contextmanager
    def _opened(self, key: str) -> Iterator[tuple[IO[bytes], int]]:
        """Open the archive at a file's first byte."""
        if key not in self._members:
            raise ObjectMissingError.at(self.uri, key)
        position, size_bytes = self._members[key]
        with self._translated(f"read {key}"), self._path.open("rb") as file:
            file.seek(position)
            yield file, size_bytes

    @contextlib.contextmanager
    def _translated(self, action: str) -> Iterator[None]:
        with _translated(action, self.uri):
            try:
                yield
            except FileNotFoundError:
                raise EXPORT_FORMAT.error(uri=self.uri, expected="an archive", found="no file") from None


class ArchiveWriter:
    """An archive that appears under its name when everything is in it, and not at all otherwise."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")

    @property
    def uri(self) -> str:
        """``file:///path``."""
        return f"file://{self._path.absolute()}"

    def __enter__(self) -> Self:
        """Begin."""
        with _translated("write", self.uri):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._part.open("xb")
        self._tar = tarfile.open(fileobj=self._file, mode="w", format=tarfile.GNU_FORMAT)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the archive its name, or delete it."""
        try:
            with _translated("write", self.uri):
                if kind is None:
                    self._finish()
        finally:
            with contextlib.suppress(OSError):  # a full disk: the buffered rest is dropped anyway
                self._file.close()
            self._part.unlink(missing_ok=True)

    def _finish(self) -> None:
        self._tar.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        try:
            os.link(self._part, self._path)
        except FileExistsError:
            if not (self._path.is_file() and filecmp.cmp(self._part, self._path, shallow=False)):
                raise TARGET_OCCUPIED.error(
                    uri=self.uri, expected="free, or the same archive", found="another file"
                ) from None

    def write(self, key: str, data: bytes) -> str:
        """Append a file."""
        self._append(key, io.BytesIO(data), len(data))
        return key

    create = write

    def write_many(self, contents: Sequence[tuple[str, bytes]]) -> None:
        """Append several files, in this order."""
        for key, data in contents:
            self.write(key, data)

    def upload(self, key: str, source: Path, *, sha256: str | None = None) -> str:
        """Append a file from disk; one that is not of the digest makes the archive useless."""
        with _translated(f"write {key}", self.uri), source.open("rb") as file:
            hashing = _Hashing(file)
            self._append(key, hashing, os.fstat(file.fileno()).st_size)
        found = hashing.digest.hexdigest()
        if sha256 not in {None, found}:
            raise ObjectChangedError.at(self.uri, key, expected=f"{sha256}", found=found)
        return key

    def _append(self, key: str, content: IO[bytes] | _Hashing, size_bytes: int) -> None:
        member = tarfile.TarInfo(checked_key(key))
        member.size, member.mode = size_bytes, 0o644
        with _translated(f"write {key}", self.uri):
            self._tar.addfile(member, content)


class _Hashing:
    """A file whose bytes are hashed as they are read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.digest = file, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        piece = self._file.read(size)
        self.digest.update(piece)
        return piece


def _index(file: IO[bytes], uri: str) -> dict[str, tuple[int, int]]:
    """Return where each file lies in the archive: its first byte and its size in bytes.

    The headers are read one by one instead of by ``tarfile.open``, which would also follow the kinds that
    are refused here, and read an extended header of any size into memory.
    """
    members: dict[str, tuple[int, int]] = {}
    end = file.seek(0, os.SEEK_END)
    position = 0
    while (member := _header(file, position, uri)) is not None:
        position += _BLOCK_BYTES
        name = member.name.removeprefix("./")
        if member.isdir() and member.size == 0:
            continue
        if member.type not in {tarfile.REGTYPE, tarfile.AREGTYPE}:
            raise EXPORT_FORMAT.error(
                uri=uri, expected="plain files only", found=f"{name!r} of kind {member.type!r}"
            )
        if not 0 <= member.size <= end - position:
            raise EXPORT_FORMAT.error(
                uri=uri, expected=f"{member.size} bytes of {name!r}", found=f"{end - position} to the end"
            )
        if name in members:
            raise EXPORT_FORMAT.error(uri=uri, expected="each name once", found=f"{name!r} twice")
        try:
            members[checked_key(name)] = (position, member.size)
        except BadKeyError as error:
            raise EXPORT_FORMAT.error(
                uri=uri, expected="names inside one folder", found=f"{name!r}"
            ) from error
        position += -(-member.size // _BLOCK_BYTES) * _BLOCK_BYTES
    return members


def _header(file: IO[bytes], position: int, uri: str) -> tarfile.TarInfo | None:
    """Return the header at a position; None at the end mark."""
    file.seek(position)
    block = file.read(_BLOCK_BYTES)
    if len(block) == _BLOCK_BYTES and not any(block):
        return None
    try:
        return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError) as error:
        raise EXPORT_FORMAT.error(
            uri=uri, expected=f"a header at byte {position}", found=f"{error}"
        ) from error


@contextlib.contextmanager
def _translated(action: str, uri: str) -> Iterator[None]:
    """Turn the operating system's errors into a store's."""
    try:
        yield
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise StoreUnavailableError.during(action, uri, error.strerror or error) from error
