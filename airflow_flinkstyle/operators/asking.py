"""Base of the operators that ask a person."""

from __future__ import annotations

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk.definitions.param import ParamsDict


class AskingOperator(HITLOperator):
    """Asks a person to choose an option, and for no other input.

    Airflow 3.1 alone would show the DAG's own form again, and fails to parse a DAG whose form has a required
    field.
    """

    ui_color = "#e6ddf4"

    def validate_params(self) -> None:
        """Remove the fields of the DAG's form."""
        self.params = ParamsDict()
        super().validate_params()
