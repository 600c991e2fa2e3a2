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

    The next start continues at that batch. Nothing of Spark's is changed. A retry, or a clear, finds what was
    done. Returns savepoint, batches, clusters and notes.

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
        """Adopt it."""
        from airflow_flinkstyle.hooks.adoption import watched_checkpoint
        from airflow_flinkstyle.hooks.progress import ProgressLog
        from airflow_flinkstyle.jobs.adoption.stopped import adopt_stopped
        from airflow_flinkstyle.jobs.answers.values import seconds_or_none

        with airflow_errors():
            watched = watched_checkpoint(self.hook, self.checkpoints, self.kafka_conn_ids, self.spark_version)
            adoption = adopt_stopped(
                self.hook.client(self.job),
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


class AdoptRunningJobOperator(SavepointMaker):
    """Adopt a job while plain Spark runs it: a driver waits with its state, the old one ends, it goes on.

    Until the old driver is told to end, every error leaves it running. A retry continues; after that nothing
    goes back by itself. Returns savepoint, generation, batches, how the old driver's end is known, and for
    how long the job was down.

    :param script: The PySpark script, as the next driver sees it. (templated)
    :param args: Its arguments. (templated)
    :param conf: Spark settings. (templated)
    :param env: The driver's environment; it is recorded, so no secrets. (templated)
    :param spark_conn_id: Where the next driver runs. (templated)
    :param checkpoints: Query name -> the ``checkpointLocation`` that the old script names. (templated)
    :param kafka_conn_ids: Connections of the Kafka clusters that it reads. (templated)
    :param end_pid: The old driver: its ``spark-submit`` on the machine of this task. (templated)
    :param end_command: What ends the old driver, as a shell would split it. It must succeed again for one
        that has ended. (templated)
    :param gone_command: Succeeds once it has ended; run until it does. (templated)
    :param rehearse_batches: Batches to try on a copy of the state first; 0 for none. (templated)
    """

    asks = ("script", "args", "conf", "env", "checkpoints", "end_pid", "end_command")
    template_fields: Sequence[str] = (
        *SavepointMaker.template_fields,
        *("script", "args", "conf", "env", "spark_conn_id", "checkpoints", "kafka_conn_ids"),
        *("end_pid", "end_command", "gone_command", "rehearse_batches"),
    )

    def __init__(
        self,
        *,
        script: str,
        checkpoints: Mapping[str, str] | str,
        args: Sequence[str] | str | None = None,
        conf: Mapping[str, Any] | str | None = None,
        env: Mapping[str, str] | None = None,
        spark_conn_id: str = "spark_default",
        kafka_conn_ids: Sequence[str] | str | None = None,
        end_pid: int | str | None = None,
        end_command: str | None = None,
        gone_command: str | None = None,
        rehearse_batches: int | str = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.script = script
        self.checkpoints = checkpoints
        self.args = args
        self.conf = conf
        self.env = env
        self.spark_conn_id = spark_conn_id
        self.kafka_conn_ids = kafka_conn_ids
        self.end_pid = end_pid
        self.end_command = end_command
        self.gone_command = gone_command
        self.rehearse_batches = rehearse_batches

    def execute(self, context: Context) -> dict[str, Any]:
        """Adopt it, or continue what an earlier try began."""
        from airflow_flinkstyle.hooks.adoption import ending, watched_checkpoint
        from airflow_flinkstyle.hooks.launches import rehearse
        from airflow_flinkstyle.jobs.adoption.running import ADOPTION_PHASES, RunningAdoption
        from airflow_flinkstyle.jobs.journal import CutoverJournal

        with airflow_errors():
            hook = self.hook
            key = self.request_key(context)
            done = RunningAdoption(
                client=hook.client(self.job),
                journal=CutoverJournal(hook.store, self.job, key, ADOPTION_PHASES, signer=hook.signer),
                spec=hook.spec(self.job, self.script, args=self.args, conf=self.conf, env=self.env),
                target=hook.target(self.spark_conn_id),
                rehearse=rehearse(self.rehearse_batches, 10_000, timeout_s=300.0),
                watched=watched_checkpoint(hook, self.checkpoints, self.kafka_conn_ids, None),
                ending=ending(self.end_pid, self.end_command, self.gone_command),
                by=run_key(context),
            ).run()
            self.show_savepoint(context, done.savepoint_id)
        self.announce(context, done.savepoint_id)
        self.log.info("Job %s is adopted as generation %d: %s", self.job, done.generation, done.ended)
        return done.as_dict()


class LeaveStreamingJobOperator(SavepointMaker):
    """Give a job back to plain Spark: stop it with a savepoint, and write its checkpoints where they belong.

    Returns the savepoint, the ``spark-submit`` that runs it on, the command that adopts it again, and what
    stays behind. A retry continues.

    :param to: Query name -> the ``checkpointLocation`` that the script names; each must be empty. (templated)
    :param timeout_s: How long the stop may take.
    """

    template_fields: Sequence[str] = (*SavepointMaker.template_fields, "to")

    def __init__(self, *, to: Mapping[str, str] | str, timeout_s: float = 3600.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.to = to
        self.timeout_s = timeout_s

    def execute(self, context: Context) -> dict[str, Any]:
        """Leave it."""
        from airflow_flinkstyle.hooks.adoption import locations
        from airflow_flinkstyle.jobs.adoption.leaving import leave

        with airflow_errors():
            left = leave(
                self.hook.client(self.job),
                locations(self.to),
                key=request_key(context),
                by=run_key(context),
                timeout_s=self.timeout_s,
            )
            self.show_savepoint(context, left.savepoint_id)
        self.announce(context, left.savepoint_id)
        at = batch_words({name: int(one.batch_id) for name, one in left.checkpoints.items()})
        self.log.info("Job %s is left at %s. Run it: %s", self.job, at, left.spark_submit)
        for note in left.notes:
            self.log.info("%s", note)
        return left.as_dict()
