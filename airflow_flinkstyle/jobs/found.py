"""The jobs below a savepoint root."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.protocol.board import is_job_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_flinkstyle.storage.base import ObjectStore


def jobs_below(store: ObjectStore) -> Iterator[str]:
    """Yield the jobs of a store, in order; other folders there are none."""
    for name in store.folders():
        if is_job_name(name) and not {"runs", "savepoints"}.isdisjoint(store.folders(f"{name}/")):
            yield name
