"""Go back to the cluster a migration came from: the part before the migration back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.hooks.keys import run_key
from airflow_flinkstyle.jobs.answers.values import seconds
from airflow_flinkstyle.operators.base import airflow_errors
from airflow_flinkstyle.operators.migrate import MigrationOperator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from airflow_flinkstyle.jobs.migration.fail_back import Topics


class BeginFailBackOperator(MigrationOperator):
    """Prepare the fail-back of a finished migration; the operators of a migration then do it.

    Records where a mirror back must begin, removes the fence that the migration left on the old topics, and
    fails while records are only on the cluster that the job reads now, counted by partition. Answers that
    ``migration`` leaves open are those of the finished migration, clusters and aliases swapped.
    Returns ``migration_id``, the one it reverses, and ``migration`` for the operators of the migration back.

    :param migration_id: The migration to reverse; None for the newest finished one. (templated)
    :param topics: ``original``: the job reads its old topics again; ``as_mirrored``: copies that the mirror
        back makes of the topics it reads now. (templated)
    :param mirror_timeout_s: How long the mirror back may take to copy the records written so far. (templated)
    """

    template_fields: Sequence[str] = (
        *MigrationOperator.template_fields,
        *("migration_id", "topics", "mirror_timeout_s"),
    )

    def __init__(
        self,
        *,
        migration_id: str | None = None,
        topics: Topics = "original",
        mirror_timeout_s: float = 90.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.migration_id = migration_id
        self.topics = topics
        self.mirror_timeout_s = mirror_timeout_s

    def execute(self, context: Context) -> dict[str, Any]:
        """Prepare, show, and return the migration back."""
        from airflow_flinkstyle.jobs.migration.fail_back import begin_fail_back, fill_back, last_migration

        hook, form = self.hook, self.form()
        with airflow_errors():
            reversed_ = last_migration(
                hook.store, self.job, self.migration_id, signer=hook.signer, besides=run_key(context)
            )
            form = fill_back(form, reversed_)
            fail_back = begin_fail_back(
                hook.store,
                form,
                now=hook.kafka(form.source_kafka_conn_id or ""),
                then=hook.kafka(form.target_kafka_conn_id),
                migration_id=reversed_.migration_id,
                topics=self.topics,
                mirror_timeout_s=seconds("mirror_timeout_s", self.mirror_timeout_s),
                signer=hook.signer,
            )
        context["ti"].xcom_push(key="markdown", value=fail_back.as_markdown())
        self.log.info("Job %s may go back: %s", self.job, fail_back.as_markdown())
        answers = {**form.answers(), "rename": dict(fail_back.rename), "back": True}
        return {"migration_id": fail_back.migration_id, "migration": answers}
