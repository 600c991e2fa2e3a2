"""A migration by its journal alone: enough to bring it to rest, by whoever finds it unfinished."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.migration.approved import Approved
from airflow_flinkstyle.jobs.migration.cutover import PHASES, Cutover
from airflow_flinkstyle.jobs.running.recorded import recorded_launch

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.migration.approved import Migration
    from airflow_flinkstyle.jobs.migration.kafka_side import KafkaSide
    from airflow_flinkstyle.jobs.migration.producers import ProducerSwitch
    from airflow_flinkstyle.jobs.running.client import JobClient


def approved_of(client: JobClient, migration_id: str) -> Approved:
    """Return what was approved of a migration that has begun.

    Raises:
        BadInputError: If nothing was stored: a program moves the job by itself, without the operators.
        SignatureError: If no caller with the key has stored it.
    """
    job = client.board.job
    journal = CutoverJournal(client.board.store, job, migration_id, PHASES, signer=client.signer)
    fields = journal.approved()
    if fields is None:
        raise BadInputError(
            f"What was approved of migration {migration_id} of job {job} was expected in its journal, found "
            "nothing.",
            state_after="Nothing was changed.",
            remedy="Let the program that began it go on, or settle it.",
        )
    return Approved.from_fields(fields)


def resumed(
    client: JobClient, moving: Migration, migration_id: str, *, kafka: KafkaSide, switch: ProducerSwitch
) -> Cutover:
    """Return the migration, to be settled; to run its window it needs what the next driver is started by.

    Args:
        client: Of the job.
        moving: What was approved.
        migration_id: Names its journal.
        kafka: Both clusters.
        switch: As this migration calls its positions.
    """
    journal = CutoverJournal(client.board.store, client.board.job, migration_id, PHASES, signer=client.signer)
    spec, target = recorded_launch(client)
    return Cutover(
        client=client,
        journal=journal,
        switch=switch,
        kafka=kafka,
        spec=spec,
        target=target,
        settings=moving.settings,
        group=moving.group,
    )
