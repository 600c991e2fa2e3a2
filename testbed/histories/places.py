"""Stores of a history: savepoint roots that fail when they are told to, and disks that can be lost.

As ``testbed.memory_store``, and plain: one process runs at a time, and keys are those that the package makes.
"""

from __future__ import annotations

import hashlib
import itertools
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.storage.base import ObjectInfo, Versioned
from airflow_flinkstyle.storage.errors import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectMissingError,
    StoreUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from airflow_flinkstyle.storage.base import ObjectStore, ServerCopy
    from testbed.histories.machine import Machine
    from testbed.histories.troubles import Troubles


class RootStore:
    """A store: every call is a moment at which the process that makes it may end or be refused."""

    def __init__(self, name: str, machine: Machine, troubles: Troubles | None = None) -> None:
        self.uri = f"memory://{name}"
        self._machine, self._troubles = machine, troubles
        self._objects: dict[str, Versioned] = {}
        self._versions = itertools.count(1)

    # --- without a call, for the history itself --------------------------------------------------

    def below(self, prefix: str) -> list[str]:
        """Return the keys below a prefix, in no order."""
        return [key for key in self._objects if key.startswith(prefix)]

    def content(self, key: str) -> bytes | None:
        """Return one object."""
        found = self._objects.get(key)
        return found.data if found is not None else None

    def delete_below(self, prefix: str) -> None:
        """Delete as somebody does by hand."""
        for key in self.below(prefix):
            del self._objects[key]

    # --- the store -------------------------------------------------------------------------------

    def _call(self, action: str, key: str, *, writes: bool = False) -> Exception | None:
        """Let the process's fault happen; returns a failure that is to come once the write took effect."""
        process = self._machine.process
        if self._troubles is not None:
            found = self._troubles.at("store", f"{action} {key}")
            if found is not None and writes and found[1]:
                return found[0]
            if found is not None:
                raise found[0]
        told = self._machine.call(process) if process is not None else None
        if told is None:
            return None
        error = StoreUnavailableError.during(f"{action} {key}", self.uri, "it was told to fail")
        if told == "lost" and writes:
            return error
        raise error

    def local_path(self, key: str) -> Path | None:
        """Return None: the content is in no file."""

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        """Yield what is below a prefix."""
        self._call("list", prefix)
        found = self._objects
        keys = sorted(key for key in found if key.startswith(prefix) and key > after)
        infos = [
            ObjectInfo(key=key, size_bytes=len(found[key].data), version=found[key].version) for key in keys
        ]
        yield from infos

    def folders(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of folders."""
        below = (info.key.removeprefix(prefix) for info in self.list(prefix))
        yield from sorted({key.partition("/")[0] for key in below if "/" in key})

    def head(self, key: str) -> ObjectInfo | None:
        """Look at one."""
        self._call("read", key)
        found = self._objects.get(key)
        return ObjectInfo(key=key, size_bytes=len(found.data), version=found.version) if found else None

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """Read one."""
        self._call("read", key)
        found = self._objects.get(key)
        if found is None:
            raise ObjectMissingError.at(self.uri, key)
        return found.data[start:] if length is None else found.data[start : start + length]

    def get(self, key: str, *, unless: str | None = None) -> Versioned | None:
        """Read one with its version."""
        self._call("read", key)
        found = self._objects.get(key)
        return None if found is None or found.version == unless else found

    def write(self, key: str, data: bytes) -> str:
        """Create or overwrite."""
        return self._put("write", key, data)

    def write_many(self, contents: Sequence[tuple[str, bytes]]) -> None:
        """Create or overwrite several, one after the other."""
        for key, data in contents:
            self.write(key, data)

    def create(self, key: str, data: bytes) -> str:
        """Create."""
        return self._put("create", key, data, absent=True)

    def replace(self, key: str, data: bytes, *, expected: str) -> str:
        """Overwrite one version."""
        return self._put("replace", key, data, expected=expected)

    def _put(
        self, action: str, key: str, data: bytes, *, absent: bool = False, expected: str | None = None
    ) -> str:
        late = self._call(action, key, writes=True)
        found = self._objects.get(key)
        if absent and found is not None:
            raise ObjectExistsError.at(self.uri, key)
        if expected is not None and (found is None or found.version != expected):
            now = f"version {found.version}" if found else "nothing"
            raise ObjectChangedError.at(self.uri, key, expected=f"version {expected}", found=now)
        version = str(next(self._versions))
        self._objects[key] = Versioned(data=bytes(data), version=version)
        if late is not None:
            raise late
        return version

    def delete(self, key: str) -> None:
        """Delete."""
        late = self._call("delete", key, writes=True)
        self._objects.pop(key, None)
        if late is not None:
            raise late

    def copier_from(self, origin: ObjectStore) -> ServerCopy | None:
        """Return None: it is no service."""

    def upload(self, key: str, source: Path, *, sha256: str | None = None) -> str:
        """Create or overwrite from a file."""
        return self.write(key, source.read_bytes())

    def upload_by_content(self, source: Path, folder: str, name: Callable[[str, int], str | None]) -> str:
        """Store a file by its content."""
        data = source.read_bytes()
        sha256 = hashlib.sha256(data).hexdigest()
        chosen = name(sha256, len(data))
        if chosen is not None:
            self.write(f"{folder}/{chosen}", data)
        return sha256

    def download(self, key: str, target: Path) -> None:
        """Write one to a file."""
        target.write_bytes(self.read(key))


class Place:
    """The store at one location of a disk."""

    def __init__(self, disk: RootStore, location: str, troubles: Troubles | None = None) -> None:
        self._disk, self._at, self._troubles = disk, f"{location.strip('/')}/", troubles
        self.uri = f"file:///{location.strip('/')}"

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        """Return a call of the disk for a key below the location."""
        call, at = getattr(self._disk, name), self._at

        def below(key: str = "", *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            if self._troubles is not None and name != "local_path":
                self._troubles.come("store", f"{name} {key}")
            return call(at + key, *arguments, **options)

        return below

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        """List what is below the location."""
        if self._troubles is not None:
            self._troubles.come("store", f"list {prefix}")
        cut = len(self._at)
        for info in self._disk.list(self._at + prefix, after=self._at + after if after else ""):
            yield ObjectInfo(key=info.key[cut:], size_bytes=info.size_bytes, version=info.version)

    def write_many(self, contents: Sequence[tuple[str, bytes]]) -> None:
        """Write several, one after the other."""
        self._disk.write_many([(self._at + key, data) for key, data in contents])

    def copier_from(self, origin: ObjectStore) -> ServerCopy | None:
        """Return None: it is no service."""
