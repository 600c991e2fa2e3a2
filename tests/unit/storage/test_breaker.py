"""A service that does not answer is left alone, and asked by one now and then."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.storage.breaker import FAILURES, MOST_PAUSE_S, PAUSE_S, PROBE_S, Breaker
from airflow_flinkstyle.storage.errors import StoreUnavailableError
from airflow_flinkstyle.storage.open import open_store
from airflow_flinkstyle.storage.s3_settings import S3Settings
from tests.unit.clocks import SleptClock

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def clock() -> SleptClock:
    return SleptClock()


def an_open(clock: SleptClock) -> Breaker:
    breaker = Breaker(now_s=lambda: clock.now_s)
    for _ in range(FAILURES):
        breaker.admit("read", "s3://b")
        breaker.failed()
    return breaker


def test_some_failures_in_a_row_open_it_and_an_answer_between_them_does_not(clock: SleptClock):
    breaker = Breaker(now_s=lambda: clock.now_s)
    for _ in range(3 * FAILURES):
        breaker.failed()
        breaker.answered()
    assert breaker.may_ask
    breaker = an_open(clock)
    assert not breaker.may_ask
    clock.sleep(2)
    with pytest.raises(StoreUnavailableError, match="not asked, since it has not answered for 2 s"):
        breaker.admit("read a", "s3://b")


def test_one_asks_after_the_pause_and_the_others_wait_for_what_it_finds(clock: SleptClock):
    breaker = an_open(clock)
    clock.sleep(PAUSE_S)
    assert breaker.may_ask
    breaker.admit("read", "s3://b")
    assert not breaker.may_ask
    breaker.answered()
    assert breaker.may_ask


def test_each_pause_is_longer_up_to_a_minute(clock: SleptClock):
    breaker, pauses = an_open(clock), []
    for _ in range(8):
        begun_s = clock.now_s
        while not breaker.may_ask:
            clock.sleep(1)
        pauses.append(clock.now_s - begun_s)
        breaker.admit("read", "s3://b")
        breaker.failed()
    assert pauses[:3] == [PAUSE_S, 2 * PAUSE_S, 4 * PAUSE_S]
    assert pauses[-1] == MOST_PAUSE_S


def test_one_that_never_comes_back_keeps_the_others_away_for_so_long(clock: SleptClock):
    breaker = an_open(clock)
    clock.sleep(PAUSE_S)
    breaker.admit("list", "s3://b")
    clock.sleep(PROBE_S - 1)
    assert not breaker.may_ask
    clock.sleep(1)
    assert breaker.may_ask


@contextmanager
def a_socket_that_never_answers() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    kept.append(server.accept()[0])
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        for one in kept:
            one.close()


def test_store_that_accepts_and_never_answers_is_asked_so_often_and_no_more():
    breaker = Breaker()
    with a_socket_that_never_answers() as url:
        settings = S3Settings(endpoint=url, access_key="a", secret_key="b").impatient(0.2, breaker=breaker)  # noqa: S106
        store = open_store("s3://bucket/root", settings)
        calls = (
            lambda: store.get("a"),
            lambda: next(iter(store.list())),
            lambda: list(store.folders()),
            lambda: store.write("a", b""),
        )
        for call in calls[:FAILURES]:
            with pytest.raises(StoreUnavailableError, match=r"(?i)timeout|timed out"):
                call()
        for call in calls:
            with pytest.raises(StoreUnavailableError, match="was not asked"):
                call()


def test_answer_of_whichever_kind_keeps_it_closed_and_a_service_that_is_gone_opens_it():
    breaker = Breaker()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    settings = S3Settings(endpoint=f"http://127.0.0.1:{port}", access_key="a", secret_key="b")  # noqa: S106
    store = open_store("s3://bucket/root", settings.impatient(5.0, breaker=breaker))
    for _ in range(FAILURES):
        assert breaker.may_ask
        with pytest.raises(StoreUnavailableError):
            store.get("a")
    assert not breaker.may_ask
