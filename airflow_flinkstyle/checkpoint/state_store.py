"""The files that one version of a query's state needs.

Version V is, for the HDFS provider, the newest snapshot up to V and the deltas behind it; for RocksDB,
``V.zip`` and the SST files named inside it; with changelogs, the newest zip up to V and the changelogs
behind it. Spark: ``HDFSBackedStateStoreProvider``, ``RocksDBFileManager``, ``RocksDBCheckpointMetadata``.

In checkpoint format v2 (Spark 4.0) a commit names the attempt behind each store's version.
``V_<uuid>.zip`` is the whole version. ``V_<uuid>.changelog`` alone continues an older version, whose
attempts its header lists, compressed. There is mostly one attempt per version, so that the names alone give
the chain; where a batch was run again and several are there, all of them are copied, back to a zip that is
the only attempt at its version. What no lineage names, Spark never reads. Spark:
``RocksDB.loadWithCheckpointId``.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.checkpoint.errors import (
    CHECKPOINT_UNSUPPORTED,
    LogFormatError,
    StateIncompleteError,
)
from airflow_flinkstyle.checkpoint.logfile import json_object, split_version
from airflow_flinkstyle.checkpoint.operator_metadata import is_relocatable, metadata_paths, read_metadata
from airflow_flinkstyle.checkpoint.state_files import StateFile, checksum_of, group_stores, with_checksums
from airflow_flinkstyle.checkpoint.stores_in_use import stores_in_use
from airflow_flinkstyle.types import BatchId

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from airflow_flinkstyle.checkpoint.commit_log import StateIds
    from airflow_flinkstyle.checkpoint.operator_metadata import OperatorMetadata
    from airflow_flinkstyle.checkpoint.state_files import Store
    from airflow_flinkstyle.types import StateVersion

Over = Callable[[Callable[["Store"], list["StateFile"]], Iterable["Store"]], Iterable[list["StateFile"]]]
"""Calls a function with each store, and gives what it returns in the order of the stores."""
_PROVIDER_CONF: Final = "spark.sql.streaming.stateStore.providerClass"
_KNOWN_PROVIDERS = frozenset({"HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider"})


def refuse_unsupported(confs: Mapping[str, str]) -> None:
    """Refuse state that this package cannot copy, by the confs in the offset log.

    Raises:
        FlinkstyleError: ``CHECKPOINT_UNSUPPORTED`` for a foreign provider.
    """
    provider = confs.get(_PROVIDER_CONF, "HDFSBackedStateStoreProvider").rpartition(".")[2]
    if provider not in _KNOWN_PROVIDERS:
        raise CHECKPOINT_UNSUPPORTED.error(
            found=f"the state store provider {provider}",
            remedy=f"Use one of {', '.join(sorted(_KNOWN_PROVIDERS))} ({_PROVIDER_CONF}).",
        )


def state_closure(
    paths: Collection[str],
    version: StateVersion,
    ids: StateIds,
    read: Callable[[str], bytes],
    *,
    partitions: int | None,
    over: Over = map,
) -> tuple[StateFile, ...]:
    """Return every file below ``state/`` that version ``version`` needs; empty for a stateless query.

    Args:
        paths: All files of the checkpoint, or only those below ``state/``; hidden ones are ignored.
        version: The version that exists after batch K: K + 1.
        ids: The commit log's ``state_unique_ids`` of batch K; empty for format v1.
        read: Returns a file's content; used for zips, the operators' metadata and their schemas only.
        partitions: The number that the offset log pins (``shuffle_partitions``).
        over: Goes over the stores in their order; a pool's ``map`` reads the zips of several at a time.

    Raises:
        StateIncompleteError: If a file is missing.
        LogFormatError: If a file that names others is malformed.
        FlinkstyleError: ``CHECKPOINT_UNSUPPORTED`` if it is of a format newer than this package.
    """
    visible = {path for path in paths if path.startswith("state/") and "/." not in path}
    stores = group_stores(path for path in visible if not is_schema(path))
    require_every_id(stores, ids, version)
    operators = [read_metadata(path, read) for path in metadata_paths(visible, BatchId(version - 1))]
    files = [StateFile(path=path, content=None) for path in _schemas(visible, operators, version)]
    recorded = {operator.folder.removeprefix("state/"): operator for operator in operators}
    keyed = partial(has_keys, paths=visible, read=read)

    def closure(store: Store) -> list[StateFile]:
        if store.is_v2:
            return list(closure_v2(store, ids, version, visible, read))
        return list(_closure_v1(store, version, visible, read))

    for found in over(closure, stores_in_use(stores, recorded, ids, partitions, version, has_keys=keyed)):
        files += found
    return tuple(files)


def is_schema(path: str) -> bool:
    """Return whether a file below ``state/`` describes stores rather than being a part of one."""
    return not {"_metadata", "_stateSchema"}.isdisjoint(path.split("/")[:-1])


def _schemas(
    visible: Collection[str], operators: Collection[OperatorMetadata], version: StateVersion
) -> list[str]:
    """Return the files that describe the stores."""
    found = {path for path in visible if is_schema(path) and not _is_chosen_by_batch(path)}
    for operator in operators:
        for schema in operator.schemas:
            if schema not in visible:
                raise StateIncompleteError.of(operator.folder, version, schema)
        found.update([operator.path, *operator.schemas])
    return sorted(found)


def _is_chosen_by_batch(path: str) -> bool:
    """Return whether a batch needs this kind of file only if the operator's metadata names it."""
    return is_relocatable(path) or "/_stateSchema/" in path


def _closure_v1(
    store: Store, version: StateVersion, visible: Collection[str], read: Callable[[str], bytes]
) -> Iterator[StateFile]:
    """Yield the files of one store of format v1; each zip before the SSTs it names."""
    zips, changelogs, snapshots = store.of("zip"), store.of("changelog"), store.of("snapshot")
    if zips or changelogs:
        base = max((number for number in zips if number <= version), default=0)
        chain = _chain(store, "changelog", base, version)
        if base:
            yield from zip_and_shared_files(zips[base], version, visible, read)
    else:
        base = max((number for number in snapshots if number <= version), default=0)
        chain = _chain(store, "delta", base, version)
        yield from with_checksums([snapshots[base]] if base else [], visible)
    yield from with_checksums(chain, visible)


def _chain(store: Store, kind: str, base: int, version: StateVersion) -> list[str]:
    """Return the files that lead from version ``base`` to ``version``, one for each step."""
    steps = store.of(kind)
    missing = next((number for number in range(base + 1, version + 1) if number not in steps), None)
    if missing is not None:
        raise StateIncompleteError.of(store.path, version, f"{missing}.{kind}, nor a later full version")
    return [steps[number] for number in range(base + 1, version + 1)]


_BEGIN: Final = b'{"type":"struct","fields":['
_NO_KEYS: Final = frozenset({"sessionStartTime"})
"""Fields that Spark itself puts into the keys of sessions."""


def has_keys(operator: str, paths: Collection[str], read: Callable[[str], bytes]) -> bool:
    """Return whether an operator surely has keys; False if it has none, or if that is unknown.

    One without keys has one partition, whatever number is recorded. Spark writes what keys are made of in
    partition 0 alone: ``_metadata/schema``, the key's schema and the value's, as JSON behind binary lengths
    (``StateSchemaCompatibilityChecker``).

    Args:
        operator: Its number.
        paths: All files of the checkpoint.
        read: Returns a file's content.
    """
    root = f"state/{operator}/"
    if any(path.startswith(f"{root}_stateSchema/") for path in paths):
        return True  # transformWithState, and joins: they have keys always
    schemas = [path for path in paths if path.startswith(f"{root}0/") and path.endswith("/_metadata/schema")]
    return any(_names_keys(read(path)) for path in schemas)


def _names_keys(content: bytes) -> bool:
    """Return whether the first schema in the file, the key's, has fields other than Spark's own."""
    begin = content.find(_BEGIN)
    if begin < 0:
        return False
    try:
        fields = json.JSONDecoder().raw_decode(content[begin:].decode("utf-8", "replace"))[0]["fields"]
        return any(field["type"] != "void" and field["name"] not in _NO_KEYS for field in fields)
    except (ValueError, KeyError, TypeError, RecursionError):
        return False  # a schema too long for one piece, or not Spark's: unknown


def require_every_id(stores: Mapping[str, Store], ids: StateIds, version: int) -> None:
    """Refuse a commit that names attempts of which no file is there.

    Raises:
        StateIncompleteError: Naming the store's folder and the attempt.
    """
    found: dict[tuple[str, int], list[str]] = {}
    for store in stores.values():
        found.setdefault((store.operator, store.partition), []).extend(store.attempts(version))
    for operator, partitions in ids.items():
        for partition, wanted in enumerate(partitions):
            missing = set(wanted).difference(found.get((operator, partition), ()))
            for uid in sorted(missing):
                place = f"state/{operator}/{partition}"
                raise StateIncompleteError.of(place, version, f"{version}_{uid}.zip or .changelog")


def closure_v2(
    store: Store, ids: StateIds, version: int, visible: Collection[str], read: Callable[[str], bytes]
) -> Iterator[StateFile]:
    """Yield the files that the committed attempt at ``version`` needs, zips before the SSTs they name.

    Raises:
        StateIncompleteError: If a file is missing.
    """
    partitions = ids.get(store.operator, ())
    named = partitions[store.partition] if store.partition < len(partitions) else ()
    attempts = {uid: found for uid, found in store.attempts(version).items() if uid in named}
    if len(attempts) != 1:
        raise StateIncompleteError.of(store.path, version, "attempt that the commit log names")
    number = version
    while True:
        for found in attempts.values():
            if "zip" in found:
                yield from zip_and_shared_files(found["zip"], number, visible, read)
            if "changelog" in found:  # of the oldest version too: it names the version before that
                yield from with_checksums([found["changelog"]], visible)
        if number <= 1 or (len(attempts) == 1 and all("zip" in found for found in attempts.values())):
            return
        number -= 1
        attempts = dict(store.attempts(number))
        if not attempts:
            raise StateIncompleteError.of(store.path, version, f"{number}_<id>.changelog, nor a later zip")


_FILE_LIST_VERSIONS = (1,)
_BROKEN_ZIP = (
    *(zipfile.BadZipFile, zlib.error, EOFError, OSError),
    *(NotImplementedError, RuntimeError, KeyError, ValueError, TypeError, AttributeError),
)
_LIST_LIMIT_BYTES = 64 << 20
"""Of a file list, unpacked: names of half a million files."""


def zip_and_shared_files(
    path: str, version: int, visible: Collection[str], read: Callable[[str], bytes]
) -> Iterator[StateFile]:
    """Yield a zip and behind it every file that it names.

    Raises:
        StateIncompleteError: If one of them is missing.
        LogFormatError: If the zip cannot be read.
        FlinkstyleError: ``CHECKPOINT_UNSUPPORTED`` if its file list is of a newer version.
    """
    store = path.rpartition("/")[0]
    archive = read(path)
    yield StateFile(path=path, content=archive)
    for shared in _named_in(archive, store):
        if shared not in visible:
            raise StateIncompleteError.of(store, version, shared)
        yield StateFile(path=shared, content=None)
    yield from checksum_of(path, visible)


def _named_in(archive: bytes, store: str) -> list[str]:
    """Return the files that the ``metadata`` entry names: SSTs, and logs if any."""
    what = f"RocksDB file list in {store}"
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as entries, entries.open("metadata") as entry:
            text = entry.read(_LIST_LIMIT_BYTES).decode()
    except _BROKEN_ZIP as error:
        raise LogFormatError.of(f"Zip in {store}", "a zip with a file list", str(error)) from error
    _, body = split_version(text, what, _FILE_LIST_VERSIONS)
    fields = json_object(body, what)
    try:
        ssts = [f"{store}/SSTs/{entry['dfsSstFileName']}" for entry in fields.get("sstFiles") or ()]
        logs = [f"{store}/logs/{entry['dfsLogFileName']}" for entry in fields.get("logFiles") or ()]
    except (KeyError, TypeError) as error:
        raise LogFormatError.of(what, "the names of files", body) from error
    return ssts + logs
