"""Whether the positions of a savepoint can still be read: live clusters are asked, and nothing is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.running.dry_checks import Check, NotJudged, judged
from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.positions import require_resumable, require_same_log
from airflow_flinkstyle.types import id_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.kafka.settings import KafkaCluster
    from airflow_flinkstyle.offsets import Offsets
    from airflow_flinkstyle.savepoint.manifest import KafkaPosition, Manifest, QuerySnapshot


def check_positions(manifest: Manifest, clusters: Sequence[KafkaCluster]) -> Iterator[Check]:
    """Check each Kafka source of a savepoint as the start guard does, on the cluster that it belongs to.

    Args:
        manifest: The savepoint.
        clusters: Those that may be asked. A source of none of them is not judged.
    """
    reached, silent = _reached(clusters) if any(query.kafka for query in manifest.queries) else ({}, [])
    for query in manifest.queries:
        for source, position in query.kafka.items():
            about = f"positions of query {query.name}, source {source}"
            cluster = reached.get(position.cluster_id)
            if cluster is None:
                yield Check(about=about, verdict=_not_reached(position, reached, silent))
            else:
                yield judged(about, lambda: _read(query, source, position, cluster))  # noqa: B023  # called now


def _reached(clusters: Sequence[KafkaCluster]) -> tuple[dict[str | None, KafkaCluster], list[str]]:
    """Return the clusters by their ids, and why others did not tell theirs."""
    reached, silent = {}, []
    for cluster in clusters:
        try:
            reached[describe(cluster, ()).cluster_id] = cluster
        except FlinkstyleError as error:
            silent.append(error.problem)
    return reached, silent


def _not_reached(
    position: KafkaPosition, reached: dict[str | None, KafkaCluster], silent: list[str]
) -> NotJudged:
    if silent:
        return NotJudged(" ".join(silent))
    others = ", ".join(
        f"{cluster.name} reaches {id_words(cluster_id)}" for cluster_id, cluster in reached.items()
    )
    asked = f"of the connections that were asked, {others}" if others else "no connection was asked"
    return NotJudged(f"They belong to Kafka cluster {id_words(position.cluster_id)}; {asked}.")


def _read(query: QuerySnapshot, source: str, position: KafkaPosition, cluster: KafkaCluster) -> str:
    """Return how far the positions are from both ends of their logs; raises as the start guard does."""
    where = f"source {source} of query {query.name}"
    view = describe(cluster, position.offsets.topics)
    if not position.offsets:
        return "It has read no partition yet."
    require_same_log(position.cluster_id, position.topic_ids, view, where)
    planned = _planned(query, source)
    require_resumable(planned or position.offsets, view, where)
    if planned:  # partitions that came with the planned batch are in it alone
        require_resumable(planned | position.offsets, view, where)
    return _words(position.offsets, view)


def _planned(query: QuerySnapshot, source: str) -> Offsets | None:
    if query.planned_offsets is None:
        return None
    log = offset_log.parse(query.planned_offsets)
    return log.kafka_offsets(source) if source in log.sources else None


def _words(offsets: Offsets, view: ClusterView) -> str:
    logs = {tp: log for tp in offsets if (log := view.log_range(tp)) is not None}
    unread = sum(log.end - offsets[tp] for tp, log in logs.items())
    nearest = min(logs, key=lambda tp: offsets[tp] - logs[tp].start)
    margin = offsets[nearest] - logs[nearest].start
    return (
        f"All {len(offsets)} are in their logs, {unread:,} offsets before their ends; the nearest to being "
        f"deleted, of {nearest[0]}-{nearest[1]}, is {margin:,} offsets behind its log's start."
    )
