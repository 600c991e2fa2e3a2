"""Pre-flight: would the target delete mirrored records that the job has not read yet?

Retention works on the records' own timestamps, which a mirror keeps. A topic that is new on the
target can so lose old records minutes after they arrived, while the source still has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.kafka.cluster import describe, first_offsets_since, topic_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.kafka.cluster import ClusterView, TopicSettings
    from airflow_flinkstyle.kafka.settings import KafkaCluster
    from airflow_flinkstyle.offsets import Offsets
    from airflow_flinkstyle.types import NextOffset, TopicPartition

Setting = Literal["retention.ms", "retention.bytes"]

_UNLIMITED = -1
_MARGIN_S = 3600.0
"""Records that expire within this time count as deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionFinding:
    """One setting of a target topic that endangers mirrored records."""

    topic: str
    target_topic: str
    setting: Setting
    source_value: int
    target_value: int
    endangered: Mapping[int, int]
    """Offsets from the job's position on, per partition, whose records the target would delete."""

    def describe(self) -> str:
        """Return the finding in two sentences: what would happen, what to do."""
        where = ", ".join(f"{number}: {count}" for number, count in sorted(self.endangered.items()))
        return (
            f"Topic {self.target_topic} has {self.setting}={self.target_value} on the target "
            f"(source: {self.source_value}), which would delete mirrored records the job has not read "
            f"(offsets by partition: {where or 'not known'}). Raise {self.setting} on both clusters "
            "(MirrorMaker copies topic settings from the source) until the job has caught up."
        )


def retention_findings(
    source: KafkaCluster,
    target: KafkaCluster,
    positions: Offsets,
    rename: Mapping[str, str],
) -> tuple[RetentionFinding, ...]:
    """Return what the target's retention would delete of the records from ``positions`` on.

    Args:
        source: Where the job reads now.
        target: Where the mirrored copy is.
        positions: Next offset to read, per source partition.
        rename: Source topic -> target topic; topics left out have the same name.
    """
    topics = sorted(positions.topics)
    names = {topic: rename.get(topic, topic) for topic in topics}
    old, new = topic_settings(source, topics), topic_settings(target, list(names.values()))
    cutoffs = cutoffs_of(names, new, now_ms=now_ms(), margin_s=_MARGIN_S)
    dated = positions.in_topics(cutoffs)
    kept_from = first_offsets_since(source, {tp: cutoffs[tp[0]] for tp in dated})
    ranges = describe(source, dated.topics)
    return findings_of(names, old, new, older_than(dated, ranges, kept_from))


def cutoffs_of(
    names: Mapping[str, str], new: Mapping[str, TopicSettings], *, now_ms: int, margin_s: float
) -> dict[str, int]:
    """Return source topic -> the time before which the target deletes its records; none where it does not."""
    cutoffs = {}
    for topic, name in names.items():
        kept_for_ms = new[name].retention_ms
        if new[name].deletes and not new[name].log_append_time and kept_for_ms != _UNLIMITED:
            cutoffs[topic] = now_ms + int(margin_s * 1000) - kept_for_ms
    return cutoffs


def older_than(
    positions: Offsets,
    view: ClusterView,
    kept_from: Mapping[TopicPartition, NextOffset | None],
) -> dict[TopicPartition, int]:
    """Return per partition how many offsets from the position on lie before the first that is kept.

    Args:
        positions: Next offset to read.
        view: The source; partitions that it lacks are left out.
        kept_from: The first offset that is kept; None if none is.
    """
    expiring = {}
    for tp, position in positions.items():
        log_range, kept = view.log_range(tp), kept_from[tp]
        if log_range is not None:
            expiring[tp] = (log_range.end if kept is None else kept) - max(position, log_range.start)
    return expiring


def findings_of(
    names: Mapping[str, str],
    old: Mapping[str, TopicSettings],
    new: Mapping[str, TopicSettings],
    expiring: Mapping[TopicPartition, int],
) -> tuple[RetentionFinding, ...]:
    """Return the settings that endanger records, by topic."""
    findings = []
    for topic, name in names.items():
        endangered = {number: count for (of, number), count in expiring.items() if of == topic and count > 0}
        values: dict[Setting, tuple[int, int]] = {}
        if endangered:
            values["retention.ms"] = (old[topic].retention_ms, new[name].retention_ms)
        if new[name].deletes and _smaller(new[name].retention_bytes, old[topic].retention_bytes):
            values["retention.bytes"] = (old[topic].retention_bytes, new[name].retention_bytes)
        findings += [
            RetentionFinding(
                topic=topic,
                target_topic=name,
                setting=setting,
                source_value=source_value,
                target_value=target_value,
                endangered=endangered if setting == "retention.ms" else {},
            )
            for setting, (source_value, target_value) in values.items()
        ]
    return tuple(findings)


def _smaller(target: int, source: int) -> bool:
    return target != _UNLIMITED and (source == _UNLIMITED or target < source)
