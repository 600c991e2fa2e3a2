"""Ask a person for approval before a migration's window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator

from airflow_flinkstyle.hooks.failures import airflow_errors
from airflow_flinkstyle.hooks.keys import run_key
from airflow_flinkstyle.operators.asking import AskingOperator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context


class ApproveMigrationOperator(AskingOperator, ApprovalOperator):
    """Show ``subject`` and ``body``, and wait until a person approves or rejects.

    The migration's journal and report hold who did, and when.

    :param job: Name of the job; None keeps no record. (templated)
    :param flinkstyle_conn_id: Connection with the savepoint root. (templated)
    """

    template_fields: Sequence[str] = (*AskingOperator.template_fields, "job", "flinkstyle_conn_id")

    def __init__(
        self, *, job: str | None = None, flinkstyle_conn_id: str = "flinkstyle_default", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.job = job
        self.flinkstyle_conn_id = flinkstyle_conn_id

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:  # noqa: ANN401 - as its base
        """Record who answered, then let the migration continue, or skip it."""
        if self.job is not None and "error" not in event:
            self._keep(self.job, context, event)
        return super().execute_complete(context, event)

    def _keep(self, job: str, context: Context, event: dict[str, Any]) -> None:
        from airflow_flinkstyle.hooks.approval import decide
        from airflow_flinkstyle.hooks.job import StreamingJobHook

        (choice,) = event["chosen_options"]
        user = event.get("responded_by_user") or {}
        who = {
            "by": user.get("name") or user.get("id") or "nobody: the time to answer was over",
            "at": event["responded_at"].isoformat(),
            "choice": choice,
        }
        with airflow_errors():
            decide(
                StreamingJobHook(self.flinkstyle_conn_id),
                job,
                run_key(context),
                who,
                approved=choice == self.APPROVE,
            )
        self.log.info("%s by %s", choice, who["by"])
