"""Test whether a savepoint can be restored, before that is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.hooks.assets import DRILLS, drill_asset, emit
from airflow_flinkstyle.hooks.deferral import is_deferrable, wait_in_triggerer
from airflow_flinkstyle.hooks.failures import raise_failure
from airflow_flinkstyle.operators.base import StreamingJobOperator, airflow_errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from airflow_flinkstyle.types import Generation

_SLACK_S = 60.0
"""How long a deferred task may take to read the outcome."""


class DrillRestoreOperator(StreamingJobOperator):
    """Restore a savepoint into a scratch run, let Spark run some batches there, and delete the copy.

    A driver beside the job restores the files of all queries, and runs each query's own plan on the copy into
    a sink that writes nothing. The job is not touched, whether it runs or not; meanwhile the driver needs the
    resources of one more driver. A success is an event of ``hooks.assets.drill_asset``.

    Returns ``savepoint_id``, ``generation``, ``size_bytes``, ``restore_s``, ``batches``, ``rows``,
    ``batch_s`` and ``seconds``; XCom ``markdown`` has the table.

    :param savepoint_id: Which; ``latest`` is the newest one. (templated)
    :param batches: How many batches each query runs. (templated)
    :param records: How many records such a batch reads from Kafka at most. (templated)
    :param spark_conn_id: Where the driver runs; None: where the job ran last. (templated)
    :param script: For a job that plain Spark runs, which no start has recorded: its script. (templated)
    :param args: The arguments of that script. (templated)
    :param conf: Spark settings of that script. (templated)
    :param env: The environment of that script; it is recorded, so no secrets. (templated)
    :param timeout_s: How long all of it may take.
    :param deferrable: Wait in the triggerer, so that no worker slot is held.
    :param poll_interval_s: Seconds between two polls of the triggerer.
    """

    template_fields: Sequence[str] = (
        *StreamingJobOperator.template_fields,
        *("savepoint_id", "batches", "records", "spark_conn_id", "script", "args", "conf", "env"),
    )

    asks = ("savepoint_id", "batches", "records", "spark_conn_id", "script", "args", "conf", "env")

    def __init__(
        self,
        *,
        savepoint_id: str = "latest",
        batches: int | str = 2,
        records: int | str = 10_000,
        spark_conn_id: str | None = None,
        script: str | None = None,
        args: Sequence[str] | str | None = None,
        conf: Mapping[str, Any] | str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 900.0,
        deferrable: bool | None = None,
        poll_interval_s: float = 5.0,
        outlets: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(outlets=[*(outlets or ()), DRILLS], **kwargs)
        self.savepoint_id = savepoint_id
        self.batches = batches
        self.records = records
        self.spark_conn_id = spark_conn_id
        self.script = script
        self.args = args
        self.conf = conf
        self.env = env
        self.timeout_s = timeout_s
        self.deferrable = is_deferrable(deferrable)
        self.poll_interval_s = poll_interval_s
        self._generation: Generation | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Start the driver, show the link, and wait here or in the triggerer."""
        from airflow_flinkstyle.hooks.drills import begin_drill
        from airflow_flinkstyle.hooks.launches import drilled
        from airflow_flinkstyle.jobs.answers.values import text_or_none

        with airflow_errors():
            self._generation, savepoint_id = begin_drill(
                self.hook,
                self.job,
                key=self.request_key(context),
                savepoint_id=self.savepoint_id,
                rehearse=drilled(self.batches, self.records, timeout_s=self.timeout_s),
                spark_conn_id=text_or_none(self.spark_conn_id),
                script=text_or_none(self.script),
                args=self.args,
                conf=self.conf,
                env=self.env,
            )
            self.show_savepoint(context, savepoint_id)
        if self.deferrable:
            return self._wait_deferred(context, self._generation)
        return self._finish(context, self._generation, self.timeout_s)

    def _wait_deferred(self, context: Context, generation: Generation) -> dict[str, Any]:
        from airflow_flinkstyle.triggers.drill import DrillTrigger

        trigger = DrillTrigger(
            generation=int(generation),
            job=self.job,
            flinkstyle_conn_id=self.flinkstyle_conn_id,
            poll_interval_s=self.poll_interval_s,
        )
        return dict(wait_in_triggerer(self, trigger, context, timeout_s=self.timeout_s))

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Read the outcome."""
        from airflow_flinkstyle.types import Generation

        if "failure" in event:
            raise_failure(event["failure"])
        return self._finish(context, Generation(event["generation"]), _SLACK_S)

    def _finish(self, context: Context, generation: Generation, timeout_s: float) -> dict[str, Any]:
        from airflow_flinkstyle.jobs.drills import finish_drill

        with airflow_errors():
            drill = finish_drill(self.hook.client(self.job), generation, timeout_s=timeout_s)
        emit(context, DRILLS, drill_asset(self.job, self.flinkstyle_conn_id), drill.as_dict())
        context["ti"].xcom_push(key="markdown", value=drill.as_markdown())
        self.log.info("Drilled:\n%s", drill.as_markdown())
        return dict(drill.as_dict())

    def on_kill(self) -> None:
        """End the drill's driver; the job is not touched."""
        if self._generation is not None:
            self.hook.client(self.job).drivers.dismiss(self._generation)
