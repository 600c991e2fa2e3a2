"""State of checkpoint format v2 (Spark 4.0): a commit names the attempt behind each store's version. Pure.

``V_<uuid>.zip`` is the whole version, as in format v1. ``V_<uuid>.changelog`` alone leads on from an older
version, whose attempts its header lists, compressed. There is mostly one attempt per version, so that the
names alone tell the chain; where a batch was run again and several are there, all of them are copied, back to
a zip that is the only attempt at its version. What no lineage names, Spark never reads.
Spark: ``RocksDB.loadWithCheckpointId``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.checkpoint.errors import StateIncompleteError
from airflow_flinkstyle.checkpoint.rocksdb_zip import zip_and_shared_files
from airflow_flinkstyle.checkpoint.state_files import with_checksums

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from airflow_flinkstyle.checkpoint.commit_log import StateIds
    from airflow_flinkstyle.checkpoint.state_files import StateFile, Store


def require_every_id(stores: Mapping[str, Store], ids: StateIds, version: int) -> None:
    """Refuse a commit that names attempts of which nothing is there.

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
            if "changelog" in found:  # of the oldest version too: it tells where that one came from
                yield from with_checksums([found["changelog"]], visible)
        if number <= 1 or (len(attempts) == 1 and all("zip" in found for found in attempts.values())):
            return
        number -= 1
        attempts = dict(store.attempts(number))
        if not attempts:
            raise StateIncompleteError.of(store.path, version, f"{number}_<id>.changelog, nor a later zip")
