"""Queries that a run continues and that its script has not started yet.

They do not run, so their checkpoints say exactly where they are. Heartbeats and savepoints name them like
those that run: otherwise the next run would begin them anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.core.errors import DROPPED
from airflow_flinkstyle.agent.core.guards.lineages import carried, last_batches, query_id_in
from airflow_flinkstyle.protocol.board import check_name
from airflow_flinkstyle.protocol.query_records import QueryStatus, SourceIdentity, left_by

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from airflow_flinkstyle.agent.core.guards.checks import OpenCheckpoint
    from airflow_flinkstyle.agent.core.guards.lineages import Origin
    from airflow_flinkstyle.agent.core.spark import Spark
    from airflow_flinkstyle.protocol.records import Heartbeat
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.storage.base import ObjectStore

_UNKNOWN = QueryStatus(query_id=None, batch_id=None, batch_committed_at_ms=None, sources={})


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingQuery:
    """A query whose state is in its checkpoint until the script starts it."""

    name: str
    checkpoint: ObjectStore
    status: QueryStatus
    """For heartbeats."""
    is_half_done: bool
    """A batch of it was planned by a run that died, and is not committed."""


def dropped_queries(spark: Spark) -> set[str]:
    """Return the queries that this version of the job no longer has.

    Raises:
        BadInputError: If no query can have one of the names.
    """
    names = spark.setting(DROPPED).split(",")
    return {check_name("query name", name.strip()) for name in names if name.strip()}


def recorded(
    last: Heartbeat | None, manifest: Manifest | None, followed: Heartbeat | None
) -> dict[str, QueryStatus]:
    """Return the recorded status of each query that a run continues. Pure.

    Args:
        last: The last heartbeat of an earlier incarnation of this generation.
        manifest: The savepoint that was restored.
        followed: The last heartbeat of the run that this one follows; what its script declared does not
            count for this generation.
    """
    known = (
        {name: replace(status, declared=None) for name, status in followed.queries.items()}
        if followed
        else {}
    )
    for query in manifest.queries if manifest else ():
        sources = {
            source: SourceIdentity(cluster_id=position.cluster_id, topic_ids=position.topic_ids)
            for source, position in query.kafka.items()
        }
        known[query.name] = replace(_UNKNOWN, sources=sources, sink=query.sink, sinks=query.sinks)
    return {**known, **(last.queries if last else {})}


def read_checkpoints(
    names: Collection[str],
    open_checkpoint: OpenCheckpoint,
    known: Mapping[str, QueryStatus],
    last: Heartbeat | None,
    origins: Mapping[str, Origin],
) -> list[WaitingQuery]:
    """Read from their checkpoints where the queries are that a run continues."""
    waiting = []
    for name in sorted(names):
        checkpoint, status = open_checkpoint(name), known.get(name, _UNKNOWN)
        own = last.queries.get(name) if last else None
        sinks = carried(origins.get(name), own.sinks if own else None, is_new=False)
        done, planned = last_batches(checkpoint)
        status = replace(
            status,
            query_id=query_id_in(checkpoint),
            batch_id=done,
            batch_committed_at_ms=status.batch_committed_at_ms if status.batch_id == done else None,
            sinks=left_by(sinks, planned=planned != done),
            groups={},
            waiting=True,
        )
        is_half_done = planned != done
        query = WaitingQuery(name=name, checkpoint=checkpoint, status=status, is_half_done=is_half_done)
        waiting.append(query)
    return waiting
