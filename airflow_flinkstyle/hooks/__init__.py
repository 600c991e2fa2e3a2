"""Airflow connections, turned into the plain values the library works with."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_flinkstyle.hooks.job import StreamingJobHook as StreamingJobHook


def __getattr__(name: str) -> object:
    """Import the hook when it is first asked for, so that parsing a DAG stays cheap."""
    if name != "StreamingJobHook":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module("airflow_flinkstyle.hooks.job"), name)
    return found
