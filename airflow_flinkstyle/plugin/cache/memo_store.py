"""A store whose objects are read once: what is judged at one moment is judged on one state of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_flinkstyle.storage.base import ObjectInfo, ObjectStore, Versioned


class MemoStore:
    """Passes everything on, and repeats what it was told of an object or a listing; for one moment."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._objects: dict[str, Versioned | None] = {}
        self._listings: dict[tuple[str, str], list[ObjectInfo]] = {}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store has
        return getattr(self._store, name)

    def get(self, key: str, *, unless: str | None = None) -> Versioned | None:
        """Return content and version, as read first."""
        if key not in self._objects:
            self._objects[key] = self._store.get(key)
        found = self._objects[key]
        return None if found is not None and found.version == unless else found

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        """List, as listed first."""
        key = (prefix, after)
        if key not in self._listings:
            self._listings[key] = list(self._store.list(prefix, after=after))
        return iter(self._listings[key])
