"""What a job keeps and why, counted once for all viewers."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.jobs.usage import usage_of
from airflow_flinkstyle.storage.meter import MeteredStore
from airflow_flinkstyle.storage.open import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_flinkstyle.plugin.roots import OpenRoot
    from airflow_flinkstyle.plugin.views.job_reader import JobReader
    from airflow_flinkstyle.storage.base import ObjectStore

FRESH_S = 600.0
"""How long an answer is used: to count reads every manifest."""
MOST_FILES = 200_000
"""With more files in its savepoints, however many share them, a job is not counted here."""


def kept(root: OpenRoot, reader: JobReader, listed: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what ``flinkstyle store usage`` shows, without the places of checkpoints.

    Args:
        root: Where the job is.
        reader: Reads the job.
        listed: Its savepoints as ``answers.Savepoint``.
    """
    files = sum(one["files"] for one in listed)
    if files > MOST_FILES:
        why = f"Its savepoints have {files} files together; here {MOST_FILES} are counted at most."
        return {"read_at_ms": now_ms(), "not_counted": f"{why} Run: flinkstyle store usage", "found": None}
    s3 = root.hook().s3

    def opened(location: str) -> ObjectStore:
        metered: Any = MeteredStore(open_store(location, s3), root.watch.views)
        return metered  # type: ignore[no-any-return]

    usage = usage_of(reader.board, reader.repository, open_checkpoint=opened)
    found = {**asdict(usage), "total_bytes": usage.total_bytes}
    for one in found["checkpoints"]:
        del one["location"]
    return {"read_at_ms": now_ms(), "not_counted": None, "found": found}
