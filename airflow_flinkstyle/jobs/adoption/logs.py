"""In which Kafka cluster a checkpoint's positions count: a person names them, they say the rest.

A checkpoint of plain Spark records neither a cluster's id nor a topic's. So the person who names a cluster
vouches for it; what can be checked is that its topics have these partitions, and that each position lies in
its log. A topic that was deleted and created again, with a log that is long enough by now, passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.adoption.outside import UNTOUCHED
from airflow_flinkstyle.jobs.errors import SourceClusterError
from airflow_flinkstyle.kafka.cluster import describe, existing_topics
from airflow_flinkstyle.kafka.positions import require_within_log
from airflow_flinkstyle.savepoint.manifest import KafkaLog
from airflow_flinkstyle.types import id_words

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import Protocol

    from airflow_flinkstyle.jobs.adoption.outside import Outside
    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.kafka.settings import KafkaCluster

    class NamedClusters(Protocol):
        """The clusters that somebody named."""

        def with_topics(self, topics: Collection[str]) -> Sequence[ClusterView]:
            """Return those that have all of these topics, as they are now."""

        def __str__(self) -> str:
            """Name them."""


class LiveClusters:
    """Kafka clusters, asked when they are needed."""

    def __init__(self, clusters: Sequence[KafkaCluster]) -> None:
        self._clusters = tuple(clusters)
        self._topics: dict[int, frozenset[str]] = {}

    def with_topics(self, topics: Collection[str]) -> list[ClusterView]:
        """Return the clusters that have all of these topics, each once, as they are now."""
        found: dict[str, ClusterView] = {}  # one that tells no id may be any: it is none of the others
        for number, cluster in enumerate(self._clusters):
            if number not in self._topics:
                self._topics[number] = existing_topics(cluster)
            if self._topics[number].issuperset(topics):
                view = describe(cluster, topics)
                found.setdefault(view.cluster_id or f"at {cluster.bootstrap_servers}", view)
        return list(found.values())

    def __str__(self) -> str:
        """Name them for messages."""
        return ", ".join(map(str, self._clusters)) or "no cluster"


def find_logs(queries: Sequence[Outside], clusters: NamedClusters) -> dict[str, dict[str, KafkaLog]]:
    """Return the log of each Kafka source by query and source, once its positions were found to lie in it.

    Raises:
        SourceClusterError: If no cluster, or more than one, has a source's topics with its positions.
        FlinkstyleError: If the only cluster that has them lacks a partition or a position.
    """
    return {
        query.name: {source: _log_of(query, source, clusters) for source in query.newest.kafka_sources}
        for query in queries
    }


def unread(queries: Sequence[Outside], logs: Mapping[str, Mapping[str, KafkaLog]]) -> int:
    """Return how many offsets lie behind the positions of all queries: what a running query would read."""
    return sum(
        max(0, ends[partition][1] - offset)
        for query in queries
        for source, known in logs[query.name].items()
        for (topic, partition), offset in query.newest.kafka_offsets(source).items()
        if (ends := known.log_range.get(topic, {})) and partition in ends
    )


def _log_of(query: Outside, source: str, clusters: NamedClusters) -> KafkaLog:
    topics = query.newest.kafka_offsets(source).topics
    where = f"source {source} of query {query.name}"
    views = clusters.with_topics(topics)
    fitting, refusals = [], []
    for view in views:
        try:
            _require_inside(query, source, view, where)
        except FlinkstyleError as error:
            refusals.append(error)
        else:
            fitting.append(view)
    if len(fitting) == 1:
        return _as_log(fitting[0])
    if len(views) == 1:
        raise type(refusals[0])(refusals[0].problem, UNTOUCHED, refusals[0].remedy)
    names = ", ".join(sorted(topics))
    if not views:
        found = f"none among {clusters}"
    elif fitting:
        found = "more than one: " + ", ".join(id_words(view.cluster_id) for view in fitting)
    else:
        found = "; ".join(error.problem for error in refusals)
    raise SourceClusterError(
        f"One Kafka cluster with the topics {names} was expected for {where}, found {found}.",
        state_after=UNTOUCHED,
        remedy="Name the cluster that the script reads (--kafka-config or --kafka-conn-id), and no other one "
        "with the same topics: no file of a checkpoint says which one it was.",
    )


def _require_inside(query: Outside, source: str, view: ClusterView, where: str) -> None:
    """Check what the start guard will: the newest positions, and those of the batch that is planned."""
    newest = query.newest.kafka_offsets(source)
    require_within_log(newest, view, where)
    if query.planned is not None and source in query.committed.sources:
        require_within_log(newest | query.committed.kafka_offsets(source), view, where)


def _as_log(view: ClusterView) -> KafkaLog:
    return KafkaLog(
        cluster_id=view.cluster_id,
        topic_ids={topic: seen.topic_id for topic, seen in view.topics.items()},
        log_range={
            topic: {number: (log.start, log.end) for number, log in seen.partitions.items()}
            for topic, seen in view.topics.items()
        },
    )
