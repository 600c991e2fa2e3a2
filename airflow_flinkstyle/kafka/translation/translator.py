"""Translate positions between two live clusters, with proof: reads both, writes nothing.

In this order: identity, MirrorMaker's position, ends, limits, ranges of both sides (widened
fourfold until they decide), proof, and everything that may have moved looked at once more.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka.cluster import ClusterView, require_positions, topic_settings
from airflow_flinkstyle.kafka.errors import ClusterMismatchError
from airflow_flinkstyle.kafka.translation.cluster_snapshot import moved_between, take_snapshot
from airflow_flinkstyle.kafka.translation.compare import Round, prove_round
from airflow_flinkstyle.kafka.translation.evidence import Translation
from airflow_flinkstyle.types import ids_differ

if TYPE_CHECKING:
    from airflow_flinkstyle.kafka.settings import KafkaCluster
    from airflow_flinkstyle.kafka.translation.request import ProofRequest
    from airflow_flinkstyle.kafka.verdict import Refused
    from airflow_flinkstyle.types import TopicPartition

log = logging.getLogger(__name__)


def translate_positions(source: KafkaCluster, target: KafkaCluster, request: ProofRequest) -> Translation:
    """Translate the positions of a source, all partitions in one go.

    Returns:
        A verdict and the evidence per source partition. Whatever is not sure for one partition is
        its ``Refused``; what makes the whole call senseless is an error.

    Raises:
        ClusterMismatchError: If the source is another cluster than the savepoint's.
        TopicMissingError: If a topic does not exist on one of the clusters.
        MirrorPositionMissingError: If MirrorMaker's offsets topic does not exist.
    """
    require_positions(request.positions)
    began = time.monotonic()
    topics = sorted(request.positions.topics)
    attempt = 0
    while True:
        attempt += 1
        snapshot = take_snapshot(source, target, request, topics)
        _require_cluster(source, request, snapshot.source)
        evidence = prove_round(
            Round(
                source=source,
                target=target,
                request=request,
                snapshot=snapshot,
                settings=topic_settings(source, topics),
                target_settings=topic_settings(target, snapshot.target.topics.keys()),
            )
        )
        moved: dict[TopicPartition, Refused] = {}
        if not request.preview:
            verdicts = {tp: found.verdict for tp, found in evidence.items()}
            moved = moved_between(request, snapshot, take_snapshot(source, target, request, topics), verdicts)
        if not moved or attempt >= request.attempts:
            break
        log.info("Attempt %d: %d partitions moved while they were compared", attempt, len(moved))
    for tp, refused in moved.items():
        evidence[tp] = replace(evidence[tp], verdict=refused, target_offset=None)
    log.info("Compared %d partitions in %.1f s", len(evidence), time.monotonic() - began)
    return Translation(
        target=snapshot.target,
        evidence=evidence,
        settled=not request.preview,
    )


def _require_cluster(source: KafkaCluster, request: ProofRequest, view: ClusterView) -> None:
    if ids_differ(request.cluster_id, view.cluster_id):
        raise ClusterMismatchError.between(
            f"The savepoint read through {source.name}", expected=request.cluster_id, found=view.cluster_id
        )
