"""Savepoints as Airflow assets: a DAG scheduled on ``savepoint_asset("orders")`` runs on each new one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import Asset, AssetAlias

if TYPE_CHECKING:
    from airflow.sdk import Context

SAVEPOINTS = AssetAlias("flinkstyle-savepoints")
"""Outlet of every operator that makes savepoints: the asset is known only once its job is rendered."""


def savepoint_asset(job: str, flinkstyle_conn_id: str = "flinkstyle_default") -> Asset:
    """Return the asset of the savepoints of a job under a connection's root."""
    return Asset(name=f"{flinkstyle_conn_id}/{job}", uri=f"flinkstyle://{flinkstyle_conn_id}/{job}")


def emit_savepoint(context: Context, job: str, flinkstyle_conn_id: str, savepoint_id: str) -> None:
    """Add an event that the task's success publishes; ``extra`` has ``job`` and ``savepoint_id``."""
    asset = savepoint_asset(job, flinkstyle_conn_id)
    extra = {"job": job, "savepoint_id": savepoint_id}
    context["outlet_events"][SAVEPOINTS].add(asset, extra=dict(extra))
