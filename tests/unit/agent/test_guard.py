"""The guard's own decisions; ``tests/integration/test_agent_guard.py`` has the real brokers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.agent.errors import SourcesChangedError
from airflow_flinkstyle.agent.guard import (
    CheckpointPositions,
    check_source,
    read_positions,
    require_same_sources,
)
from airflow_flinkstyle.agent.sources import Source
from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.kafka.errors import OffsetBeyondEndError, PartitionSetError
from airflow_flinkstyle.storage.memory import MemoryStore
from tests.unit.agent.views import a_view

if TYPE_CHECKING:
    from airflow_flinkstyle.checkpoint.offset_log import OffsetLog
    from airflow_flinkstyle.kafka.cluster import ClusterView


def a_log(*offsets: dict[str, dict[str, int]] | str) -> OffsetLog:
    lines = [each if isinstance(each, str) else json.dumps(each) for each in offsets]
    return offset_log.parse("\n".join(["v1", '{"conf":{}}', *lines]))


def check(view: ClusterView, committed: OffsetLog | None, pending: OffsetLog | None = None) -> None:
    positions = CheckpointPositions(committed=committed, pending=pending)
    check_source("orders", "0", view, expected=[], positions=positions)


def test_query_without_a_checkpoint_may_start_anywhere() -> None:
    check(a_view({0: 5}), None)
    check(a_view({0: 5}), a_log("-"))


def test_pending_batch_is_checked_like_the_committed_one() -> None:
    check(a_view({0: 5}), a_log({"t": {"0": 3}}), a_log({"t": {"0": 5}}))
    with pytest.raises(OffsetBeyondEndError, match="Source 0 of query orders"):
        check(a_view({0: 4}), a_log({"t": {"0": 3}}), a_log({"t": {"0": 5}}))


def test_partition_that_came_with_the_pending_batch_is_no_difference() -> None:
    check(a_view({0: 5, 1: 9}), a_log({"t": {"0": 3}}), a_log({"t": {"0": 5, "1": 2}}))
    with pytest.raises(PartitionSetError, match="t-1"):
        check(a_view({0: 5, 1: 9}), a_log({"t": {"0": 3}}), a_log({"t": {"0": 5}}))


def test_offsets_are_read_from_the_newest_commit_and_the_batch_after_it() -> None:
    store = MemoryStore()
    for batch in range(3):
        store.write(f"offsets/{batch}", a_log({"t": {"0": batch}}).render().encode())
    store.write("commits/0", b'v1\n{"nextBatchWatermarkMs":0}')
    store.write("commits/1", b'v1\n{"nextBatchWatermarkMs":0}')
    positions = read_positions(store)
    assert positions.committed == a_log({"t": {"0": 1}})
    assert positions.pending == a_log({"t": {"0": 2}})
    assert read_positions(MemoryStore()) == CheckpointPositions(committed=None, pending=None)


def a_source(position: int, name: str | None = None) -> Source:
    return Source(position=position, name=name, provider="kafka", options={})


def test_renamed_source_is_refused_where_adding_one_is_not() -> None:
    log = offset_log.parse('v2\n{"conf":{}}\na:{"t":{"0":1}}')
    positions = CheckpointPositions(committed=log, pending=None)
    require_same_sources("q", [a_source(0, "a"), a_source(1, "b")], positions)
    with pytest.raises(SourcesChangedError, match=r"\['a'\].*\['b'\]"):
        require_same_sources("q", [a_source(0, "b")], positions)
