from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model.prune_model import RULES, Rules, explore


def test_no_savepoint_and_no_restore_ever_loses_a_blob():
    states, way = explore(Rules())
    assert way is None
    assert states > 5_000  # the model did look


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_needed(rule: str):
    _, way = explore(replace(Rules(), **{rule: False}))
    assert way is not None, f"nothing breaks without {rule}"
