"""Give a job back to plain Spark: write its state where its script expects it, and record it as left."""

from __future__ import annotations

import contextlib
import logging
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.errors import BadInputError, FlinkstyleError
from airflow_flinkstyle.jobs.adoption.taking import OutsideRecord, head_of, read_outside
from airflow_flinkstyle.jobs.deployments.base import Program
from airflow_flinkstyle.jobs.errors import (
    LOCATION_NOT_EMPTY,
    NOT_ADOPTED,
    AdoptedBeforeError,
    JobNotRunningError,
    JobRunningError,
    RequestFailedError,
)
from airflow_flinkstyle.jobs.request import SavepointOnly
from airflow_flinkstyle.jobs.secrets import without_secrets
from airflow_flinkstyle.jobs.spec import submit_argv
from airflow_flinkstyle.jobs.start.home import require_still
from airflow_flinkstyle.jobs.status import NeverStarted, Running, Starting, describe_status
from airflow_flinkstyle.jobs.stopped.last_run import last_run_and_heartbeat, unverified_launch
from airflow_flinkstyle.jobs.stopped.saving import savepoint_at_rest, take_stopped
from airflow_flinkstyle.protocol.home import ADOPTED_KEY, AdoptedMark, Home, OutsideCheckpoint
from airflow_flinkstyle.protocol.places import MARK_KEY
from airflow_flinkstyle.savepoint.blobs.references import pins
from airflow_flinkstyle.savepoint.files.restore import is_unfinished, restore_savepoint
from airflow_flinkstyle.storage.errors import ObjectChangedError, ObjectExistsError
from airflow_flinkstyle.storage.open import is_of_hadoop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_flinkstyle.jobs.client import JobClient
    from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget
    from airflow_flinkstyle.jobs.view import JobView
    from airflow_flinkstyle.protocol.home import HomeState
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.savepoint.progress import FileProgress

log = logging.getLogger(__name__)
_OWN_SETTINGS = "spark.flinkstyle."


def _ignore(_: FileProgress) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A job that plain Spark has again."""

    job: str
    savepoint_id: str
    """What it continues from; an adoption finds it here again if the job has done nothing since."""
    checkpoints: Mapping[str, OutsideCheckpoint]
    spark_submit: str | None
    """The command that runs it as it ran here, with ``***`` in place of arguments that look like secrets;
    None if nothing recorded how it ran."""
    way_back: str
    """The command that adopts it again, with ``CONN`` for what no record here names."""
    notes: tuple[str, ...]
    """What a person must do by hand, and what stays here."""

    def as_dict(self) -> dict[str, object]:
        """Return plain values."""
        return {
            "job": self.job,
            "savepoint_id": self.savepoint_id,
            "batches": {name: int(one.batch_id) for name, one in self.checkpoints.items()},
            "checkpoints": {name: one.location for name, one in self.checkpoints.items()},
            "spark_submit": self.spark_submit,
            "way_back": self.way_back,
            "notes": list(self.notes),
        }


def leave(
    client: JobClient,
    to: Mapping[str, str],
    *,
    key: str,
    by: str,
    timeout_s: float = 3600.0,
    progress: Callable[[FileProgress], None] = _ignore,
) -> Left:
    """Stop a job with a savepoint and write each query's checkpoint where plain Spark is to find it.

    Batches that are planned come along: plain Spark runs them again with the same offsets. A retry continues
    where it was; nothing is stopped unless every location is empty. Until the records say that the job is
    left, Spark cannot start from what was written; from then on nothing starts here: at no moment can both.

    Args:
        client: The job.
        to: Query name -> the location that its script names. For a query that is not named it is the one
            that its last driver reported, or from which the job was adopted.
        key: Who asks, without the try number.
        by: Who asks, for people to read.
        timeout_s: How long the stop may take.
        progress: Called after each file that was written.

    Raises:
        BadInputError: If a query has no location here, or two have one.
        JobError: ``LOCATION_NOT_EMPTY`` if a location holds something.
        JobError: ``NOT_ADOPTED`` if plain Spark has the job already.
        JobNotRunningError: If it was never started: there is nothing to give back.
        JobRunningError: If it was started here while its checkpoints were written.
        JobError: ``OLD_JOB_RUNS`` if it was adopted, not started yet, and the old job has continued.
        RequestFailedError: If the stop failed; the job runs on.
        FlinkstyleError: Whatever ``restore_savepoint`` raises: the job is stopped then, and the locations
            hold nothing that Spark would start from.
    """
    since = read_outside(client.view)
    before = since.slot.value if since.slot is not None and since.slot.value.binds(since.head) else None
    to = destinations(client.view, to)
    if before is not None and before.state == "left":
        return _left_before(client.view, since, to, progress)
    _require_named(client.view, to)
    begun = before if before is not None and before.state == "leaving" else None
    if begun is None or {name: one.location for name, one in begun.checkpoints.items()} != dict(to):
        _require_empty(client.view, to)
        manifest = _stopped(client, before, key, timeout_s)
        _require_queries(manifest, to)
        since = _record_home(
            client.view,
            "leaving",
            manifest,
            to,
            by,
            OutsideRecord(slot=since.slot, head=head_of(client.view)),
        )
    else:
        manifest = client.view.repository.read(begun.savepoint_id or "")
    _write(client.view, manifest, to, progress, complete=False)
    _require_not_started(client.view, since)
    recorded = _record_home(client.view, "left", manifest, to, by, since)
    _require_not_started(client.view, recorded)
    _write(client.view, manifest, to, progress, precopied=manifest)
    log.info("Job %s is left to plain Spark, with savepoint %s", client.view.job, manifest.savepoint_id)
    return _report(client.view, _home(recorded), manifest)


def destinations(runs: JobView, to: Mapping[str, str]) -> dict[str, str]:
    """Return query name -> location: as it is given, else where the query's own script expects it.

    A job that was left, or is being left, keeps the locations of that. For another one it is what its last
    driver reported of its script, or the location from which the job was adopted. A query without a known
    location is left out.
    """
    slot = runs.board.home()
    home = slot.value if slot is not None else None
    outside = {name: one.location for name, one in home.checkpoints.items()} if home is not None else {}
    if home is not None and home.binds(head_of(runs)) and home.state != "watched":
        return {**outside, **to}  # what ran here before knows other locations
    _, heartbeat = last_run_and_heartbeat(runs)
    reported = heartbeat.queries.items() if heartbeat is not None else ()
    known = {name: query.own_location or outside.get(name) for name, query in reported if query.query_id}
    return {**{name: location for name, location in known.items() if location is not None}, **to}


def _write(
    runs: JobView,
    manifest: Manifest,
    to: Mapping[str, str],
    progress: Callable[[FileProgress], None],
    *,
    complete: bool = True,
    precopied: Manifest | None = None,
) -> None:
    """Write the checkpoints; if they are not to be complete, without what lets Spark start from them."""
    restore_savepoint(
        manifest,
        runs.repository,
        lambda name: runs.open_checkpoint(to[name]),
        complete=complete,
        precopied=precopied,
        progress=progress,
    )


def _require_not_started(runs: JobView, since: OutsideRecord) -> None:
    """Require that no caller started the job here meanwhile; raises ``JobRunningError``."""
    status = runs.status()
    if head_of(runs) == since.head and not isinstance(status, (Running, Starting)):
        return
    raise JobRunningError(
        f"Job {runs.job} was expected to stay stopped while it was left, found that it was started "
        f"here: {describe_status(status)}.",
        state_after="Spark cannot start from what was written. The job runs here, or its driver finds that "
        "it was left, and ends.",
        remedy="See which (flinkstyle job status). If it runs, delete what was written to the locations, or "
        "name others. Then leave it again.",
    )


def _stopped(client: JobClient, before: Home | None, key: str, timeout_s: float) -> Manifest:
    """Return the savepoint of the stopped job; one that runs is stopped with it."""
    status = client.view.settled_status()
    if (
        before is not None and before.state == "adopted" and not isinstance(status, (Running, Starting))
    ):  # the adoption's savepoint holds its state, whatever ran here before
        require_still(client.view, before, state_after="Nothing was stopped or written.")
        return client.view.repository.read(before.savepoint_id or "")
    if isinstance(status, NeverStarted):
        raise JobNotRunningError(
            f"Job {client.view.job} was expected to have run here, found that {describe_status(status)}.",
            state_after="Nothing was stopped or written.",
            remedy="There is nothing to give back: no run of it was started here.",
        )
    if isinstance(status, (Running, Starting)):
        outcome = client.requests.stop(key, savepoint=True, timeout_s=timeout_s)
        if isinstance(outcome, SavepointOnly) or outcome.savepoint_id is None:
            found = outcome.reason if isinstance(outcome, SavepointOnly) else "it closed without one"
            raise RequestFailedError(
                f"Job {client.view.job} was expected to stop with a savepoint, found: {found}",
                state_after="Nothing was written to the locations; the job was not left.",
                remedy="Try again.",
            )
        return client.view.repository.read(outcome.savepoint_id)
    at_rest = savepoint_at_rest(client.view)
    return (
        client.view.repository.read(at_rest.savepoint_id)
        if at_rest is not None
        else take_stopped(client.view, key)
    )


def _require_named(runs: JobView, to: Mapping[str, str]) -> None:
    """Require a location of its own for each query that the job has, before it is stopped."""
    _, heartbeat = last_run_and_heartbeat(runs)
    reported = heartbeat.queries.items() if heartbeat is not None else ()
    known = [name for name, query in reported if query.query_id]
    missing = sorted(set(known) - set(to))
    if missing or not to:
        raise BadInputError(
            f"Expected the location of each query of job {runs.job}, found none of "
            f"{', '.join(missing) or 'any'}, and none that its driver has reported.",
            state_after="Nothing was stopped or written.",
            remedy="Name for each query the checkpointLocation that its script names (--to QUERY=LOCATION).",
        )
    places: dict[str, str] = {}
    for name, location in sorted(to.items()):
        if is_of_hadoop(location):
            raise BadInputError(
                f"A local folder or a place on S3 was expected for query {name}, found {location}: only "
                "Spark's own client writes there.",
                state_after="Nothing was stopped or written.",
                remedy=f"Name another place (--to {name}=FOLDER), then copy what is written there (hadoop fs "
                f"-put FOLDER {shlex.quote(location)}) before the script is started.",
            )
        other = places.setdefault(runs.open_checkpoint(location).uri.rstrip("/"), name)
        if other != name:
            raise BadInputError(
                f"Expected a location of its own for each query, found that {other} and {name} have one: "
                f"{location}.",
                state_after="Nothing was stopped or written.",
                remedy="Give each query the location that its own writeStream names.",
            )


def _require_queries(manifest: Manifest, to: Mapping[str, str]) -> None:
    """Require exactly the savepoint's queries; the job has stopped by now, and can be started again."""
    saved = {query.name for query in manifest.queries}
    if saved != set(to):
        raise BadInputError(
            f"Expected locations for the queries {', '.join(sorted(saved))} of savepoint "
            f"{manifest.savepoint_id}, found {', '.join(sorted(to))}.",
            state_after="Nothing was written; the job has stopped with that savepoint, and can start again.",
            remedy="Leave it again with those queries.",
        )


def _require_empty(runs: JobView, to: Mapping[str, str]) -> None:
    for name, location in sorted(to.items()):
        first = next(iter(runs.open_checkpoint(location).list()), None)
        if first is None:
            continue
        what = _held(runs, location, first.key)
        raise LOCATION_NOT_EMPTY.with_text(
            f"{location} was expected to be empty, to receive the checkpoint of query {name}, found {what}.",
            state_after="Nothing was stopped or written; the job keeps running.",
            remedy="Move what is there away (an old checkpoint of this query is not needed), or name "
            f"another place (--to {name}=LOCATION) and give that to the script.",
        )


def _held(runs: JobView, location: str, first: str) -> str:
    """Describe what a location holds, of which ``first`` is the first key."""
    if first == MARK_KEY:
        return "the checkpoint of a job of this package"
    found = runs.open_checkpoint(location).get(ADOPTED_KEY)
    if found is not None:
        with contextlib.suppress(FlinkstyleError):
            mark = AdoptedMark.from_bytes(found.data)
            return f"the checkpoint of which job {mark.job} was made, at batch {mark.batch_id}"
    return f"{first} and more"


def _record_home(
    runs: JobView,
    state: HomeState,
    manifest: Manifest,
    to: Mapping[str, str],
    by: str,
    since: OutsideRecord,
) -> OutsideRecord:
    """Record how far the leaving is, unless another caller has recorded anything since; return the record."""
    checkpoints = {
        query.name: OutsideCheckpoint(
            location=to[query.name],
            query_id=query.query_id,
            batch_id=query.batch_id,
            planned=query.planned_offsets is not None,
        )
        for query in manifest.queries
    }
    home = Home(
        state=state,
        checkpoints=checkpoints,
        savepoint_id=manifest.savepoint_id,
        after=since.head,
        by=by,
        at_ms=now_ms(),
    )
    try:
        runs.board.put_home(home, seen=since.slot)
    except (ObjectChangedError, ObjectExistsError) as error:
        found = runs.board.home()
        if found is None or replace(found.value, at_ms=0) != replace(home, at_ms=0):
            raise AdoptedBeforeError(
                f"Job {runs.job} was expected to be left alone, found that another caller leaves or "
                "adopts it at this moment.",
                state_after="The job is stopped, and not left.",
                remedy="Look at what that caller did, then leave it again.",
            ) from error
    return OutsideRecord(slot=runs.board.home(), head=since.head)


def _home(record: OutsideRecord) -> Home:
    if record.slot is None:
        raise AssertionError("it was written at this moment")
    return record.slot.value


def _left_before(
    runs: JobView, since: OutsideRecord, to: Mapping[str, str], progress: Callable[[FileProgress], None]
) -> Left:
    """Complete what a killed try left unfinished, then report it again."""
    home = _home(since)
    written = {name: one.location for name, one in home.checkpoints.items()}
    if written != dict(to):
        raise NOT_ADOPTED.with_text(
            f"Job {runs.job} was expected to be run from here, found that it was left before, to "
            f"{', '.join(f'{name}={location}' for name, location in sorted(written.items()))}.",
            state_after="Nothing was changed.",
            remedy="Plain Spark has it: copy its checkpoint yourself while it is stopped; or adopt it, and "
            "leave it again.",
        )
    manifest = runs.repository.read(home.savepoint_id or "")
    unfinished = [one for one in manifest.queries if is_unfinished(runs.open_checkpoint(to[one.name]))]
    if unfinished:  # others may run by now
        _require_not_started(runs, since)
        _write(runs, replace(manifest, queries=tuple(unfinished)), to, progress)
    return _report(runs, home, manifest)


def _report(runs: JobView, home: Home, manifest: Manifest) -> Left:
    launch = unverified_launch(runs)
    named = sorted(home.checkpoints.items())
    cluster = " --kafka-conn-id CONN" if any(query.kafka for query in manifest.queries) else ""
    back = "".join(f" --checkpoint {shlex.quote(f'{name}={one.location}')}" for name, one in named)
    return Left(
        job=runs.job,
        savepoint_id=manifest.savepoint_id,
        checkpoints=home.checkpoints,
        spark_submit=_command(*launch) if launch is not None else None,
        way_back=f"flinkstyle job adopt --job {runs.job}{back}{cluster}",
        notes=tuple(_notes(runs, home, launch)),
    )


def _command(spec: JobSpec, target: SubmitTarget) -> str:
    conf = {
        name: value
        for name, value in {**target.conf, **spec.conf}.items()
        if not name.startswith(_OWN_SETTINGS)
    }
    program = Program(
        conf=conf,
        application=spec.script,
        arguments=without_secrets(spec.args),
        jars=target.jars,
        packages=target.packages,
    )
    env = "".join(f"{name}={shlex.quote(value)} " for name, value in sorted(spec.env.items()))
    return env + shlex.join(submit_argv(program, target, name=spec.name))


def _notes(runs: JobView, home: Home, launch: tuple[JobSpec, SubmitTarget] | None) -> list[str]:
    """Return sentences on what the script must name, and on what stays here."""
    notes = [
        f"The script of query {name} must name checkpointLocation {one.location}."
        for name, one in sorted(home.checkpoints.items())
    ]
    if launch is not None:
        spec, _ = launch
        for rule in spec.overrides:
            renamed = f", topics renamed {dict(rule.rename)}" if rule.rename else ""
            notes.append(
                f"This package set options over the script's own for servers {rule.servers} "
                f"({', '.join(sorted(rule.options)) or 'none'}{renamed}): write them into the script first, "
                "else it reads another cluster at these offsets."
            )
        if without_secrets(spec.args) != spec.args:
            notes.append("Arguments that look like secrets are shown as ***: write them back.")
        if spec.script == "-m":
            notes.append("spark-submit takes no module: give it a file that imports it.")
    planned = [name for name, one in home.checkpoints.items() if one.planned]
    if planned:
        notes.append(f"A batch of {', '.join(sorted(planned))} is planned: Spark runs it first, as it was.")
    held = sorted(pins(runs.repository))
    notes.append(
        "What stays here: the savepoints"
        + (f", of which {', '.join(held)} are pinned" if held else "")
        + ", the job's records and its checkpoints (DAG dispose_savepoints, flinkstyle savepoint prune), the "
        "connections, the DAGs that name the job: pause those that watch or rotate it."
    )
    return notes
