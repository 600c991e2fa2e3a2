"""Airflow's assets of a job: its new savepoints, drilled restores, finished migrations.

A DAG scheduled on ``savepoint_asset("orders")`` runs on each new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Context

_DEFAULT = "flinkstyle_default"
SAVEPOINTS = AssetAlias("flinkstyle-savepoints")
"""Outlet of every operator that makes savepoints: the asset is known only once its job is rendered."""
DRILLS = AssetAlias("flinkstyle-drills")
"""Outlet of the operator that drills restores."""
MIGRATIONS = AssetAlias("flinkstyle-migrations")
"""Outlet of the operator that moves jobs."""


def savepoint_asset(job: str, flinkstyle_conn_id: str = _DEFAULT) -> Asset:
    """Return the asset of the savepoints of a job under a connection's root."""
    return _asset(job, flinkstyle_conn_id)


def drill_asset(job: str, flinkstyle_conn_id: str = _DEFAULT) -> Asset:
    """Return the asset of a job's drilled restores; an event's ``extra`` has its time and size."""
    return _asset(job, flinkstyle_conn_id, "/drilled")


def migration_asset(job: str, flinkstyle_conn_id: str = _DEFAULT) -> Asset:
    """Return the asset of a job's finished migrations; an event's ``extra`` names both clusters."""
    return _asset(job, flinkstyle_conn_id, "/migrated")


def _asset(job: str, conn_id: str, what: str = "") -> Asset:
    return Asset(name=f"{conn_id}/{job}{what}", uri=f"flinkstyle://{conn_id}/{job}{what}")


def emit(context: Context, alias: AssetAlias, asset: Asset, extra: Mapping[str, Any]) -> None:
    """Add an event that the task's success publishes."""
    context["outlet_events"][alias].add(asset, extra=dict(extra))
