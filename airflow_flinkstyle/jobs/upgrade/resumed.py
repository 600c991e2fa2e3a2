"""An upgrade by its journal alone: enough to bring it to rest, by whoever finds it unfinished."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.running.recorded import recorded_launch
from airflow_flinkstyle.jobs.running.start_plan import FromSavepoint
from airflow_flinkstyle.jobs.upgrade.upgrade import UPGRADE_PHASES, Upgrade

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.running.client import JobClient


def resumed(client: JobClient, migration_id: str) -> Upgrade:
    """Return the upgrade, to be settled.

    What its task was told and no record has (how to go back from a version that has committed, how long to
    observe it) is left to a person.
    """
    journal = CutoverJournal(
        client.board.store, client.board.job, migration_id, UPGRADE_PHASES, signer=client.signer
    )
    new = client.own_claim(f"{migration_id}/{Upgrade.NEXT}")
    spec, target = client.launch_of(new) if new is not None else recorded_launch(client)
    order = client.board.takeover_order(new) if new is not None else None
    stopped = (journal.result("stop") or {}).get("savepoint_id")
    elsewhere = order is not None and order.savepoint_id is not None and order.savepoint_id != stopped
    back_to = (
        FromSavepoint(savepoint_id=order.savepoint_id, rewind=order.rewind)
        if elsewhere and order is not None and order.savepoint_id is not None
        else None
    )
    return Upgrade(client=client, journal=journal, spec=spec, target=target, back_to=back_to)
