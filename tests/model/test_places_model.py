from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model.places_model import RULES, Rules, explore


def test_no_two_jobs_ever_write_into_one_place_and_nothing_stays_that_nobody_frees():
    states, way = explore(Rules())
    assert way is None
    assert states > 300  # the model did look


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_needed(rule: str):
    _, way = explore(replace(Rules(), **{rule: False}))
    assert way is not None, f"nothing breaks without {rule}"
