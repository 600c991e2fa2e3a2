"""Errors of the Savepoints page."""

from __future__ import annotations

from airflow_flinkstyle.errors import FlinkstyleError


class StoreBusyError(FlinkstyleError):
    """The page has used up its budget of requests to the store, or waits for an answer."""

    code = "STORE_BUSY"
    retryable = True
