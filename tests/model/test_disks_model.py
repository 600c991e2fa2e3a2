from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model.disks_model import RULES, Rules, explore


def test_driver_that_is_started_again_on_any_machine_leaves_no_batch_behind():
    states, found = explore(Rules())
    assert found is None
    assert states > 100  # the model did look


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_needed(rule: str):
    _, found = explore(replace(Rules(), **{rule: False}))
    assert found is not None, f"nothing breaks without {rule}"
    assert "left behind" in found.what, found
