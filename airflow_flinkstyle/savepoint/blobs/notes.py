"""Small records beside the savepoints, one per savepoint at most; a manifest itself never changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from airflow_flinkstyle.savepoint.repository.folder_cache import read_folder
from airflow_flinkstyle.savepoint.repository.stored import parse_stored

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.protocol.record import Record
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

R = TypeVar("R", bound="Record")

FOLDERS = ("verified", "damaged")


def note_key(repository: SavepointRepository, folder: str, savepoint_id: str) -> str:
    """Return where a savepoint's record of a folder is."""
    return f"{repository.job}/{folder}/{savepoint_id}.json"


def read_notes(repository: SavepointRepository, folder: str, kind: type[R]) -> Mapping[str, R]:
    """Return every record of a folder by savepoint id, by one listing."""

    def extract(savepoint_id: str, data: bytes) -> str:
        key = note_key(repository, folder, savepoint_id)
        parse_stored(kind, repository, key, data)  # only what can be parsed is cached
        return data.decode()

    texts = read_folder(repository, folder, extract)
    return {savepoint_id: kind.from_bytes(text.encode()) for savepoint_id, text in texts.items()}


def delete_notes(repository: SavepointRepository, savepoint_id: str) -> None:
    """Delete the records of a savepoint that is gone."""
    for folder in FOLDERS:
        repository.store.delete(note_key(repository, folder, savepoint_id))
