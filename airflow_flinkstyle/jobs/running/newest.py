"""Whether a savepoint holds all that its job has committed, as the heartbeats of the job's runs tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.errors import RewindError
from airflow_flinkstyle.savepoint import sinks
from airflow_flinkstyle.savepoint.compat import read_up_to

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.view import JobView
    from airflow_flinkstyle.protocol.query_records import QueryStatus
    from airflow_flinkstyle.protocol.records import AgentState
    from airflow_flinkstyle.savepoint.manifest import Manifest, QuerySnapshot
    from airflow_flinkstyle.types import Generation

_CHOICES = (
    "Start from the checkpoint (start_from='checkpoint') to lose nothing, or choose rewind='fork' (new query "
    "id, new batch numbers where the sink needs them) or rewind='re-emit' (batch ids are used again)."
)


def require_newest(runs: JobView, manifest: Manifest) -> None:
    """Require that the job has committed nothing after the savepoint, on its lineage.

    Raises:
        RewindError: If it has, or if that cannot be known because the last run did not close; or if the
            savepoint lacks a batch of which transactional sinks may have written a part.
    """
    for query in manifest.queries:
        last = _last_words(runs, query)
        found, half_written, holds = _last_batch(last), _half_written(last), read_up_to(manifest, query)
        holds_no_plan = half_written and query.planned_offsets is None
        again = _emitted_again(runs, manifest, query, half_written=holds_no_plan)
        if (found is not None and found != holds) or again is not None:
            went = f"continued to batch {found}" if found != -1 else "ended at a batch that no run recorded"
            if again is not None:
                went = f"in generation {again} went back and used its batch ids again"
            raise RewindError(
                f"Savepoint {manifest.savepoint_id} was expected to hold the last batch of query "
                f"{query.name}, found batch {holds}, and the job {went}.",
                state_after="Nothing was started.",
                remedy=_CHOICES,
            )
        if half_written:
            _require_under_way(manifest, query, renumbered=holds != query.batch_id)
    _require_whole(runs, manifest)


def _require_whole(runs: JobView, manifest: Manifest) -> None:
    """Require that no query has run beside those of the savepoint, on their lineage, since it was taken.

    Raises:
        RewindError: If one has, or may have: it would begin anew.
    """
    for name, (beat, state) in _since(runs, manifest).items():
        if manifest.query(name) is None and (
            beat.batch_id is not None or (state != "closed" and not beat.waiting)
        ):
            at = f"is at batch {beat.batch_id}" if beat.batch_id is not None else "may have run"
            raise RewindError(
                f"Savepoint {manifest.savepoint_id} was expected to hold all queries of the job, found "
                f"nothing of query {name}, which was started after it was taken, {at} and "
                "would start from the beginning.",
                state_after="Nothing was started.",
                remedy=_CHOICES,
            )


def _since(runs: JobView, manifest: Manifest) -> dict[str, tuple[QueryStatus, AgentState]]:
    """Return what was said last of each query by runs that had the savepoint's lineage since it was taken."""
    taken_from = manifest.taken_from_generation
    found: dict[str, tuple[QueryStatus, AgentState]] = {}
    for generation in runs.board.generations():
        slot = runs.board.heartbeat(generation)
        if taken_from is None or generation < taken_from or slot is None:
            continue
        queries = slot.value.queries
        ids = {name: beat.query_id for name, beat in queries.items()}
        if any(ids.get(saved.name) == saved.query_id for saved in manifest.queries):
            found |= {name: (beat, slot.value.state) for name, beat in queries.items()}
    return found


def _half_written(last: tuple[QueryStatus, AgentState] | None) -> bool:
    """Return whether sinks may have written, under its id, a batch that was planned last, or a part of it.

    File sinks say so themselves, to the agent.
    """
    if last is None or last[0].sinks is None or not last[0].sinks.under_way:
        return False
    name = last[0].sink
    return bool(last[0].sinks.lineages) or name in sinks.TABLE_SINKS or sinks.may_remember(name)


def _require_under_way(manifest: Manifest, query: QuerySnapshot, *, renumbered: bool) -> None:
    """Require that a savepoint knows of the batch which sinks may have written, or a part of it.

    Where a repartition has taken that batch's number, the same records would get another one.
    """
    known = query.planned_offsets is not None or (query.sinks and query.sinks.under_way)
    if renumbered or not known:
        raise RewindError(
            f"Savepoint {manifest.savepoint_id} was expected to hold batch {read_up_to(manifest, query) + 1} "
            f"of query {query.name}, which a driver had planned before it died, found no offsets of it: all "
            "or a part of it may be in the output; other rows under its id would be left out or doubled.",
            state_after="Nothing was started.",
            remedy="Start from the checkpoint (start_from='checkpoint') or a savepoint that was taken since, "
            "to complete that batch; or choose rewind='fork' or rewind='re-emit', which write it again.",
        )


def _last_batch(last: tuple[QueryStatus, AgentState] | None) -> int | None:
    """Return the lineage's last batch; -1 if it ended unseen, None if no run of this job had it."""
    return None if last is None else last[0].batch_id if last[1] == "closed" else -1


def _last_words(runs: JobView, query: QuerySnapshot) -> tuple[QueryStatus, AgentState] | None:
    """Return what the last run of the query's lineage said of it, and how it ended."""
    for generation in reversed(runs.board.generations()):
        slot = runs.board.heartbeat(generation)
        beat = slot.value.queries.get(query.name) if slot else None
        if slot is None or beat is None or beat.query_id != query.query_id or beat.batch_id is None:
            continue
        return beat, slot.value.state
    return None


def _emitted_again(
    runs: JobView, manifest: Manifest, query: QuerySnapshot, *, half_written: bool
) -> Generation | None:
    """Return a generation that went back behind the savepoint after it was taken: equal ids tell nothing.

    One that went back to this very savepoint and committed nothing counts only if it left a batch half
    written that is not planned in the savepoint.
    """
    taken_from = manifest.taken_from_generation
    if taken_from is None:
        return None  # from outside: it has no place among this job's runs
    for generation in runs.board.generations():
        order, slot = runs.board.takeover_order(generation), runs.board.heartbeat(generation)
        beat = slot.value.queries.get(query.name) if slot else None
        ran = beat is not None and beat.query_id == query.query_id and beat.batch_id is not None
        rolled_back = (
            order is not None
            and order.rewind == "re-emit"
            and (half_written or order.savepoint_id != manifest.savepoint_id)
        )
        if generation > taken_from and ran and rolled_back:
            return generation
    return None
