"""A batch that nobody works on: when the driver ends for it, and when not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.core.process import EXIT_NO_EXECUTORS
from airflow_flinkstyle.agent.spark.executors import ExecutorWatch
from airflow_flinkstyle.agent.spark.process import DriverProcess
from tests.unit.clocks import SleptClock

if TYPE_CHECKING:
    import pytest

PATIENCE_S = 60


class Watched(DriverProcess):
    """A process that notes its end, and what its watch sees of Spark."""

    def __init__(self) -> None:
        super().__init__()
        self.exits: list[int] = []
        self.patience_s: int | None = PATIENCE_S
        self.clock = SleptClock()
        self.watch = ExecutorWatch(self, patience_s=lambda: self.patience_s, clock=self.clock)

    def halt(self, code: int) -> None:
        self.exits.append(code)

    def look_after(self, seconds: float) -> None:
        self.clock.sleep(seconds)
        self.watch.check()


def test_driver_ends_once_its_jobs_have_had_no_executor_for_the_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    driver = Watched()
    driver.watch.check()
    driver.look_after(PATIENCE_S - 1)
    assert not driver.exits
    driver.look_after(1)
    assert driver.exits == [EXIT_NO_EXECUTORS]
    assert "no executor for 60 s (spark.flinkstyle.executorTimeout)" in caplog.text


def test_an_executor_that_comes_or_jobs_that_end_begin_the_time_anew() -> None:
    driver = Watched()
    driver.watch.check()
    driver.look_after(PATIENCE_S - 1)
    driver.patience_s = None
    driver.look_after(1)
    driver.patience_s = PATIENCE_S
    driver.look_after(1)
    driver.look_after(PATIENCE_S - 1)
    assert not driver.exits
