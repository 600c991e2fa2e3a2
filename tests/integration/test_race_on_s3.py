"""Drivers race for ``current.json`` on S3, each in a process of its own."""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.records import Current
from airflow_flinkstyle.storage.errors import ObjectChangedError, ObjectExistsError
from airflow_flinkstyle.storage.open import open_store
from airflow_flinkstyle.storage.s3_settings import S3Settings
from airflow_flinkstyle.types import Generation, Incarnation

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

    from testbed.s3 import VersityGw

pytestmark = [pytest.mark.integration, pytest.mark.nightly]

RACERS, ROUNDS = 4, 25


def race(
    uri: str, settings: S3Settings, racer: int, barrier: Barrier, won: multiprocessing.SimpleQueue
) -> None:  # type: ignore[type-arg]
    """Take over in every round from what all have seen, at the same moment."""
    board = JobBoard(open_store(uri, settings), "orders")
    for number in range(ROUNDS):
        seen = board.current()
        mine = Current(generation=Generation(number * RACERS + racer + 1), incarnation=Incarnation(1))
        barrier.wait(60)
        try:
            board.take_current(mine, seen=seen)
        except (ObjectChangedError, ObjectExistsError):
            continue
        finally:
            barrier.wait(60)
        won.put((number, mine.generation))


def test_exactly_one_of_racing_drivers_takes_over_on_s3_and_it_stays_current(versitygw: VersityGw):
    bucket = versitygw.create_bucket("race-for-current")
    settings = S3Settings(
        endpoint=versitygw.endpoint, access_key=versitygw.access_key, secret_key=versitygw.secret_key
    )
    context = multiprocessing.get_context("spawn")
    barrier, won = context.Barrier(RACERS), context.SimpleQueue()
    args = (f"s3://{bucket}/root", settings)
    racers = [context.Process(target=race, args=(*args, n, barrier, won)) for n in range(RACERS)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(120)
        assert racer.exitcode == 0
    winners = {}
    while not won.empty():
        number, generation = won.get()
        assert number not in winners
        winners[number] = generation
    assert sorted(winners) == list(range(ROUNDS))
    current = JobBoard(open_store(*args), "orders").current()
    assert current is not None
    assert current.value.generation == winners[ROUNDS - 1]
