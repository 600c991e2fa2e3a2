"""Where a query is in a table with versions: Delta Lake, Iceberg. Pure.

A source says so in its line of the offset log, a sink in the table's own history, where both formats note
which batch of which query a version is of.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from airflow_flinkstyle.typed_json import stored
from airflow_flinkstyle.types import BatchId, Count, Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TableFormat = Literal["delta", "iceberg"]
_ICEBERG_QUERY: Final = "spark.sql.streaming.queryId"
_ICEBERG_EPOCH: Final = "spark.sql.streaming.epochId"


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class TablePosition:
    """A version of a table: how far a source has read, or what a sink has written last."""

    format: TableFormat
    table_id: Text | None
    """Delta's id of the table, which a table made anew does not share; None for Iceberg's offsets."""
    version: Count
    """Delta's version, or Iceberg's snapshot id, which has no order."""
    files_read: Count | None
    """How many of the version's files a source has read; None for a sink."""

    def __str__(self) -> str:
        """Say it in a table's cell."""
        name = "version" if self.format == "delta" else "snapshot"
        files = "" if not self.files_read else f", {self.files_read} of its files read"
        return f"{self.format} {name} {self.version}{files}"


def source_position(raw: str) -> TablePosition | None:
    """Return where a source is, from its line in an offset log; None for sources that are no tables."""
    fields = _object(raw)
    match fields:
        case {"reservoirId": str(table_id), "reservoirVersion": int(version), **more} if table_id:
            # Indexes below 0 are Delta's marks in front of a version's first file.
            return _position("delta", table_id, version, int(more.get("index", -1)) + 1)
        case {"snapshot_id": int(version), "position": int(read)}:
            return _position("iceberg", None, version, read)
        case _:
            return None


def _position(kind: TableFormat, table_id: str | None, version: int, read: int) -> TablePosition | None:
    """Return the position; None for a table that had no version yet (Iceberg's -1)."""
    if version < 0:
        return None
    return TablePosition(format=kind, table_id=table_id, version=version, files_read=max(0, read))


def delta_commit_of(commit: str, query_id: str) -> BatchId | None:
    """Return the batch of a query that one file of a Delta log is of; None for any other commit."""
    for line in commit.splitlines():
        match _object(line):
            case {"txn": {"appId": str(app), "version": int(batch)}} if app == query_id:
                return BatchId(batch)
            case _:
                continue
    return None


def iceberg_batch_of(summary: Mapping[str, str], query_id: str) -> BatchId | None:
    """Return the batch of a query that an Iceberg snapshot is of, by its summary."""
    if summary.get(_ICEBERG_QUERY) != query_id:
        return None
    with contextlib.suppress(KeyError, ValueError):
        return BatchId(int(summary[_ICEBERG_EPOCH]))
    return None


def newest_up_to(batch: BatchId, found: Iterable[tuple[int, BatchId | None]]) -> int | None:
    """Return the newest version that is of the query's batch, or of one before it.

    Args:
        batch: Where the query is cut; a running one may have written further.
        found: Versions, the newest first, with the batch of the query that each is of.
    """
    return next((version for version, seen in found if seen is not None and seen <= batch), None)


def _object(raw: str) -> dict[str, Any]:
    with contextlib.suppress(ValueError, RecursionError):
        parsed = json.loads(raw)
        if isinstance(parsed, dict):
            return parsed
    return {}
