"""Move a running job to another Kafka cluster: pre-flight, plan, the window, the proof, and the last task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.hooks.assets import MIGRATIONS, emit, migration_asset
from airflow_flinkstyle.operators.base import StreamingJobOperator, airflow_errors, run_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from airflow_flinkstyle.jobs.migration.form import MigrationForm


class MigrationOperator(StreamingJobOperator):
    """Base of the operators of a migration; all tasks of one DAG run belong to the same migration.

    Give all of them the same answers. They are read once: what ``PlanMigrationOperator`` shows for the
    approval is stored, and every later task applies that, even if files that the answers name change.
    Until the window begins, a task with other answers fails; after that it completes what was approved.

    :param migration: The answers, by the names of ``jobs.migration.form.MigrationForm``, which explains each:
        ``source_kafka_conn_id`` and ``target_kafka_conn_id``, and where they differ from the defaults
        ``mirror``, ``rename``, ``way``, ``start``, ``topology``, ``sources``, ``fence``, ``fence_spare``,
        ``group``, ``isolation``, ``allow``, ``producer_switch``, ``script_servers``, ``kafka_options``,
        ``timeouts``, ``spark_conn_id``, ``rehearse_batches``, ``rehearse_records``, ``back``. (templated)
    """

    template_fields: Sequence[str] = (*StreamingJobOperator.template_fields, "migration")

    def __init__(self, *, migration: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.migration = migration

    def form(self) -> MigrationForm:
        """Return the rendered answers as one value."""
        from airflow_flinkstyle.jobs.migration.form import MigrationForm

        return MigrationForm.of(self.job, self.migration)


class PreflightMigrationOperator(MigrationOperator):
    """Check for everything that would stop or spoil a migration, before anything is touched.

    Returns the findings as a markdown table; a refusal among them fails the task.
    """

    def execute(self, context: Context) -> str:
        """Check, show, and refuse if need be."""
        from airflow_flinkstyle.hooks.approval import approved_or_read
        from airflow_flinkstyle.hooks.migration import preflight

        with airflow_errors():
            asked = approved_or_read(self.hook, self.form(), run_key(context))
            findings = preflight(self.hook, asked.migration)
            context["ti"].xcom_push(key="markdown", value=findings.as_markdown())
            self.log.info("Pre-flight of job %s:\n%s", self.job, findings.as_markdown())
            findings.require_ok()
        return findings.as_markdown()


class PlanMigrationOperator(MigrationOperator):
    """Show where a savepoint's positions would go, and store what is to be approved; before the approval.

    Producers still write, so the plan is a preview; the window plans again, with the same rules. What is
    stored stays: a cleared task plans it again, other answers need a new DAG run. Returns the plan as JSON;
    XCom ``markdown`` holds the from/to table and what is approved, with its digest.

    :param savepoint_id: The savepoint to plan with. (templated)
    """

    template_fields: Sequence[str] = (*MigrationOperator.template_fields, "savepoint_id")

    def __init__(self, *, savepoint_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.savepoint_id = savepoint_id

    def execute(self, context: Context) -> str:
        """Plan, show, store."""
        from airflow_flinkstyle.hooks.approval import plan_and_store
        from airflow_flinkstyle.rewrite.render import choices

        with airflow_errors():
            self.show_savepoint(context, self.savepoint_id)
            plan, approved = plan_and_store(self.hook, self.form(), run_key(context), self.savepoint_id)
        cost = "\n".join(choices(plan.moves))
        shown = f"{plan.as_markdown()}\n\n#### Your choice\n\n{cost}\n\n{approved.as_markdown()}"
        context["ti"].xcom_push(key="markdown", value=shown)
        self.log.info("To be approved:\n%s", shown)
        return plan.to_json()


class MigrateStreamingJobOperator(MigrationOperator):
    """The window, as one task: hold producers, stop with savepoint, prove, rewrite, resume, release.

    Its phases are journalled: a retry continues after the last one. If it has to give up before the new
    driver has taken over, the job runs on the old cluster again and the task fails with that message; after
    that nothing is undone by itself. Returns positions, times and savepoints. A success is an event of
    ``hooks.assets.migration_asset``.

    :param hot_savepoint_id: Restored by the next driver while it waits, so that only what is new is copied
        in the window. (templated)
    """

    template_fields: Sequence[str] = (*MigrationOperator.template_fields, "hot_savepoint_id")

    def __init__(
        self, *, hot_savepoint_id: str | None = None, outlets: Sequence[Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(outlets=[*(outlets or ()), MIGRATIONS], **kwargs)
        self.hot_savepoint_id = hot_savepoint_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Check once more, then run the window; the task does not defer while producers are held."""
        from airflow_flinkstyle.hooks.approval import approved_or_read, require_clusters, store
        from airflow_flinkstyle.hooks.migration import cutover, preflight

        hook, hot = self.hook, self.hot_savepoint_id
        with airflow_errors():
            self.show_savepoint(context, hot)
            approved = approved_or_read(hook, self.form(), run_key(context))
            self.log.info("Moving job %s as approved: %s", self.job, approved.digest)
            moved = cutover(hook, approved.migration, run_key(context), hot_savepoint_id=hot)
            if not moved.journal.has_begun:  # the approval may be hours old
                require_clusters(approved, moved)
                preflight(hook, approved.migration, savepoint_id=hot).require_ok()
                store(hook, approved, run_key(context))  # again, unless no task before it did
            report = moved.run()
            self.show_savepoint(context, report.rewritten_id)
        emit(context, MIGRATIONS, migration_asset(self.job, self.flinkstyle_conn_id), report.as_event())
        context["ti"].xcom_push(key="markdown", value=report.as_markdown())
        self.log.info("Job %s has moved:\n%s", self.job, report.as_markdown())
        return report.as_dict()


class VerifyMigrationOperator(MigrationOperator):
    """Prove the end of a migration: the job runs on the target, and commits the records it reads there.

    Returns the target's cluster id and the job's batches.

    :param timeout_s: How long the first batch may take.
    """

    def __init__(self, *, timeout_s: float = 300.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.timeout_s = timeout_s

    def execute(self, context: Context) -> dict[str, Any]:
        """Read what the driver itself recorded."""
        from airflow_flinkstyle.hooks.approval import begun
        from airflow_flinkstyle.hooks.migration import verify_moved

        migration_id = run_key(context)
        with airflow_errors():
            moving = begun(self.hook, self.form(), migration_id)
            moved = verify_moved(moving, migration_id, timeout_s=self.timeout_s)
        self.log.info("Job %s runs on the target: %s", self.job, moved)
        return moved


class SettleMigrationOperator(MigrationOperator):
    """The last task of a migration, also after failures: finish or undo it.

    Make it a teardown task (``as_teardown(on_failure_fail_dagrun=True)``), so that it also runs if a person
    marks the run as failed or success. The job runs on exactly one cluster afterwards, and producers write
    there. Returns ``where`` (``untouched``, ``old`` or ``new``), ``generation`` and ``detail``.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Settle, and return on which cluster the job runs."""
        from dataclasses import asdict

        from airflow_flinkstyle.hooks.approval import begun
        from airflow_flinkstyle.jobs.cutover.context import UNTOUCHED

        with airflow_errors():
            moving = begun(self.hook, self.form(), run_key(context))
            settled = moving.settle() if moving is not None else UNTOUCHED
        self.log.info("Migration of job %s rests: %s (%s)", self.job, settled.where, settled.detail)
        return asdict(settled)
