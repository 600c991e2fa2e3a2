"""Finish or undo abandoned migrations and upgrades of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.jobs.answers.values import is_true
from airflow_flinkstyle.operators.base import StreamingJobOperator, airflow_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context


class SettleStreamingJobOperator(StreamingJobOperator):
    """Finish or undo every migration and upgrade of a job that was begun and is not worked on any more.

    It needs their journals, not the DAG runs that began them. One is finished if the next driver has the job,
    else the job goes back to where it ran; producers are released to the same side.
    Returns the outcome of each; an empty list if none is unfinished, or all are at work.

    :param now: Do not wait to see whether one is at work: a process that works on it is replaced. (templated)
    """

    template_fields: Sequence[str] = (*StreamingJobOperator.template_fields, "now")

    def __init__(self, *, now: bool | str = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.now = now

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Find them, wait, settle."""
        from dataclasses import asdict

        from airflow_flinkstyle.hooks.migration import settle_abandoned

        with airflow_errors():
            settled = settle_abandoned(self.hook, self.job, afresh=is_true("now", self.now))
        if not settled:
            self.log.info("Job %s has no abandoned migration or upgrade", self.job)
        return [{"what": what, **asdict(outcome)} for what, outcome in settled]
