from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model.cutover_model import RULES, Rules, explore


def test_protocol_never_loses_doubles_hangs_or_runs_two():
    states, found = explore(Rules())
    assert found is None
    assert states > 5_000  # the model did look


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_needed(rule: str):
    _, found = explore(replace(Rules(), **{rule: False}))
    assert found is not None, f"nothing breaks without {rule}"


@pytest.mark.parametrize(
    ("rule", "what"),
    [
        ("closed_first_and_guarded", "second runner|doubled"),
        ("one_replace", "dead end"),
        ("token", "dead end|lost"),
        ("current_if_unchanged", "second runner"),
        ("standby_first", "held up"),
        ("release_after_takeover", "lost"),
        ("takeover_within_hold", "lost"),
        ("ends_where_it_runs", "lost"),
    ],
)
def test_missing_rule_breaks_what_it_is_there_for(rule: str, what: str):
    _, found = explore(replace(Rules(), **{rule: False}))
    assert found is not None
    assert any(word in found.what for word in what.split("|")), found
