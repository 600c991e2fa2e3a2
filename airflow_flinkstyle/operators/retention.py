"""Look after the savepoints a job has: check them, prune them by policy, dispose of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.jobs.answers.values import is_true, number_or_none, one_of, seconds_or_none
from airflow_flinkstyle.operators.base import StreamingJobOperator, airflow_errors, request_key
from airflow_flinkstyle.wording import size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context


class VerifySavepointOperator(StreamingJobOperator):
    """Check that a savepoint is whole, and record it; retention keeps the newest verified one.

    Returns ``{"savepoint_id": ..., "level": ..., "files": ..., "size_bytes": ...}``; a savepoint that is
    not whole fails the task, each bad file named.

    :param savepoint_id: Which; ``latest`` is the newest one. (templated)
    :param level: ``quick`` checks every file's presence and size and the logs' content; ``full`` reads
        every byte. (templated)
    """

    template_fields: Sequence[str] = (*StreamingJobOperator.template_fields, "savepoint_id", "level")

    def __init__(self, *, savepoint_id: str = "latest", level: str = "quick", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.savepoint_id = savepoint_id
        self.level = level

    def execute(self, context: Context) -> dict[str, Any]:
        """Check the savepoint."""
        from airflow_flinkstyle.savepoint.files.verify import LEVELS

        with airflow_errors():
            level = one_of("level", self.level, LEVELS)
            verified = self.hook.verify_savepoint(
                self.job, self.savepoint_id, level=level, by=request_key(context)
            )
            self.show_savepoint(context, verified.savepoint_id)
        self.log.info(
            "Savepoint %s is whole (%s): %d files, %s",
            *(verified.savepoint_id, verified.level, verified.files, size(verified.size_bytes)),
        )
        return {
            "savepoint_id": verified.savepoint_id,
            "level": verified.level,
            "files": verified.files,
            "size_bytes": verified.size_bytes,
        }


class PruneSavepointsOperator(StreamingJobOperator):
    """Dispose of old savepoints, and free the files that no other one needs.

    Kept despite the limits: pinned ones, those a run or an open migration needs, the newest complete one,
    and the newest complete and verified one. The log has a row with the reason for every savepoint.

    Checkpoints of earlier generations go too, once a later one has committed and a savepoint of it was
    verified.

    Returns ``{"kept": [...], "disposed": [...], "freed_blobs": ..., "freed_bytes": ..., "noncurrent_bytes":
    ..., "freed_checkpoints": [...], "dry_run": ...}``: in a bucket with versioning all deleted bytes stay as
    noncurrent versions.

    :param max_count: Complete savepoints to keep; None or empty for any number. (templated)
    :param max_age_s: How old one may be, in seconds or like ``7d``; None or empty for any age. (templated)
    :param dry_run: Only list what would be done. (templated)
    :param wait_s: How long to wait for takes, restores and exports to end.
    """

    template_fields: Sequence[str] = (
        *StreamingJobOperator.template_fields,
        *("max_count", "max_age_s", "only_plan"),
    )

    def __init__(
        self,
        *,
        max_count: int | str | None = None,
        max_age_s: float | str | None = None,
        dry_run: bool | str = False,
        wait_s: float = 300.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.max_count = max_count
        self.max_age_s = max_age_s
        self.only_plan = dry_run  # BaseOperator has a method of the parameter's name
        self.wait_s = wait_s

    def execute(self, context: Context) -> dict[str, Any]:
        """Prune, and log why each savepoint was kept or not."""
        from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy

        with airflow_errors():
            policy = RetentionPolicy(
                max_count=number_or_none("max_count", self.max_count),
                max_age_s=seconds_or_none("max_age_s", self.max_age_s),
            )
            report = self.hook.prune_savepoints(
                self.job,
                policy,
                by=request_key(context),
                dry_run=is_true("dry_run", self.only_plan),
                wait_s=self.wait_s,
            )
        self.log.info("Savepoints of job %s:\n%s", self.job, report.as_markdown())
        disposed = report.plan.disposed
        return {
            "kept": [d.savepoint_id for d in report.plan.decisions if d.savepoint_id not in disposed],
            "disposed": list(disposed),
            "freed_blobs": report.freed_blobs,
            "freed_bytes": report.freed_bytes,
            "noncurrent_bytes": report.noncurrent_bytes,
            "freed_checkpoints": [checkpoint.location for checkpoint in report.freed_checkpoints],
            "dry_run": report.dry_run,
        }


class DisposeSavepointOperator(StreamingJobOperator):
    """Dispose of one savepoint, and free the files that only it needs.

    Refused for one that is pinned, in use, or the last good one.

    Returns ``{"savepoint_id": ..., "freed_blobs": ..., "freed_bytes": ..., "noncurrent_bytes": ...}``.

    :param savepoint_id: Which. (templated)
    :param despite: Protections to override: ``pinned``, ``in_use``, ``last_good``. (templated)
    :param wait_s: How long to wait for takes, restores and exports to end.
    """

    template_fields: Sequence[str] = (*StreamingJobOperator.template_fields, "savepoint_id", "despite")

    def __init__(
        self,
        *,
        savepoint_id: str,
        despite: Sequence[str] | None = (),
        wait_s: float = 300.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.savepoint_id = savepoint_id
        self.despite = despite
        self.wait_s = wait_s

    def execute(self, context: Context) -> dict[str, Any]:
        """Dispose of the savepoint."""
        from airflow_flinkstyle.savepoint.retention.dispose import PROTECTIONS

        with airflow_errors():
            disposed = self.hook.dispose_savepoint(
                self.job,
                self.savepoint_id,
                by=request_key(context),
                despite=[one_of("despite", name, PROTECTIONS) for name in self.despite or ()],
                wait_s=self.wait_s,
            )
        self.log.info(
            "Savepoint %s is gone: %d blobs, %s freed",
            *(disposed.savepoint_id, disposed.freed_blobs, size(disposed.freed_bytes)),
        )
        return {
            "savepoint_id": disposed.savepoint_id,
            "freed_blobs": disposed.freed_blobs,
            "freed_bytes": disposed.freed_bytes,
            "noncurrent_bytes": disposed.noncurrent_bytes,
        }
