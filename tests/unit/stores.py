"""Stores that do something at a given call."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class ActingStore:
    """Does something once, just before or after it creates an object: what others do at that moment."""

    def __init__(
        self,
        store: object,
        act: Callable[[], object],
        *,
        key: str,
        holding: bytes = b"",
        after: bool = False,
    ) -> None:
        self._store, self._act, self._key, self._holding, self._after = store, act, key, holding, after
        self.has_acted = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def create(self, key: str, data: bytes) -> object:
        acts = not self.has_acted and self._key in key and self._holding in data
        self.has_acted |= acts
        if acts and not self._after:
            self._act()
        version = self._store.create(key, data)  # type: ignore[attr-defined]
        if acts and self._after:
            self._act()
        return version
