"""How many tasks share a batch's shards."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_flinkstyle.sinks.task import shards_of_task, tasks_for


@pytest.mark.parametrize(
    ("shards", "cores", "pool_size", "tasks"),
    [
        (8, 2, 5, 2),  # four shards each
        (8, 3, 5, 4),  # not three tasks: Spark would not keep shards whole
        (16, 2, 5, 4),  # eight shards each would be more than the pool's places
        (7, 2, 5, 7),  # a prime number of shards: one each
        (7, 2, 7, 7),  # one task for all would leave a core idle
        (2, 16, 5, 2),
        (5, 1, 5, 1),
    ],
)
def test_tasks_are_as_few_as_use_all_cores(shards: int, cores: int, pool_size: int, tasks: int):
    assert tasks_for(shards, cores=cores, pool_size=pool_size) == tasks


@given(st.integers(1, 1000), st.integers(1, 100), st.integers(1, 20), st.integers(0, 2**31))
def test_each_shard_belongs_to_the_task_that_its_rows_come_to(
    shards: int, cores: int, pool_size: int, key_hash: int
):
    tasks = tasks_for(shards, cores=cores, pool_size=pool_size)
    every = [shards_of_task(task, tasks=tasks, shards=shards) for task in range(tasks)]
    assert sorted(shard for some in every for shard in some) == list(range(shards))
    assert max(map(len, every)) <= pool_size
    assert key_hash % shards in every[key_hash % tasks]  # what Spark spreads by
