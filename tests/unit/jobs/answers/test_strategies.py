from __future__ import annotations

from typing import Any

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.answers.rules import strategy_rules
from airflow_flinkstyle.kafka.start.kinds import AtOffsets, Latest
from airflow_flinkstyle.offsets import Offsets


def test_sources_left_out_follow_the_default_and_the_others_only_differ_where_they_say() -> None:
    rules = strategy_rules(way="new_identity", start="latest", sources={"totals/1": {"way": "proved"}})
    assert rules.default.strategy == "new_identity"
    assert rules.sources["totals/1"].strategy == "proved"
    assert rules.sources["totals/1"].start == rules.default.start
    assert rules.default.start is not None
    assert rules.default.start.default == Latest()


def test_start_may_be_the_offsets_of_a_savepoint() -> None:
    known = AtOffsets(Offsets({("a", 0): 3}), origin="savepoint:sp-1")
    rules = strategy_rules(way="new_identity", start="savepoint:sp-1", savepoint=lambda _text: known)
    assert rules.default.start is not None
    assert rules.default.start.default == known


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"way": "guess"}, "a way among proved, new_identity, producers_first"),
        ({"topology": "any"}, "a topology among refuse, repartitioned"),
        ({"start": "somewhere"}, "start position"),
        ({"sources": {"totals/0": {"offset": 3}}}, "for source totals/0"),
        ({"sources": {"totals/0": {"way": "guess"}}}, "a way among"),
    ],
)
def test_rules_that_cannot_be_understood_say_what_was_expected(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        strategy_rules(**wrong)
