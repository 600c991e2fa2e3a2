"""Apply a plan: a new savepoint whose parent is the old one. The old one is never touched.

Also a source's position as a manifest records it: by a plan, or as a person picked it.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.kafka import cluster as kafka_cluster
from airflow_flinkstyle.kafka.log_drift import drift_between
from airflow_flinkstyle.kafka.policies import EXACT_ONLY, Policies
from airflow_flinkstyle.kafka.positions import require_within_log
from airflow_flinkstyle.kafka.verdict import Refused, describe, offsets_of
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.rewrite.errors import PLAN_MISMATCH, SOURCE_CHANGE
from airflow_flinkstyle.rewrite.preconditions import Situation, check_all, default_preconditions
from airflow_flinkstyle.savepoint.files.derive import changed_file, publish_derived
from airflow_flinkstyle.savepoint.ids import new_savepoint_id
from airflow_flinkstyle.savepoint.manifest import KafkaPosition
from airflow_flinkstyle.types import ids_differ

if TYPE_CHECKING:
    from collections.abc import Collection

    from airflow_flinkstyle.checkpoint.offset_log import OffsetLog
    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.kafka.settings import KafkaCluster
    from airflow_flinkstyle.kafka.start.kinds import StartRules
    from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan
    from airflow_flinkstyle.savepoint.manifest import Manifest, QuerySnapshot
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

log = logging.getLogger(__name__)


def rewritten_id(plan: OffsetRewritePlan) -> str:
    """Return the id of the savepoint that the plan makes; the same plan gives the same id."""
    return new_savepoint_id(plan.job, "rewrite " + hashlib.sha256(plan.to_json().encode()).hexdigest())


def apply_plan(
    plan: OffsetRewritePlan,
    manifest: Manifest,
    repository: SavepointRepository,
    *,
    live: ClusterView,
    allow: Policies = EXACT_ONLY,
) -> Manifest:
    """Write the rewritten savepoint and return its manifest; doing it again changes nothing.

    Only ``offsets/K`` differs in content: in it only the offsets of the sources that move.
    Watermark, pinned confs, commit log and state stay, and so does ``offsets/K-1``, which Spark
    only requires to be there.

    Args:
        plan: What to change.
        manifest: The savepoint it was made for.
        repository: Holds the savepoint, gets the new one.
        live: The target cluster as it is now, with every target topic of the plan.
        allow: Which verdicts are good enough.

    Raises:
        FlinkstyleError: If a precondition does not hold; all are checked before the first write.
    """
    check_all(default_preconditions(plan, allow), Situation(plan=plan, manifest=manifest, live=live))
    log.info("Applying to %s: %s", live.cluster_id, drift_between(plan.target, live).describe())
    moved = {ref.query for ref in plan.sources}
    edits = {q.name: _edited_log(plan, q, repository) for q in manifest.queries if q.name in moved}

    def change(query: QuerySnapshot) -> QuerySnapshot:
        return _moved_query(plan, query, edits[query.name], repository) if query.name in edits else query

    result = publish_derived(manifest, repository, rewritten_id(plan), change, evidence=plan.evidence)
    log.info("Savepoint %s is %s moved to %s", result.savepoint_id, result.parent, plan.target_cluster_id)
    return result


def _offsets_path(query: QuerySnapshot) -> str:
    return f"offsets/{query.batch_id}"


def _edited_log(plan: OffsetRewritePlan, query: QuerySnapshot, repository: SavepointRepository) -> OffsetLog:
    """Return the query's offset log with the sources moved; nothing is written yet."""
    entry = query.file(_offsets_path(query))
    if entry is None:
        raise PLAN_MISMATCH.error(what="file", planned=_offsets_path(query), found="no such file")
    parsed = offset_log.parse(repository.read_file(entry).decode())
    for source, position in query.kafka.items():
        if parsed.kafka_offsets(source) != position.offsets:
            raise PLAN_MISMATCH.error(
                what=f"offsets of source {source} in {entry.path}",
                planned=str(position.offsets.by_topic),
                found=str(parsed.kafka_offsets(source).by_topic),
            )
    return _with_moves(plan, query, parsed, planned=False)


def _with_moves(
    plan: OffsetRewritePlan, query: QuerySnapshot, parsed: OffsetLog, *, planned: bool
) -> OffsetLog:
    for ref in plan.sources:
        if ref.query == query.name and str(ref) not in plan.unread:  # Spark writes "-" or "{}" for none
            parsed = parsed.with_kafka_offsets(ref.source, plan.positions(ref, planned=planned))
    return parsed


def _moved_query(
    plan: OffsetRewritePlan, query: QuerySnapshot, edited: OffsetLog, repository: SavepointRepository
) -> QuerySnapshot:
    entry = changed_file(repository, _offsets_path(query), edited.render().encode())
    planned = query.planned_offsets
    if planned is not None:
        planned = _with_moves(plan, query, offset_log.parse(planned), planned=True).render()
    refs = [ref for ref in plan.sources if ref.query == query.name]
    moved = {ref.source: position_on(plan.target, plan.positions(ref)) for ref in refs}
    return replace(
        query,
        planned_offsets=planned,
        kafka={**query.kafka, **moved},
        files=tuple(entry if file.path == entry.path else file for file in query.files),
    )


def position_on(view: ClusterView, offsets: Offsets) -> KafkaPosition:
    """Return the position at these offsets, with the identity of the logs they count in."""
    topics = {topic: view.topics[topic] for topic in sorted(offsets.topics)}
    return KafkaPosition(
        cluster_id=view.cluster_id,
        topic_ids={name: topic.topic_id for name, topic in topics.items()},
        offsets=offsets.in_order(),
        log_range={
            name: {number: (log.start, log.end) for number, log in topic.partitions.items()}
            for name, topic in topics.items()
        },
    )


def checked_position(view: ClusterView, offsets: Offsets, where: str) -> KafkaPosition:
    """Return the position at these offsets, once they are checked against the live cluster.

    Args:
        view: The cluster as it is now, described with every topic of ``offsets``.
        offsets: Next offset to read, for each partition of these topics.
        where: Name of the cluster for messages.

    Raises:
        FlinkstyleError: Whatever ``require_within_log`` raises.
    """
    require_within_log(offsets, view, where)
    return position_on(view, offsets)


def picked_position(
    cluster: KafkaCluster, topics: Collection[str], start: StartRules, before: KafkaPosition | None = None
) -> KafkaPosition:
    """Return the position that a person picked on a live cluster.

    Args:
        cluster: Where the source will read.
        topics: All that it will read, by their names there.
        start: Where each partition starts.
        before: The source's position so far, if it had one; shifts count from it, in the same log.

    Raises:
        FlinkstyleError: ``SOURCE_CHANGE`` if a partition has no such position.
        FlinkstyleError: Whatever ``resolve`` raises.
    """
    from airflow_flinkstyle.kafka.start.resolve import resolve

    view = kafka_cluster.describe(cluster, topics)
    verdicts = resolve(cluster, view.partitions, start, before=_in_same_logs(before, view))
    refused = [f"{t}-{n}: {describe(v)}" for (t, n), v in verdicts.items() if isinstance(v, Refused)]
    if refused:
        expected = f"an offset for each of its {len(verdicts)} partitions"
        raise SOURCE_CHANGE.error(
            where=f"a source on {cluster}", expected=expected, found="; ".join(refused[:8])
        )
    return checked_position(kafka_cluster.describe(cluster, topics), offsets_of(verdicts), str(cluster))


def _in_same_logs(before: KafkaPosition | None, view: ClusterView) -> Offsets:
    """Return the offsets of a position that count in the logs of the view."""
    if before is None or ids_differ(before.cluster_id, view.cluster_id):
        return Offsets()
    ids = {topic: live.topic_id for topic, live in view.topics.items()}
    same = {
        topic
        for topic in before.offsets.topics & ids.keys()
        if not ids_differ(before.topic_ids.get(topic), ids[topic])
    }
    return before.offsets.in_topics(same)
