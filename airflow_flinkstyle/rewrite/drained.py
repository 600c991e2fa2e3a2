"""A source that is read to the fenced end of its old topics, before the target is read from its start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.verdict import Exact, Refused, Verdict
from airflow_flinkstyle.rewrite.chosen_positions import (
    choose_positions,
    describe_gap,
    describe_start,
    unread_offsets,
)
from airflow_flinkstyle.rewrite.errors import old_cluster_needed
from airflow_flinkstyle.rewrite.rows import SourceStrategy, SourceVerdicts
from airflow_flinkstyle.types import ids_differ

if TYPE_CHECKING:
    from airflow_flinkstyle.kafka.cluster import LogRange
    from airflow_flinkstyle.rewrite.route import Route
    from airflow_flinkstyle.rewrite.rows import SourceRef
    from airflow_flinkstyle.rewrite.rules import SourceRule
    from airflow_flinkstyle.savepoint.manifest import KafkaPosition
    from airflow_flinkstyle.types import NextOffset, TopicPartition


def drained_then_chosen(
    ref: SourceRef, position: KafkaPosition, rule: SourceRule, route: Route
) -> SourceVerdicts:
    """Require that a source was read to its fenced end; then it begins with the target's first record."""
    if route.source is None or route.clusters.source is None:
        raise old_cluster_needed(ref, rule.strategy)
    topics = position.offsets.topics
    unread = {} if route.request.preview else undrained(position, route)
    if rule.start is None:
        chosen = {
            tp: from_nothing(tp, log)
            for tp in route.target.only(route.targets(topics)).partitions
            if (log := route.target.log_range(tp))
        }
        begins = "with the target's first record: every record is read once"
    else:
        chosen = choose_positions(ref, position, topics, rule, route)
        begins = f"at {describe_start(rule.start)}; {describe_gap(position, topics, chosen, route)}"
    if route.request.preview:
        left = unread_offsets(position, topics, route.source)
        begins += f"; {left} offsets of the old topics are unread now and come before that"
    return SourceVerdicts(
        verdicts=unread,
        chosen=chosen,
        settled=not route.request.preview,
        strategy=SourceStrategy(
            query=ref.query,
            source=ref.source,
            strategy="producers_first",
            precondition="the job has read the old topics to their end, no producer writes there, no "
            "mirror copies them any more (this is not checked), and the target's topics are empty unless a "
            "start was picked",
            consequence=f"the old positions, at the end, are dropped; begins {begins}",
        ),
    )


def undrained(position: KafkaPosition, route: Route) -> dict[TopicPartition, Verdict]:
    """Return a refusal for each old partition that is not read to its end, or that is still written to."""
    if route.source is None or route.clusters.source is None:
        return {}
    now = describe(route.clusters.source, position.offsets.topics)
    verdicts: dict[TopicPartition, Verdict] = {}
    offsets = position.offsets
    for tp in now.partitions | offsets.keys():
        reason = not_drained(offsets.get(tp), route.source.log_range(tp), now.log_range(tp))
        if ids_differ(position.topic_ids.get(tp[0]), now.topics[tp[0]].topic_id):
            reason = f"topic {tp[0]} was created again since the savepoint read it"
        if reason:
            end = log.end if (log := now.log_range(tp)) else None
            unread = (offsets[tp], end) if tp in offsets and end is not None and end > offsets[tp] else None
            verdicts[tp] = Refused(reason, unread)
    return verdicts


def not_drained(offset: NextOffset | None, before: LogRange | None, now: LogRange | None) -> str | None:
    """Return why a partition is not at its fenced end, or None. Pure."""
    if now is None or before is None:
        return "the old topic has no such partition"
    if offset is None:
        return None if now.end == now.start else "a partition of the old topic has never been read"
    if now.last_stable < now.end:
        return f"a transaction is open on the old topic from offset {now.last_stable} on"
    if before.end != now.end:
        return f"records arrived on the old topic meanwhile ({before.end} to {now.end})"
    if offset != now.end:
        return f"the job is at {offset} and the old topic ends at {now.end}: it is not read to its end"
    return None


def from_nothing(tp: TopicPartition, log: LogRange) -> Verdict:
    """Return where an empty target partition begins: everything that comes is new. Pure."""
    if log.start == log.end:
        return Exact(log.end)
    return Refused(
        f"the target's {tp[0]}-{tp[1]} holds {log.end - log.start} offsets already; what a mirror copied "
        "there would be read again, unless a start is chosen",
        None,
    )
