"""The newest savepoint is the one that the job came to last, whatever the clocks of its takers said."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.savepoint.repository.summary import list_savepoints, newest_savepoint
from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy
from airflow_flinkstyle.savepoint.retention.prune import prune
from airflow_flinkstyle.savepoint.sequence import Cut, newest_first
from airflow_flinkstyle.types import BatchId
from testbed.memory_store import MemoryStore
from tests.manifests import manifests_of
from tests.unit.savepoint.manifests import a_manifest

if TYPE_CHECKING:
    from airflow_flinkstyle.savepoint.manifest import Manifest

MINUTE_MS = 60_000
NOON_MS = 1_800_000_000_000


def a_cut(name: str, *, generation: int | None = 1, at_min: float = 0, run: int = 1, **more: str) -> Cut:
    return Cut(
        savepoint_id=name,
        taken_at_ms=int(NOON_MS + at_min * MINUTE_MS),
        taken_from_generation=generation,
        parent=more.get("parent"),
        batches_run=run,
    )


def ids(*cuts: Cut) -> list[str]:
    """Return the ids, the newest first; in whatever order they come."""
    orders = {
        tuple(one.savepoint_id for one in newest_first(given, lambda cut: cut))
        for given in itertools.permutations(cuts)
    }
    assert len(orders) == 1
    return list(orders.pop())


def a_savepoint(name: str, batch: int, *, at_min: float, generation: int = 1) -> Manifest:
    manifest = a_manifest(savepoint_id=name, taken_at_ms=int(NOON_MS + at_min * MINUTE_MS))
    queries = tuple(replace(query, batch_id=BatchId(batch)) for query in manifest.queries)
    return replace(manifest, parent=None, taken_from_generation=generation, queries=queries)


@pytest.fixture
def repository() -> SavepointRepository:
    """A job whose second savepoint was taken on a machine that is ten minutes behind."""
    repository = SavepointRepository(MemoryStore(), "orders")
    repository.publish(a_savepoint("sp-first", 10, at_min=0))
    repository.publish(a_savepoint("sp-second", 20, at_min=-5))
    return repository


def test_latest_is_the_jobs_last_cut_though_its_takers_clock_was_behind(repository: SavepointRepository):
    assert [one.savepoint_id for one in list_savepoints(repository)] == ["sp-second", "sp-first"]
    newest = newest_savepoint(repository)
    assert newest is not None
    assert newest.savepoint_id == "sp-second"
    assert [one.savepoint_id for one in manifests_of(repository)] == ["sp-second", "sp-first"]


def test_retention_keeps_the_jobs_last_cut_though_its_takers_clock_was_behind(
    repository: SavepointRepository,
):
    for manifest in manifests_of(repository):
        for blob, entry in manifest.blobs.items():
            repository.store.write(f"orders/blobs/{blob}", b"x" * entry.size_bytes)
    report = prune(repository, RetentionPolicy(max_count=1), in_use=dict, holder="test")
    assert report.plan.disposed == ("sp-first",)


def test_later_run_is_newer_though_it_counts_fewer_batches_and_its_clock_was_behind():
    assert ids(a_cut("old", run=900), a_cut("new", generation=2, at_min=-10, run=3)) == ["new", "old"]


def test_the_same_batches_are_ordered_by_the_clock_and_then_by_name():
    assert ids(a_cut("b"), a_cut("a"), a_cut("c", at_min=1)) == ["c", "b", "a"]


def test_query_that_has_run_its_first_batch_makes_a_later_cut(repository: SavepointRepository):
    manifest = a_savepoint("sp-third", 20, at_min=-9)
    more = replace(manifest.queries[0], name="z-more", batch_id=BatchId(0))
    repository.publish(replace(manifest, queries=(*manifest.queries, more)))
    assert list_savepoints(repository)[0].savepoint_id == "sp-third"


def test_rewritten_savepoint_stands_right_behind_its_origin():
    first, second = a_cut("first", run=10), a_cut("second", run=20, at_min=-5)
    moved = a_cut("a-moved", run=999, parent="first")  # a fork counts on under a number of its own
    again = a_cut("again", run=10, parent="a-moved")
    assert ids(first, second, moved, again) == ["second", "again", "a-moved", "first"]


def test_rewritten_savepoint_whose_origin_is_gone_is_placed_by_the_clock():
    left = a_cut("left", run=999, at_min=5, parent="gone")
    assert ids(a_cut("first"), a_cut("last", run=2, at_min=10), left) == ["last", "left", "first"]


def test_savepoint_from_another_root_is_placed_by_the_clock_among_the_jobs_own():
    own = (a_cut("one", at_min=0), a_cut("two", run=2, at_min=-10), a_cut("three", run=3, at_min=20))
    imported = a_cut("imported", generation=None, run=999, at_min=10)
    assert ids(*own, imported) == ["three", "imported", "two", "one"]
    assert ids(*own, replace(imported, taken_at_ms=NOON_MS + 30 * MINUTE_MS))[0] == "imported"


def test_parents_in_a_circle_end():
    found = ids(a_cut("a", parent="b"), a_cut("b", parent="a"), a_cut("own"))
    assert sorted(found) == ["a", "b", "own"]
