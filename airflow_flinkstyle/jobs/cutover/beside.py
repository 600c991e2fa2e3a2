"""Whether another migration or upgrade moves the same run of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.errors import MigrationBusyError
from airflow_flinkstyle.jobs.journal import read_phases

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.cutover.context import CutoverContext
    from airflow_flinkstyle.jobs.journal import PhaseRecord
    from airflow_flinkstyle.types import Generation

_CLAIMED = ("next", "new", "rollback")
_REST = ("release", "rollback", "verify")


def refuse_another(context: CutoverContext, old: Generation) -> None:
    """Refuse while another cutover moves the same run, or brought it here, and is not at rest.

    Raises:
        MigrationBusyError: Naming it.
    """
    board, client = context.client.board, context.client
    journals = read_phases(board.store, board.job, only=("standby", *_REST))
    for migration_id in journals.keys() - {context.journal.migration_id}:
        begun = {record.phase: record for record in journals[migration_id]}
        if "standby" not in begun or any(_rests(begun.get(name)) for name in _REST):
            continue
        made = {client.own_claim(f"{migration_id}/{which}") for which in _CLAIMED}
        if old in made | {begun["standby"].intent.get("old")}:
            raise MigrationBusyError(
                f"Generation {old} of job {board.job} was expected to be in no migration, found "
                f"migration or upgrade {migration_id} under way.",
                state_after="This one changed nothing; the other one continues.",
                remedy="Wait until the other one's last task has settled it, or clear that task.",
            )


def _rests(record: PhaseRecord | None) -> bool:
    """Return whether a phase has ended what it belongs to; a verification that failed has not."""
    return record is not None and record.result is not None and not record.result.get("failure")
