"""Replace a running job by a new version of it, and go back if that fails before it commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.jobs.answers.values import is_true, seconds, text_or_none
from airflow_flinkstyle.operators.base import StreamingJobOperator, airflow_errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from airflow_flinkstyle.jobs.upgrade.upgrade import Upgrade


class UpgradeStreamingJobOperator(StreamingJobOperator):
    """Bring the new version up beside the old one, stop that with a savepoint, and wait for the first batch.

    A version that does not come up never stops the old one. If it fails before it has committed a
    batch, the old version is started again. In both cases the task fails.
    Once it has committed, going back is a rewind: ``if_committed`` decides. What is not given stays as it
    is. Phases are journalled: a retry continues after the last one, and so does a clear, unless it asks
    for another version.

    :param script: The new script. (templated)
    :param args: Its arguments; empty for the same, ``-`` alone for none. (templated)
    :param conf: Spark settings to change; null removes one. (templated)
    :param shuffle_partitions: Spread the state over so many partitions from the new version on; empty for as
        many as it has. Needs state in RocksDB and PySpark 4.2. (templated)
    :param state_provider: ``rocksdb`` moves the state from Spark's default provider to RocksDB, every key
        compared; empty for where it is. There is no way back. (templated)
    :param state_changes: What the new version needs done to the state: ``module:name`` of changes by
        operator, beside the script, or ready-made ones as JSON. Proved on the hot savepoint, and again on
        the last one. Needs state in RocksDB and PySpark 4.2. (templated)
    :param if_committed: How to go back from a version that had committed, or had opened a transactional sink
        on another cluster: ``fork`` (new query id) or ``re-emit`` (batch ids are used again); ``continue``
        fails and leaves the choice. (templated)
    :param skip_known_batches: Accept, for that rollback, that a sink that remembers batches, or a function
        that may, skips those it knows. (templated)
    :param leave_checkpoints: For a query that the new version adds: locations, as the refusal
        ``CHECKPOINT_FOUND`` names them, of checkpoints of plain Spark that are left behind. (templated)
    :param spark_conn_id: Where the new version runs; None: where the job runs now. (templated)
    :param standby: ``warm``: the new version's driver waits, its session up and a hot savepoint restored,
        before the old one stops; it needs the resources of a second driver meanwhile. ``none``: it starts
        once the old one has stopped. (templated)
    :param rehearse_batches: How many batches of each query the new version runs on a scratch copy of the hot
        savepoint before the old one stops, writing nothing; 0 for none. Needs a warm standby. (templated)
    :param rehearse_records: How many records such a batch reads from Kafka at most. (templated)
    :param rehearse_timeout_s: How long that may take.
    :param allow_untested: Let the new version take over though a query has read no rows in the rehearsal;
        else the task fails (``NOT_TESTED``) and the old version runs on. (templated)
    :param compare_batches: How many batches both versions run on scratch copies, for a comparison, before the
        old one stops; 0: not compared. Needs the resources of two more drivers meanwhile. (templated)
    :param compare_records: How many records such a batch reads from Kafka at most. (templated)
    :param compare_from: The savepoint from which both run; empty for the newest. (templated)
    :param keys: As for ``CompareVersionsOperator``; so are ``ignore`` and ``tolerance``. (templated)
    :param ignore: Columns that may differ. (templated)
    :param tolerance: By column, how much its numbers may differ. (templated)
    :param allow_writes: Let a compared script write past its queries' sinks. (templated)
    :param expect: ``same``: any other verdict ends the upgrade, and the old version runs on
        (``VERSIONS_DIFFER``, ``NOT_COMPARABLE``); ``differs``: any verdict is in the report.
        (templated)
    :param compare_timeout_s: How long the comparison may take.
    :param comparison: What ``CompareUpgradeOperator`` has returned in a task before: it is kept in the
        report, and nothing is compared again. (templated)
    :param observe_s: How long the new version is watched after its first batch, several times what a batch
        takes; 0 for not at all. If it is not well (its driver died, a query ended, is stuck or falls behind),
        the old version continues where the new one is; if its plan does not fit the state any more,
        ``if_committed`` decides, and with ``continue`` the new one runs on while the task fails. (templated)
    :param max_lag: How many records a topic, or a source of Kafka, may be behind at the end of that; empty
        for any number. (templated)
    :param min_rate: Which part of the old version's input rows per second it must read, 0 to 1, if it falls
        further behind; empty for any. (templated)
    :param stop_timeout_s: How long draining and savepoint may take.
    :param first_commit_timeout_s: How long the new version may take to commit its first batch. (templated)
    """

    template_fields: Sequence[str] = (
        *StreamingJobOperator.template_fields,
        *("script", "args", "conf", "if_committed", "skip_known_batches", "spark_conn_id"),
        *("leave_checkpoints", "standby", "rehearse_batches", "rehearse_records", "allow_untested"),
        "first_commit_timeout_s",
        *("observe_s", "max_lag", "min_rate", "shuffle_partitions", "state_provider", "state_changes"),
        *("compare_batches", "compare_records", "compare_from", "keys", "ignore", "tolerance"),
        *("allow_writes", "expect", "comparison"),
    )

    asks = (
        *("script", "args", "conf", "shuffle_partitions", "state_provider", "state_changes", "spark_conn_id"),
        *("leave_checkpoints", "allow_untested"),
    )

    def __init__(
        self,
        *,
        script: str | None = None,
        args: Sequence[str] | str | None = None,
        conf: Mapping[str, Any] | str | None = None,
        shuffle_partitions: int | str | None = None,
        state_provider: str | None = None,
        state_changes: Mapping[str, Any] | str | None = None,
        if_committed: str = "continue",
        skip_known_batches: bool | str = False,
        leave_checkpoints: Sequence[str] | str | None = None,
        spark_conn_id: str | None = None,
        standby: str = "warm",
        rehearse_batches: int | str = 2,
        rehearse_records: int | str = 10_000,
        rehearse_timeout_s: float = 300.0,
        allow_untested: bool | str = False,
        compare_batches: int | str = 0,
        compare_records: int | str = 250_000,
        compare_from: str | None = None,
        keys: Mapping[str, Any] | str | None = None,
        ignore: Sequence[str] | str | None = None,
        tolerance: Mapping[str, Any] | str | None = None,
        allow_writes: bool | str = False,
        expect: str = "same",
        compare_timeout_s: float = 3600.0,
        comparison: Mapping[str, Any] | None = None,
        observe_s: float | str = 0.0,
        max_lag: int | str | None = None,
        min_rate: float | str | None = 0.5,
        stop_timeout_s: float = 300.0,
        first_commit_timeout_s: float | str = 180.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.script = script
        self.args = args
        self.conf = conf
        self.shuffle_partitions = shuffle_partitions
        self.state_provider = state_provider
        self.state_changes = state_changes
        self.if_committed = if_committed
        self.skip_known_batches = skip_known_batches
        self.leave_checkpoints = leave_checkpoints
        self.spark_conn_id = spark_conn_id
        self.standby = standby
        self.rehearse_batches = rehearse_batches
        self.rehearse_records = rehearse_records
        self.rehearse_timeout_s = rehearse_timeout_s
        self.allow_untested = allow_untested
        self.compare_batches = compare_batches
        self.compare_records = compare_records
        self.compare_from = compare_from
        self.keys = keys
        self.ignore = ignore
        self.tolerance = tolerance
        self.allow_writes = allow_writes
        self.expect = expect
        self.compare_timeout_s = compare_timeout_s
        self.comparison = comparison
        self.observe_s = observe_s
        self.max_lag = max_lag
        self.min_rate = min_rate
        self.stop_timeout_s = stop_timeout_s
        self.first_commit_timeout_s = first_commit_timeout_s

    def execute(self, context: Context) -> dict[str, Any]:
        """Upgrade, or continue what an earlier try began."""
        with airflow_errors():
            report = self.upgrade(context).run()
            self.show_savepoint(context, report.savepoint_id)
        context["ti"].xcom_push(key="markdown", value=report.as_markdown())
        self.log.info(
            "Job %s runs its new version as generation %d.\n%s",
            *(self.job, report.generation, report.as_markdown()),
        )
        return report.as_dict()

    def upgrade(self, context: Context) -> Upgrade:
        """Return what was asked for, as an earlier try may have begun it."""
        from airflow_flinkstyle.hooks.launches import (
            bounds,
            mapping,
            next_version,
            number,
            rehearse,
            rewind,
            standby,
        )
        from airflow_flinkstyle.jobs.comparison import compare_asked, expected
        from airflow_flinkstyle.jobs.cutover.context import CutoverSettings
        from airflow_flinkstyle.jobs.journal import CutoverJournal
        from airflow_flinkstyle.jobs.stopped.last_run import recorded_launch
        from airflow_flinkstyle.jobs.upgrade.repartition import with_changes, with_partitions, with_provider
        from airflow_flinkstyle.jobs.upgrade.upgrade import UPGRADE_PHASES, Upgrade

        hook = self.hook
        client = hook.client(self.job)
        spec, target = recorded_launch(client.view)
        spec = next_version(
            spec,
            script=self.script,
            args=self.args,
            conf=mapping(self.conf),
            leave_checkpoints=self.leave_checkpoints,
        )
        spec = with_partitions(spec, number("shuffle_partitions", self.shuffle_partitions))
        spec = with_provider(spec, self.state_provider)
        current, key = client.view.board.current(), self.request_key(context)
        before = current.value.generation if current is not None else 0
        spec = with_changes(spec, self.state_changes, asked=key, before=before)
        return Upgrade(
            client=client,
            journal=CutoverJournal(hook.store, self.job, key, UPGRADE_PHASES, signer=hook.signer),
            spec=spec,
            target=hook.target(self.spark_conn_id) if self.spark_conn_id else target,
            if_committed=rewind(self.if_committed),
            skip_known_batches=is_true("skip_known_batches", self.skip_known_batches),
            standby=standby(self.standby),
            rehearse=rehearse(
                self.rehearse_batches,
                self.rehearse_records,
                timeout_s=self.rehearse_timeout_s,
                allow_untested=is_true("allow_untested", self.allow_untested),
            ),
            compare=compare_asked(
                batches=self.compare_batches,
                records=self.compare_records,
                keys=self.keys,
                ignore=self.ignore,
                tolerance=self.tolerance,
                allow_writes=is_true("allow_writes", self.allow_writes),
                timeout_s=self.compare_timeout_s,
            ),
            compare_from=text_or_none(self.compare_from),
            expect=expected(text_or_none(self.expect)),
            comparison=self.comparison,
            bounds=bounds(self.observe_s, self.max_lag, self.min_rate),
            settings=CutoverSettings(
                stop_timeout_s=self.stop_timeout_s,
                first_commit_timeout_s=seconds("first_commit_timeout_s", self.first_commit_timeout_s),
            ),
        )
