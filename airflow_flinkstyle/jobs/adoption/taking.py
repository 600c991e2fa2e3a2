"""Savepoints of a job that plain Spark runs, taken from outside while it runs or after it ended.

The files are captured as an agent does it: the logs first, then the state of that batch, from the beginning
again where Spark replaced a file meanwhile. What an agent adds is missing: queries are cut each where they
are, nothing drains or stops, and neither sinks nor Spark's version are recorded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.jobs.adoption.outside import UNKNOWN_SPARK, find_logs, inspect_queries
from airflow_flinkstyle.jobs.errors import HISTORY, AdoptedBeforeError, JobRunningError
from airflow_flinkstyle.jobs.start.choice import history_of
from airflow_flinkstyle.jobs.status import Running, Starting, describe_status
from airflow_flinkstyle.protocol.home import Home
from airflow_flinkstyle.savepoint.capture.copier import ignore
from airflow_flinkstyle.savepoint.capture.patience import STORE_PATIENCE_S
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.ids import new_savepoint_id
from airflow_flinkstyle.savepoint.repository.summary import newest_savepoint
from airflow_flinkstyle.storage.errors import ObjectChangedError, ObjectExistsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_flinkstyle.jobs.adoption.outside import NamedClusters, Outside
    from airflow_flinkstyle.jobs.view import JobView
    from airflow_flinkstyle.protocol.board import Slot
    from airflow_flinkstyle.protocol.home import HomeState
    from airflow_flinkstyle.savepoint.capture.copier import CaptureProgress
    from airflow_flinkstyle.savepoint.manifest import KafkaLog, Manifest
    from airflow_flinkstyle.types import Generation


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedCheckpoint:
    """Where the checkpoints of a job are that plain Spark runs, and what none of their files records."""

    checkpoints: Mapping[str, str]
    """Query name -> location."""
    clusters: NamedClusters
    """The Kafka clusters that the script reads, as a person named them."""
    spark_version: str | None = None
    """As a person named it; None for the oldest Spark that writes such files."""


def take_outside(
    runs: JobView,
    watched: WatchedCheckpoint,
    key: str,
    *,
    by: str,
    progress: Callable[[CaptureProgress], None] = ignore,
) -> Manifest:
    """Take a savepoint of a job that plain Spark runs, or ran; a retry with the same key finds it again.

    Nothing is asked of its driver, and nothing is written to its checkpoints. From then on the job is known
    as one that plain Spark runs: a start needs an adoption, or a savepoint that the caller names.

    Raises:
        AdoptedBeforeError: If the job was adopted: then its own driver takes its savepoints.
        JobError: ``HISTORY`` if the job has runs, or savepoints, of its own.
        FlinkstyleError: Whatever ``inspect_queries``, ``find_logs`` and ``take_savepoint`` raise.
    """
    savepoint_id = new_savepoint_id(runs.board.job, key)
    if (existing := runs.repository.find(savepoint_id)) is not None:
        return existing
    require_outside(runs, {"watched", "left"}, watched.checkpoints)
    queries = inspect_queries(watched.checkpoints, runs.open_checkpoint)
    logs = find_logs(queries, watched.clusters)
    record_home(runs, "watched", queries, by=by)
    return capture(runs, queries, logs, savepoint_id, spark_version=watched.spark_version, progress=progress)


def capture(
    runs: JobView,
    queries: Sequence[Outside],
    logs: Mapping[str, Mapping[str, KafkaLog]],
    savepoint_id: str,
    *,
    spark_version: str | None,
    at_rest: bool = False,
    progress: Callable[[CaptureProgress], None] = ignore,
) -> Manifest:
    """Capture the newest batch of each query; of one at rest, the batch that was read before."""
    sources = [
        QuerySource(
            name=one.name,
            checkpoint=one.checkpoint,
            kafka=logs[one.name],
            batch_id=one.batch_id if at_rest else None,
        )
        for one in queries
    ]
    known = [one.spark_version for one in queries if one.spark_version != UNKNOWN_SPARK]
    label = SavepointLabel(
        savepoint_id=savepoint_id,
        taken_at_ms=now_ms(),
        spark_version=spark_version or max(known, default=UNKNOWN_SPARK),
        taken_from_generation=None,
    )
    previous = newest_savepoint(runs.repository)
    return take_savepoint(
        runs.repository, sources, label, previous=previous, progress=progress, patience_s=STORE_PATIENCE_S
    )


def require_outside(runs: JobView, states: set[HomeState], named: Mapping[str, str]) -> Slot[Home] | None:
    """Require that plain Spark has the job as far as its records show, and return its home.

    Args:
        runs: The job.
        states: Which states its home may have, if it still binds the next start.
        named: Query name -> location, for the remedy.

    Raises:
        JobRunningError: If a driver of this package runs it, or is starting.
        AdoptedBeforeError: If it was adopted.
        JobError: ``HISTORY`` if it has runs, or savepoints, that no one has given back.
    """
    status = runs.status()
    if isinstance(status, (Running, Starting)):
        raise JobRunningError(
            f"Plain Spark was expected to have job {runs.board.job}, found that {describe_status(status)}.",
            state_after="Nothing was taken or adopted.",
            remedy="Choose another name for the job that plain Spark runs; or stop this one and give it back "
            "(flinkstyle job leave) first.",
        )
    slot, head = runs.board.home(), head_of(runs)
    if slot is not None and slot.value.binds(head) and slot.value.state != "leaving":
        if slot.value.state in states:
            return slot
        raise AdoptedBeforeError(
            f"Job {runs.board.job} was expected not to be adopted, found that it was, with savepoint "
            f"{slot.value.savepoint_id}.",
            state_after="Nothing was taken or adopted.",
            remedy="Start it; then its own driver takes its savepoints. Or give it back first "
            f"(flinkstyle job leave --job {runs.board.job}).",
        )
    history = history_of(runs)
    if history is not None:
        where = " ".join(f"--checkpoint {name}={location}" for name, location in sorted(named.items()))
        raise HISTORY.with_text(
            f"Job {runs.board.job} was expected to have no history here, so that the checkpoint's can be its "
            f"own, found {history}.",
            state_after="Nothing was taken or adopted.",
            remedy=f"Choose another name for it ({where}); or give this job back (flinkstyle job leave), "
            "which closes its history.",
        )
    return slot


def record_home(
    runs: JobView,
    state: HomeState,
    queries: Sequence[Outside],
    *,
    by: str,
    savepoint_id: str | None = None,
    since: OutsideRecord | None = None,
) -> OutsideRecord:
    """Record who runs the job, and return what is recorded now.

    A job that was left stays so while its savepoints are taken from outside: that also names the way back.

    Args:
        runs: The job.
        state: The new state of its home.
        queries: Its checkpoints.
        by: Who asks, for people to read.
        savepoint_id: What it continues from.
        since: What this caller read before it began: what another one has recorded or started since stands.
            None for what is recorded now.

    Raises:
        AdoptedBeforeError: If another caller recorded something else, or a driver has taken over since.
    """
    since = since if since is not None else read_outside(runs)
    slot, head = since.slot, since.head
    home = Home(
        state=state,
        checkpoints={one.name: one.as_record() for one in queries},
        savepoint_id=savepoint_id,
        after=head,
        by=by,
        at_ms=now_ms(),
    )
    if slot is not None and slot.value.binds(head) and state == "watched":
        known = {name: one.location for name, one in slot.value.checkpoints.items()}
        same = known == {one.name: one.location for one in queries}
        if slot.value.state == "left" or (slot.value.state == "watched" and same):
            return since
    try:
        runs.board.put_home(home, seen=slot)
    except (ObjectChangedError, ObjectExistsError) as error:
        found = runs.board.home()
        if found is not None and replace(found.value, at_ms=0, by="") == replace(home, at_ms=0, by=""):
            return OutsideRecord(slot=found, head=head)
        raise AdoptedBeforeError(
            f"Job {runs.board.job} was expected to be left alone, found that another caller takes or adopts "
            "it at this moment.",
            state_after="Nothing was adopted.",
            remedy="Look at what that caller did (flinkstyle job status), then try again.",
        ) from error
    if head_of(runs) != head:
        raise AdoptedBeforeError(
            f"Job {runs.board.job} was expected not to start before it was adopted, found that generation "
            f"{head_of(runs)} has taken it over since.",
            state_after="The job continues as it was started; nothing was adopted.",
            remedy="Find out who started it, and from what (flinkstyle job status).",
        )
    return OutsideRecord(slot=runs.board.home(), head=head)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideRecord:
    """What is recorded of a job that plain Spark may run, as a caller read it."""

    slot: Slot[Home] | None
    head: Generation | None
    """Of the job, read before ``slot``: what is recorded for it binds no start of a later head."""


def read_outside(runs: JobView) -> OutsideRecord:
    """Return what is recorded now."""
    head = head_of(runs)
    return OutsideRecord(slot=runs.board.home(), head=head)


def head_of(runs: JobView) -> Generation | None:
    """Return the newest generation that took the job over; None before the first."""
    current = runs.board.current()
    return current.value.head if current is not None else None
