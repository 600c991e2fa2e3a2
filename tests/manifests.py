"""Manifests for tests that only care for what the queries read, and those of a repository."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.savepoint.manifest import Manifest
from airflow_flinkstyle.savepoint.sequence import cut_of, in_order

if TYPE_CHECKING:
    from airflow_flinkstyle.savepoint.manifest import QuerySnapshot
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository


def a_manifest(*queries: QuerySnapshot) -> Manifest:
    """Return savepoint ``sp-1`` of job ``shop`` with these queries."""
    return Manifest(
        savepoint_id="sp-1",
        job="shop",
        parent=None,
        alignment="none",
        taken_at_ms=1,
        taken_from_generation=1,
        batches_run=1,
        spark_version="4.2.0",
        evidence={},
        queries=queries,
    )


def manifests_of(repository: SavepointRepository) -> tuple[Manifest, ...]:
    """Return all savepoints of a job that never ran, the newest first."""
    return in_order(repository.each(), cut_of, None).on_line
