"""What a check that failed means for the savepoints that share the bad file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.savepoint.errors import SavepointDamagedError
from airflow_flinkstyle.savepoint.files.verified import check_savepoint, damaged_records, verified_records
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy
from airflow_flinkstyle.savepoint.retention.prune import prune
from testbed.memory_store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.savepoint.manifest import Manifest

    Make = Callable[..., Any]


@pytest.mark.parametrize("service", [None, "here"])  # read and hashed, or copied by the store
def test_altered_file_is_stored_again_by_the_next_savepoint_and_distrusted_in_others(
    a_checkpoint: Make, take: Make, service: str | None
):
    repository = SavepointRepository(MemoryStore("root", service=service), "orders")
    checkpoint = a_checkpoint(store=MemoryStore("live", service=service))
    unrelated = take(repository, a_checkpoint(2, query_id="q-2"), "sp-0", packed_below_bytes=0)
    first = take(repository, checkpoint, "sp-1", packed_below_bytes=0)
    second = take(repository, checkpoint, "sp-2", previous=first, packed_below_bytes=0)
    for savepoint in (unrelated, first, second):
        check_savepoint(repository, savepoint.savepoint_id, level="full", by="test")
    entry = [entry for entry in first.queries[0].files if entry.path.endswith(".sst")][-1]
    repository.store.write(f"orders/blobs/{entry.blob}", b"X" * entry.size_bytes)

    with pytest.raises(SavepointDamagedError, match="was altered"):
        check_savepoint(repository, "sp-2", level="full", by="test")
    assert verified_records(repository).keys() == {"sp-0"}
    damaged = damaged_records(repository)
    assert damaged.keys() == {"sp-1", "sp-2"}
    assert "was altered" in str(damaged["sp-2"].found)
    assert damaged["sp-1"].found == "a file that it shares with sp-2 was altered"
    third = take(repository, checkpoint, "sp-3", previous=second, packed_below_bytes=0)
    check_savepoint(repository, "sp-3", level="full", by="test")
    assert third.queries[0].file(entry.path).blob == f"{entry.blob}.1"
    others = {e.path: e.blob for e in second.queries[0].files if e.blob != entry.blob}
    assert others.items() <= {e.path: e.blob for e in third.queries[0].files}.items()


@pytest.mark.parametrize("moment", ["while files are read", "right before the manifest", "right behind it"])
def test_savepoint_that_is_taken_while_a_file_that_it_shares_is_found_altered_counts_as_damaged(
    a_checkpoint: Make, take: Make, monkeypatch: pytest.MonkeyPatch, moment: str
):
    repository = SavepointRepository(MemoryStore("root"), "orders")
    checkpoint = a_checkpoint()
    first = take(repository, checkpoint, "sp-1", packed_below_bytes=0)
    checkpoint.commit()
    entry = [entry for entry in first.queries[0].files if entry.path.endswith(".sst")][-1]
    repository.store.write(f"orders/blobs/{entry.blob}", b"X" * entry.size_bytes)
    found: list[bool] = []

    def check(*_: object) -> bool:
        if not found:
            found.append(True)
            other = SavepointRepository(repository.store, "orders")
            with pytest.raises(SavepointDamagedError, match="was altered"):
                check_savepoint(other, "sp-1", level="full", by="another")
        return False

    publish = SavepointRepository.publish

    def published(own: SavepointRepository, manifest: Manifest) -> None:
        if moment == "right before the manifest":
            check()
        publish(own, manifest)
        check()

    hooks = {"cancelled": check} if moment == "while files are read" else {}
    monkeypatch.setattr(SavepointRepository, "publish", published)
    with pytest.raises(SavepointDamagedError, match="Take another one"):
        take(repository, checkpoint, "sp-2", previous=first, packed_below_bytes=0, **hooks)
    assert damaged_records(repository).keys() == {"sp-1", "sp-2"}
    take(repository, checkpoint, "sp-3", previous=first, packed_below_bytes=0)
    check_savepoint(repository, "sp-3", level="full", by="test")


def test_quick_check_takes_back_nothing_that_a_full_one_has_found(a_checkpoint: Make, take: Make):
    """The only whole savepoint would go: a policy keeps the newest one that counts as good."""
    repository = SavepointRepository(MemoryStore(), "orders")
    checkpoint = a_checkpoint()
    whole = take(repository, checkpoint, "sp-1", packed_below_bytes=0, taken_at_ms=1)
    checkpoint.commit()
    altered = take(repository, checkpoint, "sp-2", packed_below_bytes=0, taken_at_ms=2)
    check_savepoint(repository, "sp-1", level="quick", by="test")
    new = sorted(altered.blobs.keys() - whole.blobs.keys())
    entry = next(one for one in altered.queries[0].files if one.blob in new and one.path.endswith(".sst"))
    good = repository.store.read(f"orders/blobs/{entry.blob}")
    repository.store.write(f"orders/blobs/{entry.blob}", b"X" * entry.size_bytes)
    with pytest.raises(SavepointDamagedError, match="was altered"):
        check_savepoint(repository, "sp-2", level="full", by="test")

    with pytest.raises(SavepointDamagedError, match=r"was altered.*Only a full check"):
        check_savepoint(repository, "sp-2", level="quick", by="test")
    assert verified_records(repository).keys() == {"sp-1"}
    assert prune(repository, RetentionPolicy(max_count=1), in_use=dict, holder="test").plan.disposed == ()

    repository.store.write(f"orders/blobs/{entry.blob}", good)
    check_savepoint(repository, "sp-2", level="full", by="test")
    check_savepoint(repository, "sp-2", level="quick", by="test")
    assert verified_records(repository).keys() == {"sp-1", "sp-2"}


def test_quick_check_takes_back_what_a_quick_one_has_found(a_checkpoint: Make, take: Make):
    repository = SavepointRepository(MemoryStore(), "orders")
    manifest = take(repository, a_checkpoint(), "sp-1", packed_below_bytes=0)
    key = f"orders/blobs/{manifest.queries[0].files[0].blob}"
    good = repository.store.read(key)
    repository.store.delete(key)
    with pytest.raises(SavepointDamagedError):
        check_savepoint(repository, "sp-1", level="quick", by="test")
    repository.store.write(key, good)
    check_savepoint(repository, "sp-1", level="quick", by="test")
    assert damaged_records(repository) == {}
