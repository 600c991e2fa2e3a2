"""Sinks for PySpark's Structured Streaming that write each record once."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_flinkstyle.sinks.foreach_batch import TransactionalKafkaSink as TransactionalKafkaSink

MODULES = {"TransactionalKafkaSink": "foreach_batch"}


def __getattr__(name: str) -> object:
    """Import a sink's module when the sink is first asked for."""
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.{MODULES[name]}"), name)
    return found
