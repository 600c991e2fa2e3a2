"""Keep jobs up, and report faults: of all jobs of a root in one task, or of one job."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_flinkstyle.hooks.airflow_versions import AirflowSkipException
from airflow_flinkstyle.hooks.failures import failure_of
from airflow_flinkstyle.jobs.answers.values import seconds_or_none
from airflow_flinkstyle.jobs.status import describe_status, stays_down
from airflow_flinkstyle.operators.base import StreamingJobOperator, airflow_errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from airflow_flinkstyle.hooks.job import StreamingJobHook

REPORTED_KEY = "told"
"""XCom with the faults that were reported, by job: the next run does not report them again at once."""
_SLACK_S = 300.0


class WatchStreamingJobOperator(StreamingJobOperator):
    """Look after a job once; run it on a schedule, shorter than the outage you can bear.

    A driver that died without an error, or was told to end by its cluster or a person (SIGTERM), is started
    again, from its own checkpoint. One that recorded an error fails the task with it, also after a rotation
    has saved the job; so does a newest savepoint that is too old, and an adopted job whose old checkpoint
    has moved on. The task is skipped for a job that was stopped, or never started: it is meant to be down.
    Returns generation, batches and the newest savepoint.

    :param fresh: How old the newest savepoint may be, in seconds or like ``36h``; None for any age.
        (templated)
    """

    template_fields: Sequence[str] = (*StreamingJobOperator.template_fields, "fresh")

    def __init__(self, *, fresh: str | float | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.fresh = fresh

    def execute(self, context: Context) -> dict[str, Any]:
        """Start the driver again if it died, and check the newest savepoint."""
        from airflow_flinkstyle.hooks.watching import keep_up

        with airflow_errors():
            status, newest = keep_up(self.hook, self.job, seconds_or_none("fresh", self.fresh))
            if stays_down(status):
                raise AirflowSkipException(f"Job {self.job} is not watched: {describe_status(status)}.")
        run = status.run  # type: ignore[union-attr]
        return {
            "generation": run.generation,
            "batches": dict(run.heartbeat.batches()) if run.heartbeat is not None else {},
            "savepoint_id": newest.savepoint_id if newest is not None else None,
        }


class WatchJobsOperator(BaseOperator):
    """Look after many jobs of one root, as ``WatchStreamingJobOperator`` does, by one task in the triggerer.

    The triggerer polls every second, by one listing for all jobs whose drivers write pulses (``pulses`` of
    the ``flinkstyle`` connection), and wakes the task for those that need it: drivers are started from a
    worker, some at a time. Ends when a job does not recover by itself, or has not for half an hour, and after
    ``for_s``. A DAG with ``schedule="@continuous"`` then begins the next run, which reports the same fault
    only at its own end. Returns the faults, a list of ``{"job": ..., "failure": ...}``, see ``dags.watch``.

    :param jobs: Name of each job -> how old its newest savepoint may be, in seconds or like ``36h``, or None
        for any age; None for all jobs below the root. (templated)
    :param flinkstyle_conn_id: Connection with the savepoint root. (templated)
    :param for_s: How long one task watches. Keep ``dagrun_timeout`` above it.
    :param requests_per_s: How many requests the triggerer makes to the store at most, on average.
    """

    template_fields: Sequence[str] = ("jobs", "flinkstyle_conn_id")
    ui_color = "#e6ddf4"

    def __init__(
        self,
        *,
        jobs: Mapping[str, str | float | None] | None = None,
        flinkstyle_conn_id: str = "flinkstyle_default",
        for_s: float = 3600.0,
        requests_per_s: float = 2.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.jobs = jobs
        self.flinkstyle_conn_id = flinkstyle_conn_id
        self.for_s = for_s
        self.requests_per_s = requests_per_s

    @property
    def hook(self) -> StreamingJobHook:
        """A hook on the rendered connection."""
        from airflow_flinkstyle.hooks.job import StreamingJobHook

        return StreamingJobHook(self.flinkstyle_conn_id)

    def execute(self, context: Context) -> None:
        """Continue in the triggerer."""
        reported = context["ti"].xcom_pull(
            task_ids=self.task_id, key=REPORTED_KEY, map_indexes=-1, include_prior_dates=True
        )
        self._watch(dict(reported or {}), until_s=time.time() + self.for_s)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Start dead drivers, and return faults to report; without any continue in the triggerer."""
        from airflow_flinkstyle.hooks.failures import raise_failure
        from airflow_flinkstyle.hooks.watching import keep_all_up

        if "failure" in event:
            raise_failure(event["failure"])
        in_need, reported, until_s = event["wanted"], dict(event["told"]), event["until_s"]
        is_over = time.time() >= until_s
        with airflow_errors():
            ages = self._ages()
            names = {*in_need, *reported} if is_over else set(in_need)  # old faults too, once an hour
            errors = keep_all_up(
                self.hook,
                {job: ages.get(job) if ages is not None else None for job in sorted(names)},
                {job: need["seen"] for job, need in in_need.items()},
                lasting={*reported, *(job for job, need in in_need.items() if need.get("lasts"))},
            )
        for job in names:
            reported.pop(job, None)
        reported |= {job: in_need[job]["mark"] if job in in_need else event["told"][job] for job in errors}
        context["ti"].xcom_push(key=REPORTED_KEY, value=reported)
        if errors or is_over:
            return [{"job": job, "failure": failure_of(error)} for job, error in sorted(errors.items())]
        self._watch(reported, until_s=until_s)
        return []  # it has deferred

    def _ages(self) -> dict[str, float | None] | None:
        if self.jobs is None:
            return None
        return {job: seconds_or_none(f"fresh of {job}", fresh) for job, fresh in self.jobs.items()}

    def _watch(self, reported: dict[str, str], *, until_s: float) -> None:
        from airflow_flinkstyle.triggers.watch import WatchTrigger

        with airflow_errors():
            trigger = WatchTrigger(
                flinkstyle_conn_id=self.flinkstyle_conn_id,
                jobs=self._ages(),
                told=reported,
                until_s=until_s,
                requests_per_s=self.requests_per_s,
            )
        remaining = timedelta(seconds=max(0.0, until_s - time.time()) + _SLACK_S)
        self.defer(trigger=trigger, method_name="execute_complete", timeout=remaining)
