"""Plan the move of a savepoint between two live clusters: proves every position, then plans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.cluster import ClusterView, describe
from airflow_flinkstyle.kafka.errors import ClusterMismatchError
from airflow_flinkstyle.kafka.suffix import prove
from airflow_flinkstyle.rewrite.errors import NOTHING_WRITTEN, PlanMismatchError
from airflow_flinkstyle.rewrite.plan import (
    OffsetRewritePlan,
    SourceRef,
    SourceVerdicts,
    flat,
    pending_positions,
    plan_rewrite,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.kafka.cluster import TopicPartition
    from airflow_flinkstyle.kafka.evidence import Translation
    from airflow_flinkstyle.kafka.request import ProofRequest
    from airflow_flinkstyle.kafka.settings import KafkaCluster
    from airflow_flinkstyle.savepoint.manifest import KafkaPosition, Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Clusters:
    """Where a savepoint moves from and to."""

    source: KafkaCluster
    target: KafkaCluster


def sources_on(manifest: Manifest, cluster_id: str) -> dict[SourceRef, KafkaPosition]:
    """Return the Kafka sources of a savepoint that read this cluster."""
    return {
        SourceRef(query=query.name, source=source): position
        for query in manifest.queries
        for source, position in query.kafka.items()
        if position.cluster_id == cluster_id
    }


def plan_translation(manifest: Manifest, clusters: Clusters, rules: ProofRequest) -> OffsetRewritePlan:
    """Translate every source of a savepoint that reads the source cluster, and plan the rewrite.

    Args:
        manifest: The savepoint.
        clusters: From and to.
        rules: Mirror, renames, isolation, preview; its positions and ids are taken from the savepoint.

    Raises:
        ClusterMismatchError: If no source of the savepoint reads the cluster that the source settings reach.
        FlinkstyleError: Whatever ``prove`` raises.
    """
    cluster_id = describe(clusters.source, ()).cluster_id
    found = sources_on(manifest, cluster_id)
    if not found:
        known = sorted({p.cluster_id for query in manifest.queries for p in query.kafka.values()})
        raise ClusterMismatchError.between(
            f"Savepoint {manifest.savepoint_id}", expected=", ".join(known) or "none", found=cluster_id
        )
    verdicts: dict[SourceRef, SourceVerdicts] = {}
    views: list[ClusterView] = []
    for ref, position in found.items():
        verdicts[ref], seen = _translate_source(manifest, ref, position, clusters, rules)
        views += seen
    topics = {topic for position in found.values() for topic in position.offsets}
    rename = {topic: rules.target_topic(topic) for topic in topics}
    return plan_rewrite(manifest, _joined(views), verdicts, rename)


def _translate_source(
    manifest: Manifest, ref: SourceRef, position: KafkaPosition, clusters: Clusters, rules: ProofRequest
) -> tuple[SourceVerdicts, list[ClusterView]]:
    query = manifest.query(ref.query)
    if query is None:  # pragma: no cover - the reference came from this manifest
        raise KeyError(ref.query)

    def translated(positions: Mapping[TopicPartition, int]) -> Translation:
        if not positions:
            raise BadInputError(
                f"Source {ref.query}/{ref.source} has no offsets in savepoint {manifest.savepoint_id}, "
                "at least one was expected.",
                left=NOTHING_WRITTEN,
                remedy="Let the query commit a batch that reads this source, then take a new savepoint.",
            )
        return prove(
            clusters.source,
            clusters.target,
            rules.about(positions, cluster_id=position.cluster_id, topic_ids=position.topic_ids),
        )

    main = translated(flat(position.offsets))
    end = pending_positions(query, ref.source)
    pending = translated(end) if end else None
    found = SourceVerdicts(
        verdicts=main.verdicts,
        pending=pending.verdicts if pending else {},
        evidence={tp: entry.to_json() for tp, entry in main.evidence.items()},
        settled=main.settled,
    )
    return found, [main.target] + ([pending.target] if pending else [])


def _joined(views: list[ClusterView]) -> ClusterView:
    """Return one view with the topics of all; they must be of one cluster."""
    first = views[0]
    for view in views:
        if view.cluster_id != first.cluster_id:
            raise PlanMismatchError.between("cluster", planned=first.cluster_id, found=view.cluster_id)
    return ClusterView(
        cluster_id=first.cluster_id,
        topics={name: topic for view in views for name, topic in view.topics.items()},
    )
