"""The files that one version of a query's state needs.

A store has a folder: ``state/<operator>/<partition>``, or one below it where an operator has several (joins).
Version V is, for the HDFS provider, the newest snapshot up to V and the deltas behind it; for RocksDB,
``V.zip`` and the SST files named inside it; with changelogs, the newest zip up to V and the changelogs
behind it. Spark: ``HDFSBackedStateStoreProvider``, ``RocksDBFileManager``.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.checkpoint.errors import (
    LogFormatError,
    StateIncompleteError,
    UnsupportedCheckpointError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from airflow_flinkstyle.types import StateVersion

_VERSION_FILE = re.compile(r"(?P<version>\d+)\.(?P<kind>delta|snapshot|zip|changelog)")
_FORMAT_V2_FILE = re.compile(r"\d+_[0-9a-f-]{36}\.(zip|changelog|delta|snapshot)")
_UNIQUE_SST = re.compile(r".*/SSTs/\d+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.sst")
_PROVIDER_CONF: Final = "spark.sql.streaming.stateStore.providerClass"
_KNOWN_PROVIDERS = frozenset({"HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider"})
_SCHEMA_FOLDERS = frozenset({"_metadata", "_stateSchema"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFile:
    """One file that a state version needs, in the order in which to copy it."""

    path: str
    """Relative to the checkpoint root."""
    content: bytes | None
    """What was read to find the other files (a zip); copy this, not the file, so that both agree."""


@dataclass(frozen=True, slots=True)
class _Store:
    """The versioned files of one store, by kind."""

    path: str
    files: Mapping[str, Mapping[int, str]]

    def of(self, kind: str) -> Mapping[int, str]:
        return self.files.get(kind, {})


def is_unique_sst(path: str) -> bool:
    """Tell whether the file's name is never used again, so that an equal name and size is an equal file.

    Zips, changelogs, deltas and snapshots are named by their version alone, which a batch that is run
    again writes anew.
    """
    return _UNIQUE_SST.fullmatch(path) is not None


def refuse_unsupported(confs: Mapping[str, str], state_unique_ids: Mapping[str, Any]) -> None:
    """Refuse state that this package cannot copy, by what the logs say.

    Raises:
        UnsupportedCheckpointError: For a foreign provider, or checkpoint format v2.
    """
    provider = confs.get(_PROVIDER_CONF, "HDFSBackedStateStoreProvider").rpartition(".")[2]
    if provider not in _KNOWN_PROVIDERS:
        raise UnsupportedCheckpointError.mode(
            f"the state store provider {provider}",
            remedy=f"Use one of {', '.join(sorted(_KNOWN_PROVIDERS))} ({_PROVIDER_CONF}).",
        )
    if state_unique_ids:
        raise _format_v2("state ids in its commit log")


def state_closure(
    paths: Collection[str], version: StateVersion, read: Callable[[str], bytes]
) -> tuple[StateFile, ...]:
    """Return every file below ``state/`` that version ``version`` needs; empty for a stateless query.

    Args:
        paths: All files of the checkpoint, or only those below ``state/``; hidden ones are ignored.
        version: The version that exists after batch K: K + 1.
        read: Returns a file's content; used for zips and the operators' metadata only.

    Raises:
        StateIncompleteError: If a file is missing.
        UnsupportedCheckpointError: For checkpoint format v2 and ``transformWithState``.
    """
    visible = {path for path in paths if path.startswith("state/") and "/." not in path}
    schemas = sorted(path for path in visible if _SCHEMA_FOLDERS & set(path.split("/")[:-1]))
    _refuse_transform_with_state(schemas)
    stores = _stores(visible.difference(schemas))
    _require_every_store(stores, schemas, version, read)
    files = [StateFile(path=path, content=None) for path in schemas]
    for store in stores.values():
        files += _closure_of(store, version, visible, read)
    return tuple(files)


def _closure_of(
    store: _Store, version: StateVersion, visible: Collection[str], read: Callable[[str], bytes]
) -> Iterator[StateFile]:
    """Yield the files of one store; each zip before the SSTs it names."""
    if store.of("zip") or store.of("changelog"):
        base = max((number for number in store.of("zip") if number <= version), default=0)
        chain = _chain(store, "changelog", base, version)
        if base:
            archive = read(store.of("zip")[base])
            yield StateFile(path=store.of("zip")[base], content=archive)
            for path in _named_in(archive, store.path):
                if path not in visible:
                    raise StateIncompleteError.of(store.path, version, path)
                yield StateFile(path=path, content=None)
        start = [store.of("zip")[base]] if base else []
    else:
        base = max((number for number in store.of("snapshot") if number <= version), default=0)
        chain = _chain(store, "delta", base, version)
        start = [store.of("snapshot")[base]] if base else []
        yield from (StateFile(path=path, content=None) for path in start)
    yield from (StateFile(path=path, content=None) for path in chain)
    checksums = [f"{path}.crc" for path in (*start, *chain)]
    yield from (StateFile(path=path, content=None) for path in checksums if path in visible)


def _chain(store: _Store, kind: str, base: int, version: StateVersion) -> list[str]:
    """Return the files that lead from version ``base`` to ``version``, one for each step."""
    steps = store.of(kind)
    missing = [number for number in range(base + 1, version + 1) if number not in steps]
    if missing:
        raise StateIncompleteError.of(store.path, version, f"{missing[0]}.{kind}, nor a later full version")
    return [steps[number] for number in range(base + 1, version + 1)]


def _named_in(archive: bytes, store: str) -> list[str]:
    """Return the files that a RocksDB version's ``metadata`` entry names: its SSTs, and logs if any."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as entries:
            text = entries.read("metadata").decode()
        fields = json.loads(text.partition("\n")[2])
        ssts = [f"{store}/SSTs/{entry['dfsSstFileName']}" for entry in fields.get("sstFiles") or ()]
        logs = [f"{store}/logs/{entry['dfsLogFileName']}" for entry in fields.get("logFiles") or ()]
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError, AttributeError) as error:
        raise LogFormatError.of(f"Zip in {store}", "a zip with a file list", str(error)) from error
    if not text.startswith("v1\n"):
        raise UnsupportedCheckpointError.mode(
            f"a RocksDB file list that does not start with v1 in {store}",
            remedy="Upgrade airflow-flinkstyle, or run the job with the Spark version that wrote it.",
        )
    return ssts + logs


def _stores(paths: Collection[str]) -> dict[str, _Store]:
    """Group the versioned files by their store's folder."""
    found: dict[str, dict[str, dict[int, str]]] = {}
    for path in sorted(paths):
        folder, _, name = path.rpartition("/")
        if _FORMAT_V2_FILE.fullmatch(name):
            raise _format_v2(f"a file like {path}")
        if match := _VERSION_FILE.fullmatch(name):
            found.setdefault(folder, {}).setdefault(match["kind"], {})[int(match["version"])] = path
    return {folder: _Store(folder, files) for folder, files in found.items()}


def _require_every_store(
    stores: Mapping[str, _Store],
    schemas: Collection[str],
    version: StateVersion,
    read: Callable[[str], bytes],
) -> None:
    """Compare the stores found with those that Spark recorded for each operator (4.0 and newer)."""
    for path in schemas:
        folder, _, name = path.rpartition("/")
        if name != "metadata" or folder.count("/") != 2:
            continue
        operator = folder.removesuffix("/_metadata")
        for store in _recorded_stores(read(path).decode(), path):
            inner = "" if store["storeName"] == "default" else f"/{store['storeName']}"
            for partition in range(store["numPartitions"]):
                expected = f"{operator}/{partition}{inner}"
                if expected not in stores:
                    raise StateIncompleteError.of(expected, version, "file at all")


def _recorded_stores(text: str, path: str) -> list[dict[str, Any]]:
    try:
        recorded = json.loads(text.partition("\n")[2])["stateStoreInfo"]
        return [
            {"storeName": str(store["storeName"]), "numPartitions": int(store["numPartitions"])}
            for store in recorded
        ]
    except (KeyError, ValueError, TypeError) as error:
        raise LogFormatError.of(path, "the operator's list of stores", text) from error


def _refuse_transform_with_state(schemas: Collection[str]) -> None:
    """Its metadata (v2) names files by absolute path, so that a copy would read the original's."""
    for path in schemas:
        if re.fullmatch(r"state/\d+/_metadata/v2/.*", path) or "/_stateSchema/" in path:
            raise UnsupportedCheckpointError.mode(
                f"state of transformWithState ({path}), which holds absolute paths",
                remedy="Savepoints of transformWithState are not supported yet; "
                "other stateful operators are.",
            )


def _format_v2(found: str) -> UnsupportedCheckpointError:
    return UnsupportedCheckpointError.mode(
        f"state store checkpoint format v2 ({found})",
        remedy="Format v2 is not supported yet: start the query with "
        "spark.sql.streaming.stateStore.checkpointFormatVersion=1 and a new checkpoint.",
    )
