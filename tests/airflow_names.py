"""What tests name of Airflow and its versions have at different places."""

from __future__ import annotations

try:
    from airflow.sdk.exceptions import ParamValidationError, TaskDeferred
except ImportError:  # Airflow 3.1
    from airflow.exceptions import ParamValidationError, TaskDeferred

__all__ = ["ParamValidationError", "TaskDeferred"]
