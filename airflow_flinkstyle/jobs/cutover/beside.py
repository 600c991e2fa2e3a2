"""Whether another migration or upgrade moves the same run of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.errors import MigrationBusyError
from airflow_flinkstyle.jobs.journal import read_unrested

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.cutover.context import CutoverContext
    from airflow_flinkstyle.types import Generation

_CLAIMED = ("next", "new", "rollback", "return")


def refuse_another(context: CutoverContext, old: Generation) -> None:
    """Refuse while another cutover moves the same run, or brought it here, and is not at rest.

    Raises:
        MigrationBusyError: Naming it.
    """
    board, client = context.client.board, context.client
    journals = read_unrested(board.store, board.job)
    for migration_id in journals.keys() - {context.journal.migration_id, context.part_of}:
        begun = {record.phase: record for record in journals[migration_id]}
        made = {client.own_claim(f"{migration_id}/{which}") for which in _CLAIMED}
        if old in made | {begun["standby"].intent.get("old")}:
            raise MigrationBusyError(
                f"Generation {old} of job {board.job} was expected to be in no migration, found "
                f"migration or upgrade {migration_id} under way.",
                state_after="This one changed nothing; the other one continues.",
                remedy="Wait until the other one's last task has settled it; if nobody works on it any more, "
                "settle it (flinkstyle migration settle). If it was this task with other answers, give it "
                "those and clear it.",
            )
