"""``flinkstyle job compare``: what two versions of a job compute on the same records."""

import shlex
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from airflow_flinkstyle.cli.factories import client_of, require_job
from airflow_flinkstyle.cli.options import AsJson, Job, Root
from airflow_flinkstyle.cli.output import ExitCode, note, show
from airflow_flinkstyle.cli.run import Definitions, LogDir, Master, Python, launch_by, wanted_by
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.comparison import (
    CompareAsked,
    Version,
    as_values,
    compare_asked,
    compare_versions,
    savepoint_to_compare,
)
from airflow_flinkstyle.jobs.spec import JobSpec
from airflow_flinkstyle.jobs.stopped.last_run import recorded_launch

ChangedScript = Annotated[
    str | None, typer.Option(help="The new script.", show_default="the definition's, else the same")
]
ChangedArgs = Annotated[
    str | None, typer.Option(help="All its arguments, as a shell splits them.", show_default="the same")
]
Keys = Annotated[
    list[str] | None,
    typer.Option(
        "--key", help="Columns that tell a query's rows apart, as query=column,column; may be repeated."
    ),
]
Ignore = Annotated[
    list[str] | None,
    typer.Option(help="Column that may differ; name:order for an array in any order; may be repeated."),
]
Tolerance = Annotated[
    list[str] | None,
    typer.Option(help="How much a column's numbers may differ, as column=0.01; may be repeated."),
]
AllowWrites = Annotated[
    bool, typer.Option("--allow-writes", help="Let the script write past its queries' sinks.")
]


def compare(
    root: Root,
    job: Job,
    file: Definitions = None,
    script: ChangedScript = None,
    args: ChangedArgs = None,
    savepoint_id: Annotated[
        str, typer.Option(help="From which both versions run; an older one has more records behind it.")
    ] = "latest",
    batches: Annotated[int, typer.Option(help="Batches of each query.", min=1)] = 4,
    records: Annotated[int, typer.Option(help="Records of a batch from Kafka at most.", min=1)] = 250_000,
    key: Keys = None,
    ignore: Ignore = None,
    tolerance: Tolerance = None,
    state: Annotated[bool, typer.Option("--state/--no-state", help="Compare the state, key by key.")] = True,
    allow_writes: AllowWrites = False,
    expect: Annotated[
        Literal["same", "differs"], typer.Option(help="The verdict that ends with 0.")
    ] = "same",
    master: Master = None,
    python: Python = None,
    log_dir: LogDir = None,
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds to wait at most.", min=0)] = 3600.0,
    as_json: AsJson = False,
) -> None:
    """Run the version that a job runs and a new one on the same records, and compare rows and state.

    Both run on scratch copies on this machine, beside the job, which is not touched. Ends with 3 if the
    verdict is not the expected one.
    """
    require_job(root, job)
    client = client_of(root, job)
    spec, target = recorded_launch(client.view)
    wanted = wanted_by(job, file, master, python, log_dir)
    changed, place = launch_by(client.view, root, wanted)
    asked = asked_of(
        batches=batches,
        records=records,
        key=key,
        ignore=ignore,
        tolerance=tolerance,
        state=state,
        allow_writes=allow_writes,
        timeout_s=timeout_s,
    )
    savepoint_id = savepoint_to_compare(client, savepoint_id)
    if not as_json:
        note(f"Comparing on up to {batches * records:,} records behind savepoint {savepoint_id}.")
    found = as_values(
        compare_versions(
            client,
            Version(spec=spec, target=target),
            Version(spec=next_version(changed, script, args), target=place),
            key=f"cli:{uuid.uuid4()}",
            savepoint_id=savepoint_id,
            asked=asked,
        )
    )
    show(found, found["table"], as_json=as_json)
    if found["verdict"] != expect:
        raise typer.Exit(ExitCode.PARTLY)


def asked_of(
    *, batches: int, key: list[str] | None, tolerance: list[str] | None, **others: Any
) -> CompareAsked:
    """Return on how much two versions are compared, and how; ``others`` as in ``compare_asked``."""
    asked = compare_asked(
        batches=batches,
        keys={query: columns.split(",") for query, columns in _pairs("--key", key).items()},
        tolerance=_pairs("--tolerance", tolerance),
        **others,
    )
    if asked is None:
        raise typer.BadParameter("give at least one batch", param_hint="--batches")
    return asked


def next_version(spec: JobSpec, script: str | None, args: str | None) -> JobSpec:
    """Return a launch with another script and other arguments, where they are given."""
    if script is not None and not Path(script).is_file():
        raise BadInputError(
            f"A script of the new version was expected at {script}, found none.",
            state_after="Nothing was started.",
            remedy="Correct --script.",
        )
    try:
        given = spec.args if args is None else tuple(shlex.split(args))
    except ValueError as error:
        raise typer.BadParameter(f"expected as a shell splits it: {error}", param_hint="--args") from error
    return replace(spec, script=str(Path(script).absolute()) if script else spec.script, args=given)


def _pairs(option: str, given: list[str] | None) -> dict[str, str]:
    """Return what was given as name=value."""
    pairs = [text.partition("=") for text in given or []]
    if bad := [name for name, equals, value in pairs if not (name and equals and value)]:
        raise typer.BadParameter(f"expected name=value, found {bad[0]!r}", param_hint=option)
    return {name: value for name, _, value in pairs}
