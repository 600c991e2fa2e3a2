"""Take savepoints of several jobs that belong together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_flinkstyle.hooks.airflow_versions import AirflowFailException
from airflow_flinkstyle.hooks.assets import SAVEPOINTS, emit, savepoint_asset
from airflow_flinkstyle.hooks.failures import airflow_errors
from airflow_flinkstyle.hooks.keys import request_key
from airflow_flinkstyle.jobs.answers.values import is_true, seconds_or_none

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from airflow_flinkstyle.jobs.cut import JobsCut


class CutJobsOperator(BaseOperator):
    """Take savepoints of several running jobs at the same Kafka offsets, or of none of them.

    The jobs are held for seconds until all are at the furthest offset of any. If one fails or is too slow,
    all continue uncut and the task fails; a retry makes a new cut. Each savepoint is an event of its job's
    asset.

    Returns ``{"cut_id": ..., "savepoints": {job: id}}``.

    :param jobs: Their names, as a list or with commas between them; all under one savepoint root. (templated)
    :param flinkstyle_conn_id: Connection with that root. (templated)
    :param stop: Stop the jobs once the cut is complete. (templated)
    :param hold_s: How long a job may be held for the others, in seconds or like ``2m``. (templated)
    :param timeout_s: How long all of it may take.
    """

    template_fields: Sequence[str] = ("jobs", "flinkstyle_conn_id", "stop", "hold_s")
    ui_color = "#e6ddf4"

    def __init__(
        self,
        *,
        jobs: Sequence[str] | str,
        flinkstyle_conn_id: str = "flinkstyle_default",
        stop: bool | str = False,
        hold_s: float | str = 60.0,
        timeout_s: float = 600.0,
        outlets: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(outlets=[*(outlets or ()), SAVEPOINTS], **kwargs)
        self.jobs = jobs
        self.flinkstyle_conn_id = flinkstyle_conn_id
        self.stop = stop
        self.hold_s = hold_s
        self.timeout_s = timeout_s

    def execute(self, context: Context) -> dict[str, Any]:
        """Cut the jobs together."""
        from airflow_flinkstyle.hooks.job import StreamingJobHook
        from airflow_flinkstyle.jobs.cut import cut_together

        named = self.jobs.split(",") if isinstance(self.jobs, str) else self.jobs
        jobs = [str(job).strip() for job in named]
        with airflow_errors():
            stop = is_true("stop", self.stop)
            hook = StreamingJobHook(self.flinkstyle_conn_id)
            done = cut_together(
                [hook.client(job) for job in jobs],
                request_key(context, {"jobs": sorted(jobs), "stop": stop}),
                stop=stop,
                timeout_s=self.timeout_s,
                hold_s=seconds_or_none("hold_s", self.hold_s) or 60.0,
            )
        for job, savepoint_id in done.savepoints.items():
            asset = savepoint_asset(job, self.flinkstyle_conn_id)
            event = {"job": job, "savepoint_id": savepoint_id, "cut_id": done.cut_id}
            emit(context, SAVEPOINTS, asset, event)
        held = ", ".join(f"{job} in {savepoint_id}" for job, savepoint_id in sorted(done.savepoints.items()))
        self.log.info("Cut %s holds %s", done.cut_id, held)
        self._require_stopped(context, done)
        return {"cut_id": done.cut_id, "savepoints": dict(done.savepoints)}

    def _require_stopped(self, context: Context, done: JobsCut) -> None:
        """Fail if a job did not stop; XCom ``savepoints`` has the cut's savepoints even so."""
        if not done.not_stopped:
            return
        context["ti"].xcom_push(key="savepoints", value=dict(done.savepoints))
        running = "; ".join(f"job {job}: {reason}" for job, reason in sorted(done.not_stopped.items()))
        raise AirflowFailException(
            f"Cut {done.cut_id} is complete and can be used, but not all jobs stopped: {running}. "
            "Look at their drivers, then stop them (StopStreamingJobOperator)."
        )
