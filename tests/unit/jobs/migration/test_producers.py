from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_flinkstyle.jobs.errors import StaleTokenError
from airflow_flinkstyle.jobs.migration.producers import ManualSwitch, StoreProducerSwitch, TokenCounter
from testbed.memory_store import MemoryStore


def test_tokens_grow_and_are_never_given_twice():
    store = MemoryStore()
    with ThreadPoolExecutor(8) as pool:
        tokens = list(pool.map(lambda _: TokenCounter(store, "job").next(), range(50)))
    assert sorted(tokens) == list(range(1, 51))


def test_switch_refuses_a_lower_token_and_accepts_its_own_again():
    switch = StoreProducerSwitch(MemoryStore(), "job/switch.json")
    assert switch.read() is None
    switch.apply("hold", 3)
    switch.apply("release_new", 3)
    with pytest.raises(StaleTokenError, match="Token 2"):
        switch.apply("hold", 2)
    assert switch.read() == "release_new"


def test_switch_looks_again_when_another_call_was_first():
    store = MemoryStore()
    switch = StoreProducerSwitch(store, "job/switch.json")
    switch.apply("hold", 1)
    get, calls = store.get, []

    def get_then_lose(key: str, **kwargs: object) -> object:
        found = get(key, **kwargs)
        if not calls:
            calls.append(1)
            StoreProducerSwitch(store, key).apply("release_old", 9)
        return found

    store.get = get_then_lose  # type: ignore[method-assign]
    with pytest.raises(StaleTokenError, match="found 9"):
        switch.apply("release_new", 5)
    assert switch.read() == "release_old"


def test_manual_switch_asks_in_the_log(caplog: pytest.LogCaptureFixture):
    ManualSwitch().apply("hold", 1)
    assert "STOP all producers" in caplog.text
