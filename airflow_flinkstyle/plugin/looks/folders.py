"""Folders of a job that are read again only if a listing shows that they changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.storage.base import ObjectStore


class Folders:
    """Of one job; threads that read at once may read twice."""

    def __init__(self, store: ObjectStore, job: str) -> None:
        self._store, self._job = store, job
        self._read: dict[str, tuple[dict[str, str], Any]] = {}
        """Folder -> the versions in it, and what was made of them."""

    def remembered(self, folder: str, read: Callable[[], Any], *also: str) -> Any:  # noqa: ANN401 - as ``read``
        """Return what ``read`` makes of a folder, and of others beside it; read again once they change."""
        versions = {
            info.key: info.version
            for name in (folder, *also)
            for info in self._store.list(f"{self._job}/{name}/")
        }
        before = self._read.get(folder)
        if before is None or before[0] != versions:
            before = (versions, read())
            self._read[folder] = before
        return before[1]
