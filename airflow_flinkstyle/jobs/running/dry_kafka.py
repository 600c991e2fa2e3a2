"""Whether the positions of a savepoint can still be read: live clusters are asked, and nothing is changed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.running.dry_checks import NotJudged, StartCheck, judged
from airflow_flinkstyle.kafka.cluster import describe, existing_topics
from airflow_flinkstyle.kafka.errors import TopicMissingError
from airflow_flinkstyle.kafka.positions import require_resumable, require_same_log
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.protocol.query_records import Reading
from airflow_flinkstyle.types import id_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.kafka.settings import KafkaCluster
    from airflow_flinkstyle.savepoint.manifest import KafkaPosition, Manifest, QuerySnapshot

_STRICT: Final = Reading(servers="", isolation="")
"""Of a source of which no run has told: Spark's defaults."""


def check_positions(
    manifest: Manifest,
    clusters: Sequence[KafkaCluster],
    reads: Mapping[str, Mapping[str, Reading]] | None = None,
) -> Iterator[StartCheck]:
    """Check each Kafka source of a savepoint as the start guard does, on the cluster that it belongs to.

    Args:
        manifest: The savepoint.
        clusters: Those that may be asked. A source of none of them is not judged.
        reads: How the job's last run read, by query and source: what comes and goes by the script's own rules
            (``failOnDataLoss``, ``subscribePattern``) refuses no start.
    """
    reached, silent = _reached(clusters) if any(query.kafka for query in manifest.queries) else ({}, [])
    for query in manifest.queries:
        for source, position in query.kafka.items():
            about = f"positions of query {query.name}, source {source}"
            cluster = reached.get(position.cluster_id)
            if cluster is None:
                yield StartCheck(about=about, verdict=_not_reached(position, reached, silent))
            else:
                reading = (reads or {}).get(query.name, {}).get(source, _STRICT)
                yield judged(about, partial(_read, query, source, position, cluster, reading))


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


def _read(
    query: QuerySnapshot, source: str, position: KafkaPosition, cluster: KafkaCluster, reading: Reading
) -> str:
    """Return how far the positions are from both ends of their logs; raises as the start guard does."""
    where = f"source {source} of query {query.name}"
    if not position.offsets:
        return "It has read no partition yet."
    topics = position.offsets.topics
    if reading.follows_pattern:
        topics &= existing_topics(cluster)
    view = describe(cluster, topics)
    require_same_log(
        position.cluster_id, position.topic_ids, view, where, may_be_gone=reading.follows_pattern
    )
    gone = position.offsets.topics - topics
    if gone and not reading.accepts_loss:
        raise TopicMissingError.on(f"of {where}", gone)
    planned = _planned(query, source)
    _require_resumable(planned or position.offsets, view, where, reading)
    if planned:  # partitions that came with the planned batch are in it alone
        _require_resumable(planned | position.offsets, view, where, reading)
    return _words(position.offsets, view)


def _require_resumable(offsets: Offsets, view: ClusterView, where: str, reading: Reading) -> None:
    starts = view.starts
    there = {tp: offset for tp, offset in offsets.items() if tp[0] in view.topics}
    if reading.accepts_loss:
        there = {tp: max(offset, starts.get(tp, offset)) for tp, offset in there.items()}
    if there:
        require_resumable(Offsets(there), view, where)


def _planned(query: QuerySnapshot, source: str) -> Offsets | None:
    if query.planned_offsets is None:
        return None
    log = offset_log.parse(query.planned_offsets)
    return log.kafka_offsets(source) if source in log.sources else None


def _words(offsets: Offsets, view: ClusterView) -> str:
    logs = {tp: log for tp in offsets if (log := view.log_range(tp)) is not None}
    lost = [f"topic {topic} is gone" for topic in sorted(offsets.topics - view.topics.keys())]
    deleted = sum(max(0, log.start - offsets[tp]) for tp, log in logs.items())
    lost += [f"{deleted:,} offsets were deleted unread"] if deleted else []
    if lost:
        return f"It starts, as failOnDataLoss=false accepts, although {' and '.join(lost)}."
    unread = sum(log.end - offsets[tp] for tp, log in logs.items())
    nearest = min(logs, key=lambda tp: offsets[tp] - logs[tp].start)
    margin = offsets[nearest] - logs[nearest].start
    return (
        f"All {len(offsets)} are in their logs, {unread:,} offsets before their ends; the nearest to being "
        f"deleted, of {nearest[0]}-{nearest[1]}, is {margin:,} offsets behind its log's start."
    )
