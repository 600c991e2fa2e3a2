from __future__ import annotations

from testbed.cycles import MOST_SHARDS, cycles_of


def test_a_seed_repeats_the_moments_of_a_run():
    assert list(cycles_of(7, 50)) == list(cycles_of(7, 50))
    assert list(cycles_of(7, 50)) != list(cycles_of(8, 50))


def test_fifty_cycles_kill_ten_drivers_and_change_the_number_of_shards():
    cycles = list(cycles_of(7, 50))
    assert sum(cycle.kill_after_s is not None for cycle in cycles) == 10
    assert {cycle.shards for cycle in cycles} == set(range(1, MOST_SHARDS + 1))
