"""Who runs the job if a cutover goes back before the new driver has taken over.

The rollback's driver and the new one both follow the old generation, after it has closed. The first to take
``current.json`` over runs, the other exits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.errors import STEP_TIMEOUT
from airflow_flinkstyle.jobs.request_slot import Ended, TooLate, newest_attempt
from airflow_flinkstyle.jobs.status import Starting

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.cutover.context import CutoverContext
    from airflow_flinkstyle.types import Generation


def winner(context: CutoverContext) -> tuple[Generation, Generation | None]:
    """Let the job run where it ran before, unless the new driver has taken over; a retry continues it.

    A job that another request has stopped meanwhile stays stopped.

    Returns:
        Who runs, and the new generation if it was ever claimed.
    """
    client, new, current = context.client, context.new, context.client.view.board.current()
    if current is not None and current.value.generation == new:
        return current.value.generation, new
    # Not always the one that the journal names: another caller may have started the job between two attempts.
    old = current.value.head if current is not None else context.old()
    if was_stopped_by_another(context, old):
        if new is not None:
            client.drivers.dismiss(new)
        return old, new
    if old_has_closed(context, old):
        return _race(context, old, new), new
    if new is not None:
        client.drivers.dismiss(new)
    client.drivers.ensure_running(relaunch_failed=True)
    return old, new


def was_stopped_by_another(context: CutoverContext, generation: Generation) -> bool:
    """Return whether a request that is not the cutover's own has closed a run: a person meant that."""
    board = context.client.view.board
    slot = board.heartbeat(generation)
    if slot is None or slot.value.state != "closed" or slot.value.request_id is None:
        return False
    own = newest_attempt(
        board, context.stop_key, "stop_with_savepoint", generation, slot.value.incarnation, context.stop_mode
    )
    return slot.value.request_id != own.request_id


def old_has_closed(context: CutoverContext, old: Generation) -> bool:
    """Take the stop request back; if it was accepted before, wait until it ends, and return if it closed."""
    client = context.client
    wait = client.view.waiting(context.settings.stop_timeout_s)
    relaunch_failed = True
    while True:
        slot = client.view.board.heartbeat(old)
        if slot is None:
            return False
        if slot.value.state == "closed":
            return True
        pending = newest_attempt(
            client.view.board,
            context.stop_key,
            "stop_with_savepoint",
            old,
            slot.value.incarnation,
            context.stop_mode,
        )
        if not isinstance(client.requests.cancel(pending), TooLate):
            again = client.view.board.heartbeat(old)  # it may have closed by itself meanwhile
            return again is not None and again.value.state == "closed"
        state = client.requests.poll(pending)
        if isinstance(state, Ended) and state.outcome in ("done", "refused", "cancelled"):
            return state.outcome == "done"
        if isinstance(state, Ended) and slot.value.state == "running":
            return False  # the stop failed, and the queries have resumed
        status = client.drivers.ensure_running(relaunch_failed=relaunch_failed)
        relaunch_failed = not isinstance(status, Starting) and relaunch_failed
        if not wait.again():
            raise STEP_TIMEOUT.with_text(
                f"The old driver had accepted its stop and was expected to close within "
                f"{context.settings.stop_timeout_s:g} s.",
                state_after="The driver still drains, or starts again; producers that were held still are.",
                remedy="Clear this task: it continues the rollback.",
            )


def _race(context: CutoverContext, old: Generation, new: Generation | None) -> Generation:
    """Start the rollback, and wait for the driver that takes over."""
    client, key = context.client, f"{context.journal.migration_id}/rollback"
    if new is not None and client.view.board.takeover_order(new) is None:
        client.drivers.dismiss(new)
    back = client.starts.follow(old, claim_key=key).generation
    client.drivers.ensure_running(relaunch_failed=True)
    wait = client.view.waiting(context.settings.takeover_timeout_s)
    while True:
        current = client.view.board.current()
        if current is not None and current.value.generation != old:
            return current.value.generation
        client.drivers.ensure_running()
        if not wait.again():
            raise STEP_TIMEOUT.with_text(
                f"The rollback (generation {back}) was expected to take over within "
                f"{context.settings.takeover_timeout_s:g} s.",
                state_after="The job is stopped; producers that were held still are."
                + client.view.log_end(client.view.run(back)),
                remedy="Clear this task: it continues the rollback.",
            )
        context.journal.check()
