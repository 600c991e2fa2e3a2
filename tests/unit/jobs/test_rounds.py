"""Whose turn it is to be looked at."""

from __future__ import annotations

import pytest

from airflow_flinkstyle.jobs.rounds import DOWN_S, QUIET_S, TURN_S, WHOLE_S, Rounds
from airflow_flinkstyle.types import Generation
from tests.unit.clocks import SleptClock

ONE = Generation(1)


@pytest.fixture
def clock() -> SleptClock:
    return SleptClock()


@pytest.fixture
def rounds(clock: SleptClock) -> Rounds:
    rounds = Rounds(clock)
    rounds.watch(["a", "b"])
    return rounds


def test_job_whose_pulses_come_is_never_looked_at_and_one_that_stands_still_is_within_seconds(
    rounds: Rounds, clock: SleptClock
):
    for second in range(60):
        moving = {"a": f"a{second // 5}", "b": f"b{second // 5 if second < 30 else 5}"}
        rounds.saw_pulses({**moving, "another root's": "x"})
        assert rounds.in_turn() == []
        assert ("b" in rounds.due()) is (second >= 25 + QUIET_S)
        assert "a" not in rounds.due()
        clock.sleep(1.0)


def test_job_that_was_silent_from_the_first_look_on_is_looked_at_in_turn(rounds: Rounds, clock: SleptClock):
    rounds.saw_pulses({"a": "1", "b": "1"})
    clock.sleep(QUIET_S)
    assert (rounds.due(), rounds.in_turn()) == ([], ["a", "b"])


def test_job_without_pulses_is_known_by_its_heartbeat(rounds: Rounds, clock: SleptClock):
    assert rounds.in_turn() == ["a", "b"]
    rounds.lives("a", (ONE, "v1"))
    rounds.is_down("b")
    assert rounds.in_turn() == []
    clock.sleep(TURN_S)
    assert (rounds.in_turn(), rounds.heartbeat_of("a")) == (["a"], (ONE, "v1"))
    rounds.is_silent("a", certain_in_s=30.0)
    clock.sleep(14.0)
    assert rounds.due() == []
    clock.sleep(1.0)
    assert rounds.due() == ["a"]
    clock.sleep(DOWN_S)
    assert rounds.in_turn() == ["b"]


def test_pulse_that_comes_again_ends_the_looks(rounds: Rounds, clock: SleptClock):
    rounds.saw_pulses({"a": "1"})
    rounds.lives("a", (ONE, "v1"))
    rounds.saw_pulses({"a": "2"})
    clock.sleep(TURN_S)
    assert rounds.in_turn() == ["b"]
    assert rounds.heartbeat_of("a") is None


def test_who_is_called_in_vain_is_called_more_and_more_seldom(rounds: Rounds, clock: SleptClock):
    rounds.watch(["a"])
    rounds.is_silent("a", certain_in_s=0.0)
    waits = []
    for _ in range(6):
        rounds.called("a")
        waited = 0
        while "a" not in [*rounds.due(), *rounds.in_turn()]:
            clock.sleep(1.0)
            waited += 1
        waits.append(waited)
    assert waits == [5, 10, 20, 40, 60, 60]
    rounds.lives("a", None)
    rounds.called("a")
    clock.sleep(5.0)
    assert rounds.due() + rounds.in_turn() == ["a"]


def test_all_of_a_job_is_looked_at_now_and_then_one_job_at_a_time(rounds: Rounds, clock: SleptClock):
    seen = []
    for _ in range(400):
        if (job := rounds.whole()) is not None:
            seen.append((clock.now_s, job))
            rounds.was_whole(job, is_urgent=False)
        clock.sleep(1.0)
    begun_s = seen[0][0]
    assert [(at_s - begun_s, job) for at_s, job in seen] == [
        *((0.0, "a"), (10.0, "b"), (WHOLE_S, "a"), (WHOLE_S + 10.0, "b"))
    ]
    assert all(job in "ab" for _, job in seen)


def test_job_that_stopped_is_looked_at_as_a_whole_before_the_others_and_again_while_work_on_it_is_open(
    rounds: Rounds, clock: SleptClock
):
    rounds.watch([*"abcdefgh"])
    for job in "abcdefgh":
        rounds.lives(job, (ONE, "v1"))
    rounds.is_down("h")
    seen = []
    for _ in range(12):
        if (job := rounds.whole()) is not None:
            seen.append(job)
            rounds.was_whole(job, is_urgent=job == "h" and len(seen) < 8)
        clock.sleep(10.0)
    assert "".join(seen) == "habcdehfg"
