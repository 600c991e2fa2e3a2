from __future__ import annotations

import pytest

from airflow_flinkstyle.storage.errors import StoreUnavailableError
from testbed import tries
from testbed.tries import Tries


def failing(times: int) -> StoreUnavailableError:
    return StoreUnavailableError.during(f"read, {times}", "file:///x", "away")


def test_step_is_tried_again_with_a_look_in_between_and_counted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tries, "_PAUSE_S", 0.0)
    left, looks = [failing(1), failing(2)], []
    patient = Tries(patience_s=60)
    patient.between = lambda: looks.append(1)

    def step() -> str:
        if left:
            raise left.pop()
        return "done"

    assert patient(step) == "done"
    assert patient.told == {"STORE_UNAVAILABLE": 2}
    assert len(looks) == 2


def test_step_that_fails_for_too_long_and_any_other_error_are_raised():
    def step() -> None:
        raise failing(1)

    with pytest.raises(StoreUnavailableError):
        Tries()(step)
    with pytest.raises(ZeroDivisionError):
        Tries(patience_s=60)(lambda: 1 / 0)
