from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.storage.base import CopiedObject
from airflow_flinkstyle.storage.contract import GUARANTEES, check_store
from airflow_flinkstyle.storage.errors import ObjectChangedError, ObjectMissingError, StoreUnavailableError
from testbed.memory_store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_flinkstyle.storage.base import ObjectInfo, ObjectStore, ServerCopy, Versioned


class BlindCreate(MemoryStore):
    """Ignores If-None-Match, as some services do."""

    def create(self, key: str, data: bytes) -> str:
        return self.write(key, data)


class BlindReplace(MemoryStore):
    """Ignores If-Match."""

    def replace(self, key: str, data: bytes, *, expected: str) -> str:
        del expected
        return self.write(key, data)


class LooksThenWrites(MemoryStore):
    """Checks the version in one step and writes in another."""

    def replace(self, key: str, data: bytes, *, expected: str) -> str:
        found = self.head(key)
        if found is None or found.version != expected:
            now = found.version if found else "nothing"
            raise ObjectChangedError.at(self.uri, key, expected=expected, found=now)
        time.sleep(0.01)  # as between two requests
        return self.write(key, data)


class OnePage(MemoryStore):
    """Lists a thousand keys and stops."""

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        yield from list(super().list(prefix, after=after))[:1000]


class FromTheBeginning(MemoryStore):
    """Ignores start-after."""

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        del after
        yield from super().list(prefix)


class NeverUnchanged(MemoryStore):
    """Ignores If-None-Match on reads."""

    def get(self, key: str, *, unless: str | None = None) -> Versioned | None:
        del unless
        return super().get(key)


class WholeOnly(MemoryStore):
    """Ignores ranges."""

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        del start, length
        return super().read(key)


class MovingCopy(MemoryStore):
    """Copies by a link that its source takes along."""

    def copier_from(self, origin: ObjectStore) -> ServerCopy:
        del origin
        return lambda _, target: CopiedObject(version=self.write(target, b""), digest=None)


class Undying(MemoryStore):
    """Answers reads of a deleted object from a cache."""

    def __init__(self) -> None:
        super().__init__()
        self._cache: dict[str, ObjectInfo] = {}

    def head(self, key: str) -> ObjectInfo | None:
        found = super().head(key)
        if found is not None:
            self._cache[key] = found
        return found or self._cache.get(key)

    def delete(self, key: str) -> None:
        self.head(key)
        super().delete(key)


class EmptyForMissing(MemoryStore):
    """Answers with nothing where there is nothing."""

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        try:
            return super().read(key, start=start, length=length)
        except ObjectMissingError:
            return b""


class Trusting(MemoryStore):
    """Takes whatever comes for what was announced."""

    def upload(self, key: str, source: Path, *, sha256: str | None = None) -> str:
        del sha256
        return super().upload(key, source)


class Cutting(MemoryStore):
    """Loses the last byte of a large file."""

    def upload(self, key: str, source: Path, *, sha256: str | None = None) -> str:
        super().upload(key, source, sha256=sha256)
        return self.write(key, self.read(key)[:-1])


@pytest.mark.parametrize(
    ("store", "broken"),
    [
        (WholeOnly, "reads whole and in ranges"),
        (EmptyForMissing, "missing objects named as such"),
        (Undying, "reads see the newest write"),
        (BlindCreate, "create of what is not there"),
        (BlindCreate, "one winner of racing creates"),
        (BlindReplace, "replace of what is unchanged"),
        (LooksThenWrites, "one winner of racing replaces"),
        (NeverUnchanged, "get of what has changed only"),
        (OnePage, "listings whole and in order"),
        (FromTheBeginning, "listings whole and in order"),
        (MovingCopy, "copies inside the store"),
        (Trusting, "uploads compared with their digest"),
        (Cutting, "large files in parts"),
    ],
)
def test_each_broken_guarantee_is_found_with_a_remedy(
    store: type[MemoryStore], broken: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("airflow_flinkstyle.storage.contract.LARGE_BYTES", 8 << 20)
    found = {finding.guarantee: finding for finding in check_store(store())}
    assert broken in found
    assert "expected" in found[broken].problem
    assert found[broken].remedy


def test_every_guarantee_has_a_name_of_its_own():
    assert len({guarantee.name for guarantee in GUARANTEES}) == len(GUARANTEES)


def test_error_of_the_store_inside_a_check_is_a_finding_and_the_scratch_is_removed():
    class FailsToCopy(MemoryStore):
        def copier_from(self, origin: ObjectStore) -> ServerCopy:
            del origin
            return self._fail

        def _fail(self, source: ObjectInfo, target: str) -> CopiedObject:
            raise StoreUnavailableError.during(f"copy {source.key} to {target}", self.uri, "not implemented")

    store = FailsToCopy()
    findings = check_store(store)
    assert [finding.guarantee for finding in findings] == ["copies inside the store"]
    assert "not implemented" in findings[0].problem
    assert list(store.list()) == []


def test_store_that_cannot_be_written_to_is_an_error_and_no_finding():
    store = MemoryStore()
    store.fail_at(1)
    with pytest.raises(StoreUnavailableError):
        check_store(store)
