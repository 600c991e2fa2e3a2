"""How many producers a process may have open at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from airflow_flinkstyle.errors import BadInputError, FlinkstyleError
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.sinks.settings import SinkSettings
from airflow_flinkstyle.sinks.task import ProducerPool

SIZE, THREADS = 3, 8


def test_threads_get_as_many_places_as_there_are_and_the_others_are_told_who_has_them():
    pool, all_have_tried = ProducerPool(), Barrier(THREADS)

    def take(number: int) -> str:
        try:
            with pool.place(f"lineage-{number}", size=SIZE):
                all_have_tried.wait(20)
                return "had one"
        except FlinkstyleError as error:
            all_have_tried.wait(20)
            return str(error)

    with ThreadPoolExecutor(THREADS) as threads:
        found = list(threads.map(take, range(THREADS)))
    assert found.count("had one") == SIZE
    (told, *_) = (text for text in found if text != "had one")
    assert f"may have {SIZE} open (producer_pool_size)" in told
    assert told.count("lineage-") == 1 + SIZE


def test_place_is_free_again_after_an_error():
    pool = ProducerPool()
    for _ in range(2 * SIZE):
        with pytest.raises(RuntimeError, match="fenced"), pool.place("lineage-0", size=1):
            raise RuntimeError("fenced")


def test_pool_without_places_is_refused():
    cluster = KafkaCluster(name="out", config={"bootstrap.servers": "localhost:1"})
    with pytest.raises(BadInputError, match="producer_pool_size of 1 or more"):
        SinkSettings(
            cluster=cluster,
            topic="t",
            lineage="l",
            shards=1,
            control_topic="c",
            run="r",
            producer_pool_size=0,
        )
