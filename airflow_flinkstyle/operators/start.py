"""Start a job: where it was last, in its last run's checkpoint, from a savepoint, or fresh."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.hooks.keys import was_cleared
from airflow_flinkstyle.links.driver import LINKS, show_driver
from airflow_flinkstyle.links.savepoint import SavepointLink
from airflow_flinkstyle.operators.base import StreamingJobOperator, airflow_errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from airflow_flinkstyle.jobs.start.origins import Origin
    from airflow_flinkstyle.types import ClaimMode


class StartStreamingJobOperator(StreamingJobOperator):
    """Start a streaming job and return once its driver runs; the driver outlives the task.

    A retry re-attaches to the start of the earlier try. A clear does, too, while that run lasts; once it was
    stopped or has ended, a clear starts the job again. While the job runs, another start is refused, also one
    of the same task with another script or other settings.

    :param spark_conn_id: Connection of type ``spark``: where the driver runs. (templated)
    :param script: The PySpark script, as the driver sees it, unmodified. (templated)
    :param args: The script's arguments. (templated)
    :param conf: Spark settings. (templated)
    :param env: The driver's environment; it is recorded, so no secrets. (templated)
    :param kafka_overrides: Kafka options set instead of the script's: mappings with ``role`` (source or
        sink), ``servers`` (as the script writes them) and ``options``; they are recorded, so no secrets. The
        option ``flinkstyle.connection`` names the Kafka connection the driver logs in with. (templated)
    :param start_from: ``last_state`` continues where the job was: in its last run's checkpoint; where that is
        out of reach, from its newest savepoint if the job committed nothing after it; fresh only if the job
        has no history. The log names the choice. ``checkpoint`` and ``savepoint`` take that or nothing.
        ``fresh`` starts without a history. (templated)
    :param discard_history: For ``fresh`` over a history: what is given up, as the refusal names it, like
        ``generation 3``. It names one history, since a plain yes that stays in a DAG would start fresh at
        every run of it: at the next run the job has another history, and the start is refused. (templated)
    :param leave_checkpoints: Locations, as the refusal ``CHECKPOINT_FOUND`` names them, of checkpoints of
        plain Spark that this start leaves behind: their queries begin from scratch. (templated)
    :param savepoint_id: For ``savepoint``: which; ``latest`` is the newest one on the job's line. (templated)
    :param rewind: ``continue`` demands that the job has committed nothing after the savepoint. If it has:
        ``fork`` (new query id; batch ids beyond those that a sink remembers) or ``re-emit``. (templated)
    :param skip_known_batches: Accept that a sink that remembers batches, or a function that may, skips
        those it knows. (templated)
    :param restore_tables: ``yes``: with a rewind, take back what the job has written since into tables of
        Delta and Iceberg; refused where others have written to them, too. (templated)
    :param claim_mode: ``claim`` gives the savepoint to the job: retention drops it once a newer complete
        one has taken its place. ``no_claim`` leaves it to its maker.
    :param running_timeout_s: How long the driver may take until it runs.
    :param ends_by_itself: The script ends once it has read its input (trigger ``availableNow``): one that has
        ended by then counts as started. ``StreamingJobEndSensor`` waits for its end.
    :param stop_on_kill: Stop the job, at a batch boundary, when a person kills the task while it starts.
    """

    operator_extra_links = (SavepointLink(), *LINKS)
    asks = (
        *("script", "args", "conf", "env", "kafka_overrides", "start_from", "discard_history"),
        *("leave_checkpoints", "savepoint_id", "rewind", "skip_known_batches", "restore_tables"),
        "claim_mode",
    )
    template_fields: Sequence[str] = (
        *StreamingJobOperator.template_fields,
        *("spark_conn_id", "script", "args", "conf", "env", "kafka_overrides"),
        *("start_from", "discard_history", "leave_checkpoints"),
        *("savepoint_id", "rewind", "skip_known_batches", "restore_tables"),
    )

    def __init__(
        self,
        *,
        script: str,
        spark_conn_id: str = "spark_default",
        args: Sequence[str] | str = (),
        conf: Mapping[str, Any] | str | None = None,
        env: Mapping[str, str] | None = None,
        kafka_overrides: Sequence[Mapping[str, Any]] = (),
        start_from: str = "last_state",
        discard_history: str | None = None,
        leave_checkpoints: Sequence[str] | str | None = None,
        savepoint_id: str | None = None,
        rewind: str = "continue",
        skip_known_batches: bool | str = False,
        restore_tables: str = "no",
        claim_mode: ClaimMode = "no_claim",
        running_timeout_s: float = 300.0,
        ends_by_itself: bool = False,
        stop_on_kill: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.spark_conn_id = spark_conn_id
        self.script = script
        self.args = args
        self.conf = conf
        self.env = env
        self.kafka_overrides = kafka_overrides
        self.start_from = start_from
        self.discard_history = discard_history
        self.leave_checkpoints = leave_checkpoints
        self.savepoint_id = savepoint_id
        self.rewind = rewind
        self.skip_known_batches = skip_known_batches
        self.restore_tables = restore_tables
        self.claim_mode = claim_mode
        self.running_timeout_s = running_timeout_s
        self.ends_by_itself = ends_by_itself
        self.stop_on_kill = stop_on_kill
        self._key = ""

    def execute(self, context: Context) -> dict[str, Any]:
        """Start, wait until the driver runs, and return the run's generation and checkpoint location."""
        from airflow_flinkstyle.jobs.start.tables import await_restored
        from airflow_flinkstyle.jobs.status import describe_status

        self._key = key = self.request_key(context)
        with airflow_errors():
            hook = self.hook
            origin = self._origin()
            spec = hook.spec(
                self.job,
                self.script,
                args=self.args,
                conf=self.conf,
                env=self.env,
                overrides=self.kafka_overrides,
                leave_checkpoints=self.leave_checkpoints,
            )
            client = hook.client(self.job)
            handle = client.starts.start(
                spec,
                hook.target(self.spark_conn_id),
                claim_key=key,
                origin=origin,
                again=was_cleared(context, retries=self.retries or 0),
            )
            order = client.view.board.takeover_order(handle.generation)
            self.show_savepoint(context, order.savepoint_id if order is not None else None)
            wait = client.drivers.wait_begun if self.ends_by_itself else client.drivers.wait_running
            status = wait(handle.generation, timeout_s=self.running_timeout_s)
            show_driver(context, client.view.pages(status.run))
            tables = await_restored(client.view, handle.generation, timeout_s=self.running_timeout_s)
        for query, done in tables.items():
            self.log.info("Query %s: %s", query, done)
        self.log.info("Job %s: %s", self.job, describe_status(status))
        return {"generation": handle.generation, "checkpoint_location": handle.checkpoint_location}

    def _origin(self) -> Origin:
        from airflow_flinkstyle.jobs.start.origins import origin_of

        return origin_of(
            self.start_from,
            newest=lambda: self.hook.newest_savepoint(self.job),
            savepoint_id=self.savepoint_id,
            rewind=self.rewind,
            skip_known_batches=self.skip_known_batches,
            restore_tables=self.restore_tables,
            claim_mode=self.claim_mode,
            discard_history=self.discard_history,
        )

    def on_kill(self) -> None:
        """Let the job run on, unless ``stop_on_kill`` is set."""
        from airflow_flinkstyle.jobs.request_slot import key_of_kill

        if self.stop_on_kill and self._key:
            self.hook.ask_to_stop(self.job, key_of_kill(self._key), started_by=self._key)
