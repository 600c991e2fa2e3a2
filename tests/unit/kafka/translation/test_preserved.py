"""Mirrors that keep offsets: equality is verified offset by offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_flinkstyle.kafka.translation.alignment import Rules
from airflow_flinkstyle.kafka.translation.preserved import verify_kept
from airflow_flinkstyle.kafka.verdict import Bounded, Exact, Refused
from airflow_flinkstyle.kafka.window import NO_KEY, Window

if TYPE_CHECKING:
    from collections.abc import Mapping

LEVEL = Rules(caught_up=True)
EQUAL: dict[int, int] = dict.fromkeys(range(10, 20), 5)


def a_log(
    records: Mapping[int, int],
    *,
    keys: Mapping[int, int] | None = None,
    deleted: frozenset[int] = frozenset(),
    high: int = 20,
    log_start: int = 10,
) -> Window:
    window = Window(low=10, high=high, log_start=log_start)
    for offset, content in sorted(records.items()):
        window.add(offset, content, (keys or {}).get(offset, NO_KEY), tombstone=offset in deleted)
    return window


def test_equal_logs_keep_the_position_whatever_repeats():
    proof = verify_kept(a_log(EQUAL), a_log(EQUAL), 14, LEVEL)
    assert proof.verdict == Exact(14)
    assert (proof.unread, proof.matched, proof.context) == (6, 6, 4)


def test_log_end_and_gaps_of_transaction_markers_are_exact():
    gaps = {offset: offset for offset in (10, 11, 14, 18)}
    assert verify_kept(a_log(gaps), a_log(gaps), 20, LEVEL).verdict == Exact(20)
    assert verify_kept(a_log(gaps), a_log(gaps), 12, LEVEL).verdict == Exact(12)
    assert verify_kept(a_log({}), a_log({}), 20, LEVEL).verdict == Exact(20)


@pytest.mark.parametrize(
    ("there", "words"),
    [
        ({**EQUAL, 17: 6}, "1 records are others"),
        ({**EQUAL, 11: 6}, "1 records are others"),
        ({o: c for o, c in EQUAL.items() if o != 17}, "1 records are not on the target"),
        ({o + 1: o for o in EQUAL}, "others"),
    ],
)
def test_logs_that_differ_anywhere_in_what_is_compared_are_refused(there: dict[int, int], words: str):
    verdict = verify_kept(a_log(EQUAL), a_log(there), 14, LEVEL).verdict
    assert isinstance(verdict, Refused)
    assert words in verdict.reason


def test_records_on_the_target_only_are_refused():
    here = {o: c for o, c in EQUAL.items() if o != 12}
    verdict = verify_kept(a_log(here), a_log(EQUAL), 14, LEVEL).verdict
    assert verdict == Refused(
        "the mirror should keep offsets, but 1 records are on the target only", (12, 13)
    )


def test_position_outside_the_targets_log_is_refused():
    assert isinstance(verify_kept(a_log(EQUAL), a_log({}, high=13), 14, LEVEL).verdict, Refused)
    assert isinstance(verify_kept(a_log(EQUAL), a_log({}, log_start=16), 14, LEVEL).verdict, Refused)


def test_compaction_on_either_side_is_classed():
    keys = {10: 1, 11: 2, 12: 1, 13: 2, 14: 3}
    log = {offset: offset for offset in keys}
    cleaned = {offset: offset for offset in (12, 13)}
    here = a_log(log, keys=keys, deleted=frozenset((14,)))
    there = a_log(cleaned, keys=keys)
    absent = verify_kept(here, there, 11, Rules(caught_up=True, compacted=True)).verdict
    assert absent == Bounded(11, {}, {"superseded": 1, "tombstone": 1})
    source = a_log({**cleaned, 14: 14}, keys=keys)
    extra = verify_kept(source, a_log(log, keys=keys), 11, Rules(caught_up=True, source_compacted=True))
    assert extra.verdict == Bounded(11, {"superseded": 1})


@given(
    st.dictionaries(st.integers(10, 19), st.integers(1, 3)),
    st.dictionaries(st.integers(10, 19), st.integers(1, 3)),
    st.integers(10, 20),
)
def test_only_equal_logs_are_exact(here: dict[int, int], there: dict[int, int], position: int):
    verdict = verify_kept(a_log(here), a_log(there), position, LEVEL).verdict
    assert isinstance(verdict, Exact) == (here == there)
