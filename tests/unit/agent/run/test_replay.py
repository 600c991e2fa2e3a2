"""What the driver of a replay refuses before it runs a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.agent.core.job_query import Sink
from airflow_flinkstyle.agent.core.run.replay import range_of, shared_output
from airflow_flinkstyle.errors import BadInputError, FlinkstyleError
from airflow_flinkstyle.kafka.cluster import ClusterView, LogRange, TopicView
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.protocol.query_records import Writing
from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
from airflow_flinkstyle.protocol.replay_records import REPLAY, Replay, ReplayRange
from airflow_flinkstyle.types import NextOffset
from tests.small_spark import SmallSpark
from tests.unit.agent.drivers import SmallDriver

if TYPE_CHECKING:
    from pathlib import Path

ASKED = Replay(
    job="orders",
    queries=("totals",),
    outputs=(Writing(topic="totals", servers="a:9092"), Writing(path="/out/totals")),
    lineages=("totals.3",),
    own_outputs=("confirmed",),
)


@pytest.mark.parametrize(
    ("sink", "found"),
    [
        ({"name": "kafka", "topic": "totals", "servers": "other:9092"}, "topic totals"),
        ({"name": "kafka", "topic": "again"}, None),
        ({"name": "delta", "path": "file:/out/totals/"}, "the place"),
        ({"name": "parquet", "path": "/elsewhere"}, "tenth batch"),
        ({"name": "delta", "path": "/out/totals/more"}, "the place"),
        ({"name": "delta", "path": "/out"}, "the place"),
        ({"name": "delta", "path": "/out/totals2"}, None),
        ({"name": "foreachBatch", "topic": "again", "lineage": "totals"}, "lineage totals"),
        ({"name": "foreachBatch", "topic": "again", "lineage": "again"}, None),
        ({"name": "foreachBatch", "topic": "again", "lineage": ""}, None),
        ({"name": "foreachBatch", "topic": "again", "commits_offsets": True}, "commit_offsets=False"),
        ({"name": "kafka"}, "does not name its place"),
        ({"name": "foreachBatch"}, "does not name its place"),
        ({"name": "noop"}, None),
    ],
)
def test_output_that_is_the_jobs_or_cannot_be_seen_is_named(sink: dict[str, Any], found: str | None) -> None:
    told = shared_output(SmallSpark(), "totals", Sink(**sink), ASKED)
    assert told is None if found is None else found in (told or "")


def test_output_that_cannot_be_seen_may_be_confirmed_and_one_that_is_seen_may_not() -> None:
    spark = SmallSpark()
    assert shared_output(spark, "confirmed", Sink(name="foreachBatch"), ASKED) is None
    assert shared_output(spark, "confirmed", Sink(name="kafka", topic="totals"), ASKED) == "topic totals"


def test_replay_is_not_upgraded(tmp_path: Path) -> None:
    """Its starts would be put off for the rehearsal, and be Spark's own afterwards, without an end."""
    driver = SmallDriver(tmp_path, rehearse=Rehearse())
    driver.spark.settings[REPLAY] = ASKED.as_setting()
    with pytest.raises(BadInputError, match="found an upgrade"):
        driver.replaying.require_allowed(driver.register("totals"))


def test_what_a_driver_is_told_comes_back_from_its_setting() -> None:
    asked = Replay(job="orders", queries=("totals",), until={"totals": {"0": at(5, 7)}}, records=3)
    assert Replay.of_setting(asked.as_setting()) == asked
    assert Replay.of_setting("") is None


def at(*offsets: int) -> Offsets:
    return Offsets.of({"orders": {number: NextOffset(one) for number, one in enumerate(offsets)}})


def view(*ends: int) -> ClusterView:
    logs = {
        n: LogRange(start=NextOffset(0), end=NextOffset(e), last_stable=NextOffset(e))
        for n, e in enumerate(ends)
    }
    return ClusterView(cluster_id="a", topics={"orders": TopicView(topic_id="t", partitions=logs)})


@pytest.mark.parametrize(
    ("begin", "end", "by_time", "found"),
    [
        (at(2, 2), at(5, 2), False, at(5, 2)),
        (at(2, 2), at(5, 1), True, at(5, 2)),
        (at(2, 2), at(2, 2), True, at(2, 2)),
        (at(2, 2), at(5, 1), False, "after the savepoint in orders-1, found the end at 1"),
        (at(2, 2), at(2, 1), True, "after the savepoint in orders-1, found the end at 1"),
        (at(2, 2), at(5, 11), False, "read to 10"),
        (at(2, 2), at(5, 5, 5), False, "no such partition"),
    ],
)
def test_range_ends_behind_the_savepoint_and_within_the_log(
    begin: Offsets, end: Offsets, by_time: bool, found: Offsets | str
) -> None:
    if isinstance(found, str):
        with pytest.raises(FlinkstyleError, match=found):
            range_of(begin, end, view(10, 10), by_time=by_time)
        return
    ends = range_of(begin, end, view(10, 10), by_time=by_time)
    assert ends == found
    noted = ReplayRange(begin={"0": begin}, end={"0": ends}, found_at_ms=1)
    assert noted.offsets == sum(ends.values()) - sum(begin.values())
