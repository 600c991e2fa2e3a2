"""The files of a state store, by their names. Pure.

A store has a folder: ``state/<operator>/<partition>``, or one below it where an operator has several (joins).
In format v1 a file is named by its version alone, in format v2 by version and the id of the attempt that
wrote it: ``7.zip``, ``7_<uuid>.zip``. Spark: ``HDFSBackedStateStoreProvider``, ``RocksDBFileManager``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.checkpoint.errors import CHECKPOINT_UNSUPPORTED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_VERSION_FILE = re.compile(rf"(?P<version>\d+)(?:_(?P<uid>{_UUID}))?\.(?P<kind>delta|snapshot|zip|changelog)")
_UNIQUE_SST = re.compile(rf".*/SSTs/\d+-{_UUID}\.sst")
_STORE = re.compile(r"state/(?P<operator>\d+)/(?P<partition>\d+)(?:/[^/]+)?")
_IN_STORE = re.compile(r"state/(?P<operator>\d+)/\d+/")
_V2_KINDS = frozenset({"zip", "changelog"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFile:
    """One file that a state version needs, in the order in which to copy it."""

    path: str
    """Relative to the checkpoint root."""
    content: bytes | None
    """What was read to find the other files (a zip); copy this, not the file, so that both agree."""


@dataclass(frozen=True, slots=True)
class Store:
    """The versioned files of one store."""

    path: str
    operator: str
    partition: int
    files: Mapping[tuple[int, str | None], Mapping[str, str]]
    """By version and attempt (None in format v1): the path of each kind of file."""

    @property
    def is_v2(self) -> bool:
        """Whether its files are named by attempt, too."""
        return any(uid is not None for _, uid in self.files)

    def of(self, kind: str) -> dict[int, str]:
        """Return the files of one kind by version (format v1)."""
        return {version: found[kind] for (version, _), found in self.files.items() if kind in found}

    def attempts(self, version: int) -> dict[str, Mapping[str, str]]:
        """Return what each attempt wrote of a version (format v2)."""
        return {uid: found for (number, uid), found in self.files.items() if number == version and uid}


def is_unique_sst(path: str) -> bool:
    """Tell whether the file's name is never used again, so that an equal name and size is an equal file.

    In format v1 zips, changelogs, deltas and snapshots are named by their version alone, which a batch that
    is run again overwrites.
    """
    return _UNIQUE_SST.fullmatch(path) is not None


def is_state_data(path: str, operators: Collection[int]) -> bool:
    """Tell whether the file holds keys and values of one of these operators; schemas and metadata do not."""
    match = _IN_STORE.match(path)
    return match is not None and int(match["operator"]) in operators and "/_metadata/" not in path


def group_stores(paths: Iterable[str]) -> dict[str, Store]:
    """Group versioned files by their store's folder; other files are left out.

    Raises:
        FlinkstyleError: ``CHECKPOINT_UNSUPPORTED`` for format v2 outside RocksDB, which no known Spark
            writes.
    """
    found: dict[str, dict[tuple[int, str | None], dict[str, str]]] = {}
    for path in sorted(paths):
        folder, _, name = path.rpartition("/")
        match = _VERSION_FILE.fullmatch(name)
        if match and _STORE.fullmatch(folder):
            if match["uid"] and match["kind"] not in _V2_KINDS:
                raise CHECKPOINT_UNSUPPORTED.error(
                    found=f"state of format v2 that RocksDB did not write ({path})",
                    remedy="Upgrade airflow-flinkstyle, or use the RocksDB provider for format v2.",
                )
            attempt = found.setdefault(folder, {}).setdefault((int(match["version"]), match["uid"]), {})
            attempt[match["kind"]] = path
    stores = {}
    for folder, files in found.items():
        _, operator, partition, *_ = folder.split("/")
        stores[folder] = Store(folder, operator, int(partition), files)
    return stores


def with_checksums(paths: Collection[str], visible: Collection[str]) -> Iterator[StateFile]:
    """Yield files as they are to be copied, those with a visible checksum (Spark 4.1) together with it."""
    for path in paths:
        yield StateFile(path=path, content=None)
        yield from checksum_of(path, visible)


def checksum_of(path: str, visible: Collection[str]) -> Iterator[StateFile]:
    """Yield a file's visible checksum, if it has one."""
    if f"{path}.crc" in visible:
        yield StateFile(path=f"{path}.crc", content=None)
