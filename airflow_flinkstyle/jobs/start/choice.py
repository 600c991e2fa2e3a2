"""Which start a caller gets: the one that it named, or where the job was by the job's own records.

Nothing is begun anew by itself: only a job without a history starts fresh unless somebody names what that
gives up. And nothing takes the place of a state that is out of reach, unless it is the same state.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.errors import HistoryError, LastStateError, RewindError
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
    """What a job has behind it: the batches of its last run, or savepoints that no run of it has made."""

    name: str
    """Names this history and no other, for who gives it up: ``generation 3``, or a savepoint's id."""
    where: str
    """How far it came."""
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
    """Return what a job has behind it; None if it is, or was told to be, at its beginning.

    A run that planned no batch is none: whatever it had gone on from would stand in its checkpoint.
    """
    run, words = last_run.last_words(runs)
    if run is None or words is None:
        found = list_savepoints(runs.repository)
        if not found:
            return None
        newest = found[0]
        return PriorState(
            name=newest.savepoint_id,
            where=f"no run, savepoint {newest.savepoint_id} at {batch_words(newest.batches)}",
            savepoints=found,
        )
    seen = last_run.look(runs, run, words)
    if isinstance(seen, last_run.CheckpointProgress) and seen.is_empty:
        return None
    batches = {**words.batches(), **(seen.committed if isinstance(seen, last_run.CheckpointProgress) else {})}
    ran = last_run.driver_of(runs, run)
    where = f"generation {ran}, at {batch_words(batches) if batches else 'a batch that is not known here'}"
    return PriorState(name=f"generation {ran}", where=where, savepoints=list_savepoints(runs.repository))


def _fresh(runs: JobView, origin: Fresh) -> StartPlan:
    history = history_of(runs)
    if history is None:
        return origins.plan_fresh(runs, "fresh; it has no history")
    if origin.discard_history != history.name:
        confirmed = f", and discard_history={origin.discard_history!r}" if origin.discard_history else ""
        raise HistoryError(
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
    if last_run.last_words(runs)[0] is None:
        newest = history.savepoints[0].savepoint_id
        return origins.plan_savepoint(runs, FromSavepoint(savepoint_id=newest), claim_key)
    try:
        return origins.plan_checkpoint(runs, claim_key)
    except last_run.OUT_OF_REACH as error:
        return _from_same_state(runs, history, error, claim_key)


def _as_it_was_read(runs: JobView, savepoint_id: str) -> str:
    """Return the savepoint, or the one that it was rewritten from, of the clusters that the last run read.

    A migration that was given up leaves its rewritten one: the same state, at another cluster's positions.
    """
    _, words = last_run.last_words(runs)
    line = read_line(runs.board)
    if words is None or (line is not None and line.parent.savepoint_id == savepoint_id):
        return savepoint_id  # that run has begun with it: the job has moved
    read = {name: beat.sources for name, beat in words.queries.items()}
    manifest = runs.repository.read(savepoint_id)
    while manifest.parent is not None and any(
        ids_differ(seen.cluster_id, query.kafka[source].cluster_id)
        for query in manifest.queries
        for source, seen in read.get(query.name, {}).items()
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
    """Continue from the newest savepoint if the job committed nothing after it; else a person chooses.

    Raises:
        LastStateError: If there is none, or the job has gone on since; the choices are named.
    """
    found = "and it has no savepoint"
    if history.savepoints:
        try:
            newest = _as_it_was_read(runs, history.savepoints[0].savepoint_id)
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
