"""Where a start can continue: fresh, from a checkpoint or a savepoint; and what its driver must find there.

``choice`` chooses between them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, get_args

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.answers.values import is_true, is_yes, one_of, text_or_none
from airflow_flinkstyle.jobs.errors import JobNotRunningError
from airflow_flinkstyle.jobs.start.rewinds import fork, is_from_elsewhere, require_newest, unused_from
from airflow_flinkstyle.jobs.start.tables import require_tables, tables_to_restore
from airflow_flinkstyle.jobs.stopped import last_run, saving
from airflow_flinkstyle.jobs.stopped.offline_lock import CALLER
from airflow_flinkstyle.protocol.line import BEGINNING, Parent, batches_run
from airflow_flinkstyle.protocol.query_records import SourceIdentity
from airflow_flinkstyle.protocol.records import TakeoverOrder
from airflow_flinkstyle.python_versions import assert_never
from airflow_flinkstyle.savepoint import sinks
from airflow_flinkstyle.savepoint.errors import SinkSkipsError
from airflow_flinkstyle.types import ClaimMode, Generation, Rewind, StartFrom
from airflow_flinkstyle.wording import batch_words

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_flinkstyle.jobs.status import Run
    from airflow_flinkstyle.jobs.view import JobView
    from airflow_flinkstyle.protocol.records import Current, Heartbeat
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.savepoint.repository.summary import Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class LastState:
    """Continue where the job was, as its own records show it; start fresh if it has no history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh:
    """Start with an empty checkpoint of its own, at the script's ``startingOffsets``."""

    discard_history: str | None = None
    """The history that the job gives up, as the refusal names it (``generation 3``). A name and not a yes, so
    that it confirms one start only: after that the job has another history."""


@dataclass(frozen=True, slots=True)
class FromCheckpoint:
    """Continue where the last run closed, in its checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FromSavepoint:
    """Restore a savepoint into a new checkpoint and continue from there."""

    savepoint_id: str
    rewind: Rewind = "continue"
    """``continue`` demands the lineage's last batch. If the job has committed batches after the savepoint,
    ``fork`` gives the query a new id and batch numbers above those that its sink remembers, ``re-emit`` keeps
    the id and uses batch ids again. A batch planned in the savepoint is run again, except by a fork."""
    skip_known_batches: bool = False
    """Accept that a sink or function that remembers batch ids leaves out those that it knows."""
    restore_tables: bool = False
    """With a rewind: take back what the job has written since into tables of Delta and Iceberg."""
    claim_mode: ClaimMode = "no_claim"
    """``claim``: the savepoint is deleted once the job has a newer complete one."""

    def __post_init__(self) -> None:
        """Refuse to put tables back with a start that does not rewind."""
        if self.restore_tables and self.rewind == "continue":
            raise BadInputError(
                "restore_tables='yes' was expected with rewind='fork' or 're-emit', found rewind='continue', "
                "which starts only where nothing was written since.",
                state_after="Nothing was started or stopped.",
                remedy="Choose a rewind, or leave restore_tables out.",
            )


Origin = LastState | Fresh | FromCheckpoint | FromSavepoint


def origin_of(
    start_from: str,
    *,
    newest: Callable[[], Summary | None],
    savepoint_id: str | None = None,
    rewind: str | None = "continue",
    skip_known_batches: bool | str = False,
    restore_tables: str = "no",
    claim_mode: str = "no_claim",
    discard_history: str | None = None,
) -> Origin:
    """Return the start that a form, an operator or a command line asks for.

    Args:
        start_from: One of ``StartFrom``; it and the others may come from a template, as text.
        newest: Returns the newest savepoint on the job's line; called for ``latest`` only.
        savepoint_id: For ``savepoint`` only: an id, or ``latest``.
        rewind: A ``Rewind``; None or empty is ``continue``.
        skip_known_batches: As in ``FromSavepoint``.
        restore_tables: A ``RestoreTables``.
        claim_mode: A ``ClaimMode``.
        discard_history: For ``fresh`` only.

    Raises:
        BadInputError: If an answer is unknown, does not belong to this start, or there is no savepoint.
    """
    start = one_of("start_from", start_from, get_args(StartFrom))
    savepoint_id, discard_history = text_or_none(savepoint_id), text_or_none(discard_history)
    for name, answer, only in (
        ("savepoint_id", savepoint_id, "savepoint"),
        ("discard_history", discard_history, "fresh"),
    ):
        if start != only and answer is not None:
            raise BadInputError(
                f"{name} was expected with start_from={only!r} only, found it with {start!r}.",
                state_after="Nothing was started.",
                remedy=f"Leave {name} out, or choose start_from={only!r}.",
            )
    match start:
        case "last_state":
            return LastState()
        case "fresh":
            return Fresh(discard_history=discard_history)
        case "checkpoint":
            return FromCheckpoint()
        case _:
            if savepoint_id == "latest" and (latest := newest()) is not None:
                savepoint_id = latest.savepoint_id
            if savepoint_id is None or savepoint_id == "latest":
                raise BadInputError(
                    f"A savepoint was expected to start from, found savepoint_id={savepoint_id!r}"
                    f"{' and no savepoint of the job' if savepoint_id else ''}.",
                    state_after="Nothing was started.",
                    remedy="Name a savepoint, take one (TakeSavepointOperator), or start otherwise.",
                )
            return FromSavepoint(
                savepoint_id=savepoint_id,
                rewind=one_of("rewind", rewind or "continue", get_args(Rewind)),
                skip_known_batches=is_true("skip_known_batches", skip_known_batches),
                restore_tables=is_yes("restore_tables", restore_tables),
                claim_mode=one_of("claim_mode", claim_mode, get_args(ClaimMode)),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPlan:
    """What a start's claim and takeover order will contain."""

    checkpoint_location: str | None
    """None: a new one, named by the generation."""
    order: TakeoverOrder
    why: str
    """Where the job starts, for the log; completes ``Job <name> starts``."""
    own_ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Query name -> its ids in this job, for queries whose later writes to their table are taken back."""

    def behind(self, ended: Current | None) -> StartPlan:
        """Bind the plan to the driver that has ended: if it did not close, no later one may be taken over."""
        if ended is None or self.order.closed_at is not None:
            return self
        return replace(self, order=replace(self.order, ended=ended.incarnation))


def plan_fresh(runs: JobView, why: str) -> StartPlan:
    """Begin with an empty checkpoint."""
    return StartPlan(checkpoint_location=None, order=_order_to_start(runs, None), why=why)


def plan_savepoint(runs: JobView, origin: FromSavepoint, claim_key: str) -> StartPlan:
    """Restore a savepoint, once its rewind is known to be legal.

    Raises:
        RewindError: If it is not.
    """
    saved = runs.repository.read(origin.savepoint_id)
    own_numbers = origin.rewind == "continue" and not _begins_a_line(runs, saved)
    numbers = {} if own_numbers else unused_from(runs.board, saved, origin.rewind)
    tables = tables_to_restore(runs, saved) if origin.restore_tables else {}
    manifest = _rewound(runs, saved, origin, claim_key, numbers)
    order = replace(
        _order_to_start(runs, manifest),
        rewind=origin.rewind,
        unused_from=numbers,
        skip_known_batches=origin.skip_known_batches,
        claim_mode=origin.claim_mode,
    )
    batches = {query.name: int(query.batch_id) for query in manifest.queries}
    return StartPlan(
        checkpoint_location=None,
        order=order,
        own_ids=tables,
        why=f"from savepoint {manifest.savepoint_id}, at {batch_words(batches)}",
    )


def _begins_a_line(runs: JobView, saved: Manifest) -> bool:
    """Return whether a savepoint from elsewhere follows this job's runs; one of an adoption does not count.

    An adoption brings back the job's own line, and its own batch numbers, from plain Spark.
    """
    home = runs.board.home()
    adopted = home is not None and home.value.savepoint_id == saved.savepoint_id
    return not adopted and is_from_elsewhere(runs, saved)


def _rewound(
    runs: JobView,
    manifest: Manifest,
    origin: FromSavepoint,
    claim_key: str,
    numbers: Mapping[str, int | None],
) -> Manifest:
    """Return the savepoint to restore, once its rewind is known to be legal."""
    match origin.rewind:
        case "continue":
            require_newest(runs, manifest)
        case "fork":
            return fork(manifest, runs.repository, claim_key, numbers)
        case "re-emit":
            _require_ids_usable(manifest, origin)
        case _:
            assert_never(origin.rewind)
    return manifest


def require_allowed(runs: JobView, origin: FromSavepoint) -> None:
    """Require, before anything stops, that a job may go back to a savepoint as was chosen.

    Raises:
        SavepointMissingError: If there is none of that id.
        BadInputError: If no rewind was chosen.
        SinkSkipsError: If a sink is known to leave out batch ids that are used again.
        FlinkstyleError: ``TABLE_RESTORE`` if tables are to be put back and cannot be.
    """
    manifest = runs.repository.read(origin.savepoint_id)
    if origin.rewind == "continue":
        raise BadInputError(
            f"A choice was expected of what becomes of the batches that were committed after savepoint "
            f"{origin.savepoint_id}, found rewind='continue'.",
            state_after="Nothing was stopped; the job keeps running.",
            remedy="Choose rewind='fork' or 're-emit'.",
        )
    if origin.restore_tables:
        tables_to_restore(runs, manifest)
    require_tables(runs, manifest, restores=origin.restore_tables)
    if origin.rewind == "re-emit":
        _require_ids_usable(manifest, origin)


def _require_ids_usable(manifest: Manifest, origin: FromSavepoint) -> None:
    """Refuse to use batch ids again if a sink is known to remember them; the agent checks functions.

    Iceberg reads them from the table's present snapshots: it forgets those that are taken back. A Delta table
    keeps its queries' newest ids through a ``RESTORE``: to skip them would lose the rows that it took back.

    Raises:
        SinkSkipsError: Naming the sinks.
    """
    kept = next((query.name for query in manifest.queries if query.sink == "delta"), None)
    if origin.restore_tables and kept is not None:
        raise SinkSkipsError.kept_by_restore(kept, state_after="Nothing was started.")
    if origin.skip_known_batches:
        return
    forgets = {"iceberg"} if origin.restore_tables else set()
    if remembering := sinks.remembering(query for query in manifest.queries if query.sink not in forgets):
        raise SinkSkipsError.of(
            f"{', '.join(remembering)}, which silently leaves out batches whose ids it has seen",
            state_after="Nothing was started.",
        )


def plan_checkpoint(runs: JobView, claim_key: str) -> StartPlan:
    """Adopt the checkpoint of a run that closed; else lock it and copy it as a savepoint.

    If a caller wrote ``closed`` in a dead driver's place, a batch may be under way, and the copy records it.
    If a query of the dead driver has committed nothing, there is no copy to make: the caller closes the run
    in its place, and the checkpoint is adopted, as a relaunch would do.

    Raises:
        JobNotRunningError: If no run of the job has taken over.
        CheckpointMismatchError: If the checkpoint is not what the last run recorded.
    """
    run, heartbeat = _last_run_and_heartbeat(runs)
    closed = heartbeat.state == "closed" and heartbeat.incarnation != CALLER
    progress, ran = last_run.read_progress(runs, run, heartbeat), last_run.driver_of(runs, run)
    location, where = run.claim.checkpoint_location, f"in the checkpoint of generation {run.generation}"
    if isinstance(progress, last_run.Unseen) and not (closed and progress.only_by_driver):
        raise progress.error
    if closed:
        return plan_closed(runs)
    if isinstance(progress, last_run.CheckpointProgress) and (progress.is_empty or progress.unfinished):
        last = saving.close(runs, copy_key(claim_key), progress)
        why = f"{where}, which died in a query's first batch: {location}"
        return StartPlan(checkpoint_location=location, order=order_to_continue(last, ran), why=why)
    manifest = saving.take_stopped(runs, copy_key(claim_key))
    batches = {query.name: int(query.batch_id) for query in manifest.queries}
    why = f"{where}, which died, copied as savepoint {manifest.savepoint_id} at {batch_words(batches)}"
    return StartPlan(checkpoint_location=None, order=_order_to_start(runs, manifest), why=why)


def plan_closed(runs: JobView) -> StartPlan:
    """Adopt the checkpoint of the last run, which closed, by its heartbeat alone."""
    run, heartbeat = _last_run_and_heartbeat(runs)
    location = run.claim.checkpoint_location
    return StartPlan(
        checkpoint_location=location,
        order=order_to_continue(heartbeat, last_run.driver_of(runs, run)),
        why=f"in the checkpoint of generation {run.generation}, which closed at "
        f"{batch_words(heartbeat.batches())}: {location}",
    )


def _last_run_and_heartbeat(runs: JobView) -> tuple[Run, Heartbeat]:
    run, heartbeat = last_run.last_run_and_heartbeat(runs)
    if run is None or heartbeat is None:
        raise JobNotRunningError(
            f"Job {runs.board.job} was expected to have a checkpoint, found that it was never started.",
            state_after="Nothing was started.",
            remedy="Start it fresh, or from a savepoint.",
        )
    return run, heartbeat


def copy_key(claim_key: str) -> str:
    """Return the key under which a start copies a dead run's checkpoint."""
    return f"{claim_key}/checkpoint"


def order_to_continue(closed: Heartbeat, ran: Generation) -> TakeoverOrder:
    """Continue in the checkpoint of a run that closed, at its last batches, on the Kafka logs that it read.

    Args:
        closed: The run's last heartbeat, or that of a caller in its place.
        ran: The generation whose driver ran there.
    """
    expected = {name: dict(status.sources) for name, status in closed.queries.items() if status.sources}
    return TakeoverOrder(
        savepoint_id=None,
        closed_at=closed.batches(),
        expected=expected,
        parent=Parent(generation=ran, batches_run=batches_run(closed.batches().values()), savepoint_id=None),
    )


def order_to_restore(manifest: Manifest, *, closed_at: dict[str, int] | None) -> TakeoverOrder:
    """Continue from a savepoint, on the Kafka logs that it names."""
    return TakeoverOrder(
        savepoint_id=manifest.savepoint_id,
        closed_at=closed_at,
        expected=identities(manifest),
        parent=Parent(
            generation=_generation_of(manifest),
            batches_run=manifest.batches_run,
            savepoint_id=manifest.savepoint_id,
        ),
    )


def _generation_of(manifest: Manifest) -> Generation | None:
    taken_from = manifest.taken_from_generation
    return Generation(taken_from) if taken_from is not None else None


def _order_to_start(runs: JobView, manifest: Manifest | None) -> TakeoverOrder:
    last = runs.board.current_heartbeat()
    closed_at = last.batches() if last is not None and last.state == "closed" else None
    if manifest is None:
        return TakeoverOrder(savepoint_id=None, closed_at=closed_at, expected={}, parent=BEGINNING)
    return order_to_restore(manifest, closed_at=closed_at)


def identities(manifest: Manifest) -> dict[str, dict[str, SourceIdentity]]:
    """Return the Kafka logs that a savepoint's offsets belong to."""
    return {
        query.name: {
            source: SourceIdentity(cluster_id=position.cluster_id, topic_ids=dict(position.topic_ids))
            for source, position in query.kafka.items()
        }
        for query in manifest.queries
        if query.kafka
    }
