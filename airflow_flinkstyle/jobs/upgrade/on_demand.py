"""Bring a running job back on demand, by an upgrade to what ran before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.running.start_plan import FromSavepoint
from airflow_flinkstyle.jobs.upgrade import rollback_targets
from airflow_flinkstyle.jobs.upgrade.upgrade import Upgrade
from airflow_flinkstyle.types import Generation

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.cutover.context import CutoverSettings
    from airflow_flinkstyle.jobs.journal import CutoverJournal
    from airflow_flinkstyle.jobs.running.client import JobClient
    from airflow_flinkstyle.jobs.upgrade.context import Standby
    from airflow_flinkstyle.jobs.upgrade.report import UpgradeReport
    from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
    from airflow_flinkstyle.types import Rewind


def roll_back_to(
    client: JobClient,
    journal: CutoverJournal,
    *,
    savepoint_id: str | None,
    rewind: Rewind,
    skip_known_batches: bool,
    standby: Standby,
    rehearse: Rehearse | None,
    settings: CutoverSettings,
) -> UpgradeReport:
    """Let the version before continue where the job is, or the one of a savepoint from there.

    Args:
        client: The job; it must run.
        journal: Made with ``UPGRADE_PHASES``; a retry continues it.
        savepoint_id: Where to go back to; None: to the version before, from where the job is.
        rewind: With a savepoint: what becomes of the batches that were committed since.
        skip_known_batches: Accept that a sink or a function leaves out batch ids that it has seen.
        standby: As for an upgrade.
        rehearse: As for an upgrade.
        settings: How long each part may take.

    Raises:
        BadInputError: If a choice is missing, or made where there is none.
        JobNotRunningError: If no other version ran before.
        FlinkstyleError: As ``Upgrade.run``.
    """
    if savepoint_id is None and rewind != "continue":
        raise BadInputError(
            f"A rewind was expected with a savepoint only, found rewind={rewind!r} without one.",
            state_after="Nothing was stopped.",
            remedy="Name a savepoint, or leave rewind out to continue where the job is.",
        )
    noted = journal.approve({"generation": _whose(client, savepoint_id)}) if not journal.approved() else {}
    chosen = Generation((journal.approved() or noted)["generation"])  # a retry finds another version running
    spec, target = client.launch_of(chosen)
    back_to = None
    if savepoint_id is not None:
        back_to = FromSavepoint(
            savepoint_id=savepoint_id, rewind=rewind, skip_known_batches=skip_known_batches
        )
    return Upgrade(
        client=client,
        journal=journal,
        spec=spec,
        target=target,
        standby=standby,
        rehearse=rehearse if standby == "warm" else None,
        settings=settings,
        back_to=back_to,
    ).run()


def _whose(client: JobClient, savepoint_id: str | None) -> Generation:
    if savepoint_id is None:
        return rollback_targets.previous(client).generation
    return rollback_targets.require_savepoint(client, savepoint_id)
