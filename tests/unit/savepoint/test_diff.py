from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.savepoint.diff import FileSum, diff_savepoints
from airflow_flinkstyle.types import NextOffset

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

    Make = Callable[..., Any]


def test_offsets_move_by_records_and_files_are_shared_by_content(
    repository: SavepointRepository, a_checkpoint: Make, take: Make
):
    checkpoint = a_checkpoint(batches=3)
    before = take(repository, checkpoint, "sp-1", taken_at_ms=1_000)
    checkpoint.commit(5)
    after = take(repository, checkpoint, "sp-2", taken_at_ms=3_500)
    diff = diff_savepoints(before, after)
    assert (diff.before, diff.after, diff.seconds_between) == ("sp-1", "sp-2", 2.5)
    (query,) = diff.queries
    assert (query.before, query.after, query.same_query_id) == (2, 7, True)
    assert [(c.topic, c.partition, c.before, c.after, c.records) for c in query.offsets] == [
        ("orders", 0, 12, 17, 5),
        ("orders", 1, 22, 27, 5),
    ]
    old, new = before.queries[0].files, after.queries[0].files
    shared = {(e.path, e.content): e.size_bytes for e in old}.keys() & {(e.path, e.content) for e in new}
    assert query.files.shared.files == len(shared) >= 4  # metadata, the source's log, the schema, SSTs
    assert query.files.shared.files + query.files.added.files == len(new)
    assert query.files.shared.files + query.files.removed.files == len(old)
    assert query.files.shared.size_bytes + query.files.added.size_bytes == after.total_bytes


def changed(manifest: Manifest, **changes: Any) -> Manifest:
    return replace(manifest, queries=(replace(manifest.queries[0], **changes),))


def test_other_clusters_settings_and_partitions_are_named(
    repository: SavepointRepository, a_checkpoint: Make, take: Make
):
    before = take(repository, a_checkpoint())
    position = before.queries[0].kafka["0"]
    moved = replace(
        position, cluster_id="new", offsets=Offsets.of({"orders": {1: NextOffset(5), 2: NextOffset(7)}})
    )
    after = changed(before, kafka={"0": moved}, pinned_confs={"spark.x": "1"}, query_id="q-2")
    (query,) = diff_savepoints(before, after).queries
    assert not query.same_query_id
    assert query.clusters == {"0": ("old", "new")}
    assert query.confs == {"spark.sql.shuffle.partitions": ("1", None), "spark.x": (None, "1")}
    assert [(c.partition, c.before, c.after, c.records) for c in query.offsets] == [
        (0, 12, None, None),
        (1, 22, 5, None),
        (2, None, 7, None),
    ]
    assert query.files.added == query.files.removed == FileSum(files=0, size_bytes=0)


def test_a_query_that_only_one_savepoint_has_is_listed(
    repository: SavepointRepository, a_checkpoint: Make, take: Make
):
    before = take(repository, a_checkpoint())
    gone, come = diff_savepoints(before, changed(before, name="zeta")).queries
    assert (gone.name, gone.before, gone.after) == ("totals", 2, None)
    assert (come.name, come.before, come.after) == ("zeta", None, 2)
    assert come.files.added.files == gone.files.removed.files == len(before.queries[0].files)
    assert not gone.same_query_id
