"""``flinkstyle job start|restart|logs|health``: by a definition of the job, or as it was started last."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from airflow_flinkstyle.cli.factories import client_of, repository_of, require_job
from airflow_flinkstyle.cli.job import end_unstopped, notes_of, settled_status
from airflow_flinkstyle.cli.options import AsJson, Job, Key, Root, TimeoutS, Yes
from airflow_flinkstyle.cli.output import ExitCode, confirm, note, show, table
from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.answers.values import seconds_or_none
from airflow_flinkstyle.jobs.client import JobClient
from airflow_flinkstyle.jobs.definition import SparkStreamingJob, read_job
from airflow_flinkstyle.jobs.errors import JobNotRunningError
from airflow_flinkstyle.jobs.request import SavepointOnly
from airflow_flinkstyle.jobs.request_slot import digest_of
from airflow_flinkstyle.jobs.spec import JobSpec, default_checkpoint_root, launch_of
from airflow_flinkstyle.jobs.start.home import moved_on
from airflow_flinkstyle.jobs.start.origins import LastState, Origin, origin_of
from airflow_flinkstyle.jobs.start.tables import await_restored
from airflow_flinkstyle.jobs.status import JobStatus, NeverStarted, Running, Starting, describe_status
from airflow_flinkstyle.jobs.stopped.last_run import recorded_launch, without_saving
from airflow_flinkstyle.jobs.target import SubmitTarget, record_of, target_of
from airflow_flinkstyle.jobs.view import JobView
from airflow_flinkstyle.protocol.records import PAST_THE_AGENT
from airflow_flinkstyle.savepoint.files.verified import damage_of, verified_records
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.savepoint.repository.summary import newest_summary
from airflow_flinkstyle.types import RestoreTables, Rewind, StartFrom

Definitions = Annotated[
    Path | None,
    typer.Option(
        "--file", help="YAML file or folder with the job's definition.", show_default="last start's"
    ),
]
Master = Annotated[
    str | None, typer.Option(help="Spark master: local[2], spark://host:7077.", show_default="last start's")
]
Python = Annotated[
    str | None,
    typer.Option(
        envvar="PYSPARK_PYTHON",
        help="Interpreter with PySpark; spark-submit is beside it.",
        show_default="last start's",
    ),
]
LogDir = Annotated[str | None, typer.Option(help="Folder of the driver's log.", show_default="last start's")]
LeaveCheckpoint = Annotated[
    list[str] | None,
    typer.Option(
        help="Location of a checkpoint of plain Spark that is left behind, as the refusal names it; "
        "may be given several times.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """How to run the job, as the options give it; None: as at the last start."""

    definition: SparkStreamingJob | None
    master: str | None
    python: str | None
    log_dir: str | None


def start(
    root: Root,
    job: Job,
    file: Definitions = None,
    master: Master = None,
    python: Python = None,
    log_dir: LogDir = None,
    start_from: Annotated[
        StartFrom,
        typer.Option(help="last_state: where the job was last; fresh only if it has no history."),
    ] = "last_state",
    savepoint_id: Annotated[str | None, typer.Option(help="For savepoint: its id, or latest.")] = None,
    rewind: Annotated[
        Rewind, typer.Option(help="For savepoint: what becomes of batches committed after it.")
    ] = "continue",
    skip_known_batches: Annotated[
        bool, typer.Option("--skip-known-batches", help="Accept that a sink leaves out batches it knows.")
    ] = False,
    restore_tables: Annotated[
        RestoreTables,
        typer.Option(help="With a rewind: take back what the job has written since into Delta and Iceberg."),
    ] = "no",
    discard_history: Annotated[
        str | None, typer.Option(help="For fresh: the history given up, as the refusal names it.")
    ] = None,
    leave_checkpoint: LeaveCheckpoint = None,
    key: Key = None,
    timeout_s: TimeoutS = 300.0,
    as_json: AsJson = False,
) -> None:
    """Start a job on this machine, from its definition or as it was started last.

    Returns once its driver runs; the driver outlives this command.
    """
    if (start_from == "savepoint") != (savepoint_id is not None):
        raise typer.BadParameter("give --savepoint-id with --start-from savepoint, and only with it")
    if discard_history is not None and start_from != "fresh":
        raise typer.BadParameter("give --discard-history with --start-from fresh only")
    client = client_of(root, job)
    origin = origin_of(
        start_from,
        newest=lambda: newest_summary(client.view.repository),
        savepoint_id=savepoint_id,
        rewind=rewind,
        skip_known_batches=skip_known_batches,
        restore_tables=restore_tables,
        discard_history=discard_history,
    )
    spec, target = launch_by(client.view, root, wanted_by(job, file, master, python, log_dir))
    spec = replace(spec, leave_checkpoints=tuple(leave_checkpoint or ()))
    _start(client, spec, target, origin, key, timeout_s, as_json=as_json)


def restart(
    root: Root,
    job: Job,
    file: Definitions = None,
    master: Master = None,
    python: Python = None,
    log_dir: LogDir = None,
    leave_checkpoint: LeaveCheckpoint = None,
    key: Key = None,
    yes: Yes = False,
    timeout_s: TimeoutS = 300.0,
    as_json: AsJson = False,
) -> None:
    """Stop a job with a savepoint and start it where it was; one that has ended is started.

    Ends with 3 if the savepoint exists but the job did not stop. For a new version prefer the DAG
    upgrade_job: it goes back by itself if that fails.
    """
    require_job(root, job)
    client = client_of(root, job)
    spec, target = launch_by(client.view, root, wanted_by(job, file, master, python, log_dir))
    spec = replace(spec, leave_checkpoints=tuple(leave_checkpoint or ()))
    confirm(f"Restart job {job}?", yes=yes)
    key = key or f"cli:{uuid.uuid4()}"
    status = settled_status(client.view)
    # A repeated call finds the driver that the earlier one has started: to stop it would close the job.
    own = client.view.own_claim(_claim_key(spec, target, LastState(), key))
    if isinstance(status, (Running, Starting)) and status.run.generation != own:
        outcome = client.requests.stop(f"{key}/stop", savepoint=True, timeout_s=timeout_s)
        if isinstance(outcome, SavepointOnly):
            raise end_unstopped(outcome, as_json=as_json)
    _start(client, spec, target, LastState(), key, timeout_s, as_json=as_json)


def logs(
    root: Root,
    job: Job,
    lines: Annotated[int, typer.Option("--lines", "-n", help="How many.", min=1)] = 100,
    as_json: AsJson = False,
) -> None:
    """Show the end of the driver's log, if its file is on this machine."""
    require_job(root, job)
    client = client_of(root, job)
    status = without_saving(client.view, client.view.status())
    if isinstance(status, NeverStarted):
        raise JobNotRunningError(
            f"Job {job} was expected to have a log, found that {describe_status(status)}.",
            state_after="Nothing was changed.",
            remedy="Start it first.",
        )
    text = client.view.log_tail(status.run, lines=lines) or "(no log)"
    show({"job": job, "generation": status.run.generation, "log": text.splitlines()}, text, as_json=as_json)


def health(
    root: Root,
    job: Job,
    max_batch_age: Annotated[
        str | None, typer.Option(help="How long ago every query committed at least: 90s, 15m.")
    ] = None,
    max_savepoint_age: Annotated[
        str | None, typer.Option(help="How old the newest savepoint may be: 36h, 7d.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tell whether a job runs, commits, and has a savepoint to go back to. Ends with 3 if not."""
    require_job(root, job)
    batch_limit_s = seconds_or_none("--max-batch-age", max_batch_age)
    savepoint_limit_s = seconds_or_none("--max-savepoint-age", max_savepoint_age)
    client = client_of(root, job)
    status = settled_status(client.view)
    findings = list(_faults_of_driver(status))
    ages = _batch_ages_s(status) if isinstance(status, Running) else {}
    for name, age_s in ages.items():
        if batch_limit_s is not None and (age_s is None or age_s > batch_limit_s):
            committed = "no batch" if age_s is None else f"its last batch {_age(age_s)} ago"
            findings.append(f"query {name} has committed {committed}")
    home = client.view.board.home()
    if home is not None and home.value.state == "adopted":
        findings += [f"its old job runs too: {found}" for found in moved_on(client.view, home.value)]
    newest, savepoint_age_s, savepoint, faults = _newest(repository_of(root, job), savepoint_limit_s)
    findings += faults
    document = {
        "job": job,
        "healthy": not findings,
        "findings": findings,
        "batch_ages_s": ages,
        "savepoint_id": newest,
        "savepoint_age_s": savepoint_age_s,
    }
    rows = [("job", job), ("status", describe_status(status))]
    rows += [(f"last batch of {name}", "none" if s is None else f"{_age(s)} ago") for name, s in ages.items()]
    rows += [
        ("newest savepoint", savepoint),
        ("healthy", "no: " + "; ".join(findings) if findings else "yes"),
    ]
    show(document, table("", "", rows=rows), as_json=as_json)
    if findings:
        raise typer.Exit(ExitCode.PARTLY)


def _faults_of_driver(status: JobStatus) -> Iterator[str]:
    """Yield what is wrong with a job's driver and its queries."""
    if not isinstance(status, Running):
        yield f"it does not run: {describe_status(status)}"
        return
    if not status.run.is_certain:  # its lease is longer than this command waits
        yield f"its heartbeat has not changed for {status.run.silence.still_s:.0f} s"
    for name, query in sorted(status.heartbeat.queries.items()):
        if query.failed:
            yield f"an error has ended query {name}"
    for name in status.heartbeat.unregistered:
        yield f"query {name} was {PAST_THE_AGENT}"


def _newest(
    repository: SavepointRepository, limit_s: float | None
) -> tuple[str | None, float | None, str, list[str]]:
    """Return the newest savepoint, its age, a text of both, and what is wrong with it."""
    found = newest_summary(repository)
    if found is None:
        return None, None, "none", ["it has no savepoint"] if limit_s is not None else []
    age_s = (now_ms() - found.taken_at_ms) / 1000
    faults = []
    if damage := damage_of(repository, found.savepoint_id):
        checked = f"damaged: {damage.found}"
        faults.append(f"its newest savepoint {found.savepoint_id} is {checked}")
    else:
        checked = "verified" if found.savepoint_id in verified_records(repository) else "not verified"
    if limit_s is not None and age_s > limit_s:
        faults.append(f"its newest savepoint is {_age(age_s)} old")
    return found.savepoint_id, age_s, f"{found.savepoint_id}, {_age(age_s)} old, {checked}", faults


def wanted_by(
    job: str, file: Path | None, master: str | None, python: str | None, log_dir: str | None
) -> Wanted:
    """Return how the options want the job to run."""
    definition = read_job(file, job) if file is not None else None
    return Wanted(definition=definition, master=master, python=python, log_dir=log_dir)


def launch_by(runs: JobView, root: str, wanted: Wanted) -> tuple[JobSpec, SubmitTarget]:
    """Return what to run and where: as at the last start, except for what the options give."""
    definition = wanted.definition
    try:
        spec, target = recorded_launch(runs)
    except JobNotRunningError:
        missing = {"--file": definition, "--master": wanted.master, "--python": wanted.python}
        if definition is None or wanted.master is None or wanted.python is None:
            names = ", ".join(name for name, value in missing.items() if value is None)
            raise BadInputError(
                f"The first start of job {runs.job} needs {names}: no earlier one took over.",
                state_after="Nothing was started.",
                remedy="Give them; later starts need none of them.",
            ) from None
        spec = JobSpec(
            name=definition.job, script=definition.script, checkpoint_root=default_checkpoint_root(root)
        )
        target = SubmitTarget(master=wanted.master, python=wanted.python, log_dir=str(Path.cwd() / "logs"))
    if definition is not None:
        spec = replace(
            spec,
            script=definition.script,
            args=definition.args,
            conf=dict(definition.conf),
            env=dict(definition.env),
        )
    chosen = {"master": wanted.master, "python": wanted.python, "log_dir": wanted.log_dir}
    given = {name: value for name, value in chosen.items() if value}
    return spec, target_of({**record_of(target), **given}, secret_env=target.secret_env)


def _start(
    client: JobClient,
    spec: JobSpec,
    target: SubmitTarget,
    origin: Origin,
    key: str | None,
    timeout_s: float,
    *,
    as_json: bool,
) -> None:
    claim_key = _claim_key(spec, target, origin, key)
    handle = client.starts.start(spec, target, claim_key=claim_key, origin=origin)
    running = client.drivers.wait_running(handle.generation, timeout_s=timeout_s)
    notes = [f"{query}, {one}" for query, one in notes_of(running.heartbeat)]
    tables = await_restored(client.view, handle.generation, timeout_s=timeout_s)
    notes += [f"{query}, {one}" for query, one in tables.items()]
    document = {
        "job": spec.name,
        "generation": handle.generation,
        "checkpoint_location": handle.checkpoint_location,
        "notes": notes,
    }
    for text in notes:
        note(f"Query {text}")
    text = (
        f"Job {spec.name} runs as generation {handle.generation}, checkpoints in {handle.checkpoint_location}"
    )
    show(document, text, as_json=as_json)


def _claim_key(spec: JobSpec, target: SubmitTarget, origin: Origin, key: str | None) -> str:
    """Return the key under which a start is claimed: a call with the same key and answers finds it."""
    given = {"leave_checkpoints": spec.leave_checkpoints} if spec.leave_checkpoints else {}
    asked = {"spec": launch_of(spec, target)["spec"], "origin": origin, **given}
    return f"{key}/{digest_of(asked=asked)}" if key else f"cli:{uuid.uuid4()}"


def _batch_ages_s(status: Running) -> dict[str, float | None]:
    now = now_ms()
    committed = {name: query.batch_committed_at_ms for name, query in status.heartbeat.queries.items()}
    return {name: None if at is None else max(0.0, (now - at) / 1000) for name, at in committed.items()}


def _age(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
