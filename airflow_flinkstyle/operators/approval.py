"""Ask a person for approval before a migration's window."""

from __future__ import annotations

from airflow.providers.standard.operators.hitl import ApprovalOperator

from airflow_flinkstyle.operators.asking import AskingOperator


class ApproveMigrationOperator(AskingOperator, ApprovalOperator):
    """Show ``subject`` and ``body``, and wait until a person approves or rejects."""
