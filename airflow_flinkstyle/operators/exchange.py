"""Copy savepoints out of a savepoint root."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.operators.base import StreamingJobOperator, airflow_errors
from airflow_flinkstyle.wording import size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context


class ExportSavepointOperator(StreamingJobOperator):
    """Copy a savepoint out, with everything it needs; a retry writes only what is missing.

    Returns ``{"savepoint_id": ..., "uri": ..., "files_written": ..., "files_kept": ..., "size_bytes": ...}``.

    :param savepoint_id: Which; ``latest`` is the newest one. (templated)
    :param to: A folder (path or ``s3://...``), or a local file whose name ends in ``.tar``; paths are of the
        worker that runs the task, an S3 store is reached as the savepoint root is. (templated)
    """

    template_fields: Sequence[str] = (*StreamingJobOperator.template_fields, "savepoint_id", "to")

    def __init__(self, *, to: str, savepoint_id: str = "latest", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.to = to
        self.savepoint_id = savepoint_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Copy the savepoint."""
        from airflow_flinkstyle.hooks.exchange import export

        with airflow_errors():
            done = export(self.hook, self.job, self.savepoint_id, to=self.to)
            self.show_savepoint(context, done.savepoint_id)
        self.log.info(
            "Savepoint %s is in %s: %d files written, %d kept, %s",
            *(done.savepoint_id, done.uri, done.files_written, done.files_kept, size(done.size_bytes)),
        )
        return {
            "savepoint_id": done.savepoint_id,
            "uri": done.uri,
            "files_written": done.files_written,
            "files_kept": done.files_kept,
            "size_bytes": done.size_bytes,
        }
