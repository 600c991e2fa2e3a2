"""The version of a sink's table that a query's batch wrote, from the table's own files, without a JVM's help.

Both formats note the query and the batch of each version that a stream wrote: Delta in the transaction of a
commit, Iceberg in the summary of a snapshot.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.checkpoint.table_position import (
    TableFormat,
    TablePosition,
    delta_commit_of,
    iceberg_batch_of,
    newest_up_to,
)
from airflow_flinkstyle.errors import FlinkstyleError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_flinkstyle.storage.base import ObjectStore
    from airflow_flinkstyle.types import BatchId

MOST_VERSIONS: Final = 50
"""How many of a table's newest versions are looked at: other writers may have come since."""
_MOST_BYTES: Final = 1 << 26
_DELTA_LOG: Final = "_delta_log/"
_COMMIT = re.compile(r"_delta_log/(\d{20})\.json")
_ICEBERG: Final = re.compile(r"metadata/(?:v(\d+)(?:\.gz)?|(\d+)-[^/]*)\.metadata\.json")
log = logging.getLogger(__name__)


def written_to(
    open_table: Callable[[], ObjectStore], sink: str, query_id: str, batch: BatchId
) -> TablePosition | None:
    """Return the newest version of a query's batches up to one; None if none is found.

    A savepoint does not fail because of it: what cannot be read is logged, and left open.

    Args:
        open_table: Opens the store at the table's place.
        sink: One of ``TABLE_SINKS``.
        query_id: Of the query.
        batch: Where it is cut; it may run on meanwhile.
    """
    try:
        find = {"delta": _delta, "iceberg": _iceberg}[sink]
        return find(open_table(), query_id, batch)
    except (FlinkstyleError, ValueError, KeyError, TypeError) as error:
        log.warning("The version that batch %d of query %s wrote is not known: %s", batch, query_id, error)
        return None


def _delta(table: ObjectStore, query_id: str, batch: BatchId) -> TablePosition | None:
    first = max(0, _checkpointed(table) - MOST_VERSIONS)
    listed = table.list(_DELTA_LOG, after=f"{_DELTA_LOG}{first:020d}")
    commits = [match for info in listed if (match := _COMMIT.fullmatch(info.key))]

    def found() -> Iterator[tuple[int, BatchId | None]]:
        for match in reversed(commits[-MOST_VERSIONS:]):
            yield int(match[1]), delta_commit_of(table.read(match[0]).decode(), query_id)

    version = newest_up_to(batch, found())
    return _position("delta", version)


def _checkpointed(table: ObjectStore) -> int:
    """Return the version of the table's newest checkpoint: a long log is listed from there."""
    hint = table.get(f"{_DELTA_LOG}_last_checkpoint")
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return int(json.loads(hint.data)["version"]) if hint is not None else 0
    return 0


def _iceberg(table: ObjectStore, query_id: str, batch: BatchId) -> TablePosition | None:
    listed = [
        (int(match[1] or match[2]), info.key)
        for info in table.list("metadata/")
        if info.size_bytes <= _MOST_BYTES and (match := _ICEBERG.fullmatch(info.key))
    ]
    if not listed:
        return None
    metadata: dict[str, Any] = json.loads(table.read(max(listed)[1]))
    snapshots = sorted(metadata["snapshots"], key=lambda one: int(one["sequence-number"]), reverse=True)
    found = ((int(one["snapshot-id"]), iceberg_batch_of(one["summary"], query_id)) for one in snapshots)
    return _position("iceberg", newest_up_to(batch, found))


def _position(kind: TableFormat, version: int | None) -> TablePosition | None:
    if version is None:
        return None
    return TablePosition(format=kind, table_id=None, version=version, files_read=None)
