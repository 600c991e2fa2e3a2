"""What a proof saw of both clusters and of MirrorMaker, to notice whatever changes meanwhile."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka.cluster import ClusterView, TopicPartition, describe
from airflow_flinkstyle.kafka.mirror import lag_above, mirrored_positions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.kafka.request import ProofRequest
    from airflow_flinkstyle.kafka.settings import KafkaCluster

_PREVIEW_WAIT_S = 90.0
"""How long a preview waits for MirrorMaker to reach the source's ends; it notes every 60 s where it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Everything that must not change while the proof runs."""

    source: ClusterView
    target: ClusterView
    mirrored: Mapping[TopicPartition, int]


def look(source: KafkaCluster, target: KafkaCluster, request: ProofRequest, topics: list[str]) -> Moment:
    """Return the state of both clusters and of MirrorMaker now."""
    if request.preview:
        return _look_while_growing(source, target, request, topics)
    # MirrorMaker's positions first, the source's end next, the target last: a record that arrives
    # between the looks then shows as lag or as an extra, never as "nothing is missing".
    mirrored = mirrored_positions(target, request.mirror, topics) if request.mirror else {}
    return Moment(
        mirrored=mirrored,
        source=describe(source, topics),
        target=describe(target, [request.target_topic(topic) for topic in topics]),
    )


def _look_while_growing(
    source: KafkaCluster, target: KafkaCluster, request: ProofRequest, topics: list[str]
) -> Moment:
    """Fix the source's stable ends, give MirrorMaker a moment to reach them, then look at the target."""
    view = _stable(describe(source, topics))
    mirrored: dict[TopicPartition, int] = {}
    deadline = time.monotonic() + _PREVIEW_WAIT_S
    while request.mirror is not None:
        mirrored = mirrored_positions(target, request.mirror, topics)
        lag = lag_above(source, request.mirror, view, mirrored, request.positions.keys())
        if not any(lag.values()) or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    targets = [request.target_topic(topic) for topic in topics]
    return Moment(mirrored=mirrored, source=view, target=_stable(describe(target, targets)))


def _stable(view: ClusterView) -> ClusterView:
    """Return the view as if every log ended before its first open transaction."""
    topics = {
        name: replace(
            topic,
            partitions={
                number: replace(log_range, end=log_range.last_stable)
                for number, log_range in topic.partitions.items()
            },
        )
        for name, topic in view.topics.items()
    }
    return replace(view, topics=topics)


def moved_between(request: ProofRequest, before: Moment, after: Moment) -> set[TopicPartition]:
    """Return the partitions of which anything is not as it was."""
    moved = set()
    for tp in request.positions:
        target = (request.target_topic(tp[0]), tp[1])
        ends = [
            (_end(moment.source, tp), _end(moment.target, target), moment.mirrored.get(tp))
            for moment in (before, after)
        ]
        if ends[0] != ends[1]:
            moved.add(tp)
    return moved


def _end(view: ClusterView, tp: TopicPartition) -> tuple[str, int, int] | None:
    log_range = view.log_range(tp)
    return (view.topics[tp[0]].topic_id, log_range.end, log_range.last_stable) if log_range else None
