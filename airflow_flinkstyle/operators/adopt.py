"""Jobs move in from plain Spark, and out again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.operators.base import SavepointMaker, airflow_errors, request_key, run_key
from airflow_flinkstyle.wording import batch_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context


class AdoptStreamingJobOperator(SavepointMaker):
    """Adopt a job that plain Spark ran and that has stopped: its checkpoint becomes its first savepoint here.

    The next start continues at that batch. Nothing of Spark's is changed. A retry, or a clear, returns what
    was done. Returns savepoint, batches, clusters and notes.

    :param checkpoints: Query name -> the ``checkpointLocation`` that the script names. (templated)
    :param kafka_conn_ids: Connections of the Kafka clusters that the script reads. (templated)
    :param spark_version: Which Spark wrote the checkpoints, if you know. (templated)
    :param still_s: For how many seconds nothing may have been written; None for three of the checkpoint's
        intervals, 5 to 120. (templated)
    """

    template_fields: Sequence[str] = (
        *SavepointMaker.template_fields,
        *("checkpoints", "kafka_conn_ids", "spark_version", "still_s"),
    )

    def __init__(
        self,
        *,
        checkpoints: Mapping[str, str] | str,
        kafka_conn_ids: Sequence[str] | str | None = None,
        spark_version: str | None = None,
        still_s: str | float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.checkpoints = checkpoints
        self.kafka_conn_ids = kafka_conn_ids
        self.spark_version = spark_version
        self.still_s = still_s

    def execute(self, context: Context) -> dict[str, Any]:
        """Adopt the job."""
        from airflow_flinkstyle.hooks.adoption import watched_checkpoint
        from airflow_flinkstyle.hooks.progress import ProgressLog
        from airflow_flinkstyle.jobs.adoption.stopped import adopt_stopped
        from airflow_flinkstyle.jobs.answers.values import seconds_or_none

        with airflow_errors():
            watched = watched_checkpoint(self.hook, self.checkpoints, self.kafka_conn_ids, self.spark_version)
            adoption = adopt_stopped(
                self.hook.client(self.job).view,
                watched,
                key=request_key(context),
                by=run_key(context),
                still_s=seconds_or_none("still_s", self.still_s),
                progress=ProgressLog(self.log.info).captured,
            )
            self.show_savepoint(context, adoption.manifest.savepoint_id)
        self.announce(context, adoption.manifest.savepoint_id)
        self.log.info("Job %s is adopted:\n%s", self.job, adoption.as_markdown())
        return adoption.as_dict()


class LeaveStreamingJobOperator(SavepointMaker):
    """Give a job back to plain Spark: stop it with a savepoint, and write its checkpoints where they belong.

    Returns the savepoint, the ``spark-submit`` that continues it, the command that adopts it again, and what
    stays behind. A retry continues.

    :param to: Query name -> the ``checkpointLocation`` that the script names; each must be empty. For
        a query that is missing here it is the one that the last driver's script named. (templated)
    :param timeout_s: How long the stop may take.
    """

    template_fields: Sequence[str] = (*SavepointMaker.template_fields, "to")

    def __init__(
        self, *, to: Mapping[str, str] | str | None = None, timeout_s: float = 3600.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.to = to
        self.timeout_s = timeout_s

    def execute(self, context: Context) -> dict[str, Any]:
        """Stop the job, and write its checkpoints."""
        from airflow_flinkstyle.hooks.adoption import locations
        from airflow_flinkstyle.jobs.adoption.leaving import leave

        with airflow_errors():
            leaving = leave(
                self.hook.client(self.job),
                locations(self.to),
                key=request_key(context),
                by=run_key(context),
                timeout_s=self.timeout_s,
            )
            self.show_savepoint(context, leaving.savepoint_id)
        self.announce(context, leaving.savepoint_id)
        at = batch_words({name: int(one.batch_id) for name, one in leaving.checkpoints.items()})
        self.log.info("Job %s is left at %s. Run it: %s", self.job, at, leaving.spark_submit)
        for note in leaving.notes:
            self.log.info("%s", note)
        return leaving.as_dict()
