"""Measuring all jobs of a savepoint root again and again."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.hooks.airflow_versions import airflow_stats
from airflow_flinkstyle.hooks.shared_roots import shared_root

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from airflow_flinkstyle.hooks.shared_roots import SharedRoot


class MetricsTrigger(BaseTrigger):
    """Sets the metrics of jobs every ``every_s`` seconds, and fires after ``for_s``.

    A job that cannot be read is not measured in that round; the log says so.

    Args:
        flinkstyle_conn_id: Connection with the savepoint root.
        jobs: Their names; None for all below the root.
        every_s: From round to round.
        for_s: How long; then a task begins the next trigger, so that its log does not grow for ever.
        until_s: The same as epoch seconds, with which a restarted triggerer continues; None: from now.
    """

    def __init__(
        self,
        *,
        flinkstyle_conn_id: str,
        jobs: Sequence[str] | None = None,
        every_s: float = 30.0,
        for_s: float = 3600.0,
        until_s: float | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flinkstyle_conn_id = flinkstyle_conn_id
        self.jobs = list(jobs) if jobs is not None else None
        self.every_s = every_s
        self.for_s = for_s
        self.until_s = time.time() + for_s if until_s is None else until_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and every argument."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "flinkstyle_conn_id": self.flinkstyle_conn_id,
            "jobs": self.jobs,
            "every_s": self.every_s,
            "for_s": self.for_s,
            "until_s": self.until_s,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Measure, round after round."""
        stats, rounds = airflow_stats(in_triggerer=True), 0
        root = shared_root(self.flinkstyle_conn_id)
        while True:
            begun_s = time.monotonic()
            await root.ask(partial(self._measure, root, stats))
            rounds += 1
            if time.time() + self.every_s > self.until_s:
                break
            await asyncio.sleep(max(0.0, begun_s + self.every_s - time.monotonic()))
        yield TriggerEvent({"rounds": rounds})  # type: ignore[no-untyped-call]

    def _measure(self, root: SharedRoot, stats: Any) -> None:  # noqa: ANN401 - Airflow's
        from airflow_flinkstyle.hooks.metrics import knows_tags, measure_job
        from airflow_flinkstyle.jobs.found import jobs_below

        hook, tagged = root.hook, knows_tags()
        try:
            jobs = self.jobs if self.jobs is not None else list(jobs_below(hook.store))
        except FlinkstyleError as error:
            self.log.warning("No job is measured in this round: %s", error.problem)
            return
        for job in jobs:
            try:
                measure_job(hook, job, stats, tagged=tagged)
            except FlinkstyleError as error:
                self.log.warning("Job %s is not measured in this round: %s", job, error.problem)
