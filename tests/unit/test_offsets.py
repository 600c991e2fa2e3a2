"""The one value for positions: its two views, its stored form, and that nothing changes it."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.typed_json import MismatchError, decode, encode, stored

TOPICS = st.text(min_size=1, max_size=6)
OFFSETS = st.dictionaries(
    TOPICS, st.dictionaries(st.integers(0, 99_999), st.integers(0, 2**63 - 1), min_size=1), max_size=4
)
SOME = Offsets.of({"orders": {10: 3, 0: 1050}, "b": {2: 4}})


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    offsets: Offsets
    before: Mapping[str, Offsets]
    planned: Offsets | None = None


def test_both_views_show_the_same_in_the_order_given() -> None:
    assert list(SOME.items()) == [(("orders", 10), 3), (("orders", 0), 1050), (("b", 2), 4)]
    assert json.dumps(SOME.by_topic) == '{"orders": {"10": 3, "0": 1050}, "b": {"2": 4}}'
    assert SOME["b", 2] == 4
    assert SOME.get(("b", 3)) is None
    assert (len(SOME), bool(Offsets())) == (3, False)


@given(OFFSETS)
def test_by_topic_and_back_is_the_same(by_topic: dict[str, dict[int, int]]) -> None:
    offsets = Offsets.of(by_topic)
    assert offsets.by_topic == by_topic
    assert Offsets(dict(offsets)) == Offsets.of(offsets.by_topic) == offsets
    assert offsets.topics == by_topic.keys()
    assert list(offsets.in_order()) == sorted(offsets)


@given(OFFSETS, OFFSETS)
def test_stored_form_is_spark_s_and_reads_back(one: dict[str, dict[int, int]], other: dict) -> None:
    position = Position(offsets=Offsets.of(one), before={"a": Offsets.of(other)}, planned=Offsets.of(other))
    text = json.dumps(encode(position))
    assert decode(Position, json.loads(text)) == position
    assert json.loads(text)["offsets"] == {
        topic: {str(number): at for number, at in numbers.items()} for topic, numbers in one.items()
    }


@pytest.mark.parametrize(
    ("stored", "where", "expected"),
    [
        ({"t": {"0": -1}}, "offsets, t, 0", "a NextOffset, 0 or more"),
        ({"t": {"0": True}}, "offsets, t, 0", "a whole number"),
        ({"t": {"00": 1}}, "offsets, t, 00", "a number as key"),
        ({"t": {}}, "offsets, t", "the offset of at least one partition"),
        ({"t": 1}, "offsets, t", "an object"),
        ([], "offsets", "an object"),
    ],
)
def test_other_stored_forms_are_refused_with_their_place(stored: object, where: str, expected: str) -> None:
    with pytest.raises(MismatchError) as caught:
        decode(Position, {"offsets": stored, "before": {}, "planned": None})
    assert (caught.value.where, caught.value.expected) == (where, expected)


def test_offsets_of_topics_in_order_and_joined() -> None:
    assert SOME.in_topics({"b", "none"}) == {("b", 2): 4}
    assert list(SOME.in_order()) == [("b", 2), ("orders", 0), ("orders", 10)]
    joined = SOME | {("b", 2): 9, ("c", 0): 1}
    assert joined.by_topic == {"orders": {10: 3, 0: 1050}, "b": {2: 9}, "c": {0: 1}}
    assert isinstance(joined, Offsets)
    assert SOME["b", 2] == 4


def test_nothing_changes_it() -> None:
    given_by = {("t", 0): 1}
    offsets = Offsets(given_by)
    given_by["t", 0] = 2
    offsets.by_topic["t"][0] = 3
    assert offsets == {("t", 0): 1}
    with pytest.raises(FrozenInstanceError):
        offsets._at = {}
    with pytest.raises(TypeError):
        offsets["t", 0] = 2


def test_pickle_copy_and_repr_keep_it() -> None:
    assert pickle.loads(pickle.dumps(SOME)) == SOME  # noqa: S301  # its own words
    assert copy.deepcopy(SOME) == SOME == replace(Position(offsets=SOME, before={})).offsets
    assert repr(SOME) == "Offsets.of({'orders': {10: 3, 0: 1050}, 'b': {2: 4}})"
