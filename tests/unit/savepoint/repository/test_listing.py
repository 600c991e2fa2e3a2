"""Listings read each savepoint once, and never believe what they remember over what the store shows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.savepoint.errors import SavepointMissingError
from airflow_flinkstyle.savepoint.repository import folder_cache
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.savepoint.repository.summary import (
    list_savepoints,
    newest_summary,
    read_listing,
    summarize,
)
from airflow_flinkstyle.storage.errors import StoreDeniedError
from testbed.memory_store import MemoryStore
from tests.counting import CountingStore
from tests.unit.savepoint.manifests import a_large_manifest, a_manifest

if TYPE_CHECKING:
    from airflow_flinkstyle.storage.base import Versioned

COUNT = 40
CACHE = "orders/cache/savepoints.json"


class Counting(MemoryStore):
    """Counts the objects that are read."""

    def __init__(self) -> None:
        super().__init__("root")
        self.gets = 0
        self.read_only = False

    def get(self, key: str, *, unless: str | None = None) -> Versioned | None:
        self.gets += 1
        return super().get(key, unless=unless)

    def write(self, key: str, data: bytes) -> str:
        if self.read_only:
            raise StoreDeniedError.during(f"write {key}", self.uri, "AccessDenied")
        return super().write(key, data)


@pytest.fixture
def store() -> Counting:
    return Counting()


@pytest.fixture
def repository(store: Counting) -> SavepointRepository:
    repository = SavepointRepository(store, "orders")
    for number in range(COUNT):
        repository.publish(a_manifest(savepoint_id=f"sp-{number}", taken_at_ms=number))
    return repository


def test_list_shows_every_savepoint_newest_first_as_its_manifest_says(repository: SavepointRepository):
    expected = [summarize(repository.read(f"sp-{number}")) for number in reversed(range(COUNT))]
    assert list(list_savepoints(repository)) == expected
    assert list(list_savepoints(repository)) == expected


def test_savepoints_that_were_listed_before_are_not_read_again(
    repository: SavepointRepository, store: Counting
):
    list_savepoints(repository)
    repository.publish(a_manifest(savepoint_id="sp-new", taken_at_ms=COUNT))
    store.gets = 0
    assert list_savepoints(repository)[0].savepoint_id == "sp-new"
    assert store.gets == 3  # what is remembered, the new one, and which of them count


def test_disposed_and_spent_savepoints_are_listed_no_more(repository: SavepointRepository):
    list_savepoints(repository)
    repository.delete_manifest("sp-3")
    repository.dispose_with_tombstone("sp-4", "its taker was too slow")
    listed = {one.savepoint_id for one in list_savepoints(repository)}
    assert listed == {f"sp-{number}" for number in range(COUNT)} - {"sp-3", "sp-4"}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"format": 1}',
        b'{"format": 1}\n{"sp-1": 3}',
        folder_cache._rendered({"sp-1": 3}),
        b"\xff",
        b"[" * 99_999,
    ],
)
def test_damaged_memory_is_forgotten(repository: SavepointRepository, store: Counting, content: bytes):
    expected = list_savepoints(repository)
    store.write(CACHE, content)
    assert list_savepoints(repository) == expected
    assert json.loads(store.read(CACHE).splitlines()[0])["format"] == 1


@pytest.mark.parametrize("value", [3, None, {}, {"savepoint_id": 3}, "text"])
def test_altered_memory_of_one_savepoint_is_forgotten(
    repository: SavepointRepository, store: Counting, value: object
):
    expected = list_savepoints(repository)
    header, text = store.read(CACHE).splitlines()
    entries = json.loads(text)
    entries["sp-3"][1] = value
    store.write(CACHE, header + b"\n" + json.dumps(entries).encode())
    assert list_savepoints(repository) == expected


def test_memory_of_another_version_of_a_savepoint_is_not_believed(
    repository: SavepointRepository, store: Counting
):
    expected = list_savepoints(repository)
    remembered = json.loads(store.read(CACHE).splitlines()[1])
    entries = {name: ["stale", value] for name, (_, value) in remembered.items()}
    store.write(CACHE, folder_cache._rendered({**entries, "sp-gone": entries["sp-1"]}))
    assert list_savepoints(repository) == expected


def test_who_may_only_read_lists_all_the_same(repository: SavepointRepository, store: Counting):
    store.read_only = True
    assert len(list_savepoints(repository)) == COUNT


def test_few_savepoints_leave_no_memory_behind(store: Counting):
    few = SavepointRepository(store, "few")
    for number in range(folder_cache._WORTH_WRITING - 1):
        few.publish(a_manifest(job="few", savepoint_id=f"sp-{number}"))
    assert len(list_savepoints(few)) == folder_cache._WORTH_WRITING - 1
    assert [info.key for info in store.list("few/cache/")] == []


def test_few_large_savepoints_are_read_once(store: Counting):
    """The freshness sensor looks every ten seconds; a manifest of 100,000 files has 7.6 MB."""
    counted: Any = CountingStore(store)
    large = SavepointRepository(counted, "large")
    for number in range(3):
        publish_large(large, number)
    list_savepoints(large)
    counted.reset()
    newest = newest_summary(large)
    assert newest is not None
    assert (newest.savepoint_id, newest.files) == ("sp-2", 2000)
    assert len(counted.requests) == 3  # the listing, what is remembered, and which of them count
    assert counted.bytes < 5_000
    publish_large(large, 3)
    list_savepoints(large)
    counted.reset()
    assert next(one.savepoint_id for one in list_savepoints(large)) == "sp-3"
    assert counted.bytes < 5_000


def publish_large(repository: SavepointRepository, number: int) -> None:
    repository.publish(a_large_manifest(job="large", savepoint_id=f"sp-{number}", taken_at_ms=number))


def test_manifest_that_cannot_be_read_is_listed_as_damaged_and_the_others_are_listed(
    repository: SavepointRepository, store: Counting
):
    store.write("orders/savepoints/sp-other.json", store.read("orders/savepoints/sp-1.json"))
    store.write("orders/savepoints/sp-3.json", b"\xff")
    for listing in (read_listing(repository), read_listing(repository)):
        assert len(listing.savepoints) == COUNT - 1
        assert [one.savepoint_id for one in listing.damaged] == ["sp-3", "sp-other"]
        assert all(f"orders/savepoints/{one.savepoint_id}.json" in one.problem for one in listing.damaged)
        assert all("nothing can be pruned" in one.remedy for one in listing.damaged)
    assert len(list_savepoints(repository)) == COUNT - 1
    with pytest.raises(SavepointMissingError, match=f"the newest are sp-{COUNT - 1}"):
        repository.read("sp-absent")


def test_damaged_savepoint_that_is_put_back_is_listed_again(repository: SavepointRepository, store: Counting):
    content = store.read("orders/savepoints/sp-3.json")
    store.write("orders/savepoints/sp-3.json", content[:-9])
    assert len(list_savepoints(repository)) == COUNT - 1
    store.write("orders/savepoints/sp-3.json", content)
    assert read_listing(repository).damaged == ()
    assert len(list_savepoints(repository)) == COUNT
