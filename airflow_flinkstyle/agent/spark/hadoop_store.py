"""A checkpoint on HDFS, or on any file system that only Hadoop's client knows, through the driver's JVM.

Small files cross py4j as bytes; large ones go between the file system and this machine's disk inside the
JVM. What is written becomes visible at once, by a rename that replaces. There is no conditional replace in
Hadoop's interface, so this is a store for checkpoints and never a savepoint root.
"""

from __future__ import annotations

import contextlib
import functools
import uuid
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.python_versions import sha256_of
from airflow_flinkstyle.storage.base import ObjectInfo, Versioned
from airflow_flinkstyle.storage.errors import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectMissingError,
    StoreDeniedError,
    StoreUnavailableError,
)
from airflow_flinkstyle.storage.keys import checked_key, checked_prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from airflow_flinkstyle.agent.spark.untyped import Java, PySpark
    from airflow_flinkstyle.storage.base import ObjectStore

_TEMPORARY = ".flinkstyle-"
_OWN_SCHEMES = frozenset({"", "file", "s3", "s3a", "s3n"})

_NO_CLIENT = frozenset({"UnsupportedFileSystemException", "ClassNotFoundException"})


def needs_hadoop(location: str) -> bool:
    """Tell whether only the driver's Hadoop client can open the location."""
    return urlsplit(location).scheme not in _OWN_SCHEMES


class HadoopStore:
    """``ObjectStore`` over Hadoop's ``FileSystem`` and ``FileContext``."""

    def __init__(self, spark: PySpark, location: str) -> None:
        context = spark.sparkContext
        self._gateway, self._jvm = context._gateway, context._jvm  # noqa: SLF001
        self._conf = context._jsc.hadoopConfiguration()  # noqa: SLF001
        self._location = location.rstrip("/")
        with self._translated("open", ""):
            root = self._jvm.org.apache.hadoop.fs.Path(self._location)
            self._files = root.getFileSystem(self._conf)
            self._root_path = self._files.makeQualified(root).toString()

    @functools.cached_property
    def _context(self) -> Java:
        """What renames atomically; not every file system that can be read has it."""
        return self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(self._path("").toUri(), self._conf)

    @property
    def uri(self) -> str:
        """As Spark writes it."""
        return self._location

    @property
    def qualified(self) -> str:
        """The location with its scheme and its whole path, by the client's own rules."""
        return str(self._root_path)

    def local_path(self, key: str) -> Path | None:
        """Return None: the files are on other machines."""
        checked_key(key)
        return None

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        """Yield every object whose key starts with ``prefix``, in key order, only those after ``after``."""
        folder = checked_prefix(prefix).rpartition("/")[0]
        found = [info for info in self._walk(folder) if info.key.startswith(prefix) and info.key > after]
        yield from sorted(found, key=lambda info: info.key)

    def folders(self, prefix: str = "") -> Iterator[str]:
        """Yield, in order, the names of the folders directly below ``prefix``."""
        names: list[str] = []
        with contextlib.suppress(ObjectMissingError), self._translated("list", prefix):
            entries = self._files.listStatus(self._path(checked_prefix(prefix).rstrip("/")))
            names = [entry.getPath().getName() for entry in entries if entry.isDirectory()]
        yield from sorted(names)

    def head(self, key: str) -> ObjectInfo | None:
        """Return the object's size and version, or None if it does not exist."""
        try:
            with self._translated("read", key):
                status = self._files.getFileStatus(self._path(checked_key(key)))
        except ObjectMissingError:
            return None
        return None if status.isDirectory() else _info(key, status)

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """Return the content or a range of it; raises ``ObjectMissingError``.

        All of it is what one opened stream has: by the size that the name node gave before, a longer file
        that Spark renames over it meanwhile would be cut at the length of the one before.
        """
        if start == 0 and length is None:
            return self._read_to_the_end(key)
        found = self.head(key)
        if found is None:
            raise ObjectMissingError.at(self.uri, key)
        wanted = max(0, found.size_bytes - start)
        wanted = wanted if length is None else min(wanted, length)
        if wanted == 0:
            return b""
        with self._translated("read", key):
            stream = self._files.open(self._path(key))
            try:
                stream.seek(start)
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream, wanted))
            finally:
                stream.close()

    def _read_to_the_end(self, key: str) -> bytes:
        with self._translated("read", key):
            stream = self._files.open(self._path(checked_key(key)))
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

    def get(self, key: str, *, unless: str | None = None) -> Versioned | None:
        """Return content and version; None if the key is missing or its version is still ``unless``."""
        found = self.head(key)
        if found is None or found.version == unless:
            return None
        return Versioned(data=self.read(key), version=found.version)

    def write(self, key: str, data: bytes) -> str:
        """Create or overwrite; returns the new version."""
        with self._temporary("write", key) as path:
            self._put(path, data)
            return self._publish(path, key, "OVERWRITE")

    def write_many(self, contents: Sequence[tuple[str, bytes]]) -> None:
        """Create or overwrite several, one after the other."""
        for key, data in contents:
            self.write(key, data)

    def create(self, key: str, data: bytes) -> str:
        """Create; raises ``ObjectExistsError`` if the key exists. Exactly one of racing callers wins."""
        with self._temporary("create", key) as path:
            self._put(path, data)
            return self._publish(path, key, "NONE")

    def replace(self, key: str, data: bytes, *, expected: str) -> str:
        """Refuse: Hadoop's file systems cannot do it atomically.

        Raises:
            BadInputError: Always.
        """
        raise BadInputError(
            f"A store that replaces objects only if they are unchanged was expected, found {self.uri}.",
            state_after="Nothing was written.",
            remedy="Put the savepoint root on S3 or a shared folder; checkpoints may stay where they are.",
        )

    def upload(self, key: str, source: Path, *, sha256: str | None = None) -> str:
        """Create or overwrite from a local file, without moving its bytes through Python."""
        if sha256 is not None:
            with source.open("rb") as file:
                found = sha256_of(file)
            if found != sha256:
                raise ObjectChangedError.at(self.uri, key, expected=sha256, found=found)
        with self._temporary("write", key) as path:
            self._files.copyFromLocalFile(False, True, self._local(source), path)
            return self._publish(path, key, "OVERWRITE")

    def upload_by_content(self, source: Path, folder: str, name: Callable[[str, int], str | None]) -> str:
        """Store a local file under a name that depends on its content."""
        with source.open("rb") as file:
            sha256 = sha256_of(file)
            chosen = name(sha256, file.tell())
        if chosen is not None:
            self.upload(f"{folder}/{chosen}", source, sha256=sha256)
        return sha256

    def copier_from(self, origin: ObjectStore) -> None:
        """Answer that there is none: savepoints are kept elsewhere."""
        del origin

    def download(self, key: str, target: Path) -> None:
        """Write the content to a local file, without moving its bytes through Python."""
        with self._translated("read", key):
            self._files.copyToLocalFile(False, self._path(checked_key(key)), self._local(target), True)

    def delete(self, key: str) -> None:
        """Delete; a missing key is not an error."""
        with self._translated("delete", key):
            self._files.delete(self._path(checked_key(key)), False)

    def _path(self, key: str) -> Java:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._root_path}/{key}" if key else self._root_path)

    def _local(self, place: Path) -> Java:
        return self._jvm.org.apache.hadoop.fs.Path("file", None, str(place.absolute()))

    def _walk(self, folder: str) -> Iterator[ObjectInfo]:
        """Yield the files below a folder, without those that vanish meanwhile."""
        begin = len(self._root_path) + 1
        with contextlib.suppress(ObjectMissingError), self._translated("list", folder):
            files = self._files.listFiles(self._path(folder), True)
            while files.hasNext():
                status = files.next()
                key = status.getPath().toString()[begin:]
                if not key.rpartition("/")[2].startswith(_TEMPORARY):
                    yield _info(key, status)

    def _put(self, path: Java, data: bytes) -> None:
        stream = self._files.create(path, True)
        try:
            stream.write(data)
        finally:
            stream.close()

    def _publish(self, path: Java, key: str, how: str) -> str:
        """Rename a finished file to its key, atomically; returns its version."""
        rename = self._jvm.org.apache.hadoop.fs.Options.Rename
        options = self._gateway.new_array(rename, 1)
        options[0] = rename.valueOf(how)
        self._context.rename(path, self._path(key), options)
        return _info(key, self._files.getFileStatus(self._path(key))).version

    @contextlib.contextmanager
    def _temporary(self, action: str, key: str) -> Iterator[Java]:
        """Yield a path that listings leave out, beside the key's place; nothing is there afterwards."""
        folder = checked_key(key).rpartition("/")[0]
        name = f"{_TEMPORARY}{uuid.uuid4().hex}"
        path = self._path(f"{folder}/{name}" if folder else name)
        with self._translated(action, key):
            try:
                self._files.mkdirs(path.getParent())
                yield path
            finally:
                self._files.delete(path, False)

    @contextlib.contextmanager
    def _translated(self, action: str, key: str) -> Iterator[None]:
        """Turn the JVM's exceptions into the store's errors."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import IllegalArgumentException

        try:
            yield
        except IllegalArgumentException as error:  # this one of the JVM's is PySpark's own by now
            raise self._no_place(_first_line(error)) from error
        except Py4JJavaError as error:
            raised = error.java_exception
            name, text = raised.getClass().getSimpleName(), _first_line(raised.getMessage())
            if _has_no_client(raised):
                raise self._no_place(text) from error
            if name == "FileNotFoundException":
                raise ObjectMissingError.at(self.uri, key) from error
            if name == "FileAlreadyExistsException":
                raise ObjectExistsError.at(self.uri, key) from error
            if name == "AccessControlException":
                raise StoreDeniedError.during(f"{action} {key}", self.uri, text) from error
            raise StoreUnavailableError.during(f"{action} {key}", self.uri, f"{name}: {text}") from error

    def _no_place(self, found: str) -> BadInputError:
        return BadInputError(
            f"A place that Hadoop's client can open was expected, found {self.uri!r}: {found}.",
            state_after="Nothing was read or written.",
            remedy="Correct it, or give the driver the jars and settings of that file system.",
        )


def _has_no_client(raised: Java) -> bool:
    """Tell whether there is no such file system here, or its class is in none of the driver's jars."""
    while raised is not None:
        if raised.getClass().getSimpleName() in _NO_CLIENT:
            return True
        raised = raised.getCause()
    return False


def _first_line(text: object) -> str:
    return str(text).partition("\n")[0]


def _info(key: str, status: Java) -> ObjectInfo:
    size_bytes = int(status.getLen())
    return ObjectInfo(
        key=key, size_bytes=size_bytes, version=f"{status.getModificationTime():x}-{size_bytes:x}"
    )
