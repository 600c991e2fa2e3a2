from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model.lock_model import RULES, Rules, explore


def test_a_job_that_a_caller_held_is_closed_where_its_driver_was_or_given_back():
    states, way = explore(Rules())
    assert way is None
    assert states > 500  # the model did look


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_needed(rule: str):
    _, way = explore(replace(Rules(), **{rule: False}))
    assert way is not None, f"nothing breaks without {rule}"
