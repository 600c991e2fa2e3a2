"""The newest savepoint is the one that the job's head came to last, whatever clocks and other lines say."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.line import BEGINNING, Line, Parent, Turn, batches_run
from airflow_flinkstyle.protocol.records import Current, TakeoverOrder
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.savepoint.repository.summary import list_savepoints, newest_savepoint
from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy
from airflow_flinkstyle.savepoint.retention.prune import prune
from airflow_flinkstyle.savepoint.sequence import InOrder, SavepointCut, in_order
from airflow_flinkstyle.types import BatchId, Generation, Incarnation
from testbed.memory_store import MemoryStore
from tests.manifests import manifests_of
from tests.unit.savepoint.manifests import a_manifest

if TYPE_CHECKING:
    from airflow_flinkstyle.savepoint.manifest import Manifest

MINUTE_MS = 60_000
NOON_MS = 1_800_000_000_000


def a_cut(
    name: str, *, generation: int | None = 1, at_min: float = 0, run: int = 1, **more: str
) -> SavepointCut:
    return SavepointCut(
        savepoint_id=name,
        taken_at_ms=int(NOON_MS + at_min * MINUTE_MS),
        taken_from_generation=generation,
        parent=more.get("parent"),
        batches_run=run,
    )


def a_line(head: int, *turns: Turn, parent: Parent = BEGINNING) -> Line:
    return Line(head=Generation(head), parent=parent, turns=turns)


def a_turn(generation: int, back_to: int | None, *, run: int = 0, savepoint: str | None = None) -> Turn:
    left = Generation(back_to) if back_to is not None else None
    parent = Parent(generation=left, batches_run=run, savepoint_id=savepoint)
    return Turn(generation=Generation(generation), parent=parent, rewind="fork" if left else "continue")


def ordered(*cuts: SavepointCut, line: Line | None = None) -> InOrder[SavepointCut]:
    """Return them in order; in whatever order they come."""
    orders = {in_order(given, lambda cut: cut, line) for given in itertools.permutations(cuts)}
    assert len(orders) == 1
    return orders.pop()


def ids(*cuts: SavepointCut, line: Line | None = None) -> list[str]:
    return [one.savepoint_id for one in ordered(*cuts, line=line).on_line]


def beside(*cuts: SavepointCut, line: Line) -> dict[str, str]:
    return {one.savepoint_id: str(where) for one, where in ordered(*cuts, line=line).beside}


def lead(repository: SavepointRepository, line: Line) -> None:
    """Leave the records of a driver that took the job over."""
    board = JobBoard(repository.store, repository.job)
    order = TakeoverOrder(
        savepoint_id=None, closed_at=None, expected={}, parent=line.parent,
        turns=line.turns,
    )  # fmt: skip
    board.create_takeover_order(line.head, order)
    board.take_current(Current(generation=line.head, incarnation=Incarnation(1)), seen=None)


def a_savepoint(name: str, batch: int, *, at_min: float, generation: int = 1) -> Manifest:
    manifest = a_manifest(savepoint_id=name, taken_at_ms=int(NOON_MS + at_min * MINUTE_MS))
    queries = tuple(replace(query, batch_id=BatchId(batch)) for query in manifest.queries)
    run = batches_run(query.batch_id for query in queries)
    return replace(manifest, parent=None, taken_from_generation=generation, batches_run=run, queries=queries)


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
        for blob, size_bytes in manifest.blobs.items():
            repository.store.write(f"orders/blobs/{blob}", b"x" * size_bytes)
    report = prune(repository, RetentionPolicy(max_count=1), in_use=dict, holder="test")
    assert report.plan.disposed == ("sp-first",)


def test_later_run_is_newer_though_it_counts_fewer_batches_and_its_clock_was_behind():
    assert ids(a_cut("old", run=900), a_cut("new", generation=2, at_min=-10, run=3)) == ["new", "old"]


def test_the_same_batches_are_ordered_by_the_clock_and_then_by_name():
    assert ids(a_cut("b"), a_cut("a"), a_cut("c", at_min=1)) == ["c", "b", "a"]


def test_savepoint_that_was_made_from_another_has_its_place_and_is_right_behind_it():
    first, second = a_cut("first", run=10), a_cut("second", run=20, at_min=-5)
    moved = a_cut("a-moved", run=10, parent="first")
    again = a_cut("again", run=10, parent="a-moved")
    assert ids(first, second, moved, again) == ["second", "again", "a-moved", "first"]
    assert ids(second, again) == ["second", "again"], "though what it was made from is gone"


def test_parents_in_a_circle_end():
    found = ids(a_cut("a", parent="b"), a_cut("b", parent="a"), a_cut("own"))
    assert sorted(found) == ["a", "b", "own"]


def test_what_a_fork_went_back_behind_is_abandoned_and_never_the_newest():
    line = a_line(2, a_turn(2, back_to=1, run=10, savepoint="sp-fork"))
    s1, s2, fork = a_cut("s1", run=10), a_cut("s2", run=20), a_cut("sp-fork", run=10, parent="s1")
    assert ids(s1, s2, fork, line=line) == ["sp-fork", "s1"]
    assert beside(s1, s2, line=line) == {
        "s2": "abandoned: generation 2 started from savepoint sp-fork (fork)"
    }
    later = a_cut("s3", generation=2, run=1, at_min=-60)
    assert ids(s1, s2, later, line=line) == ["s3", "s1"]


def test_generation_between_that_went_nowhere_is_abandoned_too():
    line = a_line(4, a_turn(3, back_to=1, run=5))
    assert ids(a_cut("a", run=5), a_cut("b", generation=2), a_cut("c", generation=4), line=line) == ["c", "a"]


def test_job_that_began_anew_has_abandoned_all_that_was_before():
    line = a_line(3, a_turn(3, back_to=None))
    assert ids(a_cut("old", generation=2), a_cut("new", generation=3), line=line) == ["new"]
    why = "abandoned: generation 3 started from scratch"
    assert beside(a_cut("old", generation=2), line=line) == {"old": why}


def test_savepoint_from_elsewhere_counts_once_the_job_was_started_from_it():
    own, imported = a_cut("own", at_min=0), a_cut("imported", generation=None, run=999, at_min=10)
    assert ids(own, imported, line=a_line(1)) == ["own"], "whatever its clock says"
    assert "has not been started from it" in beside(imported, line=a_line(1))["imported"]
    line = a_line(2, a_turn(2, back_to=None, savepoint="sp-fork"))
    fork = a_cut("sp-fork", generation=None, at_min=10, parent="imported")
    mine = a_cut("mine", generation=2, at_min=-10)
    assert ids(own, imported, fork, mine, line=line) == ["mine", "sp-fork", "imported"]
    assert beside(own, line=line) == {
        "own": "abandoned: generation 2 started from savepoint sp-fork from elsewhere"
    }


def test_savepoints_from_elsewhere_are_candidates_of_a_job_that_never_ran_by_the_clock():
    first, second = a_cut("first", generation=None, at_min=1), a_cut("second", generation=None, at_min=2)
    assert ids(first, second) == ["second", "first"]


def test_prune_disposes_of_what_is_abandoned_before_anything_on_the_line(repository: SavepointRepository):
    repository.publish(a_savepoint("sp-elsewhere", 99, at_min=30, generation=7))
    for blob, size_bytes in manifests_of(repository)[0].blobs.items():
        repository.store.write(f"orders/blobs/{blob}", b"x" * size_bytes)
    lead(repository, a_line(2, a_turn(2, back_to=1, run=11)))
    report = prune(repository, RetentionPolicy(max_count=1), in_use=dict, holder="test", dry_run=True)
    assert report.plan.disposed == ("sp-elsewhere", "sp-second")
    assert "abandoned: generation 2 started from generation 1 (fork)" in report.as_markdown()
    assert [one.savepoint_id for one in list_savepoints(repository)] == ["sp-first"]


def test_savepoint_that_a_line_began_with_is_on_it_though_the_records_of_its_run_are_gone():
    origin, later = a_cut("origin", generation=5, run=3), a_cut("later", generation=5, run=9)
    line = a_line(6, a_turn(6, back_to=None, savepoint="origin"))
    assert ids(origin, later, line=line) == ["origin"]
    assert list(beside(origin, later, line=line)) == ["later"]
