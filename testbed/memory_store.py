"""A store in memory that can be told to fail."""

from __future__ import annotations

import hashlib
import itertools
import threading
from typing import TYPE_CHECKING

from airflow_flinkstyle.storage.base import CopiedObject, ObjectInfo, Versioned
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

    from airflow_flinkstyle.storage.base import ObjectStore, ServerCopy


class MemoryStore:
    """``ObjectStore`` in memory.

    Attributes:
        calls: How many calls reached the store since it was made or last told to fail.
    """

    def __init__(self, name: str = "test", *, service: str | None = None) -> None:
        """Make an empty store; those that name the same service copy from each other by themselves."""
        self._name, self.service = name, service
        self._objects: dict[str, Versioned] = {}
        self._lock = threading.RLock()
        self._versions = itertools.count(1)
        self._fail_at: int | None = None
        self._hang: threading.Event | None = None
        self._lost_answer = self._recovers = False
        self._denied = self._unanswered = ""
        self.calls = 0

    @property
    def uri(self) -> str:
        """``memory://name``."""
        return f"memory://{self._name}"

    def fail_at(
        self,
        call: int | None,
        *,
        lost_answer: bool = False,
        hang: threading.Event | None = None,
        recovers: bool = False,
    ) -> None:
        """Let the ``call``-th call from now on fail, and all later ones succeed; None for no failure.

        Args:
            call: Counts from 1.
            lost_answer: A write takes effect before it fails, as when the connection broke too late.
            hang: The call first waits for this event.
            recovers: The call does not fail; with ``hang`` it only answers late.
        """
        with self._lock:
            self._fail_at, self._lost_answer, self._hang, self.calls = call, lost_answer, hang, 0
            self._recovers = recovers

    def refuse(self, *, denied: str = "", unanswered: str = "") -> None:
        """Let every call fail that matches, by what it does and its key (``delete orders/blobs/``).

        Args:
            denied: It is refused (403), and has no effect.
            unanswered: It gets no answer (a time-out, a 503), and has no effect so far.
        """
        with self._lock:
            self._denied, self._unanswered = denied, unanswered

    def local_path(self, key: str) -> Path | None:
        """Return None: the content is in no file."""
        checked_key(key)
        return None

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        """Yield every object whose key starts with ``prefix``, in key order, from behind ``after``."""
        checked_prefix(prefix)
        self._count("list")
        with self._lock:
            wanted = (key for key in self._objects if key.startswith(prefix) and key > after)
            found = [self._info(key) for key in sorted(wanted)]
        yield from found

    def folders(self, prefix: str = "") -> Iterator[str]:
        """Yield, in order, the names of the folders directly below ``prefix``."""
        below = (info.key.removeprefix(prefix) for info in self.list(prefix))
        yield from sorted({key.partition("/")[0] for key in below if "/" in key})

    def head(self, key: str) -> ObjectInfo | None:
        """Return the object's size and version, or None if it does not exist."""
        self._count(f"read {checked_key(key)}")
        with self._lock:
            return self._info(key) if key in self._objects else None

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """Return the content or a range of it."""
        self._count(f"read {checked_key(key)}")
        with self._lock:
            if key not in self._objects:
                raise ObjectMissingError.at(self.uri, key)
            data = self._objects[key].data
        return data[start:] if length is None else data[start : start + length]

    def get(self, key: str, *, unless: str | None = None) -> Versioned | None:
        """Return content and version; None if the key is missing or its version is still ``unless``."""
        self._count(f"read {checked_key(key)}")
        with self._lock:
            found = self._objects.get(key)
        return None if found is None or found.version == unless else found

    def write(self, key: str, data: bytes) -> str:
        """Create or overwrite; returns the new version."""
        return self._put("write", key, data)

    def write_many(self, contents: Sequence[tuple[str, bytes]]) -> None:
        """Create or overwrite several, one after the other."""
        for key, data in contents:
            self.write(key, data)

    def create(self, key: str, data: bytes) -> str:
        """Create; raises ``ObjectExistsError`` if the key exists. Exactly one of racing callers wins."""
        return self._put("create", key, data, absent=True)

    def replace(self, key: str, data: bytes, *, expected: str) -> str:
        """Overwrite if the version is still ``expected``; raises ``ObjectChangedError`` otherwise."""
        return self._put("replace", key, data, expected=expected)

    def upload(self, key: str, source: Path, *, sha256: str | None = None) -> str:
        """Create or overwrite from a local file; returns the new version."""
        data = source.read_bytes()
        found = hashlib.sha256(data).hexdigest()
        if sha256 is not None and found != sha256:
            raise ObjectChangedError.at(self.uri, key, expected=sha256, found=found)
        return self._put("write", key, data)

    def upload_by_content(self, source: Path, folder: str, name: Callable[[str, int], str | None]) -> str:
        """Store a local file under a name that depends on its content."""
        data = source.read_bytes()
        sha256 = hashlib.sha256(data).hexdigest()
        chosen = name(sha256, len(data))
        if chosen is not None:
            self._put("write", f"{folder}/{chosen}", data)
        return sha256

    def download(self, key: str, target: Path) -> None:
        """Write the content to a local file."""
        target.write_bytes(self.read(key))

    def copier_from(self, origin: ObjectStore) -> ServerCopy | None:
        """Return how to copy from another store of the same service; the digest is the content's MD5."""
        if not isinstance(origin, MemoryStore) or self.service is None or self.service != origin.service:
            return None

        def copy(source: ObjectInfo, target: str) -> CopiedObject:
            found = origin.get(source.key)
            if found is None:
                raise ObjectMissingError.at(origin.uri, source.key)
            if found.version != source.version:
                raise ObjectChangedError.at(
                    origin.uri, source.key, expected=source.version, found=found.version
                )
            version = self._put("copy", target, found.data)
            md5 = hashlib.md5(found.data, usedforsecurity=False).hexdigest()
            return CopiedObject(version=version, digest=f"etag:{md5}")

        return copy

    def delete(self, key: str) -> None:
        """Delete; a missing key is not an error."""
        checked_key(key)
        late = self._count(f"delete {key}", writes=True)
        with self._lock:
            self._objects.pop(key, None)
        self._lose(late)

    def _put(
        self, action: str, key: str, data: bytes, *, absent: bool = False, expected: str | None = None
    ) -> str:
        checked_key(key)
        late = self._count(f"{action} {key}", writes=True)
        with self._lock:
            found = self._objects.get(key)
            if absent and found is not None:
                raise ObjectExistsError.at(self.uri, key)
            if expected is not None and (found is None or found.version != expected):
                now = f"version {found.version}" if found else "nothing"
                raise ObjectChangedError.at(self.uri, key, expected=f"version {expected}", found=now)
            version = str(next(self._versions))
            self._objects[key] = Versioned(data=bytes(data), version=version)
        self._lose(late)
        return version

    def _info(self, key: str) -> ObjectInfo:
        found = self._objects[key]
        return ObjectInfo(key=key, size_bytes=len(found.data), version=found.version)

    def _count(self, action: str, *, writes: bool = False) -> StoreUnavailableError | None:
        """Count the call and let it fail if it is its turn; returns a failure that is to come late."""
        with self._lock:
            self.calls += 1
            due = self.calls == self._fail_at
        if self._denied and self._denied in action:
            raise StoreDeniedError.during(action, self.uri, "it was told to refuse")
        if self._unanswered and self._unanswered in action:
            raise StoreUnavailableError.during(action, self.uri, "it was told not to answer")
        if not due:
            return None
        if self._hang is not None:
            self._hang.wait()
        if self._recovers:
            return None
        error = StoreUnavailableError.during(action, self.uri, "it was told to fail")
        if writes and self._lost_answer:
            return error
        raise error

    def _lose(self, error: StoreUnavailableError | None) -> None:
        """Fail after the write took effect."""
        if error is not None:
            raise error
