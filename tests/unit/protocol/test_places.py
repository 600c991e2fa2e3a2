"""Whose a place is: on disk and in memory, in every state that a crash or another owner leaves."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.protocol.board import ROOT_KEY, JobBoard
from airflow_flinkstyle.protocol.errors import ROOT_COPIED, PlaceOccupiedError
from airflow_flinkstyle.protocol.places import MARK_KEY, OwnersMark, is_own, own_place, require_unmarked
from airflow_flinkstyle.storage.errors import StoreDeniedError, StoreUnavailableError
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.types import Generation
from testbed.memory_store import MemoryStore
from testbed.refusals import refuses
from tests.unit.agent.conftest import G1, G2, a_claim
from tests.unit.stores import ActingStore

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_flinkstyle.storage.base import ObjectStore


def a_job(root: str = "staging", *, job: str = "orders", generations: int = 2) -> JobBoard:
    board = JobBoard(MemoryStore(root), job)
    for number in range(1, generations + 1):
        board.create_claim(Generation(number), a_claim())
    return board


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return LocalStore(tmp_path / "place") if request.param == "disk" else MemoryStore("place")


def content(place: ObjectStore) -> dict[str, bytes]:
    return {info.key: place.read(info.key) for info in place.list()}


def refused(place: ObjectStore, board: JobBoard, generation: Generation = G1) -> str:
    """Return how the place is refused; nothing in it is touched."""
    before = content(place)
    with pytest.raises(PlaceOccupiedError) as caught:
        own_place(place, board, generation)
    assert content(place) == before
    assert not is_own(place, board)
    return str(caught.value)


def test_place_is_its_first_users_and_is_found_again_by_all_drivers_of_the_job(place: ObjectStore):
    mine = a_job()
    own_place(place, mine, G1)
    marked = content(place)
    assert list(marked) == [MARK_KEY]
    place.write("counts/offsets/0", b"v1")
    own_place(place, mine, G1)  # the next incarnation
    own_place(place, mine, G2)  # continues in it
    assert is_own(place, mine)
    assert content(place) == {**marked, "counts/offsets/0": b"v1"}
    assert OwnersMark.from_bytes(marked[MARK_KEY]).generation == G1


def test_place_of_the_job_of_that_name_below_another_root_is_refused_with_whose_it_is(place: ObjectStore):
    theirs = a_job("production")
    own_place(place, theirs, G1)
    place.write("counts/offsets/7", b"v1")
    said = refused(place, a_job())
    assert f"generation 1 of job orders of root {theirs.root.root_id} (memory://production)" in said
    assert "counts in it" in said
    assert "Start the job from a savepoint" in said


def test_place_of_another_job_below_the_same_root_is_refused(place: ObjectStore):
    mine = a_job()
    other = JobBoard(mine.store, "clicks")
    other.create_claim(G1, a_claim())
    own_place(place, other, G1)
    assert "of job clicks of root" in refused(place, mine)


def test_place_of_a_job_that_was_deleted_is_not_that_of_the_job_begun_anew_under_its_numbers(
    place: ObjectStore,
):
    mine = a_job()
    own_place(place, mine, G2)
    place.write("counts/offsets/7", b"v1")
    for info in list(mine.store.list("orders/")):
        mine.store.delete(info.key)
    anew = JobBoard(mine.store, "orders")
    anew.create_claim(G1, a_claim())
    assert "generation 2 of job orders" in refused(place, anew)
    anew.create_claim(G2, a_claim())
    assert "generation 2 of job orders" in refused(place, anew, G2)


def test_place_with_anything_in_it_and_no_mark_is_refused_by_its_content(place: ObjectStore):
    for number in range(7):
        place.write(f"query-{number}/offsets/0", b"v1")
    assert "found no mark, and query-0, query-1, query-2, query-3, query-4, ... in it" in refused(
        place, a_job()
    )


def test_file_without_a_folder_occupies_a_place_too(place: ObjectStore):
    place.write("notes.txt", b"mine")
    assert "no mark, and notes.txt in it" in refused(place, a_job())


def test_of_two_that_come_at_once_one_has_the_place(place: ObjectStore):
    mine, theirs = a_job(), a_job("production")
    both: Any = ActingStore(place, lambda: own_place(place, theirs, G1), key=MARK_KEY)
    with pytest.raises(PlaceOccupiedError, match="memory://production"):
        own_place(both, mine, G1)
    assert is_own(place, theirs)


@pytest.mark.parametrize("call", range(1, 5))
@pytest.mark.parametrize("lost_answer", [True, False])
def test_driver_killed_before_or_behind_its_mark_continues(call: int, *, lost_answer: bool):
    mine, place = a_job(), MemoryStore("place")
    place.fail_at(call, lost_answer=lost_answer)  # of get, folders, list and create
    with pytest.raises(StoreUnavailableError):
        own_place(place, mine, G1)
    own_place(place, mine, G1)
    assert list(content(place)) == [MARK_KEY]


@pytest.mark.parametrize("cut", [0, 1, 20])
def test_damaged_mark_is_nobodys(place: ObjectStore, cut: int):
    mine = a_job()
    own_place(place, mine, G1)
    place.write(MARK_KEY, place.read(MARK_KEY)[:cut])
    assert "found a mark that cannot be read" in refused(place, mine)


def test_mark_of_a_newer_version_is_named_with_both(place: ObjectStore):
    mine = a_job()
    own_place(place, mine, G1)
    newer = json.loads(place.read(MARK_KEY)) | {"version": 99}
    place.write(MARK_KEY, json.dumps(newer).encode())
    said = refused(place, mine)
    assert "a mark of a version that this package does not know" in said
    assert "protocol 99" in said


def test_place_that_may_not_be_written_is_refused_with_what_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As root the tests may write anywhere, so the disk itself refuses."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    place, mine = LocalStore(tmp_path), a_job()
    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StoreDeniedError, match="expected to leave its mark in file://") as caught:
        own_place(place, mine, G1)
    assert "Read-only file system" in caught.value.problem
    assert "below the checkpoint root" in caught.value.remedy
    assert content(place) == {}


def test_copy_of_a_root_owns_nothing_of_the_original(place: ObjectStore):
    mine = a_job()
    own_place(place, mine, G1)
    copied = MemoryStore("copy")
    for info in mine.store.list():
        copied.write(info.key, mine.store.read(info.key))
    with refuses(ROOT_COPIED):
        own_place(place, JobBoard(copied, "orders"), G1)
    adopted = replace(mine.root, root_id="another", uri=copied.uri)
    copied.write(ROOT_KEY, adopted.to_bytes())
    assert mine.root.root_id in refused(place, JobBoard(copied, "orders"))


def test_person_restores_to_no_place_that_a_job_owns(place: ObjectStore):
    require_unmarked(place)
    place.write("notes.txt", b"mine")
    require_unmarked(place)
    other = MemoryStore("place")
    own_place(other, a_job(), G1)
    with pytest.raises(PlaceOccupiedError, match="generation 1 of job orders"):
        require_unmarked(other)
