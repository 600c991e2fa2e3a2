"""Whether a query of plain Spark has run at a checkpoint location that is not ours, and how far it came.

A few requests whatever its size: two listings, the names of its folders, and three small files. Nothing is
written, and nothing is refused here: a file that cannot be read gives None, since a damaged checkpoint is
a checkpoint all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from airflow_flinkstyle.checkpoint import metadata
from airflow_flinkstyle.checkpoint.errors import LogFormatError
from airflow_flinkstyle.checkpoint.inventory import list_batches
from airflow_flinkstyle.checkpoint.logfile import is_number, json_object
from airflow_flinkstyle.python_versions import UTC
from airflow_flinkstyle.storage.keys import is_key

if TYPE_CHECKING:
    from airflow_flinkstyle.storage.base import ObjectStore
    from airflow_flinkstyle.types import BatchId

_LOGS = ("offsets", "commits")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCheckpoint:
    """A location that holds the logs of a query."""

    uri: str
    """The location, as its store names it."""
    query_id: str | None
    """From ``metadata``; None if that is missing or cannot be read."""
    committed: BatchId | None
    """Newest batch in the commit log; None if no batch is done."""
    planned: BatchId | None
    """Newest batch in the offset log, done or not; None if only commits are left."""
    last_written_ms: int | None
    """When Spark planned its newest batch, epoch milliseconds by its own clock, from the offset log: object
    stores give no times of their own. None if the log cannot be read."""
    offset_log_version: int | None
    """Of the newest file in the offset log, known to this package or not; None if it cannot be read."""
    commit_log_version: int | None
    """The same of the commit log."""
    has_metadata: bool
    has_sources: bool
    """Whether there is a folder ``sources``: first positions, or names of files that were read."""
    has_state: bool

    @property
    def has_planned_only(self) -> bool:
        """Whether no batch of it is done: what it planned may have reached a sink all the same."""
        return self.committed is None

    @property
    def where(self) -> str:
        """How far it came, within a sentence: ``batch 17 committed, last written 2026-11-26 21:04 UTC``."""
        done = "no batch committed" if self.committed is None else f"batch {self.committed} committed"
        if self.planned is not None and self.planned != self.committed:
            done += f", batch {self.planned} planned"
        return (
            done if self.last_written_ms is None else f"{done}, last written {_minute(self.last_written_ms)}"
        )


def look_into(store: ObjectStore) -> FoundCheckpoint | None:
    """Return the query's checkpoint at a location; None if no batch was ever planned there.

    Args:
        store: Rooted at the location.

    Raises:
        StoreError: If it cannot be listed or read, for want of rights or of an answer.
    """
    planned = max(list_batches(store, "offsets"), default=None)
    committed = max(list_batches(store, "commits"), default=None)
    if planned is None and committed is None:
        return None
    folders = set(store.folders())
    metadata_text = _read(store, "metadata")
    offsets, commit = _newest(store, "offsets", planned), _newest(store, "commits", committed)
    return FoundCheckpoint(
        uri=store.uri,
        query_id=_query_id(metadata_text),
        committed=committed,
        planned=planned,
        last_written_ms=_planned_at_ms(offsets),
        offset_log_version=_version(offsets),
        commit_log_version=_version(commit),
        has_metadata=metadata_text is not None,
        has_sources="sources" in folders,
        has_state="state" in folders,
    )


def checkpoints_below(store: ObjectStore) -> tuple[str, ...]:
    """Return the folders directly below a location that hold checkpoints: several queries may share it."""
    return tuple(name for name in store.folders() if is_key(name) and _holds_batches(store, name))


def _holds_batches(store: ObjectStore, name: str) -> bool:
    keys = (info.key for log in _LOGS for info in store.list(f"{name}/{log}/"))
    return any(is_number(key.rpartition("/")[2]) for key in keys)


def _newest(store: ObjectStore, log: str, batch: BatchId | None) -> str | None:
    return None if batch is None else _read(store, f"{log}/{batch}")


def _read(store: ObjectStore, key: str) -> str | None:
    """Return a file's text; None if it is missing, or gone since it was listed."""
    found = store.get(key)
    return None if found is None else found.data.decode(errors="replace")


def _query_id(text: str | None) -> str | None:
    try:
        return None if text is None else metadata.parse(text).query_id
    except LogFormatError:
        return None


def _version(text: str | None) -> int | None:
    digits = (text or "").partition("\n")[0].removeprefix("v")
    return int(digits) if is_number(digits) else None


def _planned_at_ms(text: str | None) -> int | None:
    header = (text or "").split("\n", 2)[1:2]
    try:
        at_ms = json_object(header[0], "Offset log's second line").get("batchTimestampMs") if header else None
    except LogFormatError:
        return None
    return at_ms if isinstance(at_ms, int) and at_ms > 0 else None


def _minute(at_ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError, OSError):
        return f"at {at_ms} ms"  # edited by hand
