"""``flinkstyle job replay|bisect``: run a range of records once more, for an output or a cause."""

import uuid
from typing import Annotated

import typer
from rich.console import Group

from airflow_flinkstyle.cli.compare import (
    AllowWrites,
    ChangedArgs,
    ChangedScript,
    Ignore,
    Keys,
    Tolerance,
    asked_of,
    next_version,
)
from airflow_flinkstyle.cli.factories import client_of, require_job
from airflow_flinkstyle.cli.options import AsJson, Job, Key, Root
from airflow_flinkstyle.cli.output import ExitCode, note, show, table
from airflow_flinkstyle.cli.run import Definitions, LogDir, Master, Python, launch_by, wanted_by
from airflow_flinkstyle.jobs.bisect import BisectAsked, as_values, bisect_versions
from airflow_flinkstyle.jobs.comparison import Version, savepoint_to_compare
from airflow_flinkstyle.jobs.replay import ReplayAsked, await_replay, replay_job
from airflow_flinkstyle.jobs.stopped.last_run import recorded_launch

From = Annotated[str, typer.Option("--from", help="Savepoint of the job to start from.", show_default=False)]


def replay(
    root: Root,
    job: Job,
    savepoint_id: From,
    until: Annotated[
        str,
        typer.Option(
            help="Where the range ends: a time (2026-11-26T18:00:00Z), offsets as JSON by topic and "
            "partition, or a later savepoint.",
            show_default=False,
        ),
    ],
    as_job: Annotated[str, typer.Option("--as", help="Name of the new job.", show_default=False)],
    file: Definitions = None,
    script: ChangedScript = None,
    args: ChangedArgs = None,
    own_output: Annotated[
        list[str] | None,
        typer.Option(
            help="Query that writes elsewhere than the job's, where nobody can see it; may be repeated."
        ),
    ] = None,
    records: Annotated[int, typer.Option(help="Records of a batch at most.", min=1)] = 250_000,
    master: Master = None,
    python: Python = None,
    log_dir: LogDir = None,
    key: Key = None,
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds to wait at most.", min=0)] = 3600.0,
    as_json: AsJson = False,
) -> None:
    """Run a range of a job's records once more, as a new job beside it that ends by itself.

    It starts on this machine from a copy of the savepoint, and must write elsewhere than the job.
    """
    require_job(root, job)
    client, beside = client_of(root, job), client_of(root, as_job)
    spec, target = launch_by(client.view, root, wanted_by(job, file, master, python, log_dir))
    asked = ReplayAsked(
        savepoint_id=savepoint_id, until=until, records=records, own_outputs=tuple(own_output or ())
    )
    generation = replay_job(
        client,
        beside,
        next_version(spec, script, args),
        target,
        key=f"{key or f'cli:{uuid.uuid4()}'}/replay",
        asked=asked,
    )
    if not as_json:
        note(f"Job {as_job} runs as generation {generation}.")
    found = await_replay(beside, generation, timeout_s=timeout_s)
    rows = [
        (name, f"{one['offsets']:,}", str(found["batches"].get(name, "-")))
        for name, one in found["queries"].items()
    ]
    sentence = f"Job {as_job} has replayed {job} from {savepoint_id}, and has closed."
    show(found, Group(sentence, table("query", "offsets", "last batch", rows=rows)), as_json=as_json)


def bisect(
    root: Root,
    job: Job,
    file: Definitions = None,
    script: ChangedScript = None,
    args: ChangedArgs = None,
    savepoint_id: Annotated[str, typer.Option("--from", help="Savepoint from which both run.")] = "latest",
    batches: Annotated[int, typer.Option(help="Batches of each query.", min=1)] = 16,
    records: Annotated[int, typer.Option(help="Records of a batch at most.", min=1)] = 250_000,
    narrow: Annotated[int, typer.Option(help="Cut the batch until it has so many records.", min=1)] = 1000,
    key_columns: Keys = None,
    ignore: Ignore = None,
    tolerance: Tolerance = None,
    allow_writes: AllowWrites = False,
    master: Master = None,
    python: Python = None,
    log_dir: LogDir = None,
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds to wait at most.", min=0)] = 3600.0,
    as_json: AsJson = False,
) -> None:
    """Find the first batch at which a new version computes something else than the one that the job runs.

    Compares as job compare does, then cuts the batch that differs into smaller ones, and so on. The job is
    not touched. Ends with 3 if the versions could not be compared.
    """
    require_job(root, job)
    client = client_of(root, job)
    spec, target = recorded_launch(client.view)
    new, place = launch_by(client.view, root, wanted_by(job, file, master, python, log_dir))
    compared = asked_of(
        batches=batches,
        records=records,
        key=key_columns,
        ignore=ignore,
        tolerance=tolerance,
        state=False,
        allow_writes=allow_writes,
        timeout_s=timeout_s,
    )
    found = bisect_versions(
        client,
        Version(spec=spec, target=target),
        Version(spec=next_version(new, script, args), target=place),
        key=f"cli:{uuid.uuid4()}",
        savepoint_id=savepoint_to_compare(client, savepoint_id),
        asked=BisectAsked(compare=compared, narrow=narrow),
        report=(lambda _text: None) if as_json else note,
    )
    show(as_values(found), found.as_markdown(), as_json=as_json)
    if found.found.verdict == "not comparable":
        raise typer.Exit(ExitCode.PARTLY)
