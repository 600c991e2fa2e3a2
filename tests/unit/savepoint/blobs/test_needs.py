"""Whoever frees blobs holds everybody up only for the manifests that it could not read before."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.savepoint.blobs.needs import Needs
from airflow_flinkstyle.savepoint.errors import ManifestFormatError
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.savepoint.retention.dispose import dispose_savepoint
from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy
from airflow_flinkstyle.savepoint.retention.prune import prune
from testbed.memory_store import MemoryStore
from tests.unit.savepoint.manifests import a_manifest

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.storage.base import Versioned

COUNT = 12
SLOT = "orders/prune.json"
BLOB = "ab" * 32


class Watched(MemoryStore):
    """Knows which manifests are read while the slot is held; calls ``before_it_is_held`` just before that."""

    def __init__(self) -> None:
        super().__init__("root")
        self.is_held = False
        self.read_meanwhile: list[str] = []
        self.before_it_is_held: Callable[[], object] = lambda: None

    def create(self, key: str, data: bytes) -> str:
        self._watch(key, data)
        return super().create(key, data)

    def replace(self, key: str, data: bytes, *, expected: str) -> str:
        self._watch(key, data)
        return super().replace(key, data, expected=expected)

    def get(self, key: str, *, unless: str | None = None) -> Versioned | None:
        if self.is_held and key.startswith("orders/savepoints/"):
            self.read_meanwhile.append(key.removeprefix("orders/savepoints/").removesuffix(".json"))
        return super().get(key, unless=unless)

    def _watch(self, key: str, data: bytes) -> None:
        if key == SLOT:
            if not self.is_held:
                act, self.before_it_is_held = self.before_it_is_held, lambda: None
                act()
            self.is_held = json.loads(data)["holder"] is not None


@pytest.fixture
def store() -> Watched:
    return Watched()


@pytest.fixture
def repository(store: Watched) -> SavepointRepository:
    repository = SavepointRepository(store, "orders")
    store.write(f"orders/blobs/{BLOB}", b"abc")
    for number in range(COUNT):
        repository.publish(a_manifest(savepoint_id=f"sp-{number}", taken_at_ms=number))
    return repository


def prune_all_but(repository: SavepointRepository, count: int) -> Any:  # noqa: ANN401
    return prune(repository, RetentionPolicy(max_count=count), in_use=dict, holder="a test", wait_s=0.0)


def test_only_what_came_since_is_read_while_others_wait(repository: SavepointRepository, store: Watched):
    store.before_it_is_held = lambda: repository.publish(a_manifest(savepoint_id="sp-new", taken_at_ms=99))
    prune_all_but(repository, COUNT + 1)
    assert store.read_meanwhile == ["sp-new"]
    assert BLOB in repository.blob_sizes()


def test_dispose_reads_only_its_own_savepoint_while_others_wait(
    repository: SavepointRepository, store: Watched
):
    dispose_savepoint(repository, "sp-3", in_use=dict, holder="a test", wait_s=0.0)
    assert store.read_meanwhile == ["sp-3"]


def test_savepoint_that_went_just_before_needs_nothing(repository: SavepointRepository, store: Watched):
    def dispose_of_all() -> None:
        for savepoint_id in repository.ids():
            repository.delete_manifest(savepoint_id)

    store.before_it_is_held = dispose_of_all
    prune_all_but(repository, COUNT + 1)
    assert BLOB not in repository.blob_sizes()


def test_savepoint_that_another_took_the_place_of_is_read_again(
    repository: SavepointRepository, store: Watched
):
    needs = Needs(repository)
    needs.read()
    repository.delete_manifest("sp-1")
    repository.publish(a_manifest(savepoint_id="sp-1", taken_at_ms=77))
    assert needs.read()["sp-1"].cut.taken_at_ms == 77
    repository.dispose_with_tombstone("sp-1", "its taker was too slow")
    assert needs.read().keys() == {f"sp-{number}" for number in range(COUNT)} - {"sp-1"}


def test_manifest_that_cannot_be_read_holds_nobody_up(repository: SavepointRepository, store: Watched):
    store.write("orders/savepoints/sp-3.json", b"{")
    with pytest.raises(ManifestFormatError, match=r"savepoints/sp-3\.json"):
        prune_all_but(repository, 1)
    assert store.head(SLOT) is None
    assert len(repository.ids()) == COUNT
