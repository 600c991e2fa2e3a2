"""The steps of every cutover: checks, standby, stop, takeover; until the takeover order all can be undone."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.cutover.context import late
from airflow_flinkstyle.jobs.errors import (
    DONE_BEFORE,
    MIGRATION_BUSY,
    NO_ROOM,
    DriverFailedError,
    NotTestedError,
    RequestFailedError,
)
from airflow_flinkstyle.jobs.journal import read_unrested
from airflow_flinkstyle.jobs.placement import beyond, footprint, lack
from airflow_flinkstyle.jobs.request import SavepointOnly
from airflow_flinkstyle.jobs.request_slot import PendingRequest
from airflow_flinkstyle.jobs.status import Failed, NeverStarted, Running, describe_status, stays_down

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_flinkstyle.jobs.client import JobClient
    from airflow_flinkstyle.jobs.cutover.context import CutoverContext
    from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget
    from airflow_flinkstyle.jobs.status import Run
    from airflow_flinkstyle.jobs.view import JobView
    from airflow_flinkstyle.protocol.records import Heartbeat
    from airflow_flinkstyle.types import Generation

log = logging.getLogger(__name__)

_CLAIMED = ("next", "new", "rollback", "return")


def refuse_another(context: CutoverContext, old: Generation) -> None:
    """Refuse while another cutover moves the same run, or brought it here, and is not at rest.

    Raises:
        JobError: ``MIGRATION_BUSY`` naming it.
    """
    board, client = context.client.view.board, context.client
    journals = read_unrested(board.store, board.job)
    for migration_id in journals.keys() - {context.journal.migration_id, context.part_of}:
        begun = {record.phase: record for record in journals[migration_id]}
        made = {client.view.own_claim(f"{migration_id}/{which}") for which in _CLAIMED}
        if old in made | {begun["standby"].intent.get("old")}:
            raise MIGRATION_BUSY.with_text(
                f"Generation {old} of job {board.job} was expected to be in no migration, found "
                f"migration or upgrade {migration_id} under way.",
                state_after="This one changed nothing; the other one continues.",
                remedy="Wait until the other one's last task has settled it; if no task works on it, "
                "settle it (flinkstyle migration settle). If it was this task with other answers, restore "
                "those and clear it.",
            )


# A finished cutover that is asked for once more: either the job is still as it left it, or that is an error.
#
# A retry cannot be told from a clear: doing it again could undo what a person has done since.


def require_still(context: CutoverContext, what: str, is_so: Callable[[Run], bool]) -> None:
    """Require that the job is as a finished cutover has left it.

    Args:
        context: The cutover.
        what: What was asked for, to follow "the job was expected to".
        is_so: Whether a later run is what was asked for too.

    Raises:
        JobError: ``DONE_BEFORE`` if it is not, naming what runs now.
    """
    client, done = context.client, (context.journal.result("takeover") or {}).get("generation")
    status = client.view.settled_status()
    runs = not isinstance(status, (NeverStarted, Failed)) and not stays_down(status)
    if not isinstance(status, NeverStarted) and runs and (status.run.generation == done or is_so(status.run)):
        return
    raise DONE_BEFORE.with_text(
        f"Job {client.view.job} was expected to {what}, as {context.journal.migration_id} has left it in "
        f"generation {done}, found that {describe_status(status)}.",
        state_after="Nothing was changed: it was done before, and more has happened since.",
        remedy="Trigger a new run of the DAG if it is to be done once more.",
    )


# Whether a cluster has room for the next driver beside the one that runs, before anything is started.


def require_room(runs: JobView, spec: JobSpec, target: SubmitTarget) -> tuple[str, bool]:
    """Return what the next driver takes while it waits, as a sentence, and whether all of that is free.

    What is merely not free is no error: a cluster may grow, and a driver begins with fewer executors.

    Raises:
        BadInputError: If it takes more than the Spark connection allows.
        JobError: ``NO_ROOM`` if a quota or a queue's limit does not let it begin with one executor.
    """
    needed = footprint(spec, target)
    if (over := beyond(needed, target)) is not None:
        raise BadInputError(
            f"The next driver of job {spec.name} was expected to take no more than the Spark connection "
            f"allows, found {over}.",
            state_after="Nothing was started or stopped.",
            remedy="Raise standby-cores or standby-memory in the connection's extra, give the job less "
            "(spark.executor.instances), or upgrade with standby='none'.",
        )
    ask = getattr(runs.deployment_for(target), "room", None)
    room = ask() if ask is not None else None
    if room is not None and (short := lack(needed.least, room.limit)) is not None:
        raise NO_ROOM.with_text(
            f"Room for {needed} was expected beside the driver of job {spec.name}, found that {short}.",
            state_after="Nothing was started or stopped; the job keeps running.",
            remedy="Free what others hold, or raise the quota or the queue's limit; an upgrade can do "
            "without a second driver (standby='none').",
        )
    sentence = f"Beside the driver that runs, the next one waits until it takes over: {needed}."
    if (short := lack(needed, room)) is None:
        log.info("%s", sentence)
        return sentence, True
    sentence += f" Now {short}: it may wait, or begin with fewer executors."
    log.warning("%s", sentence)
    return sentence, False


PRECOPY = "precopy"
"""The phase that saves once more, when the next driver waits."""


def start_standby(context: CutoverContext) -> Mapping[str, Any]:
    """Start the next driver and wait until it is ready, before anything is held or stopped.

    Returns:
        Generations ``old`` and ``new``; ``rehearsal``, its outcome as a line and as a table, or None.

    Raises:
        NotTestedError: If the rehearsal read no rows of a query, and that is not allowed.
    """
    client, rehearse = context.client, context.rehearse
    if context.new is None:
        context.require_same_run()
        require_room(client.view, context.spec, context.target)
    timeout_s = context.settings.standby_timeout_s + (rehearse.timeout_s if rehearse is not None else 0)
    handle = client.starts.standby(
        context.spec,
        context.target,
        claim_key=context.next_key,
        prepare_savepoint_id=context.hot_savepoint_id,
        rehearse=rehearse,
    )
    client.requests.ask_to_attend(context.old(), timeout_s + context.settings.stop_timeout_s)

    def has_come_up(heartbeat: Heartbeat) -> bool:
        return heartbeat.state == "standby" and bool(heartbeat.application_id)  # its script has come up

    try:
        await_heartbeat(client, handle.generation, has_come_up, "come up and wait", timeout_s)
    except DriverFailedError:
        rehearsal_report(client.view, handle.generation)
        raise
    report = rehearsal_report(client.view, handle.generation) if rehearse is not None else None
    if rehearse is not None and not rehearse.allow_untested:
        _require_tested(client.view, handle.generation)
    return {"old": context.old(), "new": handle.generation, "rehearsal": report}


def await_heartbeat(
    client: JobClient,
    generation: Generation,
    is_ready: Callable[[Heartbeat], bool],
    what: str,
    timeout_s: float,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Wait until the heartbeat of a waiting driver shows that it is ready; raise if it ends, or is late."""
    wait = client.view.waiting(timeout_s)
    while True:
        run = client.view.run(generation)
        if run.heartbeat is not None and is_ready(run.heartbeat):
            return
        if run.is_over or not run.holds_the_job:
            raise client.drivers.driver_failed(client.drivers.end_stuck(run))
        if not wait.again():
            raise late("The next driver", what, timeout_s, found=run.successor)
        check()


def rehearsal_report(runs: JobView, generation: Generation) -> Mapping[str, str] | None:
    """Return the outcome of a rehearsal, as a line and as a table; None if none was recorded."""
    rehearsal = runs.board.rehearsal(generation)
    if rehearsal is None:
        return None
    log.info("Generation %d: %s", generation, rehearsal.as_markdown())
    return {"summary": rehearsal.summary(), "table": rehearsal.as_markdown()}


def _require_tested(runs: JobView, generation: Generation) -> None:
    rehearsal = runs.board.rehearsal(generation)
    if rehearsal is not None and rehearsal.not_tested:
        raise NotTestedError.of(rehearsal.savepoint_id, rehearsal.not_tested)


def save(context: CutoverContext, name: str) -> Mapping[str, Any]:
    """Take a hot savepoint, so that little is left to copy in the window."""
    key, timeout_s = f"{context.journal.migration_id}/{name}", context.settings.stop_timeout_s
    begun = context.client.requests.begin_savepoint(key, timeout_s=timeout_s)
    if isinstance(begun, PendingRequest):
        begun = context.client.requests.finish_savepoint(begun, timeout_s=timeout_s)
    return {"savepoint_id": begun.savepoint_id}


def precopy(context: CutoverContext) -> Mapping[str, Any]:
    """Save once more, and wait until the driver that waits has copied that.

    What has changed since the first hot savepoint, which may be hours old, is uploaded and copied before the
    window and not in it.
    """
    client, new = context.client, context.new
    waits = new is not None and client.view.claim(new).prepare_savepoint_id is not None
    if new is None or not waits or not isinstance(client.view.settled_status(), Running):
        return {"savepoint_id": None}
    saved = save(context, PRECOPY)
    client.view.board.write_precopy(new, saved["savepoint_id"])

    def has_copied(heartbeat: Heartbeat) -> bool:
        return bool(heartbeat.precopied == saved["savepoint_id"])

    timeout_s = context.settings.standby_timeout_s
    await_heartbeat(client, new, has_copied, "copy a savepoint", timeout_s, context.journal.check)
    client.requests.ask_to_attend(context.old(), context.settings.stop_timeout_s)
    return saved


def stop(context: CutoverContext) -> Mapping[str, Any]:
    """Stop the job with a savepoint; read to the end of its inputs if the stop's mode says so."""
    outcome = context.client.requests.stop(
        context.stop_key,
        savepoint=True,
        timeout_s=context.settings.stop_timeout_s,
        mode=context.stop_mode,
        confirm=context.journal.check,
    )
    if isinstance(outcome, SavepointOnly) or outcome.savepoint_id is None:
        found = outcome.reason if isinstance(outcome, SavepointOnly) else "it closed by itself"
        raise RequestFailedError(
            f"Job {context.client.view.job} was expected to stop with a savepoint, found: {found}",
            state_after="The savepoint, if there is one, is kept.",
            remedy="Try again.",
        )
    return {
        "generation": outcome.generation,
        "savepoint_id": outcome.savepoint_id,
        "batches": dict(outcome.batches),
    }


def takeover(context: CutoverContext) -> Mapping[str, Any]:
    """Wait until ``current.json`` names the new driver; start it again if it dies before that."""
    client, old, new = context.client, context.old(), context.new
    wait = client.view.waiting(context.settings.takeover_timeout_s)
    while True:
        current = client.view.board.current()
        named = current.value.generation if current else None
        if named is not None and named == new:
            return {"generation": named}
        if named is not None and named != old:
            raise DriverFailedError(
                f"Generation {new} was expected to take over, found that generation {named} did.",
                state_after="The job runs there.",
                remedy="Look at the newest try of the task.",
            )
        client.drivers.ensure_running()
        context.show_work()
        if not wait.again():
            raise late("The new driver", "take over", context.settings.takeover_timeout_s)
        context.journal.check()
