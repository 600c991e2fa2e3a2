"""The version of a sink's table that a query's batch wrote, from the table's own files, without a JVM's help.

Both formats note the query and the batch of each version that a stream wrote: Delta in the transaction of a
commit, Iceberg in the summary of a snapshot.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.checkpoint.table_position import (
    TableCommit,
    TableFormat,
    TablePosition,
    delta_commit,
    iceberg_commit,
    newest_up_to,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from airflow_flinkstyle.storage.base import ObjectStore
    from airflow_flinkstyle.types import BatchId

MOST_VERSIONS: Final = 50
"""How many of a table's newest versions are read: other writers may have added some since."""
_MOST_BYTES: Final = 1 << 26
_DELTA_LOG: Final = "_delta_log/"
_COMMIT = re.compile(r"_delta_log/(\d{20})\.json")
_ICEBERG: Final = re.compile(r"metadata/(?:v(\d+)(?:\.gz)?|(\d+)-[^/]*)\.metadata\.json")
log = logging.getLogger(__name__)


def written_to(
    read_line: Callable[[], Iterable[TableCommit]], sink: TableFormat, query_id: str, batch: BatchId
) -> TablePosition | None:
    """Return the newest version that a query's batches up to this one wrote; None if none is found.

    A savepoint does not fail because of it: a table that cannot be read is logged, and None is returned.

    Args:
        read_line: Returns the versions that the table is made of, the newest first.
        sink: The table's format.
        query_id: Of the query.
        batch: The one at which the query is cut; it may run on meanwhile.
    """
    try:
        line = islice(read_line(), MOST_VERSIONS)
        version = newest_up_to(batch, ((one.version, one.batch_of(query_id)) for one in line))
    except Exception as error:  # noqa: BLE001  # Spark's and Java's, too
        log.warning("The version that batch %d of query %s wrote is not known: %s", batch, query_id, error)
        return None
    if version is None:
        return None
    return TablePosition(format=sink, table_id=None, version=version, files_read=None)


def delta_line(table: ObjectStore) -> Iterator[TableCommit]:
    """Yield the versions that a Delta table is made of, the newest first, as far as its log has them.

    Versions that a ``RESTORE`` has taken back are not among them.
    """
    listed = table.list(_DELTA_LOG, after=f"{_DELTA_LOG}{_checkpointed(table):020d}")
    commits = [int(match[1]) for info in listed if (match := _COMMIT.fullmatch(info.key))]
    at: int | None = max(commits, default=_checkpointed(table))
    while at is not None and (found := table.get(f"{_DELTA_LOG}{at:020d}.json")) is not None:
        commit = delta_commit(at, found.data.decode())
        yield commit
        at = commit.parent


def _checkpointed(table: ObjectStore) -> int:
    """Return the version of the table's newest checkpoint: a long log is listed from there."""
    hint = table.get(f"{_DELTA_LOG}_last_checkpoint")
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return int(json.loads(hint.data)["version"]) if hint is not None else 0
    return 0


def iceberg_line(table: ObjectStore) -> Iterator[TableCommit]:
    """Yield the snapshots that an Iceberg table is made of, the newest first, by its newest metadata file.

    Only the table's catalog knows the newest one for certain: this is for people to read.
    """
    listed = [
        (int(match[1] or match[2]), info.key)
        for info in table.list("metadata/")
        if info.size_bytes <= _MOST_BYTES and (match := _ICEBERG.fullmatch(info.key))
    ]
    if not listed:
        return
    metadata: dict[str, Any] = json.loads(table.read(max(listed)[1]))
    snapshots = {int(one["snapshot-id"]): one for one in metadata["snapshots"]}
    at = metadata.get("current-snapshot-id")
    while at is not None and (one := snapshots.get(int(at))) is not None:
        summary, at = one["summary"], one.get("parent-snapshot-id")
        yield iceberg_commit(int(one["snapshot-id"]), at, summary["operation"], summary)


LINES: Final[Mapping[TableFormat, Callable[[ObjectStore], Iterator[TableCommit]]]] = MappingProxyType(
    {"delta": delta_line, "iceberg": iceberg_line}
)
