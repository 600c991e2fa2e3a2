"""Which start a caller gets: the one that it named, or where the job was by the job's own records.

A job with a history starts fresh only if a person names the history that it gives up. If its last state is
out of reach, only another copy of the same state may replace it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.errors import HISTORY, LastStateError, RewindError
from airflow_flinkstyle.jobs.start import origins
from airflow_flinkstyle.jobs.start.home import from_home
from airflow_flinkstyle.jobs.start.origins import Fresh, FromCheckpoint, FromSavepoint, LastState, StartPlan
from airflow_flinkstyle.jobs.start.tables import require_tables
from airflow_flinkstyle.jobs.stopped import last_run
from airflow_flinkstyle.protocol.head import read_line
from airflow_flinkstyle.python_versions import assert_never
from airflow_flinkstyle.savepoint.repository.summary import list_savepoints
from airflow_flinkstyle.types import ids_differ
from airflow_flinkstyle.wording import batch_words

if TYPE_CHECKING:
    from airflow_flinkstyle.errors import FlinkstyleError
    from airflow_flinkstyle.jobs.start.origins import Origin
    from airflow_flinkstyle.jobs.view import JobView
    from airflow_flinkstyle.savepoint.repository.summary import Summary

_SHOWN = 5
"""How many savepoints a message names."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorState:
    """The history of a job: the batches of its last run, or savepoints that no run of it has made."""

    name: str
    """Names exactly this history when a person gives it up: ``generation 3``, or a savepoint's id."""
    where: str
    """How far it came, in words."""
    savepoints: tuple[Summary, ...]
    """The newest first."""

    def __str__(self) -> str:
        """Describe it for messages."""
        named = ", ".join(one.savepoint_id for one in self.savepoints[:_SHOWN])
        more = f" and {len(self.savepoints) - _SHOWN} older ones" if len(self.savepoints) > _SHOWN else ""
        return f"{self.where}; savepoints: {named or 'none'}{more}"


def plan_start(runs: JobView, origin: Origin, claim_key: str) -> StartPlan:
    """Decide what a start continues from; may take a savepoint of a job whose driver died."""
    origin = from_home(runs, origin)
    match origin:
        case LastState():
            plan = _last_state(runs, claim_key)
        case Fresh():
            plan = _fresh(runs, origin)
        case FromSavepoint():
            if origin.rewind != "continue":
                require_tables(
                    runs, runs.repository.read(origin.savepoint_id), restores=origin.restore_tables
                )
            plan = origins.plan_savepoint(runs, origin, claim_key)
        case FromCheckpoint():
            plan = origins.plan_checkpoint(runs, claim_key)
        case _:
            assert_never(origin)
    log.info("Job %s starts %s", runs.board.job, plan.why)
    return plan


def history_of(runs: JobView) -> PriorState | None:
    """Return the history of a job; None if it has none, or was started fresh and has planned no batch.

    A run that planned no batch is no history: a state that it had continued would be in its checkpoint.
    """
    run, heartbeat = last_run.last_run_and_heartbeat(runs)
    if run is None or heartbeat is None:
        savepoints = list_savepoints(runs.repository)
        if not savepoints:
            return None
        newest = savepoints[0]
        return PriorState(
            name=newest.savepoint_id,
            where=f"no run, savepoint {newest.savepoint_id} at {batch_words(newest.batches)}",
            savepoints=savepoints,
        )
    progress = last_run.read_progress(runs, run, heartbeat)
    if isinstance(progress, last_run.CheckpointProgress) and progress.is_empty:
        return None
    committed = progress.committed if isinstance(progress, last_run.CheckpointProgress) else {}
    batches = {**heartbeat.batches(), **committed}
    ran = last_run.driver_of(runs, run)
    where = f"generation {ran}, at {batch_words(batches) if batches else 'a batch that is not known here'}"
    return PriorState(name=f"generation {ran}", where=where, savepoints=list_savepoints(runs.repository))


def _fresh(runs: JobView, origin: Fresh) -> StartPlan:
    history = history_of(runs)
    if history is None:
        return origins.plan_fresh(runs, "fresh; it has no history")
    if origin.discard_history != history.name:
        confirmed = f", and discard_history={origin.discard_history!r}" if origin.discard_history else ""
        raise HISTORY.with_text(
            f"Job {runs.board.job} was expected to have no history, so that it can start fresh, found "
            f"{history}{confirmed}.",
            state_after="Nothing was started.",
            remedy="Start it from its last state (the default) to continue; or confirm for this start that "
            f"its batches and state are given up, with discard_history={history.name!r}.",
        )
    log.warning("Job %s gives up %s; they stay where they are", runs.board.job, history)
    return origins.plan_fresh(runs, f"fresh, as confirmed for {history.name}")


def _last_state(runs: JobView, claim_key: str) -> StartPlan:
    """Continue where the job was: in its last run's checkpoint, or from a savepoint of the same state."""
    history = history_of(runs)
    if history is None:
        return origins.plan_fresh(runs, "fresh: no run of it has planned a batch")
    if last_run.last_run_and_heartbeat(runs)[0] is None:
        newest = history.savepoints[0].savepoint_id
        return origins.plan_savepoint(runs, FromSavepoint(savepoint_id=newest), claim_key)
    try:
        return origins.plan_checkpoint(runs, claim_key)
    except last_run.OUT_OF_REACH as error:
        return _from_same_state(runs, history, error, claim_key)


def _of_last_clusters(runs: JobView, savepoint_id: str) -> str:
    """Return the savepoint, or the one that it was rewritten from, with the clusters that the last run read.

    A migration that was given up leaves its rewritten savepoint: the same state, with positions of another
    cluster.
    """
    _, heartbeat = last_run.last_run_and_heartbeat(runs)
    line = read_line(runs.board)
    if heartbeat is None or (line is not None and line.parent.savepoint_id == savepoint_id):
        return savepoint_id  # the last run began with it: the job has moved
    read = {name: status.sources for name, status in heartbeat.queries.items()}
    manifest = runs.repository.read(savepoint_id)
    while manifest.parent is not None and any(
        ids_differ(identity.cluster_id, query.kafka[source].cluster_id)
        for query in manifest.queries
        for source, identity in read.get(query.name, {}).items()
        if source in query.kafka
    ):
        parent = runs.repository.find(manifest.parent)
        if parent is None:
            break
        manifest = parent
    return manifest.savepoint_id


def _from_same_state(
    runs: JobView, history: PriorState, why_not: FlinkstyleError, claim_key: str
) -> StartPlan:
    """Continue from the newest savepoint if the job committed nothing after it.

    Raises:
        LastStateError: If there is none, or the job has continued since; it names the choices of a person.
    """
    found = "and it has no savepoint"
    if history.savepoints:
        try:
            newest = _of_last_clusters(runs, history.savepoints[0].savepoint_id)
            plan = origins.plan_savepoint(runs, FromSavepoint(savepoint_id=newest), claim_key)
        except RewindError as error:
            found = f"and its newest savepoint is not that state: {error.problem}"
        else:
            log.warning("Job %s: %s Its newest savepoint is the same state", runs.board.job, why_not.problem)
            return plan
    back = f"savepoint_id={history.savepoints[0].savepoint_id!r}, " if history.savepoints else ""
    chosen = f"go back with start_from='savepoint', {back}rewind='fork' or 're-emit'; or " if back else ""
    raise LastStateError(
        f"Job {runs.board.job} was expected to continue where it was ({history}), found: {why_not.problem}; "
        f"{found}",
        state_after="Nothing was started.",
        remedy=f"{why_not.remedy} Or choose what is lost or repeated: {chosen}start fresh with "
        f"start_from='fresh', discard_history={history.name!r}.",
    ) from why_not
