from __future__ import annotations

import threading

import pytest

from airflow_flinkstyle.storage.errors import ObjectExistsError, StoreUnavailableError
from testbed.memory_store import MemoryStore


def test_only_the_named_call_fails_and_changes_nothing():
    store = MemoryStore()
    store.fail_at(2)
    store.write("a", b"1")
    with pytest.raises(StoreUnavailableError):
        store.write("a", b"2")
    assert store.read("a") == b"1"
    assert store.calls == 3


def test_lost_answer_fails_after_the_write_took_effect():
    store = MemoryStore()
    store.fail_at(1, lost_answer=True)
    with pytest.raises(StoreUnavailableError):
        store.create("a", b"1")
    with pytest.raises(ObjectExistsError):
        store.create("a", b"1")


def test_hanging_call_waits_for_its_event():
    store, event, done = MemoryStore(), threading.Event(), threading.Event()
    store.fail_at(1, hang=event)

    def write() -> None:
        with pytest.raises(StoreUnavailableError):
            store.write("a", b"1")
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    assert not done.wait(0.05)
    event.set()
    assert done.wait(5)
    thread.join()
