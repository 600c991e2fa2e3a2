"""Copy a savepoint out of its root, with everything it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.operators.base import StreamingJobOperator, airflow_errors
from airflow_flinkstyle.wording import size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context


class ExportSavepointOperator(StreamingJobOperator):
    """Write a savepoint to an empty folder, from which ``flinkstyle savepoint import`` brings it back.

    A repeated call writes only what is missing. An S3 folder is reached as the savepoint root is.
    Returns ``{"uri": ..., "files": ..., "size_bytes": ...}``.

    :param to: The folder: an absolute path on the worker, or ``s3://bucket/prefix``. (templated)
    :param savepoint_id: Which; ``latest`` is the newest one. (templated)
    """

    template_fields: Sequence[str] = (*StreamingJobOperator.template_fields, "to", "savepoint_id")

    def __init__(self, *, to: str, savepoint_id: str = "latest", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.to = to
        self.savepoint_id = savepoint_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Export it."""
        from airflow_flinkstyle.savepoint.exchange.export import export_savepoint
        from airflow_flinkstyle.storage.open import open_store

        with airflow_errors():
            hook = self.hook
            newest = hook.newest_savepoint(self.job) if self.savepoint_id == "latest" else None
            wanted = newest.savepoint_id if newest is not None else self.savepoint_id
            self.show_savepoint(context, wanted)
            done = export_savepoint(hook.repository(self.job), wanted, open_store(self.to, hook.s3))
        files = done.files_written + done.files_kept
        self.log.info("Savepoint %s is in %s: %d files, %s", wanted, done.uri, files, size(done.size_bytes))
        return {"uri": done.uri, "files": files, "size_bytes": done.size_bytes}
