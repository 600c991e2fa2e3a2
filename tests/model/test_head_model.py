from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model.head_model import RULES, Rules, explore


def test_no_start_by_default_goes_on_from_what_the_job_has_left():
    states, way = explore(Rules())
    assert way is None
    assert states > 5_000  # the model did look


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_needed(rule: str):
    _, way = explore(replace(Rules(), **{rule: False}))
    assert way is not None, f"nothing breaks without {rule}"
