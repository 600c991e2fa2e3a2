"""Airflow's plugin entry point; light, because every component of Airflow imports it."""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from airflow_flinkstyle.links.savepoint import SavepointLink


class FlinkstylePlugin(AirflowPlugin):
    """Registers the extra link, so that the UI shows it for serialised DAGs."""

    name = "flinkstyle"
    operator_extra_links: list[Any] = [SavepointLink()]  # noqa: RUF012 - Airflow's signature
