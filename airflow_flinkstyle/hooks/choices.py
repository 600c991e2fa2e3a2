"""The savepoints that a person may choose from, as they are now."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.savepoint.errors import SavepointMissingError
from airflow_flinkstyle.savepoint.repository.summary import list_savepoints
from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy
from airflow_flinkstyle.wording import age, batch_words, row, size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_flinkstyle.hooks.job import StreamingJobHook
    from airflow_flinkstyle.savepoint.repository.summary import Summary

MOST: Final = 50
"""How many are offered, the newest first."""
_HEADS: Final = ("savepoint", "taken", "batches", "size", "kept because")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What is offered."""

    options: tuple[str, ...]
    """One line each, which begins with the id; the newest first."""
    table: str
    """The same with details of each, as markdown."""


def savepoint_choices(hook: StreamingJobHook, job: str) -> Choices:
    """Return the newest savepoints of a job.

    Raises:
        SavepointMissingError: If it has none.
    """
    repository = hook.repository(job)
    savepoints = list_savepoints(repository)
    if not savepoints:
        raise SavepointMissingError.of("to choose", job=job, uri=hook.store.uri, newest=[])
    plan = hook.prune_savepoints(job, RetentionPolicy(), by="a choice", dry_run=True, wait_s=0).plan
    reasons = {decision.savepoint_id: decision.reason for decision in plan.decisions}
    return _offered(savepoints[:MOST], reasons, omitted=len(savepoints) - MOST, now_s=time.time())


def _offered(newest: Sequence[Summary], reasons: Mapping[str, str], *, omitted: int, now_s: float) -> Choices:
    options, rows = [], []
    for savepoint in newest:
        details = (
            f"{age(now_s - savepoint.taken_at_ms / 1000)} ago",
            batch_words(savepoint.batches),
            size(savepoint.size_bytes),
        )
        options.append(f"{savepoint.savepoint_id} ({', '.join(details)})")
        rows.append(row((savepoint.savepoint_id, *details, reasons.get(savepoint.savepoint_id, ""))))
    more = [f"\n{omitted} older ones are not shown."] if omitted > 0 else []
    return Choices(
        options=tuple(options),
        table="\n".join([row(_HEADS), "|---" * len(_HEADS) + "|", *rows, *more]),
    )
