"""What is missing, doubled and unexpected in a topic, and what its records' ids are: without a broker."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.audit.id_counts import SHOWN, FoundId, Numbers, TopicVerdict, compare
from airflow_flinkstyle.kafka.audit.record_ids import parse_ident
from airflow_flinkstyle.kafka.audit.verify_topic import readable
from airflow_flinkstyle.kafka.cluster import LogRange
from airflow_flinkstyle.kafka.reading import ReadRange
from airflow_flinkstyle.types import NextOffset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_flinkstyle.kafka.audit.id_counts import OnId
    from airflow_flinkstyle.kafka.reading import KafkaMessage


@dataclass
class Listed:
    """A topic of one partition."""

    ids: Sequence[bytes | None]
    topic: str = "out"
    held_back: int = 0
    deleted: int = 0

    def each(self, on_id: OnId) -> None:
        for offset, ident in enumerate(self.ids):
            on_id(ident, (0, offset))


def verdict_on(*ids: object, expected: range = range(3)) -> TopicVerdict:
    return compare(Listed([None if one is None else str(one).encode() for one in ids]), Numbers(expected))


def test_each_id_once_in_any_order_is_exactly_once():
    found = verdict_on(2, 0, 1)
    assert found.exactly_once
    assert (found.read, found.distinct, found.expected) == (3, 3, 3)
    assert str(found) == "out: 3 records with 3 ids, 3 expected; missing 0; doubled 0"


def test_every_way_to_be_wrong_is_counted_and_named():
    found = verdict_on(0, 2, 0, "x", None, expected=range(4))
    assert found.missing.first == (FoundId(id="1", at=()), FoundId(id="3", at=()))
    assert found.doubled.first == (FoundId(id="0", at=((0, 0), (0, 2))),)
    assert found.unexpected.first == (FoundId(id="x", at=((0, 3),)),)
    assert found.without_id.first == (FoundId(id="", at=((0, 4),)),)
    assert str(found) == (
        "out: 5 records with 3 ids, 4 expected; missing 2 (1, 3); doubled 1 (0 at 0@0 and 0@2); "
        "unexpected 1 (x at 0@3); without an id 1 ( at 0@4)"
    )


@pytest.mark.parametrize("ids", [(0, 1), (0, 1, 2, 2), (0, 1, 2, 3), (0, 1, 2, None)])
def test_a_single_wrong_record_is_not_exactly_once(ids: tuple[object, ...]):
    assert not verdict_on(*ids).exactly_once


def test_missing_ids_of_a_topic_are_named_with_where_it_has_them():
    found = compare(Listed([b"a"]), Listed([b"a", b"b", b"b"], topic="in"))
    assert found.missing.first == (FoundId(id="b", at=((0, 1), (0, 2))),)
    assert found.expected == 2


def test_only_the_first_are_named_and_long_ones_are_cut():
    found = verdict_on("\N{PILE OF POO}" * 200, expected=range(1000))
    assert (found.missing.count, len(found.missing.first)) == (1000, SHOWN)
    assert [one.id for one in found.missing.first] == [str(n) for n in range(SHOWN)]
    assert str(found.missing).endswith("9, ...)")
    assert len(found.unexpected.first[0].id) == 103


@given(
    found=st.lists(st.none() | st.binary(max_size=1), max_size=40),
    wanted=st.lists(st.binary(max_size=1), max_size=40),
)
def test_the_verdict_is_that_of_counting_every_id(found: list[bytes | None], wanted: list[bytes]):
    verdict = compare(Listed(found), Listed(wanted))
    counts = Counter(one for one in found if one is not None)
    assert (verdict.read, verdict.distinct, verdict.expected) == (len(found), len(counts), len(set(wanted)))
    assert verdict.missing.count == len(set(wanted) - counts.keys())
    assert verdict.unexpected.count == len(counts.keys() - set(wanted))
    assert verdict.doubled.count == sum(count > 1 for count in counts.values())
    assert verdict.without_id.count == found.count(None)


def test_topic_that_is_read_uncommitted_is_expected_to_its_end():
    span = LogRange(start=NextOffset(1), end=NextOffset(9), last_stable=NextOffset(5))
    assert readable(span, "read_committed") == ReadRange(low=1, high=5)
    assert readable(span, "read_uncommitted") == ReadRange(low=1, high=9)


def test_an_id_takes_about_nine_bytes_however_long_it_is():
    class Long:
        topic, held_back, deleted = "out", 0, 0

        def each(self, on_id: OnId) -> None:
            for number in range(100_000):
                on_id(b"x" * 1000 + b"%d" % number, (0, number))

    tracemalloc.start()
    try:
        assert compare(Long(), Long()).exactly_once
        assert tracemalloc.get_traced_memory()[1] < 2 * 100_000 * 12
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("ident", "value", "found"),
    [
        ("value", b"v", b"v"),
        ("value", None, None),
        ("key", b"v", b"k"),
        ("header:h", b"v", b"2"),
        ("header:none", b"v", None),
        ("json:id", b'{"id": "seven"}', b"seven"),
        ("json:id", b'{"id": 7}', b"7"),
        ("json:order.id", b'{"order": {"id": [1, 2]}}', b"[1, 2]"),
        ("json:id", b'{"id": null}', None),
        ("json:id", b'{"other": 1}', None),
        ("json:id", b"[1]", None),
        ("json:id", b"no JSON", None),
        ("json:id", b"\xff", None),
        ("json:id", None, None),
        ("regex:id=(\\d+)", b"x id=17;", b"17"),
        ("regex:\\d+", b"x id=17;", b"17"),
        ("regex:(a)?b", b"b", None),
        ("regex:\\d+", b"none", None),
        ("regex:\\d+", None, None),
    ],
)
def test_id_is_what_was_asked_for(ident: str, value: bytes | None, found: bytes | None):
    record = Message(topic="t", key=b"k", value=value, headers=[("h", b"1"), ("h", b"2")])
    assert parse_ident(ident)(cast("KafkaMessage", record)) == found


@pytest.mark.parametrize("ident", ["", "offset", "header:", "json", "key:x", "regex:("])
def test_id_that_cannot_be_is_refused(ident: str):
    with pytest.raises(BadInputError, match=r"key, value, header:NAME, json:FIELD or regex:PATTERN"):
        parse_ident(ident)
