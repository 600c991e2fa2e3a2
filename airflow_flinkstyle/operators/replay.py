"""Run a range of a job's records once more, into another output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.operators.base import StreamingJobOperator, airflow_errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context


class ReplayStreamingJobOperator(StreamingJobOperator):
    """Run a range of a job's records once more, as a new job beside it that ends by itself.

    The new job starts from a copy of a savepoint, with checkpoints and transactional lineages of its own, and
    commits no offsets for a consumer group. It must write elsewhere than the job, which is not touched.

    Returns ``job``, ``generation``, ``batches``, and ``queries``: by query ``begin``, ``end`` and how many
    ``offsets`` lie between.

    :param savepoint_id: Savepoint of the job to start from; ``latest`` is the newest. (templated)
    :param until: Where the range ends: a time with its zone, offsets by topic and partition, or a later
        savepoint. (templated)
    :param as_job: Name of the new job. (templated)
    :param script: Another script; empty for the job's. (templated)
    :param args: Its arguments; empty for the job's. (templated)
    :param conf: Spark settings to change; null removes one. (templated)
    :param own_outputs: Queries that you confirm to write elsewhere than the job's, where that cannot be
        checked, as of ``foreachBatch``. (templated)
    :param records: How many records a batch reads from Kafka at most. (templated)
    :param spark_conn_id: Where it runs; None: where the job ran last. (templated)
    :param timeout_s: How long the task waits; the new job then runs on, and a retry waits for it again.
    """

    asks = (
        *("savepoint_id", "until", "as_job", "script", "args", "conf", "own_outputs", "records"),
        "spark_conn_id",
    )
    template_fields: Sequence[str] = (*StreamingJobOperator.template_fields, *asks)

    def __init__(
        self,
        *,
        until: Mapping[str, Any] | str,
        as_job: str,
        savepoint_id: str = "latest",
        script: str | None = None,
        args: Sequence[str] | str | None = None,
        conf: Mapping[str, Any] | str | None = None,
        own_outputs: Sequence[str] | str | None = None,
        records: int | str = 250_000,
        spark_conn_id: str | None = None,
        timeout_s: float = 3600.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.until = until
        self.as_job = as_job
        self.savepoint_id = savepoint_id
        self.script = script
        self.args = args
        self.conf = conf
        self.own_outputs = own_outputs
        self.records = records
        self.spark_conn_id = spark_conn_id
        self.timeout_s = timeout_s

    def execute(self, context: Context) -> dict[str, Any]:
        """Start the new job, wait until it has closed, and return what it has run."""
        from airflow_flinkstyle.hooks.launches import mapping, next_version, number
        from airflow_flinkstyle.jobs.answers.rules import names_of
        from airflow_flinkstyle.jobs.answers.values import text_or_none
        from airflow_flinkstyle.jobs.comparison import savepoint_to_compare
        from airflow_flinkstyle.jobs.replay import ReplayAsked, await_replay, replay_job
        from airflow_flinkstyle.jobs.stopped.last_run import recorded_launch

        with airflow_errors():
            hook = self.hook
            job, beside = hook.client(self.job), hook.client(self.as_job)
            spec, target = recorded_launch(job.view)
            savepoint_id = savepoint_to_compare(job, text_or_none(self.savepoint_id))
            self.show_savepoint(context, savepoint_id)
            spark_conn_id = text_or_none(self.spark_conn_id)
            generation = replay_job(
                job,
                beside,
                next_version(spec, script=self.script, args=self.args, conf=mapping(self.conf)),
                hook.target(spark_conn_id) if spark_conn_id else target,
                key=self.request_key(context),
                asked=ReplayAsked(
                    savepoint_id=savepoint_id,
                    until=self.until,
                    records=number("records", self.records) or 0,
                    own_outputs=names_of(self.own_outputs),
                ),
            )
            replayed = await_replay(beside, generation, timeout_s=self.timeout_s)
        self.log.info("Job %s has replayed %s: %s", self.as_job, self.job, replayed)
        return replayed
