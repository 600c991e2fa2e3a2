"""A batch that nobody works on: when the run ends for it, and when not."""

from __future__ import annotations

import threading
from types import SimpleNamespace

from airflow_flinkstyle.agent.run.executor_watch import ExecutorWatch
from airflow_flinkstyle.agent.run.reasons import Ending, Failure
from tests.unit.clocks import SleptClock

TIMEOUT_S = 60


class Cluster:
    """Spark's context as the watch sees it: its executors, and the jobs that wait for them."""

    def __init__(self) -> None:
        self.executors, self.jobs, self.cancelled = 0, [7], 0
        self.ends: list[Ending] = []
        self.clock = SleptClock()
        self._jsc = SimpleNamespace(sc=lambda: self)
        self.watch = ExecutorWatch(self.ends.append, threading.Event(), clock=self.clock)
        self.watch._context, self.watch._timeout_s = self, TIMEOUT_S

    def getExecutorMemoryStatus(self) -> SimpleNamespace:
        return SimpleNamespace(size=lambda: 1 + self.executors)

    def statusTracker(self) -> SimpleNamespace:
        return SimpleNamespace(getActiveJobsIds=lambda: self.jobs)

    def cancelAllJobs(self) -> None:
        assert self.ends, "a query that fails first would be taken for the script's own failure"
        self.cancelled += 1

    def look_after(self, seconds: float) -> None:
        self.clock.sleep(seconds)
        self.watch.look()


def test_run_ends_once_its_jobs_have_had_no_executor_for_the_time_and_they_are_cancelled() -> None:
    cluster = Cluster()
    cluster.watch.look()
    cluster.look_after(TIMEOUT_S - 1)
    assert not cluster.ends
    cluster.look_after(1)
    [why] = cluster.ends
    assert isinstance(why, Failure)
    assert (why.code, why.transient, cluster.cancelled) == ("NO_EXECUTORS", True, 1)
    assert "60 s" in why.text


def test_jobs_that_the_end_of_the_run_starts_are_given_as_much_time_again() -> None:
    cluster = Cluster()
    cluster.watch.look()
    cluster.look_after(TIMEOUT_S)
    cluster.look_after(TIMEOUT_S)
    assert cluster.cancelled == 1
    cluster.look_after(TIMEOUT_S)
    assert cluster.cancelled == 2


def test_executors_that_come_back_and_jobs_that_end_begin_the_time_anew() -> None:
    cluster = Cluster()
    cluster.watch.look()
    for name, there, gone in (("executors", 1, 0), ("jobs", [], [8])):
        cluster.look_after(TIMEOUT_S - 1)
        setattr(cluster, name, there)
        cluster.look_after(1)
        setattr(cluster, name, gone)
        cluster.look_after(1)
    cluster.look_after(TIMEOUT_S - 1)
    assert not cluster.ends


def test_driver_without_work_needs_no_executor() -> None:
    cluster = Cluster()
    cluster.jobs = []
    for _ in range(5):
        cluster.look_after(TIMEOUT_S)
    assert not cluster.ends
