"""What the phases of a migration's window do once the new driver may take over: complete it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.cutover.downtime import batch_ms
from airflow_flinkstyle.jobs.errors import StepTimeoutError
from airflow_flinkstyle.jobs.migration import fence_phase
from airflow_flinkstyle.jobs.status import Dead, describe_status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_flinkstyle.jobs.migration.context import MigrationContext
    from airflow_flinkstyle.savepoint.manifest import Manifest

log = logging.getLogger(__name__)


def release(context: MigrationContext) -> None:
    """Release the producers to the new cluster, where the job has taken over; once."""
    context.phase("release", {"position": "release_new"}, lambda: _release_new(context))


def _release_new(context: MigrationContext) -> Mapping[str, Any]:
    """Release the producers to the new cluster; records left behind on the old one are named, never lost."""
    written = warned(lambda: fence_phase.late_writes(context.journal, context.kafka.watch))
    context.hold.release("release_new")
    return {"position": "release_new", "late_writes": written}


def complete_cutover(context: MigrationContext, rewritten: Manifest) -> Mapping[str, Any]:
    """Wait for the first batch, look back once more, and commit for the group whose lag is watched."""
    group = context.group
    return {
        **_first_commit(context, rewritten),
        "late_writes": warned(lambda: fence_phase.late_writes(context.journal, context.kafka.watch)),
        "group": warned(lambda: context.kafka.commit_for(group, rewritten)) if group else None,
    }


def warned(look: Callable[[], str | None]) -> str | None:
    """Return what a look says, or why it could not look: the job has moved, nothing may fail it now."""
    try:
        return look()
    except FlinkstyleError as error:
        log.warning("The migration is done, but: %s", error)
        return f"WARNING: {error}"


def _first_commit(context: MigrationContext, rewritten: Manifest) -> Mapping[str, Any]:
    """Wait for a batch beyond the savepoint's, or for proof that there is nothing to read.

    Returns:
        ``first_commit_at_ms``, epoch milliseconds, None for nothing to read; ``first_batch_ms``, what the
        batch consisted of, as far as Spark has told.
    """
    client, new = context.client, context.generation("new")
    before = {query.name: query.batch_id for query in rewritten.queries}
    timeout_s = context.settings.first_commit_timeout_s
    wait = client.waiting(timeout_s)
    while True:
        status = client.ensure_running()
        slot = client.board.heartbeat(new)
        commits = [
            beat.batch_committed_at_ms
            for name, beat in (slot.value.queries if slot else {}).items()
            if beat.batch_id is not None and beat.batch_id > before.get(name, -1)
        ]
        # A driver that was started again names a batch that the one before it committed, at no time it knows.
        if told_ms := [at for at in commits if at is not None]:
            first_ms = min(told_ms)
            told = batch_ms(slot.value, before) if slot else {}
            return {"first_commit_at_ms": first_ms, "first_batch_ms": told}
        if wait.again():
            continue
        if not isinstance(status, Dead):
            if context.kafka.unread(rewritten) == 0:
                return {"first_commit_at_ms": None, "first_batch_ms": {}}
            raise StepTimeoutError(
                f"Generation {new} was expected to commit a batch on the new cluster within "
                f"{timeout_s:g} s, found that {describe_status(status)}.",
                state_after="The job has moved: it runs on the new cluster and producers write there.",
                remedy="Look at the driver's log; correct it there (UpgradeStreamingJobOperator).",
            )
        client.clock.sleep(client.poll_s)  # it is being started again
