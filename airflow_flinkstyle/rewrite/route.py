"""From where to where the sources of a savepoint move, and which topics do not fit partition by partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.errors import TopicRecreatedError
from airflow_flinkstyle.rewrite.errors import PLAN_MISMATCH
from airflow_flinkstyle.rewrite.rows import SourceRef
from airflow_flinkstyle.types import ids_differ

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.kafka.settings import KafkaCluster
    from airflow_flinkstyle.kafka.translation.request import ProofRequest
    from airflow_flinkstyle.savepoint.manifest import KafkaPosition, Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPair:
    """Where a savepoint moves from and to."""

    source: KafkaCluster | None
    """None if it is gone: then positions can only be picked, not proved."""
    target: KafkaCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Both clusters as they were when the planning began."""

    clusters: ClusterPair
    request: ProofRequest
    source: ClusterView | None
    target: ClusterView
    incompatible_topics: Mapping[str, str]
    """Source topic -> why its partitions do not match the target's."""

    def targets(self, topics: Iterable[str]) -> list[str]:
        """Return what source topics are called on the target, each once."""
        return sorted({target for topic in topics for target in targets_of(self.request, topic)})

    def target_now(self) -> ClusterView:
        """Return the target with its ends as they are now; its topics must be those of the beginning.

        Raises:
            FlinkstyleError: ``PLAN_MISMATCH`` if another cluster answers now.
            TopicRecreatedError: If a topic was deleted and created again meanwhile.
        """
        now = describe(self.clusters.target, self.target.topics)
        if ids_differ(self.target.cluster_id, now.cluster_id):
            raise PLAN_MISMATCH.error(what="cluster", planned=self.target.cluster_id, found=now.cluster_id)
        for topic, first in self.target.topics.items():
            if ids_differ(first.topic_id, found := now.topics[topic].topic_id):
                raise TopicRecreatedError.between(
                    str(self.clusters.target), topic, expected=first.topic_id, found=found
                )
        return now


def targets_of(request: ProofRequest, topic: str) -> list[str]:
    """Return the topics of the target that a source topic leads to: several if it was split."""
    return [target.strip() for target in request.target_topic(topic).split(",")]


def sources_of(manifest: Manifest) -> dict[SourceRef, KafkaPosition]:
    """Return every Kafka source of a savepoint."""
    return {
        SourceRef(query=query.name, source=source): position
        for query in manifest.queries
        for source, position in query.kafka.items()
    }


def read_route(
    clusters: ClusterPair, request: ProofRequest, moving: Mapping[SourceRef, KafkaPosition]
) -> Route:
    """Read the topics of both clusters.

    Raises:
        TopicMissingError: If a topic does not exist on one of them.
        ClusterUnreachableError: If one of them does not answer.
    """
    topics = {topic for position in moving.values() for topic in position.offsets.topics}
    targets = {target for topic in topics for target in targets_of(request, topic)}
    source = describe(clusters.source, topics) if clusters.source else None
    target = describe(clusters.target, targets)
    return Route(
        clusters=clusters,
        request=request,
        source=source,
        target=target,
        incompatible_topics=incompatible_topics(request, partitions_of(moving.values(), source), target),
    )


def partitions_of(
    positions: Collection[KafkaPosition], source: ClusterView | None
) -> dict[str, frozenset[int]]:
    """Return source topic -> its partitions, also live ones that the savepoint has not read yet. Pure."""
    found: dict[str, frozenset[int]] = {}
    for position in positions:
        for topic, offsets in position.offsets.by_topic.items():
            live = frozenset(source.topics[topic].partitions if source else ())
            found[topic] = live.union(offsets, found.get(topic, ()))
    return found


def incompatible_topics(
    request: ProofRequest, partitions: Mapping[str, Collection[int]], target: ClusterView
) -> dict[str, str]:
    """Return source topic -> why its partitions do not match the target's. Pure.

    Args:
        request: Gives what topics are called on the target.
        partitions: Source topic -> its partitions.
        target: With every topic that these lead to.
    """
    origins: dict[str, list[str]] = {}
    for topic in sorted(partitions):
        for name in targets_of(request, topic):
            origins.setdefault(name, []).append(topic)
    found: dict[str, str] = {}
    for topic, numbers in partitions.items():
        names = targets_of(request, topic)
        merged = sorted({other for name in names for other in origins[name]} - {topic})
        there = target.topics[names[0]].partitions.keys()
        if len(names) > 1:
            found[topic] = f"topic {topic} is split into {' and '.join(names)}"
        elif merged:
            found[topic] = f"topics {topic} and {' and '.join(merged)} are merged into {names[0]}"
        elif set(numbers) != set(there):
            found[topic] = (
                f"topic {topic} has {len(numbers)} partitions, its copy {len(there)}: a key may stand in "
                "another partition there"
            )
    return found
