from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model.cut_model import RULES, Rules, explore


def test_jobs_stop_together_or_all_go_on():
    states, way = explore(Rules())
    assert way is None
    assert states > 200  # the model did look


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_of_a_cut_is_needed(rule: str):
    _, way = explore(replace(Rules(), **{rule: False}))
    assert way is not None, f"nothing breaks without {rule}"
