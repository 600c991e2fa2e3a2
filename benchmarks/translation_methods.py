"""Other ways to find a position on a copy, each as good as it can be done."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka.cluster import first_offsets_since

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_flinkstyle.kafka.mirror.topics import Checkpoint, OffsetSync
    from airflow_flinkstyle.kafka.settings import KafkaCluster
    from airflow_flinkstyle.types import TopicPartition
    from benchmarks.translation_truth import Truth

Answers = dict["TopicPartition", int | None]
"""Source partition -> next offset on the target; None where the method has no answer."""


def by_checkpoints(
    checkpoints: Mapping[tuple[str, str, int], Checkpoint],
    group: str,
    positions: Mapping[TopicPartition, int],
    copies: Mapping[TopicPartition, TopicPartition],
) -> Answers:
    """Return where MirrorMaker itself lets the group go on."""
    found = {tp: checkpoints.get((group, *copies[tp])) for tp in positions}
    return {tp: checkpoint.downstream if checkpoint else None for tp, checkpoint in found.items()}


def by_timestamp(
    target: KafkaCluster,
    truths: Mapping[TopicPartition, Truth],
    positions: Mapping[TopicPartition, int],
    copies: Mapping[TopicPartition, TopicPartition],
    ends: Mapping[TopicPartition, int],
) -> Answers:
    """Return the first copy no older than the next unread record; the end where nothing is unread."""
    next_ms = {
        tp: unread[0].timestamp_ms for tp, at in positions.items() if (unread := truths[tp].unread(at))
    }
    found = first_offsets_since(target, {copies[tp]: at_ms for tp, at_ms in next_ms.items()})
    return {tp: found[copies[tp]] if tp in next_ms else ends[copies[tp]] for tp in positions}


def by_interpolation(
    syncs: Mapping[TopicPartition, Sequence[OffsetSync]], positions: Mapping[TopicPartition, int]
) -> Answers:
    """Return the place between the two syncs around a position; behind the last one, as far behind it."""
    return {tp: between(syncs.get(tp, ()), at) for tp, at in positions.items()}


def between(syncs: Sequence[OffsetSync], position: int) -> int | None:
    """Interpolate linearly, rounding down; None before the first sync."""
    known = sorted({sync.upstream: sync.downstream for sync in syncs}.items())
    place = bisect_right(known, position, key=lambda pair: pair[0])
    if place == 0:
        return None
    upstream, downstream = known[place - 1]
    if place == len(known):
        return downstream + position - upstream
    after, copied = known[place]
    return downstream + (position - upstream) * (copied - downstream) // (after - upstream)
