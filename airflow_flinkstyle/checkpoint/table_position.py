"""Where a query is in a table with versions: Delta Lake, Iceberg. Pure.

A source notes it in its line of the offset log, a sink in the table's own history, where both formats note
which query and batch wrote a version.
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
    """Delta's id of the table, another one if it was created again; None for Iceberg's offsets."""
    version: Count
    """Delta's version, or Iceberg's snapshot id, which has no order."""
    files_read: Count | None
    """How many of the version's files a source has read; None for a sink."""

    def __str__(self) -> str:
        """Return it for a table's cell."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCommit:
    """One version of a table, by the table's own history."""

    version: int
    """Delta's version, or Iceberg's snapshot id."""
    parent: int | None
    """The version that it was made from; None for the first one. A restored version is made from the one
    that was restored: what came in between is not in the table any more."""
    query_id: str | None
    """The query that wrote it, or another writer, which Delta calls an application."""
    batch: BatchId | None
    """Of that query."""
    changes: bool
    """Whether it has changed rows, or the table's definition: a compaction has not."""
    rows: int | None
    """How many were written; None if that is not recorded."""
    what: str
    """The operation, for people."""

    def batch_of(self, query_id: str) -> BatchId | None:
        """Return the batch, if it is of this query."""
        return self.batch if self.query_id == query_id else None


def delta_commit(version: int, text: str) -> TableCommit:
    """Return the version that one file of a Delta log describes."""
    actions = [_object(line) for line in text.splitlines()]
    info: dict[str, Any] = next((one["commitInfo"] for one in actions if "commitInfo" in one), {})
    txn: dict[str, Any] = next((one["txn"] for one in actions if "txn" in one), {})
    files = [one[kind] for one in actions for kind in ("add", "remove") if kind in one]
    back_to = _restored(info)
    defines = any(one.keys() - {"commitInfo", "txn", "add", "remove", "cdc"} for one in actions)
    return TableCommit(
        version=version,
        parent=back_to if back_to is not None else version - 1 if version > 0 else None,
        query_id=txn.get("appId"),
        batch=BatchId(int(txn["version"])) if "version" in txn else None,
        changes=back_to is None and (defines or any(file.get("dataChange", True) for file in files)),
        rows=_added([one["add"] for one in actions if "add" in one]),
        what=str(info.get("operation", "unknown operation")),
    )


def _restored(info: Mapping[str, Any]) -> int | None:
    """Return the version that a ``RESTORE`` has put the table back to; None for other commits.

    A ``RESTORE`` to a time does not name the version: it counts as any other change.
    """
    if info.get("operation") != "RESTORE":
        return None
    with contextlib.suppress(ValueError, TypeError, KeyError):
        return int(info["operationParameters"]["version"])
    return None


def _added(files: Iterable[Mapping[str, Any]]) -> int | None:
    """Return how many rows the added files have; None if a file does not record it."""
    counts = [_object(file.get("stats") or "").get("numRecords") for file in files]
    known = [count for count in counts if isinstance(count, int)]
    return sum(known) if len(known) == len(counts) else None


def iceberg_commit(
    snapshot_id: int, parent: int | None, operation: str, summary: Mapping[str, str]
) -> TableCommit:
    """Return the version that an Iceberg snapshot is; ``replace`` is the operation of a compaction."""
    batch = rows = None
    with contextlib.suppress(KeyError, ValueError):
        batch = BatchId(int(summary[_ICEBERG_EPOCH]))
    with contextlib.suppress(ValueError):
        rows = int(summary.get("added-records", "0"))
    return TableCommit(
        version=snapshot_id,
        parent=parent,
        query_id=summary.get(_ICEBERG_QUERY),
        batch=batch,
        changes=operation != "replace",
        rows=rows,
        what=operation,
    )


def newest_up_to(batch: BatchId, found: Iterable[tuple[int, BatchId | None]]) -> int | None:
    """Return the newest version that is of this batch of the query, or of one before it.

    Args:
        batch: Where the query is cut; a running one may have written further.
        found: Versions, the newest first, with the batch of the query that each is of.
    """
    return next((version for version, noted in found if noted is not None and noted <= batch), None)


def _object(raw: str) -> dict[str, Any]:
    with contextlib.suppress(ValueError, RecursionError):
        parsed = json.loads(raw)
        if isinstance(parsed, dict):
            return parsed
    return {}
