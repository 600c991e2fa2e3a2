from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.agent.core.commits.batch_watch import GROUP, ON, BatchWatch, CommitSetting
from airflow_flinkstyle.agent.core.spark import StreamingSource
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.sinks import resume
from airflow_flinkstyle.sinks.resume import SinkState
from tests.declared import AS_BEFORE
from tests.small_spark import SmallHandle, SmallQuery, SmallRun, SmallSpark, SmallStart, queries_at

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from airflow_flinkstyle.agent.core.job_query import JobQuery
    from airflow_flinkstyle.protocol.query_records import CommittedGroup


def a_source(position: int = 0, **options: str) -> StreamingSource:
    given = {"kafka.bootstrap.servers": "kafka:9092", **{k.replace("__", "."): v for k, v in options.items()}}
    return StreamingSource(position=position, name=None, provider="kafka", options=given)


def setting_of(**conf: str) -> CommitSetting:
    settings = {{"on": ON, "group": GROUP}[name]: value for name, value in conf.items()}
    return CommitSetting.of(SimpleNamespace(setting=lambda name, default="": settings.get(name, default)))


class Job:
    """One query whose checkpoint a test writes; no driver, so that no commit gets anywhere."""

    def __init__(self, folder: Path, *sources: StreamingSource, query_id: str = "q") -> None:
        self.queries = queries_at(folder)
        self.checkpoint = folder / "orders"
        self.query: JobQuery = self.queries.register("orders", SmallStart(SmallSpark()), sources, AS_BEFORE)
        self.query.query = SmallQuery(SmallHandle(query_id, SmallRun()))
        self.watch = BatchWatch(self.queries)
        self.watch._setting = CommitSetting(on=True, group="billing")

    def write(self, log: str, batch: int, text: str) -> None:
        (self.checkpoint / log).mkdir(parents=True, exist_ok=True)
        (self.checkpoint / log / str(batch)).write_text(text)

    def commit(self, batch: int, *offsets: Mapping[str, Mapping[str, int]]) -> None:
        self.write("offsets", batch, "\n".join(["v1", "{}", *map(json.dumps, offsets)]))
        self.write("commits", batch, "v1\n{}")

    def groups(self) -> Mapping[str, CommittedGroup]:
        for committer in self.watch._committers.values():
            assert committer.wait_idle(10)
        return self.watch.with_groups({"orders": self.query.status()})["orders"].groups


def test_setting_is_on_or_off_and_its_group_is_for_sources_without_one():
    assert not setting_of().on
    setting = setting_of(on="TRUE", group="billing")
    assert setting.on
    assert setting.group_of(a_source()) == "billing"
    assert setting.group_of(a_source(Kafka__Group__Id="own")) == "own"
    assert setting_of(on="true").group_of(a_source()) is None
    with pytest.raises(BadInputError, match=r"commitOffsets was expected to be true or false, found 'yes'"):
        setting_of(on="yes")


def test_each_newest_batch_is_committed_once_however_many_completed_between_two_looks(tmp_path: Path):
    job = Job(tmp_path, a_source())
    job.watch.check()
    assert not job.groups()
    for batch in range(3):
        job.commit(batch, {"orders": {"0": batch}})
    job.watch.check()
    job.watch.check()
    assert job.groups()["0"].commits_failed == 1
    job.commit(3, {"orders": {"0": 3}})
    job.write("offsets", 4, "v1\n{}\n{}")  # planned, not complete
    job.watch.check()
    assert job.groups()["0"].commits_failed == 2


def test_batch_without_an_offset_log_is_told_and_not_committed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    job = Job(tmp_path, a_source())
    job.write("commits", 0, "v1\n{}")
    with caplog.at_level(logging.WARNING):
        job.watch.check()
    assert "batch 0 has completed, but its offsets are unknown" in caplog.text
    assert not job.groups()


def test_second_reader_of_a_topic_for_one_group_is_left_out_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    job = Job(tmp_path, a_source(0), a_source(1), a_source(2, kafka__group__id="other"))
    orders = {"orders": {"0": 5}}
    job.commit(0, orders, orders, orders)
    with caplog.at_level(logging.WARNING):
        job.watch.check()
    assert sorted(job.groups()) == ["0", "2"]
    assert "source 1: its offsets are not committed: source 0 of query orders reads orders for" in caplog.text


def test_group_that_the_sink_commits_is_left_to_it(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    job = Job(tmp_path, a_source(0), a_source(1, kafka__group__id="other"), query_id=str(tmp_path))
    state = SinkState(
        lineage="orders",
        shards=2,
        control_topic="control",
        cluster_id="abc",
        completed_batch=0,
        markers={},
        commits_group="billing",
    )
    resume.note_state(str(tmp_path), state)
    job.commit(0, {"orders": {"0": 5}}, {"orders": {"0": 5}})
    with caplog.at_level(logging.WARNING):
        job.watch.check()
    assert list(job.groups()) == ["1"]
    assert "source 0: its offsets are not committed: the query's sink commits group billing" in caplog.text


def test_source_without_a_group_is_named_once_and_others_are_committed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    rate = StreamingSource(position=2, name=None, provider="rate", options={})
    job = Job(tmp_path, a_source(0), a_source(1, kafka__group__id="other"), rate)
    job.watch._setting = CommitSetting(on=True)
    with caplog.at_level(logging.WARNING):
        for batch in range(2):
            job.commit(batch, {"orders": {"0": 5}}, {"clicks": {"0": 5}}, {"offset": 3})
            job.watch.check()
    assert list(job.groups()) == ["1"]
    assert caplog.text.count("source 0: its offsets are not committed: it has no group.") == 1


def test_end_of_a_run_is_not_held_up_where_nothing_is_watched(tmp_path: Path):
    watch = BatchWatch(queries_at(tmp_path))
    watch.begin(CommitSetting())
    assert not watch.is_alive()
    watch.finish()
