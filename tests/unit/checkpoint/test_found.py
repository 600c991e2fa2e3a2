from __future__ import annotations

from pathlib import Path

import pytest

from airflow_flinkstyle.checkpoint.found import checkpoints_below, look_into
from airflow_flinkstyle.storage.errors import StoreDeniedError
from airflow_flinkstyle.storage.local import LocalStore
from testbed.memory_store import MemoryStore

GOLDEN = Path(__file__).parents[2] / "golden"
OFFSETS = b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1764191055123,"conf":{}}\n{"orders":{"0":100}}'


def a_checkpoint(store: MemoryStore, *, offsets: range = range(3), commits: range = range(3)) -> MemoryStore:
    store.write("metadata", b'{"id":"5c3f4a0e"}')
    for batch in offsets:
        store.write(f"offsets/{batch}", OFFSETS)
    for batch in commits:
        store.write(f"commits/{batch}", b'v1\n{"nextBatchWatermarkMs":0}')
    return store


def test_a_checkpoint_is_found_with_how_far_it_came():
    found = look_into(a_checkpoint(MemoryStore()))
    assert found is not None
    assert (found.query_id, found.committed, found.planned) == ("5c3f4a0e", 2, 2)
    assert found.last_written_ms == 1764191055123
    assert (found.offset_log_version, found.commit_log_version) == (1, 1)
    assert (found.has_metadata, found.has_sources, found.has_state) == (True, False, False)
    assert found.where == "batch 2 committed, last written 2025-11-26 21:04 UTC"


@pytest.mark.parametrize("planned", [1, 5])
def test_a_batch_that_was_only_planned_is_told(planned: int):
    found = look_into(a_checkpoint(MemoryStore(), offsets=range(planned), commits=range(planned - 1)))
    assert found is not None
    assert found.has_planned_only is (planned == 1)
    done = "no batch committed" if planned == 1 else f"batch {planned - 2} committed"
    assert found.where == f"{done}, batch {planned - 1} planned, last written 2025-11-26 21:04 UTC"


@pytest.mark.parametrize(
    "keys", [[], ["metadata"], ["metadata", "sources/0/0"], ["offsets/.0.1c6.tmp"], ["part-0000.parquet"]]
)
def test_a_place_where_no_batch_was_planned_holds_no_checkpoint(keys: list[str]):
    store = MemoryStore()
    for key in keys:
        store.write(key, b"{}")
    assert look_into(store) is None


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"v7\n{}", b'v1\n{"batchTimestampMs":"now"}', b"v1\n[1"]
)
def test_a_checkpoint_with_files_that_cannot_be_read_is_one_all_the_same(content: bytes):
    store = a_checkpoint(MemoryStore())
    for key in ("metadata", "offsets/2", "commits/2"):
        store.write(key, content)
    found = look_into(store)
    assert found is not None
    assert (found.committed, found.query_id, found.last_written_ms) == (2, None, None)
    assert found.where == "batch 2 committed"
    assert found.has_metadata


def test_it_takes_six_requests_at_most():
    store = a_checkpoint(MemoryStore())
    before = store.calls
    look_into(store)
    assert store.calls - before == 6


def test_a_place_that_may_not_be_read_is_no_empty_one():
    store = a_checkpoint(MemoryStore())
    store.refuse(denied="list")
    with pytest.raises(StoreDeniedError):
        look_into(store)


@pytest.mark.parametrize("place", sorted(path.parent for path in GOLDEN.glob("*/*/metadata")))
def test_every_golden_checkpoint_is_found(place: Path):
    found = look_into(LocalStore(place))
    assert found is not None
    assert found.query_id
    assert found.last_written_ms
    assert found.committed is not None


def test_checkpoints_of_several_queries_below_one_folder_are_named():
    store = MemoryStore()
    for key in ("totals/offsets/0", "clicks/commits/3", "notes/readme", "orders/metadata", "offsets.txt"):
        store.write(key, b"v1\n{}")
    assert checkpoints_below(store) == ("clicks", "totals")
