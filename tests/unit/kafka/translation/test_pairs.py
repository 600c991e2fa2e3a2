"""Which records of both logs are read first, how ranges grow, and which pairs are read together."""

from __future__ import annotations

from typing import Any

from airflow_flinkstyle.kafka.cluster import LogRange
from airflow_flinkstyle.kafka.fingerprints import NO_KEY, Fingerprints
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


def test_ranges_begin_a_little_before_the_position_and_what_is_unread():
    pair = a_pair(500, (100, 600), (1_000, 1_590))
    assert span(pair.source) == (500 - 32, 600, 100)
    assert span(pair.target) == (1_590 - 100 - 2 * 32, 1_590, 1_000)
    assert (pair.tp, pair.target_tp, pair.position) == (("t", 0), ("copy", 0), 500)
    assert (pair.identity, pair.source.keyed, pair.target.keyed) == (DATED, False, False)
    undated = a_pair(5_000, (100, 5_100), (1_000, 9_000), UNDATED)
    assert span(undated.source) == (5_000 - 1_024, 5_100, 100)
    assert span(undated.target) == (9_000 - 100 - 2 * 1_024, 9_000, 1_000)
    assert (undated.source.keyed, undated.target.keyed) == (True, True)


def test_ranges_do_not_begin_before_their_logs_nor_behind_them():
    pair = a_pair(110, (100, 600), (1_000, 1_010))
    assert span(pair.source) == (100, 600, 100)
    assert span(pair.target) == (1_000, 1_010, 1_000)
    kept = a_pair(590, (100, 600), (0, 550), same_offsets=True)
    assert span(kept.target) == (550, 550, 0)


def test_mirror_that_keeps_offsets_is_compared_from_the_same_offset_on():
    assert span(a_pair(500, (100, 600), (0, 590), same_offsets=True).target) == (468, 590, 0)
    assert span(a_pair(500, (100, 600), (480, 590), same_offsets=True).target) == (480, 590, 480)


def test_range_may_become_as_long_as_the_limit_or_some_times_what_is_unread():
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


def test_range_grows_fourfold_up_to_the_logs_start():
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


def test_memory_of_both_ranges_is_freed():
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
