"""Savepoints for PySpark Structured Streaming jobs, as Airflow citizens."""

from __future__ import annotations

__version__ = "0.1.0"
