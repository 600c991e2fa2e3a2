from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.checkpoint.errors import (
    CHECKPOINT_INVARIANT,
    CHECKPOINT_UNSUPPORTED,
    NO_COMMIT_YET,
    CheckpointError,
)
from airflow_flinkstyle.checkpoint.inventory import (
    Inventory,
    read_inventory,
    remove_unfinished_writes,
    take_inventory,
)
from airflow_flinkstyle.types import BatchId
from testbed.memory_store import MemoryStore
from testbed.refusals import refuses

if TYPE_CHECKING:
    from airflow_flinkstyle.errors import ErrorKind


def taken(offsets: object, commits: object) -> tuple[int, int | None]:
    found = take_inventory(offsets, commits, location="here")  # type: ignore[arg-type]
    return found.committed, found.planned


def test_newest_committed_batch_is_cut_and_a_planned_one_is_pending():
    assert taken({0}, {0}) == (0, None)
    assert taken({0, 1}, {0}) == (0, 1)
    assert taken(range(3, 9), range(3, 9)) == (8, None)
    assert taken({7, 8, 9}, {8}) == (8, 9)


@pytest.mark.parametrize("retained", [1, 2, 3, 100])
@pytest.mark.parametrize("newest", range(5))
@pytest.mark.parametrize("is_planned", [False, True])
def test_whatever_spark_restarts_from_is_healthy(retained: int, newest: int, *, is_planned: bool):
    # Spark deletes what is older than the batch that it plans by minBatchesToRetain, from both logs.
    latest = newest + is_planned
    kept = range(max(0, latest - retained), latest + 1)
    commits = {batch for batch in kept if batch <= newest}
    assert taken(kept, commits) == (newest, latest if is_planned else None)


@pytest.mark.parametrize(
    ("offsets", "commits", "error", "words"),
    [
        ({0, 1}, set(), NO_COMMIT_YET, "at least one committed batch"),
        (set(), set(), NO_COMMIT_YET, "at least one committed batch"),
        ({4, 5}, {6}, CHECKPOINT_INVARIANT, "commits up to 6, offsets up to 5"),
        (set(), {6}, CHECKPOINT_INVARIANT, "offsets up to none"),
        ({4, 5, 6, 7}, {5}, CHECKPOINT_INVARIANT, "at most one batch that is not committed"),
        ({5}, {5}, CHECKPOINT_INVARIANT, "offsets/4"),
        ({4, 6}, {5}, CHECKPOINT_INVARIANT, "offsets/5"),
        ({0, 57, 113}, {0, 57, 113}, CHECKPOINT_UNSUPPORTED, "asynchronous progress tracking"),
    ],
)
def test_logs_that_cannot_be_trusted_are_refused(
    offsets: set[int], commits: set[int], error: type[CheckpointError] | ErrorKind, words: str
):
    with refuses(error, match=words):
        take_inventory(offsets, commits, location="here")


def test_no_commit_yet_is_retryable():
    assert NO_COMMIT_YET.transient


class _Advancing(MemoryStore):
    """Commits two more batches between the listing of the commits and that of the offsets."""

    def list(self, prefix: str = "", *, after: str = "") -> object:  # type: ignore[override]
        if prefix == "offsets/" and self.head("commits/3") is None:
            for batch in (2, 3):
                self.write(f"offsets/{batch}", b"")
                self.write(f"commits/{batch}", b"")
        return super().list(prefix, after=after)


def test_batches_that_commit_during_the_listing_are_no_gap():
    store = _Advancing()
    for batch in (0, 1):
        store.write(f"offsets/{batch}", b"")
        store.write(f"commits/{batch}", b"")
    assert read_inventory(store) == Inventory(committed=BatchId(3), planned=None)


def test_hidden_and_temporary_files_are_no_batches():
    store = MemoryStore()
    for key in (
        "offsets/0",
        "commits/0",
        "offsets/.7.crc",
        "offsets/.9.1234.tmp",
        "commits/x",
        "offsets/1/2",
    ):
        store.write(key, b"")
    assert read_inventory(store) == Inventory(committed=BatchId(0), planned=None)


def test_unfinished_first_write_is_deleted_and_nothing_where_a_batch_was_planned():
    store = MemoryStore()
    left = ["commits/.0.9fd2.tmp", "offsets/..0.67b1.tmp.crc", "offsets/.0.67b1.tmp"]
    for key in (*left, "metadata", "offsets/strange", "state/0/0/.1.delta.tmp"):
        store.write(key, b"")
    assert sorted(remove_unfinished_writes(store)) == left
    assert remove_unfinished_writes(store) == []
    assert [info.key for info in store.list()] == ["metadata", "offsets/strange", "state/0/0/.1.delta.tmp"]
    store.write("offsets/0", b"v1")
    store.write(left[0], b"")
    assert remove_unfinished_writes(store) == []
    assert store.head(left[0]) is not None
