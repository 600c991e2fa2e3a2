"""Mirrors that keep offsets: equality is verified offset by offset."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_flinkstyle.kafka.fingerprints import NO_KEY, Fingerprints
from airflow_flinkstyle.kafka.translation.alignment import Rules
from airflow_flinkstyle.kafka.translation.offset_preserving import verify_offsets_preserved
from airflow_flinkstyle.kafka.verdict import Bounded, Exact, Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

IN_SYNC = Rules(caught_up=True)
EQUAL: dict[int, int] = dict.fromkeys(range(10, 20), 5)


def a_log(
    records: Mapping[int, int],
    *,
    keys: Mapping[int, int] | None = None,
    deleted: frozenset[int] = frozenset(),
    low: int = 10,
    high: int = 20,
    log_start: int = 10,
) -> Fingerprints:
    fingerprints = Fingerprints(low=low, high=high, log_start=log_start)
    for offset, content in sorted(records.items()):
        if offset < low:
            continue
        fingerprints.add(offset, content, (keys or {}).get(offset, NO_KEY), tombstone=offset in deleted)
    return fingerprints


def test_equal_logs_keep_the_position_whatever_repeats():
    proof = verify_offsets_preserved(a_log(EQUAL), a_log(EQUAL), 14, IN_SYNC)
    assert proof.verdict == Exact(14)
    assert (proof.unread, proof.matched, proof.context) == (6, 6, 4)
    assert proof.digest == sha256(a_log(EQUAL).prints[4:].tobytes()).hexdigest()


def test_only_what_both_windows_hold_is_compared():
    proof = verify_offsets_preserved(a_log({**EQUAL, 11: 6}), a_log(EQUAL, low=12), 14, IN_SYNC)
    assert (proof.verdict, proof.unread, proof.context) == (Exact(14), 6, 2)


def test_refusal_counts_what_was_found_from_the_position_on():
    there = {offset: content for offset, content in EQUAL.items() if offset not in (13, 14)}
    proof = verify_offsets_preserved(a_log(EQUAL), a_log({**there, 16: 6}), 14, IN_SYNC)
    assert (proof.unread, proof.matched, proof.context) == (6, 4, 4)


def test_log_end_and_gaps_of_transaction_markers_are_exact():
    gaps = {offset: offset for offset in (10, 11, 14, 18)}
    assert verify_offsets_preserved(a_log(gaps), a_log(gaps), 20, IN_SYNC).verdict == Exact(20)
    assert verify_offsets_preserved(a_log(gaps), a_log(gaps), 12, IN_SYNC).verdict == Exact(12)
    assert verify_offsets_preserved(a_log({}), a_log({}), 20, IN_SYNC).verdict == Exact(20)


@pytest.mark.parametrize(
    ("there", "words"),
    [
        ({**EQUAL, 17: 6}, "1 records are others"),
        ({**EQUAL, 11: 6}, "1 records are others"),
        ({o: c for o, c in EQUAL.items() if o != 17}, "1 records are not on the target"),
        ({o + 1: o for o in EQUAL}, "others"),
        ({**EQUAL, 10: 6}, "1 records are others"),
        ({o + 1: 5 for o in EQUAL}, "1 records are not on the target"),
    ],
)
def test_logs_that_differ_anywhere_in_what_is_compared_are_refused(there: dict[int, int], words: str):
    verdict = verify_offsets_preserved(a_log(EQUAL), a_log(there), 14, IN_SYNC).verdict
    assert isinstance(verdict, Refused)
    assert words in verdict.reason


def test_records_on_the_target_only_are_refused():
    here = {o: c for o, c in EQUAL.items() if o != 12}
    verdict = verify_offsets_preserved(a_log(here), a_log(EQUAL), 14, IN_SYNC).verdict
    assert verdict == Refused(
        "the mirror should keep offsets, but 1 records are on the target only", (12, 13)
    )


def test_position_outside_the_targets_log_is_refused():
    for changed, log in (({"high": 13}, "10 to 13"), ({"log_start": 16}, "16 to 20")):
        verdict = verify_offsets_preserved(a_log(EQUAL), a_log({}, **changed), 14, IN_SYNC).verdict
        assert verdict == Refused(f"the mirror keeps offsets, but its log goes from {log}", None)


def test_what_arrives_behind_a_preview_is_no_difference():
    source = a_log({o: c for o, c in EQUAL.items() if o < 18}, high=18)
    assert verify_offsets_preserved(source, a_log(EQUAL), 14, Rules(growing=True)).verdict == Exact(14)
    for high, rules in ((18, IN_SYNC), (19, Rules(growing=True))):
        source.high = high
        assert isinstance(verify_offsets_preserved(source, a_log(EQUAL), 14, rules).verdict, Refused)


def test_newest_version_of_a_key_and_records_without_one_are_never_compacted():
    keys, rules = {10: 1, 11: 2}, Rules(caught_up=True, compacted=True, source_compacted=True)
    for one, other in (({10: 5, 11: 5}, {10: 5}), ({10: 5}, {10: 5, 11: 5})):
        assert isinstance(
            verify_offsets_preserved(a_log(one, keys=keys), a_log(other, keys=keys), 10, rules).verdict,
            Refused,
        )
        assert isinstance(
            verify_offsets_preserved(a_log({**one, 12: 5}), a_log({**other, 12: 5}), 10, rules).verdict,
            Refused,
        )


def test_compaction_on_either_side_is_classed():
    keys = {10: 1, 11: 2, 12: 1, 13: 2, 14: 3}
    log = {offset: offset for offset in keys}
    cleaned = {offset: offset for offset in (12, 13)}
    here = a_log(log, keys=keys, deleted=frozenset((14,)))
    there = a_log(cleaned, keys=keys)
    absent = verify_offsets_preserved(here, there, 11, Rules(caught_up=True, compacted=True)).verdict
    assert absent == Bounded(11, {}, {"superseded": 1, "tombstone": 1})
    source = a_log({**cleaned, 14: 14}, keys=keys)
    extra = verify_offsets_preserved(
        source, a_log(log, keys=keys), 11, Rules(caught_up=True, source_compacted=True)
    )
    assert extra.verdict == Bounded(11, {"superseded": 1})
    both = Rules(caught_up=True, compacted=True, source_compacted=True)
    absent = verify_offsets_preserved(here, there, 10, both)
    assert absent.verdict == Bounded(10, {}, {"superseded": 2, "tombstone": 1})
    assert (absent.absent, absent.extras, absent.matched) == ({"superseded": 2, "tombstone": 1}, {}, 2)
    extra = verify_offsets_preserved(source, a_log(log, keys=keys), 10, both)
    assert (extra.verdict, extra.extras) == (Bounded(10, {"superseded": 2}), {"superseded": 2})
    assert verify_offsets_preserved(source, a_log(log, keys=keys), 12, both).verdict == Exact(12)


@given(
    st.dictionaries(st.integers(10, 19), st.integers(1, 3)),
    st.dictionaries(st.integers(10, 19), st.integers(1, 3)),
    st.integers(10, 20),
)
def test_only_equal_logs_are_exact(here: dict[int, int], there: dict[int, int], position: int):
    verdict = verify_offsets_preserved(a_log(here), a_log(there), position, IN_SYNC).verdict
    assert isinstance(verdict, Exact) == (here == there)
