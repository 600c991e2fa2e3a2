"""A snapshot of both clusters and of MirrorMaker, to notice changes while positions are proved."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.clock import CLOCK
from airflow_flinkstyle.kafka.cluster import ClusterView, describe
from airflow_flinkstyle.kafka.mirror.lag import lag_above, mirrored_positions
from airflow_flinkstyle.kafka.verdict import Refused, offset_of
from airflow_flinkstyle.offsets import Offsets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.kafka.settings import KafkaCluster
    from airflow_flinkstyle.kafka.translation.request import ProofRequest
    from airflow_flinkstyle.kafka.verdict import Verdict
    from airflow_flinkstyle.types import TopicPartition

_PREVIEW_WAIT_S = 90.0
"""How long a preview waits for MirrorMaker to reach the source's ends; it notes its positions every 60 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """Everything that must not change while positions are proved."""

    source: ClusterView
    target: ClusterView
    mirrored: Offsets
    """How far MirrorMaker has replicated; empty without a mirror."""


def take_snapshot(
    source: KafkaCluster, target: KafkaCluster, request: ProofRequest, topics: list[str]
) -> ClusterSnapshot:
    """Return the state of both clusters and of MirrorMaker now."""
    if request.preview:
        return _snapshot_while_growing(source, target, request, topics)
    # MirrorMaker's positions first, the source's end next, the target last: a record that arrives
    # between the requests then shows as lag or as an extra, never as "nothing is missing".
    mirrored = mirrored_positions(target, request.mirror, topics) if request.mirror else Offsets()
    return ClusterSnapshot(
        mirrored=mirrored,
        source=describe(source, topics),
        target=describe(target, [request.target_topic(topic) for topic in topics]),
    )


def _snapshot_while_growing(
    source: KafkaCluster, target: KafkaCluster, request: ProofRequest, topics: list[str]
) -> ClusterSnapshot:
    """Fix the source's stable ends, give MirrorMaker a moment to reach them, then read the target."""
    view = _stable(describe(source, topics))
    mirrored = Offsets()
    wait = CLOCK.wait(_PREVIEW_WAIT_S, every_s=0.5)
    while request.mirror is not None:
        mirrored = mirrored_positions(target, request.mirror, topics)
        lag = lag_above(source, request.mirror, view, mirrored, request.positions.keys())
        if not any(lag.values()) or not wait.again():
            break
    targets = [request.target_topic(topic) for topic in topics]
    return ClusterSnapshot(mirrored=mirrored, source=view, target=_stable(describe(target, targets)))


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


def moved_between(
    request: ProofRequest,
    before: ClusterSnapshot,
    after: ClusterSnapshot,
    verdicts: Mapping[TopicPartition, Verdict],
) -> dict[TopicPartition, Refused]:
    """Return the partitions to compare again, with the refusal to give if no attempt remains."""
    moved = {}
    for tp in request.positions:
        target = (request.target_topic(tp[0]), tp[1])
        ends = [
            (_end(snapshot.source, tp), _end(snapshot.target, target), snapshot.mirrored.get(tp))
            for snapshot in (before, after)
        ]
        if ends[0] != ends[1]:
            moved[tp] = Refused(
                "ends or MirrorMaker's position changed while they were compared, at each attempt: a "
                "producer is still at work",
                None,
            )
        elif refused := _deleted_since(tp, target, before, after, verdicts[tp]):
            moved[tp] = refused
    return moved


def _deleted_since(
    tp: TopicPartition,
    target: TopicPartition,
    before: ClusterSnapshot,
    after: ClusterSnapshot,
    verdict: Verdict,
) -> Refused | None:
    """Return why a verdict does not count: records were deleted meanwhile, however many."""
    starts = [(_start(snapshot.source, tp), _start(snapshot.target, target)) for snapshot in (before, after)]
    start, offset = starts[1][1], offset_of(verdict)
    if isinstance(verdict, Refused):
        return verdict if starts[0] != starts[1] else None
    if offset is None or offset >= start:
        return None
    return Refused(
        f"the target's log begins at {start} by now, but the position was found at {offset}: its retention "
        "deletes records that are not read",
        None,
    )


def _start(view: ClusterView, tp: TopicPartition) -> int:
    log_range = view.log_range(tp)
    return log_range.start if log_range else 0


def _end(view: ClusterView, tp: TopicPartition) -> tuple[str | None, int, int] | None:
    log_range = view.log_range(tp)
    return (view.topics[tp[0]].topic_id, log_range.end, log_range.last_stable) if log_range else None
