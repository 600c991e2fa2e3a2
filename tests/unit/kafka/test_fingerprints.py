"""What is kept of a log's records, which of them are read first, and how ranges grow."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_flinkstyle.kafka.cluster import LogRange
from airflow_flinkstyle.kafka.fingerprints import NO_KEY, NO_TIME, Fingerprints, fingerprint, key_print
from airflow_flinkstyle.kafka.reading import Identity
from airflow_flinkstyle.kafka.translation.pairs import Pair, batches
from airflow_flinkstyle.types import NextOffset

DATED = Identity(dated=True, keyed=False, ignored_headers=frozenset())
UNDATED = Identity(dated=False, keyed=True, ignored_headers=frozenset())


def a_log(start: int, end: int) -> LogRange:
    return LogRange(start=NextOffset(start), end=NextOffset(end), last_stable=NextOffset(end))


def a_pair(
    position: int,
    source: tuple[int, int],
    target: tuple[int, int],
    identity: Identity = DATED,
    **changed: Any,
) -> Pair:
    given = {"longest": 1_000, "same_offsets": False, **changed}
    logs = (a_log(*source), a_log(*target))
    return Pair.around(("t", 0), ("copy", 0), position, logs, identity, **given)


def span(fingerprints: Fingerprints) -> tuple[int, int, int]:
    return fingerprints.low, fingerprints.high, fingerprints.log_start


def test_windows_begin_a_little_before_the_position_and_what_is_unread():
    pair = a_pair(500, (100, 600), (1_000, 1_590))
    assert span(pair.source) == (500 - 32, 600, 100)
    assert span(pair.target) == (1_590 - 100 - 2 * 32, 1_590, 1_000)
    assert (pair.tp, pair.target_tp, pair.position) == (("t", 0), ("copy", 0), 500)
    assert (pair.identity, pair.source.keyed, pair.target.keyed) == (DATED, False, False)
    undated = a_pair(5_000, (100, 5_100), (1_000, 9_000), UNDATED)
    assert span(undated.source) == (5_000 - 1_024, 5_100, 100)
    assert span(undated.target) == (9_000 - 100 - 2 * 1_024, 9_000, 1_000)
    assert (undated.source.keyed, undated.target.keyed) == (True, True)


def test_windows_do_not_begin_before_their_logs_nor_behind_them():
    pair = a_pair(110, (100, 600), (1_000, 1_010))
    assert span(pair.source) == (100, 600, 100)
    assert span(pair.target) == (1_000, 1_010, 1_000)
    kept = a_pair(590, (100, 600), (0, 550), same_offsets=True)
    assert span(kept.target) == (550, 550, 0)


def test_mirror_that_keeps_offsets_is_compared_from_the_same_offset_on():
    assert span(a_pair(500, (100, 600), (0, 590), same_offsets=True).target) == (468, 590, 0)
    assert span(a_pair(500, (100, 600), (480, 590), same_offsets=True).target) == (480, 590, 480)


def test_window_may_become_as_long_as_the_limit_or_some_times_what_is_unread():
    assert a_pair(500, (0, 600), (0, 600)).longest == 1_000
    assert a_pair(500, (0, 900), (0, 900)).longest == 4 * 400
    pair = a_pair(500, (0, 600), (0, 600), longest=0)
    assert pair.longest == 400
    assert pair.exhausted == frozenset()
    pair.source = Fingerprints(low=200, high=600, log_start=0)
    assert pair.exhausted == {"source"}
    pair.target = Fingerprints(low=201, high=600, log_start=0)
    assert pair.exhausted == {"source"}
    assert pair.size == 400 + 399


def test_window_grows_fourfold_up_to_the_logs_start():
    pair = a_pair(500, (100, 600), (1_000, 1_590))
    assert span(pair.older("source")) == (500 - 4 * 32, 468, 100)
    assert span(pair.older("target")) == (1_000, 1_426, 1_000)
    pair.source = Fingerprints(low=380, high=600, log_start=100)
    assert span(pair.older("source")) == (100, 380, 100)
    pair.target = Fingerprints(low=1_400, high=1_590, log_start=1_000)
    assert span(pair.older("target")) == (1_000, 1_400, 1_000)
    pair.target = Fingerprints(low=100_000 - 164, high=100_000, log_start=1_000)
    assert span(pair.older("target")) == (100_000 - 4 * 164, 100_000 - 164, 1_000)
    pair.source = Fingerprints(low=500, high=600, log_start=100)  # no record before the position yet
    assert span(pair.older("source")) == (496, 500, 100)


def test_first_copies_are_read_on_to_as_far_as_their_share_goes():
    pair = a_pair(500, (0, 600), (0, 5_000))
    assert pair.oldest_copy(4_000, 600) == 4_000  # 1,000 offsets: the share and four times what is unread
    assert pair.oldest_copy(3_999, 600) is None
    assert pair.oldest_copy(None, 0) == 5_000  # no record of the target is as new


def test_memory_of_both_windows_is_freed():
    pair = a_pair(500, (100, 600), (1_000, 1_590))
    pair.source.add(480, 1, NO_KEY, tombstone=False)
    pair.target.add(1_500, 1, NO_KEY, tombstone=False)
    pair.forget()
    assert (len(pair.source), len(pair.target), pair.size) == (0, 0, 0)


def test_pairs_are_read_together_as_far_as_memory_goes_once_they_have_grown():
    pairs = [a_pair(500, (490, 500 + size), (0, size - 10)) for size in (50, 60, 70)]
    sizes = [pair.size for pair in pairs]
    assert [len(batch) for batch in batches(pairs, sum(sizes))] == [3]
    assert [len(batch) for batch in batches(pairs, sum(sizes) - 1)] == [2, 1]
    assert [len(batch) for batch in batches(pairs, 1)] == [1, 1, 1]
    assert [len(batch) for batch in batches(pairs, 2 * sum(sizes[:2]), growth=2)] == [2, 1]
    assert [len(batch) for batch in batches(pairs[::-1], sum(sizes[:2]))] == [1, 2]
    assert list(batches([], 10)) == []
    assert [pair for batch in batches(pairs, sum(sizes) - 1) for pair in batch] == pairs


def fingerprints_of(low: int, high: int, *records: int, **changed: Any) -> Fingerprints:
    fingerprints = Fingerprints(low=low, high=high, log_start=0, **changed)
    for offset, record in enumerate(records, low):
        fingerprints.add(offset, record, record + 100, tombstone=record == 3)
    return fingerprints


def test_older_records_are_put_before_newer_ones():
    newer = fingerprints_of(3, 6, 4, 5, newest_ms=50, oldest_ms=40)
    older = newer.older(1)
    assert (span(older), len(older), older.keyed) == ((1, 3, 0), 0, True)
    for offset, record in ((1, 2), (2, 3)):
        older.add(offset, record, record + 100, tombstone=record == 3)
    older.newest_ms, older.oldest_ms = 30, 20
    both = older.followed_by(newer)
    assert both is older
    assert (span(both), both.newest_ms, both.oldest_ms) == ((1, 6, 0), 50, 20)
    assert [*both.offsets] == [1, 2, 3, 4]
    assert [*both.prints] == [2, 3, 4, 5]
    assert [*both.keys] == [102, 103, 104, 105]
    assert [*both.tombstones] == [0, 1, 0, 0]


def test_window_without_records_adds_no_time():
    older = fingerprints_of(1, 3, 2, newest_ms=30, oldest_ms=20)
    both = older.followed_by(fingerprints_of(3, 6))
    assert (both.newest_ms, both.oldest_ms, both.high) == (30, 20, 6)
    assert (
        fingerprints_of(1, 3).followed_by(fingerprints_of(3, 6, 4, newest_ms=9, oldest_ms=8)).oldest_ms == 8
    )
    assert (
        Fingerprints(low=0, high=0, log_start=0).newest_ms,
        Fingerprints(low=0, high=0, log_start=0).oldest_ms,
    ) == (
        -1,
        NO_TIME,
    )


def test_window_without_keys_keeps_records_only():
    fingerprints = fingerprints_of(0, 2, 3, 4, keyed=False)
    assert (
        len(fingerprints),
        len(fingerprints.prints),
        len(fingerprints.keys),
        len(fingerprints.tombstones),
    ) == (2, 2, 0, 0)
    assert not fingerprints.older(0).keyed


@pytest.mark.parametrize(("low", "whole"), [(4, True), (5, True), (6, False)])
def test_window_is_the_whole_log_from_its_start_on(low: int, whole: bool):
    assert Fingerprints(low=low, high=9, log_start=5).whole_log is whole


H = [("h", b"x")]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((b"", b"v", H, 0), (None, b"v", H, 0)),
        ((b"k", b"", H, 0), (b"k", None, H, 0)),
        ((b"k", b"v", H, 0), (b"k", b"v", H, None)),
        ((b"k", b"v", H, 1), (b"k", b"v", H, None)),
        ((b"k", b"v", H, -1), (b"k", b"v", H, 0)),
        ((b"k", b"v", H, 0), (b"k", b"v", H, 1)),
        ((b"k", b"v", H, 0), (b"x", b"v", H, 0)),
        ((b"k", b"v", H, 0), (b"k", b"x", H, 0)),
        ((b"k", b"v", [("h", b"")], 0), (b"k", b"v", [("h", None)], 0)),
        ((b"k", b"v", [("h", b"xy")], 0), (b"k", b"v", [("hx", b"y")], 0)),
        ((b"k", b"v", [("a", b"b"), ("c", b"d")], 0), (b"k", b"v", [("c", b"d"), ("a", b"b")], 0)),
        ((b"k", b"v", [], 0), (b"k", b"v", [("", b"")], 0)),
        ((b"ab", b"c", H, 0), (b"a", b"bc", H, 0)),
        ((None, b"kv", H, 0), (b"k", b"v", H, 0)),
        ((b"k", b"v", [], 1 << 40), (b"k", b"v", [], 1 << 41)),
    ],
)
def test_records_that_differ_in_anything_have_other_fingerprints(one: Any, other: Any):  # noqa: ANN401
    assert fingerprint(*one) == fingerprint(*one)
    assert fingerprint(*one) != fingerprint(*other)
    assert 0 <= fingerprint(*one) < 1 << 64


def test_fingerprints_stay_as_they_are_so_that_a_digest_in_a_manifest_can_be_made_again():
    assert fingerprint(b"k", b"v", [("h", b"x"), ("n", None)], 5) == 0x781B76083FE5EB23
    assert fingerprint(None, None, [], None) == 0x87239B09FFC45EBA
    assert fingerprint(b"", b"", [], None) == 0xFA6F39E4CE04E980
    assert key_print(b"k") == 0xAC52CB5FF985D463
    assert key_print(b"b") == 0x8472C2E34D854F75


def test_keys_are_told_apart_and_none_of_them_is_no_key():
    prints = {key_print(key) for key in (b"", b"a", b"b", b"ab", b"c", b"d", b"e", b"f")}
    assert len(prints) == 8
    assert NO_KEY not in prints
    assert key_print(None) == NO_KEY
    assert all(0 < one < 1 << 64 for one in prints)
