"""``flinkstyle job adopt|leave``: a job moves in from plain Spark, and out again."""

import shlex
import uuid
from collections.abc import Mapping
from typing import Annotated

import typer

from airflow_flinkstyle.cli.factories import client_of, require_job, whoami
from airflow_flinkstyle.cli.kafka.options import KafkaConfigs, KafkaConns, all_clusters
from airflow_flinkstyle.cli.options import AsJson, Job, Key, Root, TimeoutS, Yes
from airflow_flinkstyle.cli.output import batches, confirm, note, progress_bar, show, table
from airflow_flinkstyle.cli.run import Definitions, LogDir, Master, Python, launch_by, wanted_by
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.adoption.ending import EndByCommand, EndByPerson, Ending, EndProcess
from airflow_flinkstyle.jobs.adoption.leaving import destinations
from airflow_flinkstyle.jobs.adoption.leaving import leave as leave_job
from airflow_flinkstyle.jobs.adoption.outside import LiveClusters
from airflow_flinkstyle.jobs.adoption.running import ADOPTION_PHASES, RunningAdoption
from airflow_flinkstyle.jobs.adoption.stopped import adopt_stopped
from airflow_flinkstyle.jobs.adoption.taking import WatchedCheckpoint
from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.request_slot import digest_of
from airflow_flinkstyle.protocol.rehearsal_records import Rehearse

Checkpoints = Annotated[
    list[str],
    typer.Option(
        "--checkpoint",
        help="QUERY=LOCATION: a query's name and the checkpointLocation that its script names; repeated.",
        show_default=False,
    ),
]
SparkVersion = Annotated[
    str | None,
    typer.Option(help="Which Spark wrote it, if you know."),
]


def adopt(
    root: Root,
    job: Job,
    checkpoints: Checkpoints,
    kafka_configs: KafkaConfigs = None,
    kafka_conn_ids: KafkaConns = None,
    spark_version: SparkVersion = None,
    still_s: Annotated[
        float | None,
        typer.Option(
            "--still",
            help="For how many seconds nothing may have been written.",
            show_default="3 of its intervals, 5 to 120",
            min=0,
        ),
    ] = None,
    mark: Annotated[
        bool, typer.Option(help="Leave _adopted.json in the old location, which Spark does not read.")
    ] = True,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Adopt a job that plain Spark ran and that has stopped: its checkpoint becomes the first savepoint here.

    The next start (flinkstyle job start) continues at that batch. No file of Spark's is changed.
    """
    watched = watched_checkpoint(checkpoints, kafka_configs, kafka_conn_ids, spark_version)
    client = client_of(root, job)
    with progress_bar(f"adopt {job}") as move:
        adoption = adopt_stopped(
            client.view,
            watched,
            key=key or f"cli:{uuid.uuid4()}",
            by=whoami(),
            still_s=still_s,
            mark=mark,
            progress=move,
        )
    rows = [("job", job), ("savepoint", adoption.manifest.savepoint_id)]
    rows += [
        (f"query {query.name}", f"batch {query.batch_id}, {query.checkpoint_location}")
        for query in adoption.manifest.queries
    ]
    rows += [("note" if not number else "", text) for number, text in enumerate(adoption.notes)]
    rows += [("next", f"flinkstyle job start --job {job} --file JOBS --master MASTER --python PYTHON")]
    show(adoption.as_dict(), table("", "", rows=rows), as_json=as_json)


def adopt_running(
    root: Root,
    job: Job,
    checkpoints: Checkpoints,
    file: Definitions = None,
    master: Master = None,
    python: Python = None,
    log_dir: LogDir = None,
    kafka_configs: KafkaConfigs = None,
    kafka_conn_ids: KafkaConns = None,
    spark_version: SparkVersion = None,
    end_pid: Annotated[
        int | None,
        typer.Option(help="The old driver: its spark-submit on this machine, which is ended.", min=2),
    ] = None,
    end_command: Annotated[
        str | None, typer.Option(help="What ends the old driver; no shell. It must succeed twice.")
    ] = None,
    gone_command: Annotated[
        str | None, typer.Option(help="Succeeds once the driver has ended; run until it does.")
    ] = None,
    still_s: Annotated[
        float | None,
        typer.Option(
            "--still",
            help="For how many seconds nothing may be written after its end.",
            show_default="0.5 for a process, else 3 of its intervals, 5 to 120",
            min=0,
        ),
    ] = None,
    rehearse: Annotated[
        int, typer.Option(help="Batches to try on a copy of the state first; 0 for none.", min=0)
    ] = 1,
    give_up: Annotated[
        bool,
        typer.Option("--give-up", help="End the driver that an earlier call with this --key left waiting."),
    ] = False,
    key: Key = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Adopt a job while plain Spark runs it: a driver loads its state, and takes over when the old one ends.

    Without --end-pid and --end-command you are asked to end the old driver at the right moment. A call with
    the same --key continues one that failed.
    """
    if give_up and key is None:
        raise typer.BadParameter("give --give-up with the --key of the call that left a driver waiting")
    client = client_of(root, job)
    spec, target = launch_by(client.view, root, wanted_by(job, file, master, python, log_dir))
    key = key or f"cli-{uuid.uuid4()}"
    adoption = RunningAdoption(
        client=client,
        journal=CutoverJournal(
            client.view.board.store,
            job,
            f"adopt-{digest_of(key)}",
            ADOPTION_PHASES,
            signer=client.view.signer,
        ),
        spec=spec,
        target=target,
        rehearse=Rehearse(batches=rehearse) if rehearse else None,
        watched=watched_checkpoint(checkpoints, kafka_configs, kafka_conn_ids, spark_version),
        ending=_ending(end_pid, end_command, gone_command),
        by=whoami(),
        still_s=still_s,
    )
    if give_up:
        _give_up(adoption, key, as_json=as_json)
        return
    confirm(f"Adopt job {job}, and end its old driver?", yes=yes)
    if not as_json:
        note(f"Adopting job {job}, with key {key}.")
    done = adoption.run()
    down = f"{done.down_s:.1f} s" if done.down_s is not None else "unknown: nothing was to be read"
    rows = [
        ("job", job),
        ("savepoint", done.savepoint_id),
        ("generation", done.generation),
        ("adopted at", batches(dict(done.batches))),
        ("old driver", f"{done.ended}; its checkpoint stood still for {done.stood_s:g} s after that"),
        ("down for", down),
    ]
    show(done.as_dict(), table("", "", rows=rows), as_json=as_json)


def _give_up(adoption: RunningAdoption, key: str, *, as_json: bool) -> None:
    job = adoption.client.view.job
    if not adoption.journal.has_begun:
        raise BadInputError(
            f"An adoption of job {job} with key {key} was expected to have begun, found none.",
            state_after="Nothing was ended.",
            remedy="Give the key that the call printed.",
        )
    adoption.journal.begin(lambda: 0)
    waiting = adoption.new
    adoption.give_up(f"{whoami()} gave it up.")
    ended = f" The driver of generation {waiting} was ended." if waiting is not None else ""
    text = f"The adoption of job {job} was given up. {adoption.old_job}.{ended}"
    document = {"job": job, "given_up": True, "old_job": adoption.old_job, "ended_generation": waiting}
    show(document, text, as_json=as_json)


def _ending(pid: int | None, command: str | None, gone: str | None) -> Ending:
    if pid is not None and command is not None:
        raise typer.BadParameter("give --end-pid or --end-command, not both")
    if pid is not None:
        return EndProcess(pid=pid)
    if command is not None:
        return EndByCommand(command=shlex.split(command), gone=shlex.split(gone or ""))
    return EndByPerson(confirm=lambda: typer.confirm("End the old driver now. Has it ended?", err=True))


def leave(
    root: Root,
    job: Job,
    to: Annotated[
        list[str] | None,
        typer.Option(
            "--to",
            help="QUERY=LOCATION: where the query's script looks for its checkpoint; repeated.",
            show_default="what the script names",
        ),
    ] = None,
    key: Key = None,
    yes: Yes = False,
    timeout_s: TimeoutS = 3600.0,
    as_json: AsJson = False,
) -> None:
    """Give a job back to plain Spark: stop it with a savepoint, and write its checkpoints where they belong.

    Each location must be empty.

    Prints the spark-submit that continues the job, and what stays behind.
    """
    given = named_locations(to or [], "--to")
    require_job(root, job)
    client = client_of(root, job)
    places = destinations(client.view, given)
    shown = ", ".join(f"{name} in {location}" for name, location in sorted(places.items()))
    confirm(f"Stop job {job} and leave it to plain Spark ({shown or 'nowhere'})?", yes=yes)
    key = key or f"cli:{uuid.uuid4()}"
    if not as_json:
        note(f"Leaving job {job}, with key {key}.")
    with progress_bar(f"leave {job}") as move:
        result = leave_job(client, places, key=key, by=whoami(), timeout_s=timeout_s, progress=move)
    rows = [("job", job), ("savepoint", result.savepoint_id)]
    rows += [
        (f"query {name}", f"batch {one.batch_id}, {one.location}")
        for name, one in sorted(result.checkpoints.items())
    ]
    rows += [
        ("run it", result.spark_submit or "as it ran before it was adopted"),
        ("way back", result.way_back),
    ]
    rows += [("note" if not number else "", text) for number, text in enumerate(result.notes)]
    show(result.as_dict(), table("", "", rows=rows), as_json=as_json)


def watched_checkpoint(
    checkpoints: list[str] | None,
    kafka_configs: KafkaConfigs,
    kafka_conn_ids: KafkaConns,
    spark_version: str | None,
) -> WatchedCheckpoint:
    """Return the checkpoint of plain Spark that the options name."""
    return WatchedCheckpoint(
        checkpoints=named_locations(checkpoints or [], "--checkpoint"),
        clusters=LiveClusters(all_clusters(kafka_configs, kafka_conn_ids)),
        spark_version=spark_version,
    )


def named_locations(pairs: list[str], option: str) -> Mapping[str, str]:
    """Return query name -> location from ``QUERY=LOCATION``."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, location = pair.partition("=")
        if not (name and equals and location):
            raise typer.BadParameter(f"expected QUERY=LOCATION, found {pair!r}", param_hint=option)
        if name in found:
            raise typer.BadParameter(f"query {name} is named twice", param_hint=option)
        found[name] = location
    return found
