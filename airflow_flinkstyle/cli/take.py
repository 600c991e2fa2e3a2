"""``flinkstyle savepoint take|cut|verify|restore|export|import``: make, check and copy savepoints."""

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from airflow_flinkstyle.cli.adopt import SparkVersion, watched_checkpoint
from airflow_flinkstyle.cli.factories import client_of, repository_of, whoami
from airflow_flinkstyle.cli.kafka.options import KafkaConfigs, KafkaConns
from airflow_flinkstyle.cli.options import (
    Aligned,
    AsJson,
    Job,
    Key,
    Root,
    SavepointId,
    TimeoutS,
    Yes,
    complete_job,
)
from airflow_flinkstyle.cli.output import (
    ExitCode,
    batches,
    batches_of,
    confirm,
    note,
    progress_bar,
    show,
    table,
)
from airflow_flinkstyle.jobs.adoption.taking import take_outside
from airflow_flinkstyle.jobs.client import JobClient
from airflow_flinkstyle.jobs.cut import cut_together
from airflow_flinkstyle.jobs.request_slot import PendingRequest, Withdrawn
from airflow_flinkstyle.protocol.places import require_unmarked
from airflow_flinkstyle.protocol.records import Progress
from airflow_flinkstyle.savepoint.exchange.export import export_archive, export_savepoint
from airflow_flinkstyle.savepoint.exchange.importing import import_archive, import_savepoint
from airflow_flinkstyle.savepoint.files.restore import restore_savepoint
from airflow_flinkstyle.savepoint.files.verified import check_savepoint
from airflow_flinkstyle.savepoint.manifest import Manifest
from airflow_flinkstyle.storage.keys import below
from airflow_flinkstyle.storage.open import open_store
from airflow_flinkstyle.wording import size

Outside = Annotated[
    list[str] | None,
    typer.Option(
        "--checkpoint",
        help="QUERY=LOCATION of a job that plain Spark runs: take its savepoint from outside; repeated.",
        show_default=False,
    ),
]


def take(
    root: Root,
    job: Job,
    key: Key = None,
    alignment: Aligned = "none",
    timeout_s: TimeoutS = 3600.0,
    checkpoints: Outside = None,
    kafka_configs: KafkaConfigs = None,
    kafka_conn_ids: KafkaConns = None,
    spark_version: SparkVersion = None,
    as_json: AsJson = False,
) -> None:
    """Take a savepoint: by the job's driver, which keeps running, or by this process if the job has stopped.

    With --checkpoint of a job that plain Spark runs, from outside: nothing is asked of its driver. Ctrl-C
    cancels it.
    """
    client, key = client_of(root, job), key or f"cli:{uuid.uuid4()}"
    begun: Manifest | PendingRequest
    with progress_bar("savepoint") as move:
        if checkpoints:
            watched = watched_checkpoint(checkpoints, kafka_configs, kafka_conn_ids, spark_version)
            begun = take_outside(client.view, watched, key, by=whoami(), progress=move)
        else:
            begun = client.requests.begin_savepoint(
                key, timeout_s=timeout_s, alignment=alignment, progress=move
            )
    manifest = (
        begun if isinstance(begun, Manifest) else _follow(client, begun, timeout_s, announce=not as_json)
    )
    found = batches_of(manifest)
    document = {
        "savepoint_id": manifest.savepoint_id,
        "job": job,
        "alignment": manifest.alignment,
        "batches": found,
        "size_bytes": manifest.total_bytes,
    }
    rows = [("savepoint", manifest.savepoint_id), ("batches", batches(found))]
    rows += [("alignment", manifest.alignment), ("size", f"{size(manifest.total_bytes)}")]
    show(document, table("", "", rows=rows), as_json=as_json)


def _follow(client: JobClient, pending: PendingRequest, timeout_s: float, *, announce: bool) -> Manifest:
    """Print the request and wait for the driver; an interrupt cancels the newest request."""
    newest = pending
    try:
        if announce:
            note(f"Asked for savepoint {pending.savepoint_id} with key {pending.request_key}.")
        with progress_bar(f"savepoint {pending.savepoint_id}") as move:

            def watch(now: PendingRequest, progress: Progress | None) -> None:
                nonlocal newest
                newest = now
                if progress is not None:
                    move(progress)

            return client.requests.finish_savepoint(pending, timeout_s=timeout_s, watch=watch)
    except KeyboardInterrupt:
        withdrawn = isinstance(client.requests.cancel(newest), Withdrawn)
        outcome = "was cancelled" if withdrawn else "had ended before it could be cancelled"
        note(f"Savepoint {newest.savepoint_id} {outcome}; the job keeps running.")
        raise


def verify(
    savepoint_id: SavepointId,
    root: Root,
    job: Job,
    full: Annotated[
        bool, typer.Option("--full", help="Read every byte; else only sizes and the logs.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check that a savepoint is whole and its files fit together, and record that it is.

    A damaged one is an error, and does not count as verified any more.
    """
    with progress_bar(f"verify {savepoint_id}") as move:
        verified = check_savepoint(
            repository_of(root, job),
            savepoint_id,
            level="full" if full else "quick",
            by=whoami(),
            progress=move,
        )
    text = f"Savepoint {savepoint_id} is whole ({verified.level}): {verified.files} files, "
    show(verified, text + size(verified.size_bytes), as_json=as_json)


def restore(
    savepoint_id: SavepointId,
    root: Root,
    job: Job,
    to: Annotated[
        str,
        typer.Option(
            help="New checkpoint location, a path or s3://...; each query goes to a folder of its name "
            "below it."
        ),
    ],
    claim: Annotated[
        bool,
        typer.Option(
            "--claim",
            help="The restored job owns the savepoint: it is deleted once a newer one took its place.",
        ),
    ] = False,
    drop_planned: Annotated[
        bool,
        typer.Option(
            "--drop-planned",
            help="Leave out the batches that are planned in it, whose ids then go to other rows. By default "
            "Spark runs them again, as they were.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a savepoint to a new checkpoint location, from which Spark can start.

    No job is started or stopped. Sinks that remember batch ids skip batches that are repeated.
    """
    repository = repository_of(root, job)
    manifest = repository.read(savepoint_id)
    if drop_planned:
        committed = tuple(replace(query, planned_offsets=None) for query in manifest.queries)
        manifest = replace(manifest, queries=committed)
    require_unmarked(open_store(to))
    places = {query.name: below(to, query.name) for query in manifest.queries}
    with progress_bar(f"restore {savepoint_id}") as move:
        restored = restore_savepoint(
            manifest,
            repository,
            lambda name: open_store(places[name]),
            claim_mode="claim" if claim else "no_claim",
            progress=move,
        )
    found = batches_of(manifest)
    queries = [
        {
            "query": name,
            "batch_id": found[name],
            "location": places[name],
            "files_written": done.files_written,
            "files_kept": done.files_kept,
            "files_removed": done.files_removed,
            "bytes_written": done.bytes_written,
        }
        for name, done in restored.items()
    ]
    rows = [
        (name, found[name], places[name], done.files_written, done.files_kept, size(done.bytes_written))
        for name, done in restored.items()
    ]
    columns = ("query", "#batch", "checkpoint location", "#written", "#kept", "#size written")
    document = {"savepoint_id": savepoint_id, "queries": queries}
    show(document, table(*columns, rows=rows), as_json=as_json)


def cut(
    jobs: Annotated[
        list[str], typer.Argument(help="Names of the jobs.", autocompletion=complete_job, show_default=False)
    ],
    root: Root,
    stop: Annotated[bool, typer.Option("--stop", help="Stop the jobs once the cut is complete.")] = False,
    key: Key = None,
    yes: Yes = False,
    timeout_s: TimeoutS = 600.0,
    as_json: AsJson = False,
) -> None:
    """Take savepoints of several running jobs at the same source offsets, or of none.

    All jobs resume uncut if one fails, and on Ctrl-C. With --stop, ends with 3 if a job did not stop.
    """
    if stop:
        confirm(f"Stop {', '.join(jobs)} together?", yes=yes)
    clients = [client_of(root, job) for job in jobs]
    done = cut_together(clients, key or f"cli:{uuid.uuid4()}", stop=stop, timeout_s=timeout_s)
    rows = [(job, savepoint_id, done.not_stopped.get(job)) for job, savepoint_id in done.savepoints.items()]
    columns = ("job", "savepoint", "did not stop")
    show(done, table(*columns, rows=rows, title=f"Cut {done.cut_id} is complete"), as_json=as_json)
    if done.not_stopped:
        raise typer.Exit(ExitCode.PARTLY)


_ARCHIVE = ".tar"


def export(
    savepoint_id: SavepointId,
    root: Root,
    job: Job,
    to: Annotated[
        str, typer.Option(help="A folder (path or s3://...), or a local file whose name ends in .tar.")
    ],
    as_json: AsJson = False,
) -> None:
    """Copy a savepoint out; a repeated call writes only what is missing."""
    repository = repository_of(root, job)
    with progress_bar(f"export {savepoint_id}") as move:
        if to.endswith(_ARCHIVE):
            done = export_archive(repository, savepoint_id, Path(to), progress=move)
        else:
            done = export_savepoint(repository, savepoint_id, open_store(to), progress=move)
    counts = f"{done.files_written} files written, {done.files_kept} kept, {size(done.size_bytes)}"
    show(done, f"Savepoint {savepoint_id} is in {done.uri}: {counts}", as_json=as_json)


def import_(
    source: Annotated[
        str,
        typer.Argument(help="What an export wrote: a folder, s3://... or a .tar file.", show_default=False),
    ],
    root: Root,
    job: Job,
    from_job: Annotated[
        str | None,
        typer.Option(help="Name of the job it was taken from, if it is to become another one's."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Bring an exported savepoint into a root, checking every byte."""
    repository = repository_of(root, job)
    with progress_bar(f"import {source}") as move:
        if source.endswith(_ARCHIVE):
            manifest = import_archive(Path(source), repository, from_job=from_job, progress=move)
        else:
            manifest = import_savepoint(open_store(source), repository, from_job=from_job, progress=move)
    document = {
        "savepoint_id": manifest.savepoint_id,
        "job": job,
        "batches": batches_of(manifest),
        "size_bytes": manifest.total_bytes,
    }
    rows = [("savepoint", manifest.savepoint_id), ("batches", batches(batches_of(manifest)))]
    show(document, table("", "", rows=[*rows, ("size", size(manifest.total_bytes))]), as_json=as_json)
