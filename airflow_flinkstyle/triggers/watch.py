"""Watching many jobs of a root with one trigger."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.hooks.watching import watched_root
from airflow_flinkstyle.triggers.base import PollTrigger

if TYPE_CHECKING:
    from collections.abc import Mapping

EVERY_S = 1.0
"""From poll to poll."""
_FAILS_AFTER_S = 300.0
"""How long a root cannot be watched before the task fails: the next run would fail of the same again."""


class WatchTrigger(PollTrigger):
    """Fires when jobs need a task, or when its time is over: ``{"wanted", "told", "until_s"}``.

    It starts nothing itself: a driver would run on the triggerer's machine. A triggerer that takes it over
    knows nothing yet of the jobs; within seconds it knows which of them write pulses.

    Args:
        jobs: Their names, and how old the newest savepoint of each may be, in seconds; None for all jobs
            below the root.
        told: Job -> mark that was reported before: it does not fire for that again.
        until_s: When its time is over, in epoch seconds.
        requests_per_s: How many requests it makes to the store at most, on average.
    """

    def __init__(
        self,
        *,
        jobs: Mapping[str, float | None] | None,
        told: Mapping[str, str],
        until_s: float,
        requests_per_s: float,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"job": "*", "poll_interval_s": EVERY_S, **kwargs})
        self.jobs = jobs
        self.told = told
        self.until_s = until_s
        self.requests_per_s = requests_per_s
        self._wrong_since_s: float | None = None

    def arguments(self) -> dict[str, Any]:
        """Return which jobs to watch, and what was reported of them."""
        return {
            "jobs": self.jobs,
            "told": self.told,
            "until_s": self.until_s,
            "requests_per_s": self.requests_per_s,
        }

    def poll(self) -> dict[str, Any] | None:
        """Poll once, as every trigger; fire for a failure of the root itself only once it has lasted."""
        payload = super().poll()
        if payload is None or "failure" not in payload:
            self._wrong_since_s = None
            return payload
        now_s = time.monotonic()
        self._wrong_since_s = self._wrong_since_s or now_s
        return payload if now_s - self._wrong_since_s >= _FAILS_AFTER_S else None

    def check(self) -> dict[str, Any] | None:
        """Return the jobs that need a task, or none of them once the time is over."""
        watched = watched_root(self.flinkstyle_conn_id, self.jobs, self.requests_per_s)
        wanted = {} if time.time() >= self.until_s else watched.inspect_due(self.hook, self.told)
        if not wanted and time.time() < self.until_s:
            return None
        return {
            "wanted": {job: asdict(need) for job, need in wanted.items()},
            "told": self.told,
            "until_s": self.until_s,
        }
