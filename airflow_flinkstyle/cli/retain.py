"""What is kept, what is deleted, and why: ``savepoint pin|unpin|release|dispose|prune``, ``job remove``."""

import os
from dataclasses import asdict
from enum import Enum
from functools import partial
from typing import Annotated

import typer
from rich.console import Group, RenderableType

from airflow_flinkstyle.cli.factories import board_of, client_of, repository_of, require_job, whoami
from airflow_flinkstyle.cli.options import AsJson, Job, Root, SavepointId, TimeoutS, Yes
from airflow_flinkstyle.cli.output import ExitCode, confirm, note, show, table
from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.jobs.answers.values import seconds_or_none
from airflow_flinkstyle.jobs.removal import remove_job
from airflow_flinkstyle.jobs.retention import dispose_of, prune_job
from airflow_flinkstyle.jobs.signing import Signer
from airflow_flinkstyle.savepoint.blobs import references
from airflow_flinkstyle.savepoint.retention.dispose import PROTECTIONS
from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy
from airflow_flinkstyle.savepoint.retention.prune import PruneReport
from airflow_flinkstyle.wording import size


class Despite(str, Enum):
    """The protections of a savepoint, as Typer wants choices of which several may be given."""

    PINNED = "pinned"
    IN_USE = "in_use"
    LAST_GOOD = "last_good"


def pin(
    savepoint_id: SavepointId,
    root: Root,
    job: Job,
    reason: Annotated[str, typer.Option(help="Why it is kept.")],
    as_json: AsJson = False,
) -> None:
    """Keep a savepoint whatever the policy says, until it is unpinned."""
    made = references.pin(repository_of(root, job), savepoint_id, reason=reason, by=whoami(), at_ms=now_ms())
    document = {"savepoint_id": savepoint_id, "pinned": True, "reason": made.reason, "by": made.by}
    show(document, f"Savepoint {savepoint_id} is pinned by {made.by}: {made.reason}", as_json=as_json)


def unpin(savepoint_id: SavepointId, root: Root, job: Job, as_json: AsJson = False) -> None:
    """Let the policy decide on a savepoint again."""
    repository = repository_of(root, job)
    repository.read(savepoint_id)  # a wrong id must not look like a success
    references.unpin(repository, savepoint_id)
    document = {"savepoint_id": savepoint_id, "pinned": False, "reason": None, "by": None}
    show(document, f"Savepoint {savepoint_id} is not pinned.", as_json=as_json)


def release(
    savepoint_id: SavepointId,
    root: Root,
    job: Job,
    holder: Annotated[str, typer.Option(help="Who holds it, as `store usage` names it: generation-000007.")],
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Release a savepoint of a holder that nobody will continue, such as a start whose DAG is gone.

    A start that is tried again fails if a prune has disposed of the savepoint.
    """
    repository = repository_of(root, job)
    confirm(f"Release savepoint {savepoint_id} of job {job} from {holder}?", yes=yes)
    gone = references.release(repository, savepoint_id, holder)
    document = {"savepoint_id": savepoint_id, "holder": holder, "by": gone.by, "reason": gone.reason}
    show(document, f"Savepoint {savepoint_id} is no longer held by {holder} ({gone.by})", as_json=as_json)


def dispose(
    savepoint_id: SavepointId,
    root: Root,
    job: Job,
    despite: Annotated[
        list[Despite] | None,
        typer.Option(help="Override this protection; can be given again."),
    ] = None,
    yes: Yes = False,
    timeout_s: TimeoutS = 300.0,
    as_json: AsJson = False,
) -> None:
    """Delete one savepoint, and free what only it needed.

    A pinned one, one that the job needs, and the last good one are protected.
    """
    repository = repository_of(root, job)
    repository.read(savepoint_id)  # a wrong id fails before the question
    confirm(f"Dispose of savepoint {savepoint_id} of job {job}?", yes=yes)
    done = dispose_of(
        board_of(root, job),
        repository,
        savepoint_id,
        holder=whoami(),
        despite=[protection for protection in PROTECTIONS if protection in (despite or ())],
        wait_s=timeout_s,
    )
    freed = f"{done.freed_blobs} blobs freed, {size(done.freed_bytes)}"
    if done.noncurrent_bytes:
        freed += f"; the bucket keeps {size(done.noncurrent_bytes)} as noncurrent versions"
    show(done, f"Savepoint {savepoint_id} is gone: {freed}", as_json=as_json)


def prune(
    root: Root,
    job: Job,
    max_count: Annotated[int | None, typer.Option(help="Savepoints to keep.")] = None,
    max_age_s: Annotated[
        str | None, typer.Option("--max-age", help="After which one is not kept: 36h, 7d, or seconds.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be done; ends with 3 if anything.")
    ] = False,
    yes: Yes = False,
    timeout_s: TimeoutS = 300.0,
    as_json: AsJson = False,
) -> None:
    """Dispose of what the policy does not keep, and free what nothing needs any more.

    Pinned savepoints, those that the job needs, and the last good one always stay.
    """
    require_job(root, job)
    apply = partial(
        prune_job,
        board_of(root, job),
        repository_of(root, job),
        RetentionPolicy(max_count=max_count, max_age_s=seconds_or_none("--max-age", max_age_s)),
        holder=whoami(),
        wait_s=timeout_s,
        signer=Signer.of_environment(os.environ),
    )
    if not (dry_run or yes):
        note(_text(apply(dry_run=True)))
        confirm(f"Prune the savepoints of job {job}?", yes=yes)
    report = apply(dry_run=dry_run)
    show(_pruned(report), _text(report), as_json=as_json)
    if dry_run and (report.plan.disposed or report.freed_blobs or report.freed_checkpoints):
        raise typer.Exit(ExitCode.PARTLY)


def _text(report: PruneReport) -> RenderableType:
    rows = [(one.savepoint_id, one.action, one.reason) for one in report.plan.decisions]
    old = [
        (", ".join(map(str, one.generations)), "free" if one.goes else "keep", one.reason)
        for one in report.checkpoints
    ]
    tables = [table("savepoint", "decision", "reason", rows=rows)]
    if old:
        tables.append(table("checkpoint of generation", "decision", "reason", rows=old))
    return Group(*tables, report.sum_up())


def _pruned(report: PruneReport) -> dict[str, object]:
    return {
        "dry_run": report.dry_run,
        "decisions": [
            {
                "savepoint_id": decision.savepoint_id,
                "decision": decision.action,
                "reason": decision.reason,
            }
            for decision in report.plan.decisions
        ],
        "checkpoints": [asdict(one) for one in report.checkpoints],
        "freed_blobs": report.freed_blobs,
        "freed_bytes": report.freed_bytes,
        "noncurrent_bytes": report.noncurrent_bytes,
    }


def remove(
    root: Root,
    job: Job,
    with_savepoints: Annotated[
        bool, typer.Option("--with-savepoints", help="Its savepoints go too; none may be pinned.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove a job that never ran here, such as a mistyped name, or one that was left to plain Spark.

    Its records are deleted, and it is on no page any more. Checkpoints, and what plain Spark runs, stay.
    """
    require_job(root, job)
    confirm(f"Remove all records of job {job}?", yes=yes)
    done = remove_job(client_of(root, job).view, savepoints=with_savepoints)
    text = f"Job {job} is removed: {done.objects} objects, {len(done.savepoints)} savepoints."
    if done.checkpoints:
        text += f" Its checkpoints stay, where there are any: {', '.join(done.checkpoints)}"
    show(asdict(done), text, as_json=as_json)
