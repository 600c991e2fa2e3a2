"""Which lineages a query's transactional sinks continue, and where they are.

A generation reads it from what it continues from: the savepoint that it restored, or the last heartbeat of
the run whose checkpoint it adopted. Each relaunch reads the same, so that a new lineage stays the same one,
and the records of earlier incarnations, since a sink moves with a new generation only.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.checkpoint import metadata
from airflow_flinkstyle.checkpoint.inventory import list_batches
from airflow_flinkstyle.protocol.query_records import SinkLineage, Sinks, left_by
from airflow_flinkstyle.sinks import resume
from airflow_flinkstyle.sinks.resume import Resume
from airflow_flinkstyle.storage.errors import ObjectMissingError

if TYPE_CHECKING:
    from airflow_flinkstyle.agent.core.job_query import JobQuery
    from airflow_flinkstyle.protocol.query_records import QueryStatus
    from airflow_flinkstyle.protocol.records import Heartbeat, TakeoverOrder
    from airflow_flinkstyle.savepoint.manifest import Manifest, QuerySnapshot
    from airflow_flinkstyle.storage.base import ObjectStore
    from airflow_flinkstyle.types import BatchId, Generation, Rewind

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What one query of a generation continues from."""

    mode: Rewind
    """As chosen at this start, or at an earlier one of which no batch has run yet."""
    after_batch: int
    sinks: Sinks | None
    suffix: str
    """Of the lineages that ``fork`` and ``re-emit`` begin."""


def origins(
    order: TakeoverOrder, manifest: Manifest | None, followed: Heartbeat | None, generation: Generation
) -> dict[str, Origin]:
    """Return what each query continues from, by name; queries that begin anew are left out. Pure.

    Args:
        order: The takeover order.
        manifest: The savepoint that it names; None if it names none, or it was disposed of since.
        followed: The last heartbeat of the run whose checkpoint is adopted.
        generation: Names new lineages.
    """
    if manifest is not None:
        return {
            query.name: _origin(order.rewind, query.batch_id, _saved(query), generation)
            for query in manifest.queries
        }
    if order.savepoint_id is not None or followed is None:
        return {}
    return {
        name: _origin(order.rewind, status.batch_id, status.sinks, generation)
        for name, status in followed.queries.items()
        if status.batch_id is not None
    }


def _saved(query: QuerySnapshot) -> Sinks | None:
    """Return where a query's sinks are by a savepoint.

    A batch that was planned after it may be partly in the sinks, whether or not its offsets are restored.
    """
    return left_by(query.sinks, planned=query.planned_offsets is not None)


def _origin(mode: Rewind, after_batch: int, sinks: Sinks | None, generation: Generation) -> Origin:
    suffix = str(generation)
    if mode == "continue" and sinks is not None and sinks.begins:
        mode, suffix = "fork", sinks.begins
    return Origin(mode=mode, after_batch=after_batch, sinks=sinks, suffix=suffix)


def resumes(origin: Origin | None, recorded: Sinks | None) -> tuple[Resume, ...]:
    """Return what the sinks of a query must know before its first batch. Pure.

    Args:
        origin: What the generation continues from; None if that cannot be known any more.
        recorded: The record of an earlier incarnation of the generation.
    """
    before = _places(origin.sinks if origin else None)
    after_batch = origin.after_batch if origin else -1
    own = tuple(
        _continued(one, after_batch, under_way=True)
        for one in (recorded.lineages if recorded else ())
        if before.get(one.lineage) != one.cluster_id
    )
    if origin is None:
        return own
    if origin.mode != "continue":
        new = Resume(
            mode=origin.mode, after_batch=after_batch, lineage=None, cluster_id=None, suffix=origin.suffix
        )
        return (*own, new)
    if origin.sinks is None:
        return own
    if not origin.sinks.lineages:  # a sink that the query gets now
        new = Resume(mode="continue", after_batch=after_batch, lineage=None, cluster_id="", suffix="")
        return (*own, new)
    continued = (
        _continued(one, after_batch, under_way=origin.sinks.under_way) for one in origin.sinks.lineages
    )
    return (*own, *continued)


def _places(sinks: Sinks | None) -> dict[str, str]:
    return {one.lineage: one.cluster_id for one in sinks.lineages} if sinks else {}


def _continued(one: SinkLineage, after_batch: int, *, under_way: bool) -> Resume:
    return Resume(
        mode="continue",
        after_batch=after_batch,
        lineage=one.lineage,
        cluster_id=one.cluster_id,
        suffix="",
        under_way=under_way,
    )


def carried(origin: Origin | None, recorded: Sinks | None, *, is_new: bool) -> Sinks | None:
    """Return what is known of a query's sinks before its first batch; None if nothing is known. Pure.

    Args:
        origin: What the generation continues from.
        recorded: The record of an earlier incarnation of the generation.
        is_new: The query has no checkpoint yet.
    """
    if recorded is not None:
        return recorded
    if origin is None:
        return Sinks() if is_new else None
    if origin.mode != "continue":
        return Sinks(lineages=origin.sinks.lineages if origin.sinks else (), begins=origin.suffix)
    return origin.sinks


def expect(query: JobQuery, origin: Origin | None, last: QueryStatus | None) -> None:
    """Set for a query that is about to start, and its sinks, what they continue from."""
    recorded = last.sinks if last is not None else None
    query_id = query_id_in(query.checkpoint)
    query.before, planned = last_batches(query.checkpoint)
    # Else a run that ends before Spark starts the query would record that no sink has any of that batch.
    query.carried = left_by(
        carried(origin, recorded, is_new=query_id is None), planned=planned != query.before
    )
    if query_id is not None:
        query.known_id = query_id
        known = resumes(origin, recorded)
        resume.expect(query_id, *known)
        log.info("Query %s: its transactional sinks continue from %s", query.name, known or "what they find")


def last_batches(checkpoint: ObjectStore) -> tuple[BatchId | None, BatchId | None]:
    """Return the newest committed batch and the newest planned one; None if there is none."""
    done = max(list_batches(checkpoint, "commits"), default=None)
    return done, max(list_batches(checkpoint, "offsets"), default=None)


def query_id_in(checkpoint: ObjectStore) -> str | None:
    """Return the id of the query whose checkpoint this is; None if there is none yet."""
    try:
        return metadata.parse(checkpoint.read("metadata").decode()).query_id
    except ObjectMissingError:
        return None
