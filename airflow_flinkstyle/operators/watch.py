"""Keep jobs up, and tell when one is not as it should be: all of a root in one task, or one by one."""

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

TOLD = "told"
"""Key of the XCom that says what was told of which jobs: the next run does not tell it again at once."""
_SLACK_S = 300.0


class WatchStreamingJobOperator(StreamingJobOperator):
    """Look after a job once; run it on a schedule, shorter than the outage you can bear.

    A driver that died without a word, or was told to end by its cluster or a person (SIGTERM), is started
    again, from its own checkpoint. One that said why it failed fails the task with that error, also once a
    rotation has saved what it left; so does a newest savepoint that is too old, and the old checkpoint of an
    adopted job that has moved on. The task is skipped for a job
    that was stopped, or never started: it is meant to be down.
    Returns generation, batches and the newest savepoint.

    :param fresh: How old the newest savepoint may be, in seconds or like ``36h``; None for any age.
        (templated)
    """

    template_fields: Sequence[str] = (*StreamingJobOperator.template_fields, "fresh")

    def __init__(self, *, fresh: str | float | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.fresh = fresh

    def execute(self, context: Context) -> dict[str, Any]:
        """Start the driver again if it died, and look at the newest savepoint."""
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

    The triggerer looks every second, by one listing for all jobs whose drivers write pulses (``pulses`` of
    the ``flinkstyle`` connection), and wakes the task for those that need it: drivers are started from a
    worker, some at a time. Ends when a job is not well and will not be by itself, and after ``for_s``. A DAG
    with ``schedule="@continuous"`` then begins the next run, which tells the same only once its time is over.
    Returns a list of ``{"job": ..., "failure": ...}``: what to tell, see ``dags.watch``.

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
        told = context["ti"].xcom_pull(
            task_ids=self.task_id, key=TOLD, map_indexes=-1, include_prior_dates=True
        )
        self._watch(dict(told or {}), until_s=time.time() + self.for_s)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Start what is dead, and return what is to be told; else continue in the triggerer."""
        from airflow_flinkstyle.hooks.failures import raise_failure
        from airflow_flinkstyle.hooks.watching import keep_all_up

        if "failure" in event:
            raise_failure(event["failure"])
        wanted, told, until_s = event["wanted"], dict(event["told"]), event["until_s"]
        is_over = time.time() >= until_s
        with airflow_errors():
            ages = self._ages()
            names = {*wanted, *told} if is_over else set(wanted)  # what was told is told again, once an hour
            found = keep_all_up(
                self.hook,
                {job: ages.get(job) if ages is not None else None for job in sorted(names)},
                {job: one["seen"] for job, one in wanted.items()},
            )
        for job in names:
            told.pop(job, None)
        told |= {job: wanted[job]["mark"] if job in wanted else event["told"][job] for job in found}
        context["ti"].xcom_push(key=TOLD, value=told)
        if found or is_over:
            return [{"job": job, "failure": failure_of(error)} for job, error in sorted(found.items())]
        self._watch(told, until_s=until_s)
        return []  # it has deferred

    def _ages(self) -> dict[str, float | None] | None:
        if self.jobs is None:
            return None
        return {job: seconds_or_none(f"fresh of {job}", fresh) for job, fresh in self.jobs.items()}

    def _watch(self, told: dict[str, str], *, until_s: float) -> None:
        from airflow_flinkstyle.triggers.watch import WatchTrigger

        with airflow_errors():
            trigger = WatchTrigger(
                flinkstyle_conn_id=self.flinkstyle_conn_id,
                jobs=self._ages(),
                told=told,
                until_s=until_s,
                requests_per_s=self.requests_per_s,
            )
        left = timedelta(seconds=max(0.0, until_s - time.time()) + _SLACK_S)
        self.defer(trigger=trigger, method_name="execute_complete", timeout=left)
