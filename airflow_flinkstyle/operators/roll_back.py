"""Bring a job back: to the version before, from where it is; or to a savepoint and its version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.jobs.answers.values import is_true, is_yes, seconds
from airflow_flinkstyle.operators.base import StreamingJobOperator, airflow_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context


class ShowRollbackTargetsOperator(StreamingJobOperator):
    """Show where a job can be brought back to; returns a markdown table of versions and savepoints."""

    def execute(self, context: Context) -> str:
        """Read the job's history; nothing is changed."""
        from airflow_flinkstyle.jobs.upgrade.on_demand import as_markdown, rollback_targets

        with airflow_errors():
            shown = as_markdown(rollback_targets(self.hook.client(self.job).view))
        context["ti"].xcom_push(key="markdown", value=shown)
        self.log.info("Job %s can be brought back to:\n%s", self.job, shown)
        return shown


class RollBackStreamingJobOperator(StreamingJobOperator):
    """Bring a running job back as an upgrade brings it forward: standby, rehearsal, window, first batch.

    Without a savepoint the version that ran before continues where the job is: no record is lost or counted
    twice, if its plan fits the state, which the rehearsal shows before anything stops. With a savepoint the
    version that took it starts from there, and ``rewind`` decides about the batches since.

    :param savepoint_id: Which; empty for where the job is now. (templated)
    :param rewind: With a savepoint: ``fork`` (new query id) or ``re-emit`` (batch ids are used again).
        (templated)
    :param skip_known_batches: Accept that a sink or a function skips batches it knows. (templated)
    :param restore_tables: ``yes``: with a savepoint, take back what the job has written since into tables of
        Delta and Iceberg; refused where others have written to them, too. (templated)
    :param standby: ``warm`` or ``none``, as for an upgrade. (templated)
    :param rehearse_batches: As for an upgrade; 0 for none. (templated)
    :param rehearse_records: As for an upgrade. (templated)
    :param rehearse_timeout_s: How long the rehearsal may take.
    :param stop_timeout_s: How long draining and savepoint may take.
    :param first_commit_timeout_s: How long the first batch may take. (templated)
    """

    template_fields: Sequence[str] = (
        *StreamingJobOperator.template_fields,
        *("savepoint_id", "rewind", "skip_known_batches", "restore_tables", "standby"),
        *("rehearse_batches", "rehearse_records", "first_commit_timeout_s"),
    )

    asks = ("savepoint_id", "rewind", "restore_tables")

    def __init__(
        self,
        *,
        savepoint_id: str | None = None,
        rewind: str = "continue",
        skip_known_batches: bool | str = False,
        restore_tables: str = "no",
        standby: str = "warm",
        rehearse_batches: int | str = 2,
        rehearse_records: int | str = 10_000,
        rehearse_timeout_s: float = 300.0,
        stop_timeout_s: float = 300.0,
        first_commit_timeout_s: float | str = 180.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.savepoint_id = savepoint_id
        self.rewind = rewind
        self.skip_known_batches = skip_known_batches
        self.restore_tables = restore_tables
        self.standby = standby
        self.rehearse_batches = rehearse_batches
        self.rehearse_records = rehearse_records
        self.rehearse_timeout_s = rehearse_timeout_s
        self.stop_timeout_s = stop_timeout_s
        self.first_commit_timeout_s = first_commit_timeout_s

    def execute(self, context: Context) -> dict[str, Any]:
        """Go back, or continue what an earlier try began."""
        from airflow_flinkstyle.hooks.launches import rehearse, rewind, standby
        from airflow_flinkstyle.jobs.answers.values import text_or_none
        from airflow_flinkstyle.jobs.cutover.context import CutoverSettings
        from airflow_flinkstyle.jobs.journal import CutoverJournal
        from airflow_flinkstyle.jobs.upgrade.on_demand import roll_back_to
        from airflow_flinkstyle.jobs.upgrade.upgrade import UPGRADE_PHASES

        with airflow_errors():
            hook = self.hook
            report = roll_back_to(
                hook.client(self.job),
                CutoverJournal(
                    hook.store, self.job, self.request_key(context), UPGRADE_PHASES, signer=hook.signer
                ),
                savepoint_id=text_or_none(self.savepoint_id),
                rewind=rewind(self.rewind),
                skip_known_batches=is_true("skip_known_batches", self.skip_known_batches),
                restore_tables=is_yes("restore_tables", self.restore_tables),
                standby=standby(self.standby),
                rehearse=rehearse(
                    self.rehearse_batches,
                    self.rehearse_records,
                    timeout_s=self.rehearse_timeout_s,
                    allow_untested=True,  # it has run before, and going back may be urgent
                ),
                settings=CutoverSettings(
                    stop_timeout_s=self.stop_timeout_s,
                    first_commit_timeout_s=seconds("first_commit_timeout_s", self.first_commit_timeout_s),
                ),
            )
            self.show_savepoint(context, report.savepoint_id)
        context["ti"].xcom_push(key="markdown", value=report.as_markdown())
        self.log.info(
            "Job %s was brought back as generation %d.\n%s",
            *(self.job, report.generation, report.as_markdown()),
        )
        return report.as_dict()
