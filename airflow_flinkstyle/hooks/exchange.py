"""Savepoints that leave a savepoint root, through the connections of a hook."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import BadInputError

if TYPE_CHECKING:
    from airflow_flinkstyle.hooks.job import StreamingJobHook
    from airflow_flinkstyle.savepoint.exchange.export import Exported

_ARCHIVE = ".tar"


def export(hook: StreamingJobHook, job: str, savepoint_id: str, *, to: str) -> Exported:
    """Copy a savepoint out; raises as ``export_savepoint`` and ``export_archive`` do.

    Args:
        hook: On the savepoint's root; an S3 target is reached by the same settings.
        job: The job's name.
        savepoint_id: Which; ``latest`` for the newest one.
        to: A folder (path or ``s3://...``), or a local file whose name ends in ``.tar``.
    """
    from airflow_flinkstyle.savepoint.exchange.export import export_archive, export_savepoint
    from airflow_flinkstyle.storage.open import open_store

    if not to.strip():
        raise BadInputError(
            "A folder or a file for the export was expected, found none.",
            state_after="Nothing was exported.",
            remedy="Name a path, s3://bucket/prefix, or a file that ends in .tar.",
        )
    newest = hook.newest_savepoint(job) if savepoint_id == "latest" else None
    wanted = newest.savepoint_id if newest is not None else savepoint_id
    if to.endswith(_ARCHIVE):
        return export_archive(hook.repository(job), wanted, Path(to))
    return export_savepoint(hook.repository(job), wanted, open_store(to, hook.s3))
