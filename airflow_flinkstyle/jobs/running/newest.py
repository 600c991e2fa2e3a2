"""Whether a savepoint is the last thing on the line of its job's head: what the job can go on from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.errors import RewindError
from airflow_flinkstyle.jobs.running import last_run
from airflow_flinkstyle.protocol.head import read_line
from airflow_flinkstyle.protocol.line import Abandoned, Elsewhere, OnLine
from airflow_flinkstyle.savepoint.compat import read_up_to
from airflow_flinkstyle.savepoint.sequence import cut_of, place_of
from airflow_flinkstyle.types import ids_differ

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_flinkstyle.jobs.view import JobView
    from airflow_flinkstyle.protocol.line import Line, Turn
    from airflow_flinkstyle.protocol.query_records import QueryStatus
    from airflow_flinkstyle.protocol.records import Heartbeat
    from airflow_flinkstyle.savepoint.manifest import Manifest, QuerySnapshot

_CHOICES = (
    "Start from the checkpoint (start_from='checkpoint') to lose nothing, or choose rewind='fork' (new query "
    "id, new batch numbers where the sink needs them) or rewind='re-emit' (batch ids are used again)."
)


def require_newest(runs: JobView, manifest: Manifest) -> None:
    """Require that the job has committed nothing after the savepoint.

    One from elsewhere, named by who starts from it, begins a line of its own: nothing here is after it.

    Raises:
        RewindError: If it has, or if that cannot be known because the last run did not close; if it went on
            from another point; or if the savepoint lacks a batch of which sinks may have written a part.
        LineError: If the job's records contradict each other.
    """
    line = read_line(runs.board, back_to=manifest.taken_from_generation or 0)
    where = place_of(cut_of(manifest), line) if line is not None else None
    if isinstance(where, Abandoned):
        raise RewindError(
            f"Savepoint {manifest.savepoint_id} was expected to be where job {runs.board.job} is, found that "
            f"the job has left it behind: {where.by}.",
            state_after="Nothing was started.",
            remedy=_CHOICES,
        )
    if line is not None and isinstance(where, OnLine):
        _require_last(runs, manifest, line, where.since)


def is_from_elsewhere(runs: JobView, manifest: Manifest) -> bool:
    """Return whether a job that has run is to begin a line of its own with a savepoint."""
    line = read_line(runs.board, back_to=manifest.taken_from_generation or 0)
    return line is not None and isinstance(place_of(cut_of(manifest), line), Elsewhere)


def _require_last(runs: JobView, manifest: Manifest, line: Line, since: Sequence[Turn]) -> None:
    """Compare a savepoint on the line with what the head said last; ``since`` are the turns behind it."""
    _, words = last_run.last_words(runs)
    if words is None or words.state != "closed":
        raise _behind(manifest, manifest.queries[0], "ended at a batch that no run recorded")
    for query in manifest.queries:
        beat = words.queries.get(query.name)
        if beat is None or beat.batch_id is None:
            if line.parent.savepoint_id != manifest.savepoint_id:
                raise _behind(manifest, query, f"has no such query in generation {line.head}")
            continue
        if ids_differ(beat.query_id, query.query_id):
            raise _behind(manifest, query, f"gave it another id: {'; '.join(map(str, since))}")
        if beat.batch_id != read_up_to(manifest, query):
            raise _behind(manifest, query, f"continued to batch {beat.batch_id}")
        if _is_half_written(beat):
            _require_under_way(manifest, query, since)
    _require_whole(manifest, words)


def _behind(manifest: Manifest, query: QuerySnapshot, went: str) -> RewindError:
    return RewindError(
        f"Savepoint {manifest.savepoint_id} was expected to hold the last batch of query {query.name}, found "
        f"batch {read_up_to(manifest, query)}, and the job {went}.",
        state_after="Nothing was started.",
        remedy=_CHOICES,
    )


def _require_whole(manifest: Manifest, words: Heartbeat) -> None:
    """Require that no query has run beside those of the savepoint: it would begin anew."""
    for name, beat in words.queries.items():
        if manifest.query(name) is None and beat.batch_id is not None:
            raise RewindError(
                f"Savepoint {manifest.savepoint_id} was expected to hold all queries of the job, found "
                f"nothing of query {name}, which was started after it was taken, is at batch {beat.batch_id} "
                "and would start from the beginning.",
                state_after="Nothing was started.",
                remedy=_CHOICES,
            )


def _is_half_written(beat: QueryStatus) -> bool:
    """Return whether sinks may have written, under its id, a batch that was planned last, or a part of it."""
    return beat.sinks is not None and beat.sinks.under_way


def _require_under_way(manifest: Manifest, query: QuerySnapshot, since: Sequence[Turn]) -> None:
    """Require that a savepoint knows of the batch which sinks may have written, or a part of it.

    It does not if a run planned that batch that went back by choice, but to this savepoint itself and behind
    the batch that it holds as planned, which that run planned again as it was. Nor where a repartition has
    taken that batch's number: the same records would get another one.
    """
    known = query.planned_offsets is not None or (query.sinks and query.sinks.under_way)
    itself = manifest.savepoint_id if query.planned_offsets is not None else None
    chosen = (turn for turn in since if turn.rewind != "continue")
    back = next((turn for turn in chosen if itself is None or turn.parent.savepoint_id != itself), None)
    if back is not None or not known or read_up_to(manifest, query) != query.batch_id:
        went = f" ({back})" if back is not None else ""
        raise RewindError(
            f"Savepoint {manifest.savepoint_id} was expected to hold batch {read_up_to(manifest, query) + 1} "
            f"of query {query.name}, which a driver had planned before it died{went}, found no offsets of "
            "it: all or a part of it may be in the output; other rows under its id would be left out or "
            "doubled.",
            state_after="Nothing was started.",
            remedy="Start from the checkpoint (start_from='checkpoint') or a savepoint that was taken since, "
            "to complete that batch; or choose rewind='fork' or rewind='re-emit', which write it again.",
        )
