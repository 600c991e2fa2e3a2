"""Give a savepoint's batch another number, so that a sink that counts batches takes the next as new. Pure.

Only file names change: the logs are named by the batch, the state by the batch after it, and neither contains
its number. Tested on Spark for the HDFS provider, RocksDB and RocksDB with changelogs.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.savepoint.errors import RenumberError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_flinkstyle.savepoint.manifest import FileEntry, QuerySnapshot
    from airflow_flinkstyle.types import BatchId

_LOG = re.compile(r"(?P<log>offsets|commits)/(?P<number>\d+)")
_STATE = re.compile(
    r"(?P<store>state/.+)/(?P<number>\d+)\.(?P<kind>zip|snapshot|changelog|delta)(?P<crc>\.crc)?"
)
_FORMAT_V2 = re.compile(r"state/.+/\d+_[0-9a-f-]{36}\.\w+(\.crc)?")
_OWN_METADATA = re.compile(r"state/\d+/_metadata/v2/.*|state/.+/_stateSchema/.*")
_FULL: Final = frozenset({"zip", "snapshot"})


def renumber(query: QuerySnapshot, batch: BatchId) -> QuerySnapshot:
    """Return the query as if its last batch had been ``batch``; no file's content changes.

    Raises:
        RenumberError: If its state files contain numbers, or do not begin with a full version.
    """
    shift = batch - query.batch_id
    if shift == 0:
        return query
    _require_renumberable(query)
    files = [replace(entry, path=_shifted(entry.path, shift)) for entry in query.files]
    if query.batch_id == 0:  # Spark requires a log of the batch before, of any content
        newest = f"offsets/{batch}"
        before = f"offsets/{batch - 1}"
        files += [replace(entry, path=before) for entry in files if entry.path == newest]
    return replace(query, batch_id=batch, files=tuple(sorted(files, key=_path)))


def _path(entry: FileEntry) -> str:
    return entry.path


def _shifted(path: str, shift: int) -> str:
    if match := _LOG.fullmatch(path):
        return f"{match['log']}/{int(match['number']) + shift}"
    if match := _STATE.fullmatch(path):
        number = int(match["number"]) + shift
        return f"{match['store']}/{number}.{match['kind']}{match['crc'] or ''}"
    return path


def _require_renumberable(query: QuerySnapshot) -> None:
    paths = [entry.path for entry in query.files]
    if any(_FORMAT_V2.fullmatch(path) for path in paths):
        raise RenumberError.of(query.name, "state of checkpoint format v2, whose changelogs list versions")
    if any(_OWN_METADATA.fullmatch(path) for path in paths):
        raise RenumberError.of(query.name, "state of transformWithState, whose metadata is kept by batch")
    if young := _without_full_version(paths):
        raise RenumberError.of(query.name, f"no full version of the state yet in {young[0]}")


def _without_full_version(paths: Iterable[str]) -> list[str]:
    """Return the stores that only have changes from an empty state, which begin with number 1."""
    kinds: dict[str, set[str]] = {}
    for path in paths:
        if match := _STATE.fullmatch(path):
            kinds.setdefault(match["store"], set()).add(match["kind"])
    return sorted(store for store, found in kinds.items() if not found & _FULL)
