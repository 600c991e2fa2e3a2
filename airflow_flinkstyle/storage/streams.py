"""Large objects in pieces."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from airflow_flinkstyle.storage.errors import ObjectMissingError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_flinkstyle.storage.base import ObjectStore

CHUNK_BYTES = 8 << 20
LARGE_BYTES = 96 << 20
"""From here on a file is sent in parts; RocksDB's end at a little over 64 MiB, and are one request each."""


def chunks(store: ObjectStore, key: str) -> Iterator[bytes]:
    """Yield an object's content in pieces of 8 MiB; raises ``ObjectMissingError``."""
    start = 0
    while piece := store.read(key, start=start, length=CHUNK_BYTES):
        if len(piece) > CHUNK_BYTES:  # a service that ignores ranges would never come to an end
            raise StoreUnavailableError.during(f"read a range of {key}", store.uri, "it sent all of it")
        yield piece
        start += len(piece)
        if len(piece) < CHUNK_BYTES:
            return
    if start == 0 and store.head(key) is None:
        raise ObjectMissingError.at(store.uri, key)


def sha256_of(store: ObjectStore, key: str) -> tuple[str, int]:
    """Return the SHA-256 in hex and the size in bytes of an object, never holding it whole."""
    digest = hashlib.sha256()
    size_bytes = 0
    for piece in chunks(store, key):
        digest.update(piece)
        size_bytes += len(piece)
    return digest.hexdigest(), size_bytes
