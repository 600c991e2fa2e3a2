"""Which batch of a checkpoint can be cut out, and whether the logs can be trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.checkpoint.errors import (
    CHECKPOINT_INVARIANT,
    CHECKPOINT_UNSUPPORTED,
    NO_COMMIT_YET,
)
from airflow_flinkstyle.types import BatchId

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_flinkstyle.storage.base import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The state of a checkpoint's logs."""

    committed: BatchId
    """Newest batch that is done (K)."""
    planned: BatchId | None
    """K + 1 if it was planned and is not done; Spark runs it again, with the same offsets."""


def read_inventory(checkpoint: ObjectStore) -> Inventory:
    """List the logs of a checkpoint, of a running query too.

    Commits are listed first: a batch that ends between the two listings then only seems planned, and one
    more listing of the commits shows whether the query has only run on, or commits are missing.
    """
    commits = list_batches(checkpoint, "commits")
    offsets = list_batches(checkpoint, "offsets")
    if offsets and commits and max(offsets) > max(commits) + 1:
        commits = {batch for batch in list_batches(checkpoint, "commits") if batch <= max(offsets)}
    return take_inventory(offsets, commits, location=checkpoint.uri)


def list_batches(checkpoint: ObjectStore, log: str) -> set[BatchId]:
    """Return the batches in ``offsets`` or ``commits``; temporary and hidden files are left out."""
    names = (info.key.removeprefix(f"{log}/") for info in checkpoint.list(f"{log}/"))
    return {BatchId(int(name)) for name in names if name.isascii() and name.isdigit()}


def remove_unfinished_writes(checkpoint: ObjectStore) -> list[str]:
    """Delete the unfinished file of a killed run's first write to the logs; returns the keys.

    Spark starts no first batch while such a file is there (``STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY``), so
    a job killed in that moment could never run again. To be called by the only run that may write there.
    """
    if list_batches(checkpoint, "offsets") or list_batches(checkpoint, "commits"):
        return []
    files = [info.key for log in ("offsets", "commits") for info in checkpoint.list(f"{log}/")]
    hidden = [key for key in files if key.partition("/")[2].startswith(".")]
    for key in hidden:
        checkpoint.delete(key)
    return hidden


def take_inventory(offsets: Iterable[int], commits: Iterable[int], *, location: str) -> Inventory:
    """Decide from the batches in both logs what can be cut. Pure.

    Raises:
        FlinkstyleError: ``NO_COMMIT_YET`` if nothing is committed.
        FlinkstyleError: ``CHECKPOINT_INVARIANT`` if commits run ahead of offsets, or the log that a restart
            needs is missing.
        FlinkstyleError: ``CHECKPOINT_UNSUPPORTED`` if batches are left out on purpose (asynchronous progress
            tracking).
    """
    planned, done = set(offsets), set(commits)
    if not done:
        raise NO_COMMIT_YET.error(location=location)
    newest, last = max(done), max(planned, default=-1)
    if last < newest:
        found = f"commits up to {newest}, offsets up to {last if planned else 'none'}"
        raise CHECKPOINT_INVARIANT.error(
            location=location, expected="an offset log for each committed batch", found=found
        )
    if newest > 0 and newest - 1 not in planned and any(batch < newest - 1 for batch in planned):
        raise CHECKPOINT_UNSUPPORTED.error(
            found=f"gaps below batch {newest} in the offset log of {location}: asynchronous progress "
            "tracking",
            remedy="Run the query without asyncProgressTrackingEnabled and without real-time mode.",
        )
    if last > newest + 1:
        found = f"commits up to {newest}, offsets up to {last}"
        raise CHECKPOINT_INVARIANT.error(
            location=location, expected="at most one batch that is not committed", found=found
        )
    # A restart reads the newest offset log and the one before it. Spark keeps no more of a query whose
    # minBatchesToRetain is 1: once a batch is planned, the one before the newest committed is deleted.
    for needed in (newest,) if last > newest else (newest, newest - 1):
        if needed >= 0 and needed not in planned:
            raise CHECKPOINT_INVARIANT.error(
                location=location, expected=f"offsets/{needed}, which a restart reads", found="no such file"
            )
    return Inventory(committed=BatchId(newest), planned=BatchId(last) if last > newest else None)
