"""What the package needs of a store, and nothing more: the interface every backend fulfils.

A store is rooted: keys are relative, with forward slashes, never absolute, never with ``..``.
The two conditional writes (``create`` and ``replace``) carry the whole protocol; a backend that
cannot do them atomically must refuse to open.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One object, as listed."""

    key: str
    size_bytes: int
    version: str
    """Changes with every write of the key; opaque (S3: the ETag)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Versioned:
    """Content together with the version that ``replace`` expects."""

    data: bytes
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedObject:
    """What a store reports of a copy that it made by itself."""

    version: str
    digest: str | None
    """``sha256:<hex>``, or ``etag:<hex>`` where the ETag is the content's MD5; None if it reports neither."""


ServerCopy: TypeAlias = "Callable[[ObjectInfo, str], CopiedObject]"


class ObjectStore(Protocol):
    """A rooted key-value store with conditional writes.

    Every method raises ``StoreUnavailableError`` (retryable) when the backend cannot be reached,
    and ``StoreDeniedError`` when it rejects the credentials.
    """

    @property
    def uri(self) -> str:
        """Where the root is, for messages and manifests (``s3://bucket/prefix`` or ``file:///path``)."""

    def local_path(self, key: str) -> Path | None:
        """Return the object's place in this machine's file system, or None if it has none."""

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        """Yield every object whose key starts with ``prefix``, in key order, from behind ``after``.

        The keys up to ``after`` cost nothing: no page of a listing, and no folder that is read.
        """

    def folders(self, prefix: str = "") -> Iterator[str]:
        """Yield, in order, the names of the folders directly below ``prefix`` (empty, or ending in ``/``)."""

    def head(self, key: str) -> ObjectInfo | None:
        """Return the object's size and version, or None if it does not exist."""

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """Return the content or a range of it; raises ``ObjectMissingError``."""

    def get(self, key: str, *, unless: str | None = None) -> Versioned | None:
        """Return content and version; None if the key is missing or its version is still ``unless``."""

    def write(self, key: str, data: bytes) -> str:
        """Create or overwrite; returns the new version."""

    def write_many(self, contents: Sequence[tuple[str, bytes]]) -> None:
        """Create or overwrite several, by key, each as ``write``; if one fails, none or some are written."""

    def create(self, key: str, data: bytes) -> str:
        """Create; raises ``ObjectExistsError`` if the key exists. Exactly one of racing callers wins."""

    def replace(self, key: str, data: bytes, *, expected: str) -> str:
        """Overwrite if the version is still ``expected``; raises ``ObjectChangedError`` otherwise."""

    def upload(self, key: str, source: Path, *, sha256: str | None = None) -> str:
        """Create or overwrite from a local file, streamed; returns the new version.

        With ``sha256`` (hex), content that differs is not written: ``ObjectChangedError``.
        """

    def upload_by_content(self, source: Path, folder: str, name: Callable[[str, int], str | None]) -> str:
        """Store a local file under a name that depends on its content, read once where that is possible.

        Args:
            source: The file; one that is renamed over it meanwhile is not mixed in.
            folder: Where it goes.
            name: Called with SHA-256 (hex) and size in bytes; answers the name, or None to store nothing.

        Returns:
            The SHA-256 in hex.

        Raises:
            FileNotFoundError: If there is no such file.
        """

    def download(self, key: str, target: Path) -> None:
        """Write the content to a local file, streamed; raises ``ObjectMissingError``."""

    def copier_from(self, origin: ObjectStore) -> ServerCopy | None:
        """Return how to copy another store's objects without moving bytes through this process.

        None if the two are not on the same service. The copier takes an object as it was listed and the key
        of the copy; it raises ``ObjectChangedError`` if the object was written since, ``ObjectMissingError``
        if it is gone.
        """

    def delete(self, key: str) -> None:
        """Delete; a missing key is not an error."""


def write_over(store: ObjectStore, key: str, data: bytes, *, seen: str | None) -> str:
    """Write over version ``seen``, or create if that is None; returns the new version.

    Raises:
        ObjectExistsError: If it was to be created, and another caller was first.
        ObjectChangedError: If another caller has written since.
    """
    if seen is None:
        return store.create(key, data)
    return store.replace(key, data, expected=seen)
