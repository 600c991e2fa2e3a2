"""Jobs that move in from plain Spark, and out again, through the connections of a hook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.hooks.launches import arguments, mapping

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from airflow_flinkstyle.hooks.job import StreamingJobHook
    from airflow_flinkstyle.jobs.adoption.ending import Ending
    from airflow_flinkstyle.jobs.adoption.taking import WatchedCheckpoint
    from airflow_flinkstyle.jobs.journal import CutoverJournal
    from airflow_flinkstyle.savepoint.manifest import Manifest

_LEAST_PID = 2
"""Process 1 is the machine's."""


def watched_checkpoint(
    hook: StreamingJobHook,
    checkpoints: Mapping[str, Any] | str | None,
    kafka_conn_ids: Sequence[str] | str | None,
    spark_version: str | None,
) -> WatchedCheckpoint:
    """Return the checkpoints and clusters of a job that plain Spark runs, from an operator's arguments.

    Args:
        hook: With the Kafka connections.
        checkpoints: Query name -> location; also as JSON.
        kafka_conn_ids: Of the clusters that the script reads; also as one text with commas.
        spark_version: Which Spark wrote the checkpoints; None if unknown.
    """
    from airflow_flinkstyle.jobs.adoption.outside import LiveClusters
    from airflow_flinkstyle.jobs.adoption.taking import WatchedCheckpoint

    return WatchedCheckpoint(
        checkpoints=locations(checkpoints),
        clusters=LiveClusters([hook.kafka(conn_id) for conn_id in names(kafka_conn_ids)]),
        spark_version=spark_version or None,
    )


def locations(given: Mapping[str, Any] | str | None) -> dict[str, str]:
    """Return query name -> location, as a form or an author gives it."""
    by_query = mapping(given)
    if not all(isinstance(location, str) and location for location in by_query.values()):
        raise BadInputError(
            f"A location for each query was expected, found {dict(by_query)}.",
            state_after="Nothing was done.",
            remedy='Give them as {"query": "s3a://bucket/checkpoint"}.',
        )
    return {str(name): str(location) for name, location in by_query.items()}


def names(given: Sequence[str] | str | None) -> list[str]:
    """Return names, as a list or as one text with commas gives them."""
    return [name.strip() for name in (given.split(",") if isinstance(given, str) else given or ()) if name]


def ending(pid: int | str | None, command: str | None, gone: str | None) -> Ending:
    """Return what ends the old driver: a process of this machine, or a command; one of them is needed."""
    from airflow_flinkstyle.jobs.adoption.ending import EndByCommand, EndProcess

    if (pid is None) == (not command):
        raise BadInputError(
            f"Either end_pid or end_command was expected, found {pid!r} and {command!r}.",
            state_after="Nothing was ended; the old job runs on.",
            remedy="Give the pid of the old driver on this machine, or the command that ends it.",
        )
    if pid is None:
        return EndByCommand(command=arguments(command), gone=arguments(gone))
    if not str(pid).isdigit() or int(pid) < _LEAST_PID:
        raise BadInputError(
            f"A process id was expected as end_pid, found {pid!r}.",
            state_after="Nothing was ended; the old job runs on.",
            remedy="Give the pid of the old driver's spark-submit.",
        )
    return EndProcess(pid=int(pid))


def ending_or_person(pid: int | str | None, command: str | None, gone: str | None) -> Ending:
    """Return what ends the old driver; without a process and a command a person is asked later to end it."""
    from airflow_flinkstyle.jobs.adoption.ending import EndByPerson

    return ending(pid, command, gone) if pid or command else EndByPerson(confirm=lambda: False)


def ending_by_answer(
    answer: Mapping[str, Any] | None, pid: int | str | None, command: str | None, gone: str | None
) -> Ending:
    """Return what ends the old driver, by a person's answer; None: there is none."""
    from airflow_flinkstyle.jobs.adoption.ending import EndByPerson

    if answer is None:
        return ending_or_person(pid, command, gone)
    who, answered_at_ms = f"{answer['by']}, at {answer['at']},", int(answer["at_ms"])
    return EndByPerson(confirm=lambda: bool(answer["ended"]), who=who, said_at_ms=answered_at_ms)


def adoption_journal(hook: StreamingJobHook, job: str, key: str) -> CutoverJournal:
    """Return the journal of the adoption of a running job."""
    from airflow_flinkstyle.jobs.adoption.running import ADOPTION_PHASES
    from airflow_flinkstyle.jobs.journal import CutoverJournal

    return CutoverJournal(hook.store, job, key, ADOPTION_PHASES, signer=hook.signer)


def keep_answer(
    hook: StreamingJobHook, job: str, key: str, *, by: str, at: datetime, choice: str, ended: bool
) -> None:
    """Keep in the journal who answered what about the old driver; a later answer takes its place."""
    at_ms = int(at.timestamp() * 1000)
    who = {"by": by, "at": at.isoformat(), "at_ms": at_ms, "choice": choice, "ended": ended}
    adoption_journal(hook, job, key).decide(who, approved=ended)


def answer_of(hook: StreamingJobHook, job: str, key: str) -> Mapping[str, Any] | None:
    """Return the newest answer; None if nobody was asked."""
    return adoption_journal(hook, job, key).decided()


def take_if_outside(
    hook: StreamingJobHook, job: str, key: str, watched: WatchedCheckpoint, *, by: str
) -> Manifest | None:
    """Take a savepoint of a job that plain Spark runs; None if this package runs the job by now."""
    from airflow_flinkstyle.hooks.progress import ProgressLog
    from airflow_flinkstyle.jobs.adoption.taking import take_outside

    client = hook.client(job)
    home = client.view.board.binding_home()
    if (home is None and client.view.board.current() is not None) or (
        home is not None and home.state == "adopted"
    ):
        return None
    return take_outside(client.view, watched, key, by=by, progress=ProgressLog(hook.log.info).captured)
