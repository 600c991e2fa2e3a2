"""Errors of the Savepoints page."""

from __future__ import annotations

from airflow_flinkstyle.errors import FlinkstyleError


class StoreBusyError(FlinkstyleError):
    """The page has asked the store as often as it may, or waits for it."""

    code = "STORE_BUSY"
    retryable = True
