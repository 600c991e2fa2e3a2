"""Document 003: one commit in flight, a newer one replaces the one that waits."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_flinkstyle.agent.core.commits.group_committer import (
    BatchOffsets,
    CommitInFlight,
    Ignore,
    OffsetCommits,
    Replace,
    Send,
    Step,
)
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.types import BatchId, NextOffset


def after(batch: int) -> BatchOffsets:
    return BatchOffsets(batch_id=BatchId(batch), offsets=Offsets.of({"orders": {0: NextOffset(10 * batch)}}))


@pytest.mark.parametrize(
    ("before", "batch", "step"),
    [
        pytest.param([], 4, Send(after(4)), id="nothing is in flight"),
        pytest.param([4], 5, CommitInFlight(), id="one is in flight"),
        pytest.param([4, 5], 6, Replace(after(5)), id="an older one waits"),
        pytest.param([4], 4, Ignore(BatchId(4)), id="in flight already"),
        pytest.param([4, 6], 5, Ignore(BatchId(6)), id="a newer one was complete before"),
    ],
)
def test_what_follows_from_a_completed_batch(before: list[int], batch: int, step: Step):
    commits = OffsetCommits()
    for earlier in before:
        commits.complete(after(earlier))
    assert commits.complete(after(batch)) == step


@pytest.mark.parametrize("succeeded", [True, False])
def test_newest_that_waits_is_sent_whatever_became_of_the_one_in_flight(succeeded: bool):
    commits = OffsetCommits()
    for batch in (1, 2, 3):
        commits.complete(after(batch))
    assert commits.answer(succeeded=succeeded) == after(3)
    assert commits.superseded == 1
    assert commits.committed == (after(1) if succeeded else None)
    assert commits.answer(succeeded=True) is None
    assert commits.is_idle
    assert (commits.succeeded, commits.failed) == ((2, 0) if succeeded else (1, 1))
    assert commits.complete(after(2)) == Ignore(BatchId(3))


@given(st.lists(st.one_of(st.integers(0, 20), st.booleans())))
def test_offsets_go_only_forward_and_end_at_the_newest_in_any_order(events: list[int | bool]):
    commits, sent, seen = OffsetCommits(), list[int](), set[int]()

    def send(batch: BatchOffsets | None) -> None:
        sent.extend([batch.batch_id] if batch else [])

    for event in events:
        if isinstance(event, bool):
            if not commits.is_idle:
                send(commits.answer(succeeded=event))
        else:
            seen.add(event)
            step = commits.complete(after(event))
            send(step.batch if isinstance(step, Send) else None)
        assert commits.waiting is None or commits.in_flight is not None
    while not commits.is_idle:
        send(commits.answer(succeeded=True))
    assert all(older < newer for older, newer in pairwise(sent))
    assert (sent[-1] if sent else None) == max(seen, default=None)
    assert commits.succeeded + commits.failed == len(sent)
