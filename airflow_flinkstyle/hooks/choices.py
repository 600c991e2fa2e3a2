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
"""So many are offered, the newest first."""
_HEADS: Final = ("savepoint", "taken", "batches", "size", "kept because")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What is offered."""

    options: tuple[str, ...]
    """One line each, which begins with the id; the newest first."""
    table: str
    """The same with what is known of each, as markdown."""


def savepoint_choices(hook: StreamingJobHook, job: str) -> Choices:
    """Return the newest savepoints of a job.

    Raises:
        SavepointMissingError: If it has none.
    """
    repository = hook.repository(job)
    found = list_savepoints(repository)
    if not found:
        raise SavepointMissingError.of("to choose", job=job, uri=hook.store.uri, newest=[])
    plan = hook.prune_savepoints(job, RetentionPolicy(), by="a choice", dry_run=True, wait_s=0).plan
    reasons = {decision.savepoint_id: decision.reason for decision in plan.decisions}
    return _offered(found[:MOST], reasons, left_out=len(found) - MOST, now_s=time.time())


def _offered(found: Sequence[Summary], reasons: Mapping[str, str], *, left_out: int, now_s: float) -> Choices:
    options, rows = [], []
    for one in found:
        told = (
            f"{age(now_s - one.taken_at_ms / 1000)} ago",
            batch_words(one.batches),
            size(one.size_bytes),
        )
        options.append(f"{one.savepoint_id} ({', '.join(told)})")
        rows.append(row((one.savepoint_id, *told, reasons.get(one.savepoint_id, ""))))
    more = [f"\n{left_out} older ones are not shown."] if left_out > 0 else []
    return Choices(
        options=tuple(options),
        table="\n".join([row(_HEADS), "|---" * len(_HEADS) + "|", *rows, *more]),
    )
