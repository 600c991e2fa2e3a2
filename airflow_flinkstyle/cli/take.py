"""``flinkstyle savepoint take|verify|restore``: make one, check it, write it where Spark can start."""

import uuid
from typing import Annotated

import typer

from airflow_flinkstyle.cli.options import AsJson, Job, Root, SavepointId, TimeoutS
from airflow_flinkstyle.cli.output import batches, note, show, size, table
from airflow_flinkstyle.cli.places import client_of, repository_of
from airflow_flinkstyle.cli.progress import progress_bar
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.client import JobClient
from airflow_flinkstyle.jobs.requests import PendingRequest, Withdrawn
from airflow_flinkstyle.jobs.savepoints import begin_savepoint, finish_savepoint
from airflow_flinkstyle.protocol.records import Progress
from airflow_flinkstyle.savepoint.manifest import Manifest, QuerySnapshot
from airflow_flinkstyle.savepoint.restore import restore_query
from airflow_flinkstyle.savepoint.verify import verify_savepoint
from airflow_flinkstyle.storage.open import open_store


def take(
    root: Root,
    job: Job,
    key: Annotated[
        str | None, typer.Option(help="Name of the request: the same one finds its savepoint again.")
    ] = None,
    timeout_s: TimeoutS = 3600.0,
    as_json: AsJson = False,
) -> None:
    """Take a savepoint: the job's driver does it and goes on, or this process if the job has stopped.

    Ctrl-C cancels it.
    """
    client = client_of(root, job)
    begun = begin_savepoint(client, key or f"cli:{uuid.uuid4()}", running_timeout_s=timeout_s)
    manifest = begun if isinstance(begun, Manifest) else _follow(client, begun, timeout_s)
    found = {query.name: int(query.batch_id) for query in manifest.queries}
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


def _follow(client: JobClient, pending: PendingRequest, timeout_s: float) -> Manifest:
    """Wait for the driver; an interrupt takes the newest request back."""
    newest = pending

    with progress_bar(f"savepoint {pending.savepoint_id}") as move:

        def watch(now: PendingRequest, progress: Progress | None) -> None:
            nonlocal newest
            newest = now
            if progress is not None:
                move(progress)

        try:
            return finish_savepoint(client, pending, timeout_s=timeout_s, watch=watch)
        except KeyboardInterrupt:
            withdrawn = isinstance(client.cancel(newest), Withdrawn)
            said = "was cancelled" if withdrawn else "had ended before it could be cancelled"
            note(f"Savepoint {newest.savepoint_id} {said}; the job goes on.")
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
    """Check that a savepoint is whole and its files fit together; a damaged one is an error."""
    repository = repository_of(root, job)
    manifest = repository.read(savepoint_id)
    with progress_bar(f"verify {savepoint_id}") as move:
        verified = verify_savepoint(manifest, repository, level="full" if full else "quick", progress=move)
    said = f"Savepoint {savepoint_id} is whole ({verified.level}): {verified.files} files, "
    show(verified, said + size(verified.size_bytes), as_json=as_json)


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
    queries: Annotated[
        list[str] | None, typer.Option("--query", help="Only this query; can be given again.")
    ] = None,
    carry_pending: Annotated[
        bool,
        typer.Option("--carry-pending", help="Write the pending batch too: Spark repeats it, as it was."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a savepoint to a new checkpoint location, from which Spark can start.

    No job is started or stopped. Sinks that remember batch ids skip batches that are repeated.
    """
    repository = repository_of(root, job)
    manifest = repository.read(savepoint_id)
    restored = []
    target = open_store(to)
    for query in _chosen(manifest, queries or []):
        with progress_bar(f"restore {query.name}") as move:
            done = restore_query(
                manifest,
                query,
                repository,
                target,
                prefix=query.name,  # as a key, so that a hostile name cannot leave the location
                carry_pending=carry_pending and query.pending_offsets is not None,
                progress=move,
            )
        restored.append((query, f"{to.rstrip('/')}/{query.name}", done))
    document = {
        "savepoint_id": savepoint_id,
        "queries": [
            {
                "query": query.name,
                "batch_id": query.batch_id,
                "location": location,
                "files_written": done.files_written,
                "files_kept": done.files_kept,
                "files_removed": done.files_removed,
                "bytes_written": done.bytes_written,
            }
            for query, location, done in restored
        ],
    }
    rows = [
        (query.name, query.batch_id, location, done.files_written, done.files_kept, size(done.bytes_written))
        for query, location, done in restored
    ]
    columns = ("query", "#batch", "checkpoint location", "#written", "#kept", "#size written")
    show(document, table(*columns, rows=rows), as_json=as_json)


def _chosen(manifest: Manifest, names: list[str]) -> list[QuerySnapshot]:
    unknown = sorted(set(names) - {query.name for query in manifest.queries})
    if unknown:
        raise BadInputError(
            f"Expected queries of savepoint {manifest.savepoint_id} "
            f"({', '.join(query.name for query in manifest.queries)}), found {', '.join(unknown)}.",
            left="Nothing was written.",
            remedy="Correct the names, or leave --query out to restore all.",
        )
    return [query for query in manifest.queries if not names or query.name in names]
