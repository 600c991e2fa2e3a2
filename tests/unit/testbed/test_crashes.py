from __future__ import annotations

from collections import Counter

from testbed.crashes import LATEST_SECOND_S, LONGEST_RUN_S, blows_of


def test_each_kind_of_blow_comes_once_in_every_four_in_an_order_that_the_seed_repeats():
    blows = list(blows_of(7, 40))
    assert blows == list(blows_of(7, 40)) != list(blows_of(8, 40))
    kinds = [blow.what for blow in blows]
    assert all(set(Counter(kinds[n : n + 4]).values()) == {1} for n in range(0, 40, 4))
    assert len({tuple(kinds[n : n + 4]) for n in range(0, 40, 4)}) > 1


def test_there_is_always_somebody_left_to_start_the_next_driver():
    for blow in blows_of(1, 40):
        assert blow.watched or not blow.supervisor_too
        assert 0 <= blow.after_s <= LONGEST_RUN_S
        assert blow.second_after_s is None or 0 <= blow.second_after_s <= LATEST_SECOND_S
