"""A checkpoint on the repository's own service: the service copies, nothing passes through this process."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.savepoint.capture.copier import origin_key
from airflow_flinkstyle.savepoint.capture.query import capture_query
from airflow_flinkstyle.savepoint.digests import matches
from airflow_flinkstyle.savepoint.errors import SavepointDamagedError
from airflow_flinkstyle.savepoint.files.restore import restore_query
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.base import ObjectInfo, Versioned
from testbed.memory_store import MemoryStore
from tests.unit.savepoint.conftest import ORDERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.storage.base import ObjectStore, ServerCopy

    Make = Callable[..., Any]

SST = "state/0/0/SSTs/000008-f29bb67d-199d-41e8-85e1-8b45de7a81bb.sst"


class Watched(MemoryStore):
    """Remembers what was read."""

    def __init__(self) -> None:
        super().__init__("live", service="here")
        self.read_keys: set[str] = set()

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        self.read_keys.add(key)
        return super().read(key, start=start, length=length)


@pytest.fixture
def repository() -> SavepointRepository:
    return SavepointRepository(MemoryStore("root", service="here"), "orders")


def test_state_files_are_copied_by_the_store_and_never_read(
    repository: SavepointRepository, a_checkpoint: Make, take: Make
):
    live = Watched()
    manifest = take(repository, a_checkpoint(store=live))
    copied = [entry for entry in manifest.queries[0].files if entry.blob.startswith("origin/q-1/")]
    assert {entry.path for entry in copied if entry.path.endswith(".sst")}
    schema = {"state/0/0/_metadata/schema"}  # tells whether partition 0 is all there is
    assert live.read_keys & {entry.path for entry in copied} == schema
    for entry in copied:
        content = live.read(entry.path)
        assert repository.read_file(entry) == content
        assert entry.digest == f"etag:{hashlib.md5(content, usedforsecurity=False).hexdigest()}"
    verify_savepoint(manifest, repository, level="full")


def test_restored_files_equal_the_checkpoint(repository: SavepointRepository, a_checkpoint: Make, take: Make):
    checkpoint = a_checkpoint(store=Watched())
    manifest = take(repository, checkpoint)
    target = MemoryStore("next")
    restore_query(manifest, manifest.queries[0], repository, target)
    for entry in manifest.queries[0].files:
        assert target.read(entry.path) == checkpoint.store.read(entry.path)


def test_files_that_the_store_has_copied_are_not_copied_again(
    repository: SavepointRepository, a_checkpoint: Make, take: Make
):
    checkpoint = a_checkpoint(store=Watched())
    first = take(repository, checkpoint)
    checkpoint.commit()
    before = repository.blob_sizes()
    second = take(repository, checkpoint, savepoint_id="sp-2", previous=first)
    shared = {entry.blob for entry in second.queries[0].files if entry.path.endswith(".sst")} & before.keys()
    assert len(shared) == 3
    told: list[str] = []
    source = {"checkpoint": checkpoint.store, "repository": repository, "name": "totals"}
    again = capture_query(**source, kafka={"0": ORDERS}, previous=second.queries[0], uploaded=told.append)
    assert again == second.queries[0]
    assert told == []


@pytest.mark.parametrize("path", ["sources/0/0", "state/0/0/_metadata/schema"])
def test_file_that_changes_between_listing_and_copy_makes_the_take_start_over(
    repository: SavepointRepository, a_checkpoint: Make, take: Make, path: str
):
    class Changing(Watched):
        def __init__(self) -> None:
            super().__init__()
            self.changed = False

        def get(self, key: str, *, unless: str | None = None) -> Versioned | None:
            if key == path and not self.changed:
                self.changed = True
                self.write(key, b"new content")
            return super().get(key, unless=unless)

    live = Changing()
    manifest = take(repository, a_checkpoint(store=live))
    assert live.changed
    entry = manifest.queries[0].file(path)
    assert entry is not None
    assert repository.read_file(entry) == b"new content"


def test_altered_copy_is_found_and_never_restored(
    repository: SavepointRepository, a_checkpoint: Make, take: Make
):
    manifest = take(repository, a_checkpoint(store=Watched()))
    entry = next(entry for entry in manifest.queries[0].files if entry.path.endswith(".sst"))
    repository.store.write(f"orders/blobs/{entry.blob}", b"S" * entry.size_bytes)
    with pytest.raises(SavepointDamagedError, match="was altered"):
        verify_savepoint(manifest, repository, level="full")
    with pytest.raises(SavepointDamagedError, match="was altered"):
        restore_query(manifest, manifest.queries[0], repository, MemoryStore("next"))


class Silent(MemoryStore):
    """Copies without a word on the content, as S3 does with objects of many parts."""

    def copier_from(self, origin: ObjectStore) -> ServerCopy | None:
        copy = super().copier_from(origin)
        return copy and (lambda info, target: replace(copy(info, target), digest=None))


def test_altered_copy_is_found_though_the_store_told_no_digest(a_checkpoint: Make, take: Make):
    repository = SavepointRepository(Silent("root", service="here"), "orders")
    manifest = take(repository, a_checkpoint(store=Watched()))
    assert all(entry.digest for entry in manifest.queries[0].files)
    entry = next(entry for entry in manifest.queries[0].files if entry.path.endswith(".sst"))
    verify_savepoint(manifest, repository, level="full")
    repository.store.write(f"orders/blobs/{entry.blob}", b"S" * entry.size_bytes)
    with pytest.raises(SavepointDamagedError, match="was altered"):
        verify_savepoint(manifest, repository, level="full")


def test_file_without_a_digest_in_the_savepoint_before_gets_one(
    repository: SavepointRepository, a_checkpoint: Make, take: Make
):
    checkpoint = a_checkpoint(store=Watched())
    query = take(repository, checkpoint).queries[0]
    untold = replace(query, files=tuple(replace(entry, digest=None) for entry in query.files))
    source = {"checkpoint": checkpoint.store, "repository": repository, "name": "totals"}
    assert capture_query(**source, kafka={"0": ORDERS}, previous=untold) == query


def test_stores_of_other_services_are_read_and_hashed(a_checkpoint: Make, take: Make):
    elsewhere = SavepointRepository(MemoryStore("root", service="there"), "orders")
    manifest = take(elsewhere, a_checkpoint(store=Watched()))
    assert all(entry.content.startswith("sha256:") for entry in manifest.queries[0].files)


def test_unique_names_are_keyed_by_name_and_size_and_others_by_version():
    def key(path: str, version: str = '"abc-2"') -> str:
        return origin_key(ObjectInfo(key=path, size_bytes=7, version=version), "q-1")

    assert key(SST) == key(SST, "other") == f"origin/q-1/{SST.rpartition('/')[2]}-7"
    assert key("state/0/0/5.changelog") == "origin/q-1/state/0/0/5.changelog-abc-2"
    assert key("state/0/0/5.changelog") != key("state/0/0/5.changelog", "other")
    assert key("sources") == "origin/q-1/sources-abc-2"


@pytest.mark.parametrize(
    ("digest", "size_bytes", "expected"),
    [
        ("sha256:" + hashlib.sha256(b"ab").hexdigest(), 2, True),
        ("etag:" + hashlib.md5(b"ab", usedforsecurity=False).hexdigest(), 2, True),
        ("etag:" + hashlib.md5(b"ac", usedforsecurity=False).hexdigest(), 2, False),
        ("sha256:" + hashlib.sha256(b"ab").hexdigest(), 3, False),
        (None, 2, True),
        (None, 3, False),
        ("crc99:00", 2, False),
    ],
)
def test_every_kind_of_digest_is_compared_and_an_unknown_one_never_matches(
    digest: str | None, size_bytes: int, expected: bool
):
    assert matches([b"a", b"b"], size_bytes=size_bytes, digest=digest) is expected
