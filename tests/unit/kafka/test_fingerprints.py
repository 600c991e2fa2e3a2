"""What is kept of a log's records, and how ranges are put together."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_flinkstyle.kafka.fingerprints import NO_KEY, NO_TIME, Fingerprints, fingerprint, key_print


def span(fingerprints: Fingerprints) -> tuple[int, int, int]:
    return fingerprints.low, fingerprints.high, fingerprints.log_start


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


def test_range_without_records_adds_no_time():
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


def test_range_without_keys_keeps_records_only():
    fingerprints = fingerprints_of(0, 2, 3, 4, keyed=False)
    assert (
        len(fingerprints),
        len(fingerprints.prints),
        len(fingerprints.keys),
        len(fingerprints.tombstones),
    ) == (2, 2, 0, 0)
    assert not fingerprints.older(0).keyed


@pytest.mark.parametrize(("low", "whole"), [(4, True), (5, True), (6, False)])
def test_range_is_the_whole_log_from_its_start_on(low: int, whole: bool):
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
