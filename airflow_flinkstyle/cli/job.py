"""``flinkstyle job list|status|stop``."""

import uuid
from collections.abc import Iterator
from typing import Annotated

import typer

from airflow_flinkstyle.cli.factories import client_of, jobs_found, require_job, whoami
from airflow_flinkstyle.cli.options import Aligned, AsJson, Job, Key, Root, TimeoutS, Yes
from airflow_flinkstyle.cli.output import ExitCode, batches, confirm, moment, note, show, table
from airflow_flinkstyle.jobs.request import SavepointOnly
from airflow_flinkstyle.jobs.request_slot import CutMode
from airflow_flinkstyle.jobs.status import (
    Closed,
    Dead,
    Failed,
    JobStatus,
    NeverStarted,
    Run,
    Running,
    Starting,
    describe_status,
)
from airflow_flinkstyle.jobs.stopped.last_run import without_saving
from airflow_flinkstyle.jobs.view import JobView
from airflow_flinkstyle.protocol.records import PAST_THE_AGENT, Heartbeat
from airflow_flinkstyle.typed_json import encode
from airflow_flinkstyle.types import Generation, OnFailedSavepoint

_CERTAIN_S = 60.0
"""How long to wait at most until it is certain whether a driver lives."""
_HOMES = {
    "watched": "plain Spark runs it",
    "adopted": "adopted from",
    "leaving": "is being left to",
    "left": "left to plain Spark",
}
_NAMES = {
    NeverStarted: "never_started",
    Starting: "starting",
    Running: "running",
    Closed: "closed",
    Failed: "failed",
    Dead: "dead",
}


def list_jobs(root: Root, as_json: AsJson = False) -> None:
    """List the jobs below a savepoint root, and what each is doing.

    A dead driver elsewhere may count as running; job status waits until it is certain.
    """
    views = {job: client_of(root, job).view for job in jobs_found(root)}
    found = {job: without_saving(view, view.status()) for job, view in views.items()}
    document = {"jobs": [_document(job, status) for job, status in found.items()]}
    rows = [(job, describe_status(status)) for job, status in found.items()]
    show(document, table("job", "what it is doing", rows=rows), as_json=as_json)


def settled_status(view: JobView) -> JobStatus:
    """Return what the job's driver does, once that is certain; who saves a stopped job is no driver."""
    return without_saving(view, view.settled_status(at_most_s=_CERTAIN_S))


def job_status(root: Root, job: Job, as_json: AsJson = False) -> None:
    """Tell what a job is doing.

    Takes a few seconds, until the heartbeat is seen to change; a lease for a dead driver elsewhere.
    """
    require_job(root, job)
    client = client_of(root, job)
    status = settled_status(client.view)
    rows = [("job", job), ("status", describe_status(status))]
    home = client.view.board.binding_home()
    if home is not None:
        where = ", ".join(f"{name} in {one.location}" for name, one in sorted(home.checkpoints.items()))
        rows.append((_HOMES[home.state], where))
    if not isinstance(status, NeverStarted):
        heartbeat = status.run.heartbeat
        rows += [
            ("batches", batches(heartbeat.batches()) if heartbeat else "none"),
            ("heartbeat", _heartbeat_age(status.run)),
            ("checkpoints", status.run.claim.checkpoint_location),
            *(_pace_rows(heartbeat) if heartbeat else ()),
            *(_group_rows(heartbeat) if heartbeat else ()),
            *((f"note on {query}", note) for query, note in (notes_of(heartbeat) if heartbeat else ())),
        ]
    document = {**_document(job, status), "home": home.state if home is not None else None}
    show(document, table("", "", rows=rows), as_json=as_json)


def notes_of(heartbeat: Heartbeat) -> list[tuple[str, str]]:
    """Return what people should know of the queries, by query: blind spots of the guard, and losses."""
    beside = [(name, PAST_THE_AGENT) for name in heartbeat.unregistered]
    return beside + [
        (name, note) for name, query in sorted(heartbeat.queries.items()) for note in query.notes()
    ]


def _heartbeat_age(run: Run) -> str:
    if run.heartbeat is None:
        return "none yet"
    still = f"not changed for {run.silence.still_s:.0f} s"
    return f"seen to change, {still}" if run.silence.changed else f"{still} while this command watched"


def _pace_rows(heartbeat: Heartbeat) -> Iterator[tuple[str, str]]:
    """Yield how fast each query is, as Spark reports it of its newest batch."""
    for query, status in sorted(heartbeat.queries.items()):
        if status.pace is None:
            continue
        pace = status.pace
        parts = [
            f"{_rate(pace.input_rows_per_s)} rows/s in",
            f"{_rate(pace.processed_rows_per_s)} processed",
            f"batch {pace.batch_id} of {pace.batch_ms:,} ms",
        ]
        parts += [f"{pace.state_rows:,} rows of state"] if pace.state_rows else []
        parts += [f"{pace.lag_records:,} records behind"] if pace.lag_records is not None else []
        parts += [f"watermark {moment(pace.watermark_ms)}"] if pace.watermark_ms is not None else []
        yield f"pace of {query}", f"{', '.join(parts)}; begun {moment(pace.begun_at_ms)}"


def _rate(rows_per_s: float | None) -> str:
    return "unknown" if rows_per_s is None else f"{rows_per_s:,.1f}"


def _group_rows(heartbeat: Heartbeat) -> Iterator[tuple[str, str]]:
    """Yield what was committed for the consumer groups of the job's sources."""
    for query, status in heartbeat.queries.items():
        for source, group in status.groups.items():
            lag = ", ".join(f"{topic} {behind:,}" for topic, behind in group.lag.items())
            committed = "nothing yet" if group.batch_id is None else f"batch {group.batch_id}"
            counts = (
                f"{group.commits_succeeded} commits succeeded, {group.commits_failed} failed, "
                f"{group.commits_superseded} superseded"
            )
            yield (
                f"group {group.group}",
                f"{query}, source {source}: {committed}; lag {lag or 'unknown'}; {counts}",
            )
            if group.failure is not None:
                yield "", group.failure


def _document(job: str, status: JobStatus) -> dict[str, object]:
    run = None if isinstance(status, NeverStarted) else status.run
    heartbeat = run.heartbeat if run else None
    return {
        "job": job,
        "status": _NAMES[type(status)],
        "certain": run.is_certain if run else True,
        "generation": run.generation if run else None,
        "incarnation": run.incarnation if run else None,
        "batches": heartbeat.batches() if heartbeat else {},
        "failed_queries": sorted(name for name, one in heartbeat.queries.items() if one.failed)
        if heartbeat
        else [],
        "notes": [f"{query}, {note}" for query, note in notes_of(heartbeat)] if heartbeat else [],
        "paces": {name: encode(one.pace) for name, one in heartbeat.queries.items()} if heartbeat else {},
        "groups": {name: encode(one.groups) for name, one in heartbeat.queries.items()} if heartbeat else {},
        "transient": run.may_be_retried or run.was_not_taken if run else False,
        "retry": run.retry if run else 0,
        "failing_since_ms": run.failing_since_ms if run else None,
        "retried_until_ms": run.retried_until_ms if run else None,
        "heartbeat_at_ms": heartbeat.written_at_ms if heartbeat else None,
        "checkpoint_location": run.claim.checkpoint_location if run else None,
        "detail": describe_status(status),
    }


def stop(
    root: Root,
    job: Job,
    savepoint: Annotated[bool, typer.Option(help="End with a savepoint.")] = True,
    alignment: Aligned = "none",
    drain: Annotated[
        bool, typer.Option("--drain", help="Read to the end of all inputs first; aligned.")
    ] = False,
    on_failed_savepoint: Annotated[
        OnFailedSavepoint,
        typer.Option(help="If the savepoint fails: let the queries resume, or stop without it."),
    ] = "keep_running",
    key: Key = None,
    yes: Yes = False,
    timeout_s: TimeoutS = 3600.0,
    as_json: AsJson = False,
) -> None:
    """Stop a job at a batch boundary, with a savepoint.

    Ends with 3 if the savepoint exists but the job did not stop, or if it stopped without one.
    """
    confirm(f"Stop job {job}?", yes=yes)
    key = key or f"cli:{uuid.uuid4()}"
    if not as_json:
        note(f"Asking job {job} to stop, with key {key}.")
    mode = CutMode(
        alignment="aligned" if drain else alignment, drain=drain, on_failed_savepoint=on_failed_savepoint
    )
    outcome = client_of(root, job).requests.stop(key, savepoint=savepoint, timeout_s=timeout_s, mode=mode)
    if isinstance(outcome, SavepointOnly):
        raise end_unstopped(outcome, as_json=as_json)
    document = {
        "stopped": True,
        "savepoint_id": outcome.savepoint_id,
        "generation": outcome.generation,
        "batches": dict(outcome.batches),
        "savepoint_error": outcome.savepoint_error,
    }
    text = f"Job {job} has stopped at {batches(dict(outcome.batches)) or 'no batch'}"
    if outcome.savepoint_id:
        text += f", savepoint {outcome.savepoint_id}"
    if outcome.savepoint_error:
        text += f", without a savepoint: {outcome.savepoint_error}"
    show(document, text, as_json=as_json)
    if outcome.savepoint_error:
        raise typer.Exit(ExitCode.PARTLY)


def end_unstopped(outcome: SavepointOnly, *, as_json: bool) -> typer.Exit:
    """Print that a job has its savepoint and runs on; returns what ends the command."""
    document = {"stopped": False, "savepoint_id": outcome.savepoint_id, "reason": outcome.reason}
    text = f"Savepoint {outcome.savepoint_id} was taken, but the job did not stop: {outcome.reason}"
    show(document, text, as_json=as_json)
    return typer.Exit(ExitCode.PARTLY)


def declare_dead(
    root: Root,
    job: Job,
    generation: Annotated[int, typer.Option(help="Whose driver; see job status.", min=1)],
    reason: Annotated[str, typer.Option(help="How you know; it is recorded with your name.")],
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Declare that a driver has ended, before its lease or a check of its process shows it.

    Refused while it writes heartbeats. The job's watcher then starts the next driver, which still waits
    until the heartbeat has not changed for the lease.
    """
    confirm(f"Declare the driver of generation {generation} of job {job} dead?", yes=yes)
    client = client_of(root, job)
    client.drivers.declare_dead(Generation(generation), reason=reason, by=whoami())
    status = client.view.status()
    show(_document(job, status), f"Job {job}: {describe_status(status)}", as_json=as_json)
