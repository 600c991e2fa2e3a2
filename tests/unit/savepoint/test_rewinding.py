"""Which sinks remember batches, and how a batch gets another number."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.checkpoint.inventory import read_inventory
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.errors import RenumberError
from airflow_flinkstyle.savepoint.files.renumber import renumber
from airflow_flinkstyle.savepoint.files.restore import restore_query
from airflow_flinkstyle.savepoint.manifest import FileEntry, KafkaLog
from airflow_flinkstyle.savepoint.sinks import may_remember, newest_logged, remembering, remembers_batches
from airflow_flinkstyle.types import BatchId
from testbed.memory_store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.savepoint.manifest import Manifest, QuerySnapshot
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository


@pytest.fixture
def query(
    repository: SavepointRepository, a_checkpoint: Callable[..., object], take: Callable[..., Manifest]
) -> QuerySnapshot:
    return take(repository, a_checkpoint(batches=4)).queries[0]


def with_state(query: QuerySnapshot, *paths: str) -> QuerySnapshot:
    blob = FileEntry(path="x", size_bytes=1, blob="b", digest=None)
    others = [entry for entry in query.files if not entry.path.startswith("state/")]
    return replace(query, files=(*others, *(replace(blob, path=path) for path in paths)))


def paths(query: QuerySnapshot) -> list[str]:
    return [entry.path for entry in query.files]


def test_file_and_table_sinks_remember_batches_and_others_do_not(query: QuerySnapshot) -> None:
    assert all(map(remembers_batches, ["parquet", "json", "delta", "iceberg"]))
    assert not any(map(remembers_batches, ["kafka", "foreachBatch", "console", None]))
    assert all(map(may_remember, ["foreachBatch", "foreach", "hudi"]))
    assert not any(map(may_remember, ["kafka", "parquet", "delta", None]))
    assert remembering([replace(query, sink="orc"), replace(query, sink="kafka")]) == ["orc of query totals"]


def test_newest_batch_of_a_sinks_log_may_be_a_compacted_one() -> None:
    assert newest_logged(["7", "8", "9.compact", ".8.crc", ".tmp"]) == 9
    assert newest_logged([]) is None


def test_renumbered_savepoint_is_a_checkpoint_at_the_other_batch(
    repository: SavepointRepository,
    a_checkpoint: Callable[..., object],
    take: Callable[..., Manifest],
) -> None:
    manifest = take(repository, a_checkpoint(batches=4))
    query = manifest.queries[0]
    moved = renumber(query, BatchId(40))
    target = MemoryStore("target")
    restore_query(replace(manifest, queries=(moved,)), moved, repository, target)
    assert read_inventory(target).committed == 40
    assert target.read("offsets/40").decode().endswith('{"orders":{"0":13,"1":23}}')
    orders = KafkaLog(cluster_id="old", topic_ids={"orders": "t-1"}, log_range={})
    copy = QuerySource(name="totals", checkpoint=target, kafka={"0": orders})
    label = SavepointLabel(
        savepoint_id="sp-2", taken_at_ms=1, spark_version="4.2.0", taken_from_generation=None
    )
    again = take_savepoint(repository, [copy], label).queries[0]
    assert (again.batch_id, again.files) == (40, moved.files)


def test_first_batch_gets_a_log_before_it(
    repository: SavepointRepository,
    a_checkpoint: Callable[..., object],
    take: Callable[..., Manifest],
) -> None:
    first = take(repository, a_checkpoint(batches=1)).queries[0]
    moved = renumber(first, BatchId(7))
    assert {"offsets/6", "offsets/7", "commits/7"} <= set(paths(moved))
    assert len(moved.files) == len(first.files) + 1
    before, newest = moved.file("offsets/6"), moved.file("offsets/7")
    assert before is not None
    assert newest == replace(before, path="offsets/7")


def test_later_batch_has_the_log_before_it_already(query: QuerySnapshot) -> None:
    moved = renumber(query, BatchId(9))
    assert len(moved.files) == len(query.files)
    assert {"offsets/8", "offsets/9", "commits/9"} <= set(paths(moved))
    assert renumber(moved, query.batch_id) == query


def test_snapshots_deltas_and_checksums_move_together_and_ssts_stay(query: QuerySnapshot) -> None:
    sst = "state/0/0/SSTs/000008-93f3a0b0-5474-4992-b364-2d63636ce5d8.sst"
    state = ("state/0/1/3.snapshot", "state/0/1/4.delta", "state/0/1/4.delta.crc", sst)
    kept = ("state/0/_metadata/metadata", "state/0/0/_metadata/schema", "sources/0/0")
    moved = renumber(with_state(query, *state, *kept), BatchId(13))
    assert {"state/0/1/13.snapshot", "state/0/1/14.delta", "state/0/1/14.delta.crc", sst, *kept} <= set(
        paths(moved)
    )
    assert paths(moved) == sorted(paths(moved))


def test_same_number_changes_nothing(query: QuerySnapshot) -> None:
    assert renumber(query, query.batch_id) is query


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("state/0/0/4.delta", "no full version of the state yet in state/0/0"),
        ("state/0/0/left-keyToNumValues/1.changelog", "no full version"),
        ("state/0/0/4_5979e4f6-aaf0-469f-9533-27a430de4c0a.zip", "format v2"),
        ("state/0/_stateSchema/default/0_5979e4f6", "transformWithState"),
        ("state/0/_metadata/v2/0", "transformWithState"),
    ],
)
def test_state_that_keeps_its_number_is_refused_by_name(query: QuerySnapshot, path: str, words: str) -> None:
    with pytest.raises(RenumberError, match=f"query totals.*{words}") as refused:
        renumber(with_state(query, path), BatchId(40))
    assert "output path of its own" in refused.value.remedy


def test_one_store_that_has_only_steps_is_enough_to_refuse_and_the_first_is_named(
    query: QuerySnapshot,
) -> None:
    full = ("state/0/0/3.zip", "state/0/0/4.changelog", "state/0/3/2.snapshot")
    assert renumber(with_state(query, *full), BatchId(40)).batch_id == 40
    young = ("state/0/2/1.delta", "state/0/1/1.delta", "state/0/1/2.delta")
    with pytest.raises(RenumberError, match="no full version of the state yet in state/0/1"):
        renumber(with_state(query, *full, *young), BatchId(40))
