"""``flinkstyle savepoint export|import``: one savepoint as a folder or an archive that needs nothing else."""

from pathlib import Path
from typing import Annotated

import typer

from airflow_flinkstyle.cli.factories import repository_of
from airflow_flinkstyle.cli.options import AsJson, Job, Root, SavepointId
from airflow_flinkstyle.cli.output import batches, batches_of, show, table
from airflow_flinkstyle.cli.progress import progress_bar
from airflow_flinkstyle.savepoint.exchange.export import export_archive, export_savepoint
from airflow_flinkstyle.savepoint.exchange.importing import import_archive, import_savepoint
from airflow_flinkstyle.storage.open import open_store
from airflow_flinkstyle.wording import size

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
    said = f"{done.files_written} files written, {done.files_kept} kept, {size(done.size_bytes)}"
    show(done, f"Savepoint {savepoint_id} is in {done.uri}: {said}", as_json=as_json)


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
