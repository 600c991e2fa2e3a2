"""Airflow's plugin entry point; light, because every component of Airflow imports it."""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from airflow_flinkstyle.links.driver import LINKS
from airflow_flinkstyle.links.savepoint import SavepointLink
from airflow_flinkstyle.plugin.lazy_app import LazyApp

PREFIX = "/flinkstyle"


class FlinkstylePlugin(AirflowPlugin):
    """Registers the extra links, so that the UI shows them for serialised DAGs, and the Savepoints page."""

    name = "flinkstyle"
    operator_extra_links: list[Any] = [SavepointLink(), *LINKS]  # noqa: RUF012 - Airflow's signature
    fastapi_apps: list[Any] = [  # noqa: RUF012 - Airflow's signature
        {
            "name": "Flinkstyle",
            "app": LazyApp("airflow_flinkstyle.plugin.api", "make_app"),
            "url_prefix": PREFIX,
        }
    ]
    react_apps: list[Any] = [  # noqa: RUF012 - Airflow's signature
        {
            "name": "Savepoints",
            "bundle_url": f"{PREFIX.removeprefix('/')}/static/main.js",  # below Airflow's own address
            "destination": "nav",
            "url_route": "savepoints",
            "nav_top_level": True,
        }
    ]
