"""A take whose store fails for a while: what it waits for, what it leaves, and what the next one finds."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.savepoint.errors import TAKE_TIMED_OUT, TakeCancelledError
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.errors import StoreError, StoreFullError, StoreUnavailableError
from testbed.memory_store import MemoryStore
from testbed.refusals import refuses
from testbed.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[..., Any]


class Throttled(MemoryStore):
    """Refuses writes of blobs while it is told to."""

    def __init__(self) -> None:
        super().__init__("throttled")
        self.refusals: float = 0
        """How many writes of blobs are refused from now on."""
        self.passes = 0
        """How many get through before that."""
        self.error: type[StoreError] = StoreUnavailableError
        self.written: list[str] = []
        self.refused = threading.Event()

    def write(self, key: str, data: bytes) -> str:
        if "/blobs/" in key:
            if self.passes > 0:
                self.passes -= 1
            elif self.refusals > 0:
                self.refusals -= 1
                self.refused.set()
                raise self.error.during(f"write {key}", self.uri, "SlowDown (HTTP 503)")  # type: ignore[attr-defined]
            self.written.append(key)
        return super().write(key, data)


@pytest.fixture
def store() -> Throttled:
    return Throttled()


@pytest.fixture
def repository(store: Throttled) -> SavepointRepository:
    return SavepointRepository(store, "orders")


def test_take_waits_file_by_file_for_a_store_that_throttles(
    store: Throttled, repository: SavepointRepository, a_checkpoint: Make, take: Make
):
    store.refusals = 5
    manifest = take(repository, a_checkpoint(), patience_s=PATIENCE_S)
    assert store.refusals == 0
    assert len(store.written) == len(set(store.written)) == len(manifest.blobs)
    verify_savepoint(manifest, repository, level="full")


@pytest.mark.parametrize("lost_answer", [False, True])
def test_patient_take_gets_through_whichever_call_fails(a_checkpoint: Make, take: Make, lost_answer: bool):
    checkpoint = a_checkpoint(batches=1)
    for call in range(1, 200):
        store = MemoryStore()
        repository = SavepointRepository(store, "orders")
        store.fail_at(call, lost_answer=lost_answer)
        manifest = take(repository, checkpoint, patience_s=PATIENCE_S)
        reached = store.calls >= call
        store.fail_at(None)
        verify_savepoint(manifest, repository, level="full")
        if not reached:
            break
    assert call > 10


def test_next_take_finds_what_one_that_gave_up_has_uploaded(
    store: Throttled, repository: SavepointRepository, a_checkpoint: Make, take: Make
):
    checkpoint = a_checkpoint()
    store.passes, store.refusals = 4, float("inf")
    with pytest.raises(StoreUnavailableError) as caught:
        take(repository, checkpoint, "sp-1", patience_s=0.2, packed_below_bytes=0)
    assert caught.value.retryable
    assert repository.ids() == ()
    kept = set(store.written)
    assert len(kept) == 4
    store.refusals = 0
    manifest = take(repository, checkpoint, "sp-2", patience_s=0.2, packed_below_bytes=0)
    assert len(store.written) == len(set(store.written))  # none of them twice
    assert kept <= {f"orders/blobs/{blob}" for blob in manifest.blobs}
    verify_savepoint(manifest, repository, level="full")


def test_time_out_ends_the_wait_and_names_what_the_store_said(
    store: Throttled, repository: SavepointRepository, a_checkpoint: Make, take: Make
):
    store.refusals = float("inf")
    with refuses(TAKE_TIMED_OUT) as caught:
        take(repository, a_checkpoint(), timeout_s=0.3, patience_s=PATIENCE_S)
    assert caught.value.retryable
    assert isinstance(caught.value.__cause__, StoreUnavailableError)


def test_take_that_waits_for_its_store_can_be_cancelled(
    store: Throttled, repository: SavepointRepository, a_checkpoint: Make, take: Make
):
    store.refusals = float("inf")
    with pytest.raises(TakeCancelledError):
        take(repository, a_checkpoint(), cancelled=store.refused.is_set, patience_s=PATIENCE_S)
    assert not repository.ids()


def test_full_store_is_not_waited_for(
    store: Throttled, repository: SavepointRepository, a_checkpoint: Make, take: Make
):
    store.refusals, store.error = float("inf"), StoreFullError
    with pytest.raises(StoreFullError):
        take(repository, a_checkpoint(), patience_s=PATIENCE_S)
    assert not repository.ids()
