"""What a translation rests on; kept with the rewritten savepoint."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.kafka.verdict import describe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.kafka.verdict import ExtraClass, Verdict
    from airflow_flinkstyle.types import NextOffset, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What was compared for one partition, and what came of it."""

    topic: str
    partition: int
    target_topic: str
    position: int
    """Next offset to read on the source."""
    verdict: Verdict
    target_offset: int | None
    source_cluster_id: str | None
    target_cluster_id: str | None
    source_topic_id: str | None
    target_topic_id: str | None
    source_log: tuple[int, int] | None
    """Start and end of the source's log; None if there is no such partition."""
    target_log: tuple[int, int] | None
    mirrored_to: NextOffset | None
    """The first source offset that MirrorMaker says it has not replicated."""
    unread_records: int | None
    """Source records from the position on; None if refused before anything was read."""
    matched_records: int | None
    context_records: int | None
    """Records just before the position that equal those before the target offset."""
    digest: str | None
    """SHA-256 over the unread records' fingerprints, in order."""
    extras: Mapping[ExtraClass, int]
    absent: Mapping[ExtraClass, int]
    source_range: tuple[int, int] | None
    """Offsets read, end exclusive; the end is the log's."""
    target_range: tuple[int, int] | None

    def to_json(self) -> str:
        """Render for the savepoint's manifest."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        fields["verdict"] = describe(self.verdict)
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """The translated positions of one source."""

    target: ClusterView
    """The target as it was when the records were compared."""
    evidence: Mapping[TopicPartition, Evidence]
    """By source partition."""
    settled: bool
    """False for a preview made while producers were at work."""

    @property
    def verdicts(self) -> dict[TopicPartition, Verdict]:
        """The verdict per source partition."""
        return {tp: entry.verdict for tp, entry in self.evidence.items()}
