"""Small records beside the savepoints, one per savepoint at most; a manifest itself never changes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.protocol.records import Record
    from airflow_flinkstyle.savepoint.repository import SavepointRepository

R = TypeVar("R", bound="Record")

FOLDERS = ("pins", "verified", "owned")
_THREADS = 16


def read_notes(repository: SavepointRepository, folder: str, kind: type[R]) -> Mapping[str, R]:
    """Return every record of a folder by savepoint id, by one listing."""
    prefix = f"{repository.job}/{folder}/"
    keys = [info.key for info in repository.store.list(prefix)]
    with ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="notes") as pool:
        found = zip(keys, pool.map(repository.store.get, keys), strict=True)
        return {
            key.removeprefix(prefix).removesuffix(".json"): kind.from_bytes(note.data)
            for key, note in found
            if note is not None
        }


def delete_notes(repository: SavepointRepository, savepoint_id: str) -> None:
    """Delete what stands beside a savepoint that is about to go."""
    for folder in FOLDERS:
        repository.store.delete(f"{repository.job}/{folder}/{savepoint_id}.json")
