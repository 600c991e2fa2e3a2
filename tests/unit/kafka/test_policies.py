"""Which verdicts are good enough."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.policies import EXACT_ONLY, Allow, AllowUpTo, Policies, Refuse, parse_policies
from airflow_flinkstyle.kafka.verdict import GRAVEST_FIRST, Bounded, Chosen, Exact, Refused
from airflow_flinkstyle.types import NextOffset

AT = NextOffset(5)
MIXED = Bounded(AT, {"duplicate": 90, "new": 2}, {"superseded": 7})


def test_nothing_but_exact_is_allowed_by_default():
    assert EXACT_ONLY.judge(Exact(AT)) is None
    assert EXACT_ONLY.judge(Chosen(AT, 0, 0)) == Refused("not allowed: a position chosen by hand", None)
    assert EXACT_ONLY.judge(MIXED) == Refused(
        "not allowed: 90 duplicate (none allowed), 2 new (none allowed), 7 superseded (none allowed)", None
    )


@pytest.mark.parametrize("text", ["duplicate<=90,new,superseded", ["exact", "bounded", "duplicate<=90"]])
def test_each_class_is_allowed_up_to_its_own_number(text: str | list[str]):
    policies = parse_policies(text)
    assert policies.judge(MIXED) is None
    refused = policies.judge(Bounded(AT, {"duplicate": 91, "new": 2}))
    assert refused == Refused("not allowed: 91 duplicate (at most 90 allowed)", None)


def test_records_on_both_sides_of_a_class_count_together():
    both = Bounded(AT, {"superseded": 2}, {"superseded": 3})
    assert parse_policies("superseded<=4").judge(both) is not None
    assert parse_policies("superseded<=5").judge(both) is None


@pytest.mark.parametrize("loses", ["tombstone", "passed_over"])
def test_bounded_allows_no_class_that_loses_something(loses: str):
    verdict = Bounded(AT, {}, {"tombstone": 1}) if loses == "tombstone" else Bounded(AT, {"passed_over": 1})
    assert parse_policies("bounded,chosen").judge(verdict) is not None
    assert parse_policies(f"bounded,{loses}<=1").judge(verdict) is None


def test_later_parts_override_earlier_ones():
    assert parse_policies("bounded,duplicate=refuse").judge(MIXED) is not None
    assert parse_policies("duplicate=refuse, bounded").judge(MIXED) is None


@pytest.mark.parametrize(
    "text", ["", "exact,refused", "duplicate<=", "duplicate<=-1", "dup<=3", "new=maybe", "new=", "x", "²"]
)
def test_text_that_names_no_policy_is_refused_with_the_classes(text: str):
    with pytest.raises(BadInputError, match="phantom_aborted"):
        parse_policies(text)


def test_no_list_of_kinds_at_all_is_refused():
    with pytest.raises(BadInputError):
        parse_policies([])


@given(
    st.dictionaries(
        st.sampled_from(GRAVEST_FIRST),
        st.one_of(st.just(Allow()), st.just(Refuse()), st.integers(0, 10**9).map(AllowUpTo)),
    ),
    st.booleans(),
)
def test_policies_survive_their_own_text(classes: dict, chosen: bool):
    policies = Policies(classes=classes, chosen=chosen)
    assert parse_policies(policies.describe()) == policies
