"""What a change of state is at, for who waits."""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.state.steps import step
from testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable


def test_step_says_that_it_begins_how_far_it_is_and_how_long_it_took(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    done = itertools.count(1)
    with step("writing", lambda: (next(done), 8), every_s=0.01):
        assert caplog.messages[0] == "writing"
        wait_until("it tells twice", lambda: "writing: 2 of 8 tasks" in caplog.messages, timeout_s=30)
    assert caplog.messages[1] == "writing: 1 of 8 tasks"
    assert caplog.messages[-1].startswith("writing took 0.")


def test_step_does_not_mind_that_nobody_knows_how_far_it_is(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    asked = []

    def unknown() -> tuple[int, int]:
        asked.append(1)
        raise ConnectionError("the JVM has ended")

    with step("writing", unknown, every_s=0.01):
        wait_until("it was asked twice", lambda: len(asked) > 1, timeout_s=30)
    assert len(caplog.messages) == 2


def test_step_that_fails_does_not_say_how_long_it_took(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    nothing: Callable[[], tuple[int, int]] = lambda: (0, 0)  # noqa: E731
    with pytest.raises(ValueError, match="no state"), step("writing", nothing):
        raise ValueError("no state")
    assert caplog.messages == ["writing"]
