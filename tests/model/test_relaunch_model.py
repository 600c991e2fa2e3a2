from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model.relaunch_model import RULES, Rules, State, explore


def test_driver_that_dies_or_is_cut_off_is_started_again_by_one_and_never_runs_beside_another():
    states, found = explore(Rules())
    assert found is None
    assert states > 100  # the model did look


@pytest.mark.parametrize(
    ("rule", "what"),
    [
        ("ends_itself", "second runner"),
        ("waits_for_silence", "second runner"),
        ("one_submit", "two drivers"),
        ("surplus_leaves", "dead end: a surplus driver"),
        ("speaker_counts", "uncontrollable"),
        ("lease_decides", "dead end: no driver"),
        ("names_the_ended", "dead end: a start waits"),
        ("records_what_it_saw", "second runner"),
        ("names_whose_end", "second runner"),
        ("one_speaks", "second runner"),
    ],
)
def test_each_rule_is_needed_for_what_it_is_there_for(rule: str, what: str):
    assert rule in RULES
    _, found = explore(replace(Rules(), **{rule: False}), rests="dead end" in what)
    assert found is not None, f"nothing breaks without {rule}"
    assert what in found.what, found


def test_start_that_was_planned_before_the_driver_was_started_again_would_leave_its_batches():
    _, found = explore(replace(Rules(), names_the_ended=False), rests=False)
    assert found is not None
    assert "rewound" in found.what, found


@pytest.mark.parametrize("alone", [True, False], ids=["cut off alone", "outage of all"])
def test_lease_that_stretches_while_the_store_is_away_lets_two_drivers_run(alone: bool):
    start = State(alone=alone, mistakes=0)
    _, found = explore(replace(Rules(), ends_itself=False), start, rests=False)
    assert found is not None
    assert "second runner" in found.what
    assert any("outage" in step or "cut" in step for step in found.steps)
    assert explore(Rules(), start)[1] is None
