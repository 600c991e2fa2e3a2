"""The files that one version of a query's state needs.

Version V is, for the HDFS provider, the newest snapshot up to V and the deltas behind it; for RocksDB,
``V.zip`` and the SST files named inside it; with changelogs, the newest zip up to V and the changelogs
behind it. Format v2 has a module of its own. Spark: ``HDFSBackedStateStoreProvider``, ``RocksDBFileManager``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.checkpoint.errors import StateIncompleteError, UnsupportedCheckpointError
from airflow_flinkstyle.checkpoint.operator_metadata import is_relocatable, metadata_paths, read_metadata
from airflow_flinkstyle.checkpoint.rocksdb_zip import zip_and_shared_files
from airflow_flinkstyle.checkpoint.state_files import StateFile, group_stores, with_checksums
from airflow_flinkstyle.checkpoint.state_schema import has_keys
from airflow_flinkstyle.checkpoint.state_v2 import closure_v2, require_every_id
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
        UnsupportedCheckpointError: For a foreign provider.
    """
    provider = confs.get(_PROVIDER_CONF, "HDFSBackedStateStoreProvider").rpartition(".")[2]
    if provider not in _KNOWN_PROVIDERS:
        raise UnsupportedCheckpointError.mode(
            f"the state store provider {provider}",
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
        LogFormatError: If a file that tells of others is malformed.
        UnsupportedCheckpointError: If it is of a format newer than this package.
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
    """Tell the files of which a batch needs only some, as the operator's metadata says."""
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
