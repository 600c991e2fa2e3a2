"""The first record at or after a moment, read on from a broker's answer that may be a marker."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from airflow_flinkstyle.kafka.start.shift import TimestampSearch, TooFar

Log = list[int | None]
"""Timestamps by offset; None where a marker or an aborted record is, which no reader sees."""


def searched(
    log: Log, since_ms: int, answer: int, *, most: int = 1_000_000
) -> tuple[int | TooFar | None, int]:
    """What is found, and how many offsets were read for it."""
    search = TimestampSearch(since_ms=since_ms, answer=answer, end=len(log), most=most)
    read = 0
    while not search.over:
        part = search.next_range()
        assert part.low < part.high
        read += part.high - part.low
        for offset in range(part.low, part.high):
            timestamp_ms = log[offset]
            if timestamp_ms is not None:
                search.take(offset, timestamp_ms)
    return search.outcome, read


def test_marker_far_before_the_first_record_at_the_moment_is_passed():
    log: Log = [*range(74), None, *range(75, 1000)]
    assert searched(log, 301, 74)[0] == 301


def test_answer_that_is_a_record_costs_a_few_offsets():
    outcome, read = searched(list(range(100_000)), 300, 300)
    assert (outcome, read) == (300, 16)


def test_way_that_is_longer_than_may_be_read_is_refused_not_guessed():
    log: Log = [None, *range(1, 5000)]
    assert searched(log, 4000, 0, most=1000) == (TooFar(0, 1000), 1000)


def test_log_without_such_a_record_has_none():
    assert searched([0, 1, None, 2, None], 3, 2)[0] is None
    assert searched([0, 1, None], 3, 3)[0] is None  # the transaction of the answer is still open


@given(st.lists(st.none() | st.integers(0, 40), max_size=200), st.integers(0, 41), st.data())
def test_found_record_is_the_first_one_and_no_earlier_one_is_left_out(
    log: Log, since_ms: int, data: st.DataObject
):
    wanted = [offset for offset, ms in enumerate(log) if ms is not None and ms >= since_ms]
    answer = data.draw(
        st.integers(0, wanted[0] if wanted else len(log))
    )  # a marker may stand anywhere before
    assert searched(log, since_ms, answer)[0] == (wanted[0] if wanted else None)
