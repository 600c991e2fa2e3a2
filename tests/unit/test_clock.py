from __future__ import annotations

from tests.unit.clocks import SleptClock


def looks(clock: SleptClock, timeout_s: float) -> list[float]:
    """Return when a loop looks that never finds it."""
    wait, seen = clock.wait(timeout_s, every_s=4), []
    while True:
        seen.append(clock.now_s)
        if not wait.again():
            return seen


def test_last_look_comes_after_the_time_out():
    clock = SleptClock()
    assert looks(clock, 10) == [1000, 1004, 1008, 1012]
    assert clock.slept == [4, 4, 4]


def test_what_is_looked_for_is_looked_at_once_even_without_time():
    assert looks(SleptClock(), -1) == [1000]
