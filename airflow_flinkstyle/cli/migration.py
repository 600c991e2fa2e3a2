"""``flinkstyle migration list|settle|release``: migrations and upgrades that were left unfinished."""

from typing import Annotated, Literal

import typer

from airflow_flinkstyle.cli.factories import client_of, require_job
from airflow_flinkstyle.cli.kafka.options import (
    SourceConfig,
    SourceConn,
    TargetConfig,
    TargetConn,
    one_cluster,
)
from airflow_flinkstyle.cli.options import AsJson, Job, Root, Yes
from airflow_flinkstyle.cli.output import confirm, moment, note, show, table
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.client import JobClient
from airflow_flinkstyle.jobs.migration.cutover import Cutover, approved_of, resumed
from airflow_flinkstyle.jobs.migration.producers import SwappedSwitch, simple_switch
from airflow_flinkstyle.jobs.unsettled import Unsettled, find_unsettled
from airflow_flinkstyle.jobs.unsettled import release as release_producers
from airflow_flinkstyle.jobs.unsettled import settle as settle_one
from airflow_flinkstyle.jobs.view import JobView
from airflow_flinkstyle.kafka.settings import KafkaCluster

MigrationId = Annotated[
    str | None,
    typer.Argument(help="Which migration or upgrade; see migration list.", show_default="the one there is"),
]


def list_unsettled(root: Root, job: Job, as_json: AsJson = False) -> None:
    """List the unfinished migrations and upgrades of a job, and who works on them."""
    require_job(root, job)
    found = find_unsettled(client_of(root, job).view.board)
    document = {"unsettled": [_document(one) for one in found]}
    rows = [
        (one.migration_id, one.work.cutover, one.phases[-1], moment(one.begun_at_ms), _worker(one))
        for one in found
    ]
    text = table("id", "what", "phase", "begun", "worked on by", rows=rows) if rows else "None is unfinished."
    show(document, text, as_json=as_json)


def settle(
    root: Root,
    job: Job,
    migration_id: MigrationId = None,
    now: Annotated[
        bool,
        typer.Option("--now", help="Do not wait to see whether a process still works on it."),
    ] = False,
    source_config: SourceConfig = None,
    source_conn_id: SourceConn = None,
    target_config: TargetConfig = None,
    target_conn_id: TargetConn = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Finish or undo a migration or an upgrade that no process works on any more, from its journal.

    If the next driver has the job, it is finished; else the job goes back to where it ran. Producers are
    released to the same side. Where a cluster of a migration asks for a login, name it.
    """
    client = client_of(root, job)
    found = _the_one(client.view, migration_id)
    confirm(f"Settle {found} of job {job}?", yes=yes)
    if not as_json:
        note(f"Settling {found}." if now else f"Watching {found} for {found.work.lease_s:g} s first.")
    source = one_cluster(source_config, source_conn_id, "source")
    target = one_cluster(target_config, target_conn_id, "target")

    def migration(which: str) -> Cutover:
        return _migration(client, which, source, target)

    settled = settle_one(client, found, migration=migration, afresh=now)
    document = {
        "migration_id": found.migration_id,
        "where": settled.where,
        "generation": settled.generation,
        "detail": settled.detail,
    }
    show(document, f"{found} is settled: {settled.where}. {settled.detail}", as_json=as_json)


def release(
    root: Root,
    job: Job,
    migration_id: MigrationId = None,
    to: Annotated[
        Literal["old", "new"] | None,
        typer.Option(help="Where producers are to write.", show_default="where the job runs"),
    ] = None,
    source_config: SourceConfig = None,
    source_conn_id: SourceConn = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Release the producers of a migration, and start or stop nothing; settle does both.

    A process that still works on the migration is replaced, and its window rolls back. --to may name the
    cluster that the job does not read: what is written there is in no result.
    """
    client = client_of(root, job)
    found = _the_one(client.view, migration_id, only="migration")
    confirm(f"Release the producers of {found} of job {job} to {to or 'where the job runs'}?", yes=yes)
    moved = _migration(client, found.migration_id, one_cluster(source_config, source_conn_id, "source"), None)
    position = release_producers(moved, to)
    side = position.removeprefix("release_")
    show(
        {"migration_id": found.migration_id, "released_to": side},
        f"Producers of {found} may write to the {side} cluster.",
        as_json=as_json,
    )


def _document(one: Unsettled) -> dict[str, object]:
    return {
        "migration_id": one.migration_id,
        "cutover": one.work.cutover,
        "phases": list(one.phases),
        "begun_at_ms": one.begun_at_ms,
        "holder": one.work.holder,
        "beat_at_ms": one.work.written_at_ms,
        "lease_s": one.work.lease_s,
    }


def _worker(one: Unsettled) -> str:
    return f"{one.work.holder}, last seen {moment(one.work.written_at_ms)}"


def _the_one(runs: JobView, migration_id: str | None, *, only: str | None = None) -> Unsettled:
    found = [one for one in find_unsettled(runs.board) if only in (None, one.work.cutover)]
    named = [one for one in found if migration_id in (None, one.migration_id)]
    if len(named) == 1:
        return named[0]
    raise BadInputError(
        f"One {only or 'migration or upgrade'} of job {runs.job} that is unfinished was expected"
        f"{f' with the id {migration_id}' if migration_id else ''}, found "
        f"{', '.join(one.migration_id for one in found) or 'none'}.",
        state_after="Nothing was changed.",
        remedy="Name one of these." if found else "Nothing is to be done: nothing is held or half moved.",
    )


def _migration(
    client: JobClient, migration_id: str, source: KafkaCluster | None, target: KafkaCluster | None
) -> Cutover:
    moving = approved_of(client.view, migration_id).migration
    switch = simple_switch(moving.producer_switch, client.view.board.store, client.view.job)
    if switch is None:
        raise BadInputError(
            f"A producer switch 'store' or 'manual' was expected, found {moving.producer_switch!r}, which is "
            "code for Airflow's hook.",
            state_after="Nothing was changed; producers are as they were.",
            remedy="Settle it in Airflow: DAG settle_job, or watch_jobs.",
        )
    kafka = moving.on(
        old=source or moving.source.without_login(), new=target or moving.target.without_login()
    )
    return resumed(
        client,
        moving,
        migration_id,
        kafka=kafka,
        switch=SwappedSwitch(switch) if moving.back else switch,
    )
