"""Which of the stores in a checkpoint a batch uses. Pure.

Spark writes an operator's number of partitions down three times. The ids of a commit (format v2) are exact;
``spark.sql.shuffle.partitions`` in the offset log is, too, but for operators without keys (a global
aggregation, a limit), which have one partition whatever is recorded; the schema of their keys shows it.
Where that was lost, too, or cannot be read, partition 0 alone counts as all there is: that others were lost
goes unnoticed. The operator's own metadata is never corrected when Spark repartitions its state, so it is
used last. Stores above the number are leftovers of a repartition to fewer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.checkpoint.errors import LogFormatError, StateIncompleteError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from airflow_flinkstyle.checkpoint.commit_log import StateIds
    from airflow_flinkstyle.checkpoint.operator_metadata import OperatorMetadata
    from airflow_flinkstyle.checkpoint.state_files import Store
    from airflow_flinkstyle.types import StateVersion

SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"


def shuffle_partitions(confs: Mapping[str, str]) -> int | None:
    """Return the number of partitions that the offset log pins; None if it pins none.

    Raises:
        LogFormatError: If it is no number.
    """
    found = confs.get(SHUFFLE_PARTITIONS)
    if found is None:
        return None
    if not (found.isascii() and found.isdigit() and len(found) < 10):
        raise LogFormatError.of("Offset log", f"a number under {SHUFFLE_PARTITIONS!r}", found)
    return int(found)


def stores_in_use(
    stores: Mapping[str, Store],
    recorded: Mapping[str, OperatorMetadata],
    ids: StateIds,
    pinned: int | None,
    version: StateVersion,
    *,
    has_keys: Callable[[str], bool],
) -> list[Store]:
    """Return the stores of a batch, without those that a repartition left behind.

    Args:
        stores: All that were found, by path.
        recorded: The operators' metadata by operator; empty before Spark 4.0.
        ids: The commit log's ids; empty for format v1.
        pinned: The offset log's number of partitions.
        version: For messages.
        has_keys: Whether an operator surely has keys; called if only its partition 0 was found.

    Raises:
        StateIncompleteError: If a store is missing.
    """
    by_operator: dict[str, list[Store]] = {operator: [] for operator in recorded}
    for store in stores.values():
        by_operator.setdefault(store.operator, []).append(store)
    in_use = []
    for operator, mine in by_operator.items():
        metadata = recorded.get(operator)
        found = {store.partition for store in mine}
        if operator in ids:
            count = len(ids[operator])
        elif found == {0} and not has_keys(operator):
            count = 1
        else:
            count = _count(found, pinned, metadata)
        missing = next((partition for partition in range(count) if partition not in found), None)
        if missing is not None:
            raise StateIncompleteError.of(f"state/{operator}/{missing}", version, "file at all")
        for path in metadata.store_paths(count) if metadata else ():
            if path not in stores:
                raise StateIncompleteError.of(path, version, "file at all")
        in_use += [store for store in mine if store.partition < count]
    return in_use


def _count(found: Collection[int], pinned: int | None, metadata: OperatorMetadata | None) -> int:
    """Return the number of partitions of an operator with keys in format v1."""
    if pinned is not None:
        return pinned
    return metadata.partitions if metadata else max(found, default=0) + 1
