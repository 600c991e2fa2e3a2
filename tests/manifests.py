"""Manifests for tests that only care for what the queries read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.savepoint.manifest import Manifest

if TYPE_CHECKING:
    from airflow_flinkstyle.savepoint.manifest import QuerySnapshot


def a_manifest(*queries: QuerySnapshot) -> Manifest:
    """Return savepoint ``sp-1`` of job ``shop`` with these queries."""
    return Manifest(
        savepoint_id="sp-1",
        job="shop",
        parent=None,
        alignment="none",
        taken_at_ms=1,
        taken_from_generation=1,
        spark_version="4.2.0",
        evidence={},
        queries=queries,
    )
