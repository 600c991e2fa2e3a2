"""A view of a store that counts what a reader asks of it, as S3 would charge for it."""

# ruff: noqa: ANN401
from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_flinkstyle.storage.base import ObjectInfo, ObjectStore, Versioned

PAGE_KEYS = 1000
"""Keys in one answer to a listing."""
ENTRY_BYTES = 300
"""Of one key in that answer, key included."""


class CountingStore:
    """Passes everything on; requests and bytes of reads and listings are counted."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.requests: list[str] = []
        self.bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def reset(self) -> None:
        self.requests, self.bytes = [], 0

    def list(self, prefix: str = "", **options: Any) -> Iterator[ObjectInfo]:
        self.requests.append(f"list {prefix}")
        for number, info in enumerate(self._store.list(prefix, **options)):
            if number and number % PAGE_KEYS == 0:
                self.requests.append(f"list {prefix}, next page")
            self.bytes += ENTRY_BYTES
            yield info

    def head(self, key: str) -> ObjectInfo | None:
        self.requests.append(f"head {key}")
        return self._store.head(key)

    def read(self, key: str, **part: Any) -> bytes:
        data = self._store.read(key, **part)
        self._got(key, data)
        return data

    def get(self, key: str, **options: Any) -> Versioned | None:
        found = self._store.get(key, **options)
        self._got(key, found.data if found is not None else b"")
        return found

    def _got(self, key: str, data: bytes) -> None:
        self.requests.append(f"get {key}")
        self.bytes += len(data)
