"""The barrier: one batch per query that ends exactly at chosen offsets.

Between two batches, ``offsets/K+1`` is written as Spark would write it, with the barrier as its end. A
start with ``trigger(once=True)`` runs that batch and no other. From the moment it is written it is a
planned batch like any other and is never taken back: its ends exist in the log (checked before), so
the next start of the query runs it, a relaunch after ``kill -9`` too, and a sink may have seen it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.core.errors import BARRIER_BEHIND, BARRIER_UNREACHABLE, leaving
from airflow_flinkstyle.agent.core.guards.checks import CheckpointPositions, SourceRules, check_source
from airflow_flinkstyle.checkpoint import commit_log, offset_log
from airflow_flinkstyle.checkpoint.errors import CHECKPOINT_UNSUPPORTED
from airflow_flinkstyle.checkpoint.inventory import read_inventory
from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.types import NextOffset, id_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.agent.core.job_query import JobQuery
    from airflow_flinkstyle.agent.core.spark import Describe, StreamingSource
    from airflow_flinkstyle.checkpoint.offset_log import OffsetLog
    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.protocol.cuts import Place
    from airflow_flinkstyle.types import BatchId, TopicPartition

_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_STATE_AFTER = "Nothing was written to any checkpoint; the queries resume uncut."


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldQuery:
    """Where a query is between two batches, and the logs it reads."""

    query: str
    batch_id: BatchId
    """The last batch; it is committed, and none is planned."""
    log: OffsetLog
    """Its offset log."""
    next_watermark_ms: int
    """The watermark of the next batch, from its commit log."""
    views: Mapping[str, ClusterView]
    """By Kafka source, as the offset log names it."""

    def places(self) -> dict[Place, NextOffset]:
        """Return how far the query has read, over all its Kafka sources."""
        return {
            place: offset
            for key, view in self.views.items()
            for place, offset in places_of(view, self.log.kafka_offsets(key)).items()
        }

    def ends(self) -> dict[Place, NextOffset]:
        """Return how far its Kafka sources can be read now."""
        return {
            (id_words(view.cluster_id), topic, number): log.last_stable
            for view in self.views.values()
            for topic, seen in view.topics.items()
            for number, log in seen.partitions.items()
        }

    def step(self, ends: Mapping[Place, NextOffset], records: int) -> dict[Place, NextOffset]:
        """Return the end of a batch of so many records towards ``ends``: an equal share of each partition."""
        at = self.places()
        share = max(1, records // max(1, len(at)))
        return {
            place: max(begin, min(ends.get(place, begin), NextOffset(begin + share)))
            for place, begin in at.items()
        }


def read_held(describe: Describe, query: JobQuery) -> HeldQuery:
    """Read where a stopped query is, and describe the Kafka logs it reads."""
    batch = read_inventory(query.checkpoint).committed
    log = offset_log.parse(query.checkpoint.read(f"offsets/{batch}").decode())
    commit = commit_log.parse(query.checkpoint.read(f"commits/{batch}").decode())
    with leaving(_STATE_AFTER):
        views = {
            source.key(log.version): _named(describe(source), source)
            for source in query.sources
            if source.is_kafka
        }
    return HeldQuery(
        query=query.name,
        batch_id=batch,
        log=log,
        next_watermark_ms=commit.next_watermark_ms,
        views=views,
    )


def _named(view: ClusterView, source: StreamingSource) -> ClusterView:
    """Return a view of a cluster without an id, identified by its servers: two such share no logs."""
    servers = source.option("kafka.bootstrap.servers") or ""
    return view if view.cluster_id is not None else replace(view, cluster_id=f"at {servers}")


def plan_batch(held: HeldQuery, barrier: Mapping[Place, NextOffset]) -> OffsetLog | None:
    """Return the offset log of the batch that ends at the barrier; None if the query is there.

    Sources and partitions that the barrier does not name keep their position.

    Raises:
        FlinkstyleError: ``BARRIER_BEHIND`` if the query has read past it, ``BARRIER_UNREACHABLE`` if the log
            cannot be read that far yet, ``CHECKPOINT_UNSUPPORTED`` if Spark could not start on the batch.
    """
    planned = held.log.planned_next(
        watermark_ms=max(held.log.watermark_ms, held.next_watermark_ms),
        timestamp_ms=max(held.log.timestamp_ms, now_ms()),
    )
    moves = False
    for key, view in held.views.items():
        before = held.log.kafka_offsets(key)
        after = _ends_at(held.query, view, places_of(view, before), barrier)
        if after != before:
            planned, moves = planned.with_kafka_offsets(key, after), True
    if moves:
        _require_startable(held)
    return planned if moves else None


def _require_startable(held: HeldQuery) -> None:
    """Check that Spark can start on a planned batch.

    4.2 leaves the setting out of an offset log v2 and then reads it (``isRepartitionBatch``): such a
    query never starts again.
    """
    if held.log.version > 1 and _SHUFFLE_PARTITIONS not in held.log.confs:
        raise CHECKPOINT_UNSUPPORTED.error(
            found=f"query {held.query} with an offset log v{held.log.version} without "
            f"{_SHUFFLE_PARTITIONS}, on which Spark 4.2 cannot start with a planned batch",
            remedy="Run named sources with Spark 4.3 or newer, or cut the queries with alignment='none'.",
        )


def check_batch(query: JobQuery, held: HeldQuery, planned: OffsetLog | None) -> None:
    """Guard a query against the live cluster as if the batch were planned already.

    Raises:
        FlinkstyleError: As the start guard does.
    """
    positions = CheckpointPositions(committed=held.log, planned=planned)
    for source in query.sources:
        if source.is_kafka:
            key, recorded = source.key(held.log.version), query.identity(source, held.log.version)
            # A partition from which no batch has read has no place at the barrier.
            rules = replace(SourceRules.of(source), is_assigned=True)
            with leaving(_STATE_AFTER):
                check_source(
                    query.name, key, held.views[key], expected=[recorded], positions=positions, rules=rules
                )


def places_of(view: ClusterView, offsets: Offsets) -> dict[Place, NextOffset]:
    """Return positions of one source in a cluster, as a barrier names them."""
    return {(id_words(view.cluster_id), topic, number): offset for (topic, number), offset in offsets.items()}


def _ends_at(
    query: str, view: ClusterView, before: Mapping[Place, NextOffset], barrier: Mapping[Place, NextOffset]
) -> Offsets:
    """Return where one source ends: at the barrier, in every partition that it subscribes to."""
    live = {(id_words(view.cluster_id), *partition) for partition in view.partitions}
    after: dict[TopicPartition, NextOffset] = {}
    for place in sorted(before.keys() | (live & barrier.keys())):
        _, topic, number = place
        after[topic, number] = _end(query, view, place, before.get(place), barrier.get(place))
    return Offsets(after)


def _end(
    query: str, view: ClusterView, place: Place, before: NextOffset | None, barrier: NextOffset | None
) -> NextOffset:
    if barrier is None or barrier == before:
        assert before is not None  # noqa: S101  # for mypy: a place is in one of the two
        return before
    _, topic, number = place
    name = f"The barrier at offset {barrier} of {topic}-{number}"
    if before is not None and barrier < before:
        raise BARRIER_BEHIND.with_text(
            f"{name} was expected to be at or after what query {query} has read, found it at {before}.",
            state_after=_STATE_AFTER,
            remedy="Cut again: the barrier is then the furthest position of all queries.",
        )
    log = view.log_range((topic, number))
    if log is not None and barrier > log.last_stable:
        raise BARRIER_UNREACHABLE.with_text(
            f"{name} was expected to be readable by query {query}, found that its log can be read up to "
            f"{log.last_stable} only: a transaction is open, or records were lost.",
            state_after=_STATE_AFTER,
            remedy="Cut again once the transaction has ended, or read all queries with one isolation.level.",
        )
    return barrier
