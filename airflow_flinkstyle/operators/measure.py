"""Measure all jobs of a savepoint root from the triggerer."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

_SLACK_S = 300.0


class MeasureJobsOperator(BaseOperator):
    """Set the metrics of jobs again and again, from the triggerer: no worker slot is held.

    They are Airflow's own metrics (``[metrics]``: StatsD, Datadog, OpenTelemetry), see ``hooks.metrics``.
    Returns how many rounds there were.

    :param flinkstyle_conn_id: Connection with the savepoint root. (templated)
    :param jobs: Their names; None for all below the root. (templated)
    :param every_s: From round to round.
    :param for_s: How long; a DAG with ``schedule="@continuous"`` then begins the next task.
    """

    template_fields: Sequence[str] = ("flinkstyle_conn_id", "jobs")
    ui_color = "#e6ddf4"

    def __init__(
        self,
        *,
        flinkstyle_conn_id: str = "flinkstyle_default",
        jobs: Sequence[str] | None = None,
        every_s: float = 30.0,
        for_s: float = 3600.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.flinkstyle_conn_id = flinkstyle_conn_id
        self.jobs = jobs
        self.every_s = every_s
        self.for_s = for_s

    def execute(self, context: Context) -> None:
        """Continue in the triggerer."""
        from airflow_flinkstyle.triggers.metrics import MetricsTrigger

        self.defer(
            trigger=MetricsTrigger(
                flinkstyle_conn_id=self.flinkstyle_conn_id,
                jobs=self.jobs,
                every_s=self.every_s,
                for_s=self.for_s,
            ),
            method_name="execute_complete",
            timeout=timedelta(seconds=self.for_s + _SLACK_S),
        )

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> int:
        """Return how many rounds there were."""
        return int(event["rounds"])
