"""A whole job meets errors of every system in every phase: it goes on by itself, or says what lasts."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs import relaunch
from airflow_flinkstyle.jobs.errors import DRIVER_RETRIED
from airflow_flinkstyle.kafka.final_codes import FINAL
from testbed.histories import troubles
from testbed.histories.troubles import ANSWERS
from testbed.histories.whole_job import PHASES, a_case, all_lived, calls_of, every_case, lived
from testbed.histories.world import Setting

if TYPE_CHECKING:
    from testbed.histories.whole_job import Lived

FIXED_SEEDS: Final = (35,)


def some(seed: int) -> list[int]:
    """Return numbers of cases: one of each system in each phase, with any moment and length."""
    cases, draw = every_case(), random.Random(seed)  # noqa: S311 - to be repeated
    by_kind: dict[tuple[str, str], list[int]] = {}
    for number, (phase, answer) in enumerate(cases):
        by_kind.setdefault((answer.system, phase), []).append(number)
    return [draw.choice(numbers) + draw.randrange(10) * len(cases) for numbers in by_kind.values()]


def told(number: int, one: Lived) -> str:
    wrong = one.wrong
    return f"{number}: {one.trouble} in {one.phase}: {wrong and (wrong.kind, wrong.what)}: {one.told[-3:]}"


@pytest.mark.parametrize("seed", FIXED_SEEDS)
def test_job_goes_on_by_itself_or_says_what_lasts_whatever_answers_with_an_error(seed: int):
    """All of them: make every-error."""
    numbers = some(seed)
    outcomes = dict(zip(numbers, all_lived(numbers), strict=True))
    found = [told(number, one) for number, one in outcomes.items() if one.wrong is not None]
    assert not found, "\n".join(found)
    assert "did not come" not in {one.outcome for one in outcomes.values()}


def test_every_system_is_met_in_every_phase_that_asks_it():
    met = {(phase, answer.place) for phase, answer in every_case()}
    calls = calls_of(Setting())
    assert met == {(phase, place) for phase in PHASES for place, count in calls[phase].items() if count}
    assert {place for _, place in met} == {answer.place for answer in ANSWERS.values()}


def test_number_tells_all_that_happens():
    number = every_case().index(("migrate", ANSWERS["S3 by code", "SlowDown"]))
    assert lived(*a_case(number)) == lived(*a_case(number))


def test_error_that_is_final_though_no_list_has_it_is_found(monkeypatch: pytest.MonkeyPatch):
    """Put back: a driver that has failed of what passes ends the task that waits for it for good."""
    number = every_case().index(("start", ANSWERS["Java, in a query", "java.io.IOException"]))
    setting, phase, trouble = a_case(number)
    assert lived(setting, phase, trouble).wrong is None
    monkeypatch.setattr(relaunch, "DRIVER_RETRIED", replace(DRIVER_RETRIED, transient=False))
    monkeypatch.setattr(relaunch.JobDrivers, "is_to_be_retried", lambda *_: False)
    found = [lived(*a_case(number + turn * len(every_case()))).wrong for turn in range(10)]
    assert "final-unlisted" in {wrong.kind for wrong in found if wrong is not None}


def test_answers_are_final_by_the_lists_alone():
    kafka = {answer.name: answer for answer in ANSWERS.values() if answer.place == "kafka"}
    assert {name for name, answer in kafka.items() if answer.is_final} == set(FINAL) & set(kafka)
    for answer in ANSWERS.values():
        error = answer.error("read key")
        if isinstance(error, FlinkstyleError):
            assert error.retryable != answer.is_final, (answer.system, answer.name)
        else:
            assert answer.place == "look" or isinstance(error, troubles.QueryError)
