"""Compare what two versions of a job compute on the same records, and show it to a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator

from airflow_flinkstyle.hooks.airflow_versions import AirflowSkipException
from airflow_flinkstyle.operators.asking import AskingOperator
from airflow_flinkstyle.operators.base import StreamingJobOperator, airflow_errors
from airflow_flinkstyle.operators.upgrade import UpgradeStreamingJobOperator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context


class CompareVersionsOperator(StreamingJobOperator):
    """Run the version that the job runs, and a new one, on the same records from one savepoint, and compare.

    Both run on scratch copies, in drivers of their own beside the job; nothing of the job is changed. If they
    differ, the old version runs once more, which shows what is not deterministic. Meanwhile the drivers need
    the resources of two more drivers.

    Returns ``verdict`` (``same``, ``differs``, ``not comparable``), ``summary``, ``table``, ``savepoint_id``
    and ``queries``; XCom ``markdown`` has the table.

    :param script: The new script; empty for the same. (templated)
    :param args: Its arguments; empty for the same. (templated)
    :param conf: Spark settings to change; null removes one. (templated)
    :param savepoint_id: From which both run; ``latest`` is the newest. An older one has more records after
        it. (templated)
    :param batches: How many batches of each query both run. (templated)
    :param records: How many records such a batch reads from Kafka at most. (templated)
    :param keys: By query, the columns that identify its rows, as a mapping or as JSON; a query without is
        compared by whole rows. (templated)
    :param ignore: Columns that may differ; ``name:order`` if only the order of an array may. (templated)
    :param tolerance: By column, how much its numbers may differ, as a mapping or as JSON. (templated)
    :param state: Whether the state is compared too, key by key. (templated)
    :param allow_writes: Let the script write past its queries' sinks; else that fails the comparison
        (``COMPARED_WRITES``) where it can be seen. (templated)
    :param expect: ``same``: anything else fails the task (``VERSIONS_DIFFER``, ``NOT_COMPARABLE``);
        ``differs``: any verdict is reported. (templated)
    :param spark_conn_id: Where the new version runs; None: where the job ran last. (templated)
    :param timeout_s: How long all of it may take.
    """

    template_fields: Sequence[str] = (
        *StreamingJobOperator.template_fields,
        *("script", "args", "conf", "savepoint_id", "batches", "records", "keys", "ignore", "tolerance"),
        *("state", "allow_writes", "expect", "spark_conn_id"),
    )

    asks = (
        *("script", "args", "conf", "savepoint_id", "batches", "records", "keys", "ignore", "tolerance"),
        *("state", "allow_writes", "spark_conn_id"),
    )

    def __init__(
        self,
        *,
        script: str | None = None,
        args: Sequence[str] | str | None = None,
        conf: Mapping[str, Any] | str | None = None,
        savepoint_id: str = "latest",
        batches: int | str = 4,
        records: int | str = 250_000,
        keys: Mapping[str, Any] | str | None = None,
        ignore: Sequence[str] | str | None = None,
        tolerance: Mapping[str, Any] | str | None = None,
        state: bool | str = True,
        allow_writes: bool | str = False,
        expect: str = "same",
        spark_conn_id: str | None = None,
        timeout_s: float = 3600.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.script = script
        self.args = args
        self.conf = conf
        self.savepoint_id = savepoint_id
        self.batches = batches
        self.records = records
        self.keys = keys
        self.ignore = ignore
        self.tolerance = tolerance
        self.state = state
        self.allow_writes = allow_writes
        self.expect = expect
        self.spark_conn_id = spark_conn_id
        self.timeout_s = timeout_s

    def execute(self, context: Context) -> dict[str, Any]:
        """Run both versions, show the comparison, and fail if another verdict is expected."""
        from airflow_flinkstyle.hooks.launches import compared, mapping, next_version
        from airflow_flinkstyle.jobs.answers.values import text_or_none
        from airflow_flinkstyle.jobs.comparison import (
            Version,
            as_values,
            compare_versions,
            expected,
            require_expected,
            savepoint_to_compare,
        )
        from airflow_flinkstyle.jobs.stopped.last_run import recorded_launch

        with airflow_errors():
            hook, expect = self.hook, expected(text_or_none(self.expect))
            client = hook.client(self.job)
            spec, target = recorded_launch(client.view)
            savepoint_id = savepoint_to_compare(client, text_or_none(self.savepoint_id))
            self.show_savepoint(context, savepoint_id)
            new = next_version(spec, script=self.script, args=self.args, conf=mapping(self.conf))
            spark_conn_id = text_or_none(self.spark_conn_id)
            comparison = as_values(
                compare_versions(
                    client,
                    Version(spec=spec, target=target),
                    Version(spec=new, target=hook.target(spark_conn_id) if spark_conn_id else target),
                    key=self.request_key(context),
                    savepoint_id=savepoint_id,
                    asked=compared(self),
                )
            )
            context["ti"].xcom_push(key="markdown", value=comparison["table"])
            require_expected(comparison, expect, job=self.job)
        return comparison


class CompareUpgradeOperator(UpgradeStreamingJobOperator):
    """Compare both versions of an upgrade, in a task before it, so that a person can see the table.

    All arguments are those of ``UpgradeStreamingJobOperator``, which is given what this returns as
    ``comparison``. Without ``compare_batches`` the task is skipped: give the upgrade the trigger rule
    ``none_failed``. XCom ``markdown`` has the table.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Run both versions; fail if another verdict is expected."""
        with airflow_errors():
            comparison = self.upgrade(context).compared()
            if comparison is None:
                raise AirflowSkipException(f"The versions of job {self.job} are not to be compared.")
            self.show_savepoint(context, comparison["savepoint_id"])
        context["ti"].xcom_push(key="markdown", value=comparison["table"])
        return dict(comparison)


class ApproveDifferenceOperator(AskingOperator, ApprovalOperator):
    """Show what two versions compute differently, and wait until a person approves or rejects.

    Asks nobody if they compute the same. After a rejection the next task is skipped.

    :param comparison: What ``CompareUpgradeOperator`` has returned. (templated)
    """

    template_fields: Sequence[str] = (*AskingOperator.template_fields, "comparison")

    def __init__(self, *, comparison: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.comparison = comparison

    def execute(self, context: Context) -> Any:  # noqa: ANN401 - as its base
        """Ask, if there is a difference."""
        if self.comparison is None or self.comparison["verdict"] == "same":
            self.log.info("Nobody is asked: the versions compute the same")
            return None
        return super().execute(context)
