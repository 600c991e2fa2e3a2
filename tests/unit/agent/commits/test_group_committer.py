from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.agent.core.commits.group_committer import BatchOffsets, GroupCommitter
from airflow_flinkstyle.kafka.errors import ClusterUnreachableError
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.types import BatchId, NextOffset

if TYPE_CHECKING:
    from collections.abc import Callable


class SlowGroup:
    """A cluster that answers when it is told to."""

    name, servers = "billing", "kafka:9092"

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.answers: list[Exception | None] = []
        self.closed = threading.Event()
        self._answered = threading.Semaphore(0)

    def __str__(self) -> str:
        return "group billing"

    def answer(self, *answers: Exception | None) -> None:
        for answer in answers:
            self.answers.append(answer)
            self._answered.release()

    def commit(self, offsets: Offsets) -> None:
        self.asked.append(offsets["orders", 0])
        assert self._answered.acquire(timeout=10)
        if error := self.answers.pop(0):
            raise error

    def lag(self, offsets: Offsets) -> dict[str, int]:
        return {topic: sum(100 - at for at in found.values()) for topic, found in offsets.by_topic.items()}

    def close(self) -> None:
        self.closed.set()


def after(batch: int) -> BatchOffsets:
    return BatchOffsets(batch_id=BatchId(batch), offsets=Offsets.of({"orders": {0: NextOffset(10 * batch)}}))


def until(check: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 10
    while not check():
        assert time.monotonic() < end_s
        time.sleep(0.005)


@pytest.fixture
def group() -> SlowGroup:
    return SlowGroup()


@pytest.fixture
def committer(group: SlowGroup) -> GroupCommitter:
    committer = GroupCommitter(group, "Query orders, source 0")
    committer.start()
    return committer


def test_newer_batch_replaces_the_one_that_waits_with_a_warning(
    committer: GroupCommitter, group: SlowGroup, caplog: pytest.LogCaptureFixture
):
    committer.complete(after(1))
    until(lambda: group.asked == [10])
    with caplog.at_level(logging.WARNING):
        committer.complete(after(2))
        assert not caplog.records
        committer.complete(after(3))
    assert "Those of batch 2 are left out, since those of batch 3 are there" in caplog.text
    assert not committer.wait_idle(0.01)
    group.answer(None, None)
    assert committer.wait_idle(10)
    assert group.asked == [10, 30]
    beat = committer.status()
    assert (beat.commits_succeeded, beat.commits_failed, beat.commits_superseded) == (2, 0, 1)
    assert (beat.batch_id, beat.offsets) == (3, {("orders", 0): 30})
    until(lambda: bool(committer.status().lag))


def test_failures_are_counted_told_once_and_forgotten_with_the_next_success(
    committer: GroupCommitter, group: SlowGroup, caplog: pytest.LogCaptureFixture
):
    gone = ClusterUnreachableError("No broker answered.", state_after="The job runs on.", remedy="Wait.")
    with caplog.at_level(logging.INFO):
        for batch, answer in enumerate((None, gone, gone, OSError("the JVM has gone")), 1):
            committer.complete(after(batch))
            group.answer(answer)
            assert committer.wait_idle(10)
        beat = committer.status()
        assert (beat.batch_id, beat.commits_succeeded, beat.commits_failed) == (1, 1, 3)
        assert beat.failure == "OSError: the JVM has gone"
        assert caplog.text.count("CLUSTER_UNREACHABLE: No broker answered.") == 1
        committer.complete(after(5))
        group.answer(None)
        assert committer.wait_idle(10)
    assert "committed to group billing again" in caplog.text
    assert (committer.status().batch_id, committer.status().failure) == (5, None)


def test_older_batch_is_not_committed(
    committer: GroupCommitter, group: SlowGroup, caplog: pytest.LogCaptureFixture
):
    group.answer(None)
    committer.complete(after(2))
    assert committer.wait_idle(10)
    with caplog.at_level(logging.WARNING):
        committer.complete(after(1))
    assert committer.wait_idle(0)
    assert "batch 1 has completed, but batch 2 had before" in caplog.text
    assert group.asked == [20]
    committer.end()
    assert group.closed.wait(10)
