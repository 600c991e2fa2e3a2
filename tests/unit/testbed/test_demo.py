"""What a person sees of the demo when something fails."""

from __future__ import annotations

import pytest

from demo.__main__ import steps_succeed
from demo.tables import Narrator
from testbed.waiting import scaled, wait_until


def test_step_that_fails_is_told_in_one_line_and_ends_the_others(capsys: pytest.CaptureFixture[str]):
    taken = []

    def fail() -> None:
        raise TimeoutError("Not within 300 s: partition 0 is mirrored\nthe end of a log\nTraceback")

    assert not steps_succeed(Narrator(), lambda: taken.append(1), fail, lambda: taken.append(2))
    assert taken == [1]
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith("FAILED: Not within 300 s: partition 0 is mirrored ...")


def test_steps_that_succeed_are_all_taken(capsys: pytest.CaptureFixture[str]):
    taken = []
    assert steps_succeed(Narrator(), lambda: taken.append(1), lambda: taken.append(2))
    assert taken == [1, 2]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("load", "times"), [(0.1, 1), (2, 1), (6, 3), (100, 6)])
def test_time_outs_grow_with_the_load_up_to_a_limit(load: float, times: float):
    assert scaled(10, load=load, cpus=2) == 10 * times


def test_wait_that_is_over_says_for_what():
    with pytest.raises(TimeoutError, match=r"Not within 0 s: rain"):
        wait_until("rain", lambda: False, timeout_s=0)
