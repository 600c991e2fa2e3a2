"""The judge of the accuracy table: it must see every loss and every repetition."""

from __future__ import annotations

import pytest

from airflow_flinkstyle.kafka.mirror.topics import OffsetSync
from airflow_flinkstyle.kafka.verdict import Refused
from airflow_flinkstyle.types import NextOffset
from benchmarks.translation_accuracy import is_true
from benchmarks.translation_methods import between
from benchmarks.translation_truth import Entry, Judged, Truth, judge, missing


def entries(numbers: list[int], *, first_offset: int = 0, **fields: object) -> list[Entry]:
    values = {"key": None, "tombstone": False, "timestamp_ms": 0, **fields}
    return [Entry(number=n, offset=first_offset + i, **values) for i, n in enumerate(numbers)]  # type: ignore[arg-type]


def a_truth(target: list[int], *, own: frozenset[int] = frozenset()) -> Truth:
    """Five source records 1 to 5 at offsets 0 to 4; the target's begin at offset 10."""
    return Truth(
        kind="plain",
        source=entries([1, 2, 3, 4, 5]),
        target=entries(target, first_offset=10),
        own=set(own),
        source_start=0,
        source_end=5,
        mirrored_to=5,
    )


@pytest.mark.parametrize(
    ("target", "offset", "lost", "repeated"),
    [
        ([1, 2, 3, 4, 5], 12, 0, 0),
        ([1, 2, 3, 4, 5], 11, 0, 1),
        ([1, 2, 3, 4, 5], 14, 2, 0),
        ([1, 2, 3, 4, 3, 4, 5], 12, 0, 2),
        ([1, 2, 3, 4, 3, 4, 5], 14, 0, 0),
        ([1, 2, 3, 2, 4, 5], 12, 0, 1),
        ([1, 2, 3, 99, 4, 5], 12, 0, 1),
        ([1, 2, 4, 5], 12, 1, 0),
    ],
    ids=["exact", "early", "late", "duplicates", "behind the duplicates", "a read one", "phantom", "a hole"],
)
def test_every_lost_and_repeated_record_is_counted(target: list[int], offset: int, lost: int, repeated: int):
    found = judge(a_truth(target), 2, offset)
    assert (found.lost, found.repeated) == (lost, repeated)
    assert found.exact == (not lost and not repeated)


def test_records_in_another_order_are_not_exact():
    assert judge(a_truth([1, 2, 5, 4, 3]), 2, 12) == Judged(lost=0, repeated=0, in_order=False)


def test_what_the_targets_own_producers_wrote_is_neither_lost_nor_repeated():
    assert judge(a_truth([1, 2, 7, 3, 4, 5, 8], own=frozenset({7, 8})), 2, 12).exact


def test_compaction_may_take_older_versions_and_nothing_else():
    source = entries([1, 2, 3], key=b"a") + entries([4, 5], first_offset=3, key=b"b")
    truth = Truth(kind="compacted", compacted=True, source=source, target=entries([3, 5], first_offset=10))
    assert judge(truth, 0, 10).exact
    assert missing(truth, 0) == []
    truth.target.pop()
    assert judge(truth, 0, 10).lost == 1
    assert [entry.number for entry in missing(truth, 0)] == [5]


def test_a_refusal_is_true_only_if_the_ledger_says_the_same():
    short = a_truth([1, 2, 3])
    short.mirrored_to = 3
    gone = Refused("2 unread records are not on the target", (NextOffset(3), NextOffset(5)))
    assert is_true(gone, short, 2)
    assert is_true(Refused("MirrorMaker is 2 records behind", None), short, 2)
    assert not is_true(Refused("MirrorMaker is 3 records behind", None), short, 2)
    assert not is_true(gone, a_truth([1, 2, 3, 4, 5]), 2)
    assert not is_true(Refused("the moon is full", None), short, 2)
    short.source_start = 3
    assert is_true(Refused("the position 2 is before the source's start 3", None), short, 2)
    assert not is_true(Refused("the position 3 is before the source's start 3", None), short, 3)


@pytest.mark.parametrize(
    ("position", "place"), [(9, None), (10, 100), (14, 106), (15, 107), (20, 115), (23, 118)]
)
def test_interpolation_goes_between_two_syncs_and_on_behind_the_last(position: int, place: int | None):
    syncs = [
        OffsetSync(topic="t", partition=0, upstream=upstream, downstream=downstream, noted_at_ms=0)
        for upstream, downstream in ((10, 100), (20, 115))
    ]
    assert between(syncs, position) == place
