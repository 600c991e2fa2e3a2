"""Ask a person for approval before a migration's window."""

from __future__ import annotations

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.definitions.param import ParamsDict


class ApproveMigrationOperator(ApprovalOperator):
    """Show ``subject`` and ``body``, and wait until a person approves or rejects.

    It asks for no values. Airflow 3.1 alone would show the DAG's own form again, and fails to parse a DAG
    whose form has a required field.
    """

    def validate_params(self) -> None:
        """Leave out the fields of the DAG's form."""
        self.params = ParamsDict()
        super().validate_params()
