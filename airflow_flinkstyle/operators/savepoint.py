"""Take a savepoint of a job while it runs, or of one that has stopped."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.hooks.deferral import is_deferrable, wait_in_triggerer
from airflow_flinkstyle.hooks.failures import raise_failure
from airflow_flinkstyle.operators.base import SavepointMaker, airflow_errors, request_key, run_key
from airflow_flinkstyle.wording import batch_words, size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.types import Alignment


class TakeSavepointOperator(SavepointMaker):
    """Take a savepoint; the job keeps running. Returns the savepoint's id.

    A retry, or a clear, re-attaches to the savepoint asked for by the earlier try of the same DAG run.

    :param alignment: ``none`` cuts each query where it is; ``aligned`` cuts all of them at the same Kafka
        offsets, for which they are held for seconds.
    :param unless_saved: Return the newest savepoint, and take no other, if the job has stopped and that holds
        its last state.
    :param checkpoints: For a job that plain Spark runs: query name -> the ``checkpointLocation`` that its
        script names. Its savepoints are taken from outside, until it is adopted. (templated)
    :param kafka_conn_ids: For such a job: connections of the Kafka clusters that it reads. (templated)
    :param timeout_s: How long the savepoint may take.
    :param deferrable: Wait in the triggerer, so that no worker slot is held.
    :param poll_interval_s: Seconds between two polls of the triggerer.
    """

    template_fields: Sequence[str] = (*SavepointMaker.template_fields, "checkpoints", "kafka_conn_ids")

    def __init__(
        self,
        *,
        alignment: Alignment = "none",
        unless_saved: bool = False,
        checkpoints: Mapping[str, str] | str | None = None,
        kafka_conn_ids: Sequence[str] | str | None = None,
        timeout_s: float = 3600.0,
        deferrable: bool | None = None,
        poll_interval_s: float = 2.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.alignment = alignment
        self.unless_saved = unless_saved
        self.checkpoints = checkpoints
        self.kafka_conn_ids = kafka_conn_ids
        self.timeout_s = timeout_s
        self.deferrable = is_deferrable(deferrable)
        self.poll_interval_s = poll_interval_s

    def execute(self, context: Context) -> str:
        """Ask, show the link, and wait here or in the triggerer."""
        from airflow_flinkstyle.hooks.rotation import Caller, begin_take
        from airflow_flinkstyle.jobs.request_slot import PendingRequest
        from airflow_flinkstyle.savepoint.repository.summary import Summary

        with airflow_errors():
            begun = begin_take(
                self.hook,
                self.job,
                Caller(key=request_key(context), by=run_key(context)),
                unless_saved=self.unless_saved,
                alignment=self.alignment,
                checkpoints=self.checkpoints,
                kafka_conn_ids=self.kafka_conn_ids,
                timeout_s=self.timeout_s,
            )
            self.show_savepoint(context, begun.savepoint_id)
            if isinstance(begun, Summary):
                self.log.info("Job %s has stopped, and is saved in %s", self.job, begun.savepoint_id)
                return begun.savepoint_id
            if not isinstance(begun, PendingRequest):
                return self._taken(context, begun)
            if not self.deferrable:
                taken = self.hook.finish_savepoint(self.job, begun, timeout_s=self.timeout_s)
                return self._taken(context, taken)
        return self._wait_deferred(context, asdict(begun))

    def _wait_deferred(self, context: Context, request: dict[str, Any]) -> str:
        from airflow_flinkstyle.triggers.savepoint import RequestTrigger

        trigger = RequestTrigger(
            request=request,
            job=self.job,
            flinkstyle_conn_id=self.flinkstyle_conn_id,
            poll_interval_s=self.poll_interval_s,
        )
        return str(wait_in_triggerer(self, trigger, context, timeout_s=self.timeout_s))

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> str:
        """Read the outcome; a request whose driver died is sent to the next driver."""
        from airflow_flinkstyle.jobs.request_slot import PendingRequest

        if "failure" in event:
            raise_failure(event["failure"])
        with airflow_errors():
            manifest = self.hook.finish_savepoint(
                self.job, PendingRequest(**event["request"]), timeout_s=self.timeout_s
            )
            self.show_savepoint(context, manifest.savepoint_id)
        return self._taken(context, manifest)

    def _taken(self, context: Context, manifest: Manifest) -> str:
        self.announce(context, manifest.savepoint_id)
        at = batch_words({query.name: query.batch_id for query in manifest.queries})
        self.log.info("Savepoint %s holds %s: %s", manifest.savepoint_id, at, size(manifest.total_bytes))
        return manifest.savepoint_id
