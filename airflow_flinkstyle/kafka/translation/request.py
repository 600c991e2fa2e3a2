"""The request for a suffix proof."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.offsets import Offsets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
    from airflow_flinkstyle.kafka.settings import Isolation


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofRequest:
    """What is to be translated, and under which rules."""

    positions: Offsets = field(default_factory=Offsets)
    """Next offset to read, per source partition."""
    cluster_id: str | None = None
    """The source cluster's id as the savepoint recorded it; None skips the check."""
    topic_ids: Mapping[str, str | None] = field(default_factory=dict)
    """The source topics' ids as recorded; topics left out are not checked."""
    rename: Mapping[str, str] = field(default_factory=dict)
    """Source topic -> target topic, beyond those of ``mirror``; default: the same name."""
    mirror: MirrorSettings | None = None
    """Without it, positions at the log's end and among repeating records are refused."""
    isolation: Isolation = "read_committed"
    """The job's own ``kafka.isolation.level``; Spark's default is ``read_uncommitted``."""
    ignored_headers: frozenset[str] = frozenset()
    """Headers that are no part of a record's identity, beyond those that ``mirror`` names."""
    preview: bool = False
    """Producers are at work: show where positions would go. Never enough for a rewrite."""
    most_unread: int = 20_000_000
    """Unread offsets of one partition above which its proof is refused: some 40 bytes of memory each, both
    sides together, 60 on compacted topics."""
    range_budget: int = 4_000_000
    """Offsets of both sides in memory at a time, beyond what a single partition has unread."""
    attempts: int = 3
    """Tries when ends or MirrorMaker's positions change while the proof runs."""

    def about(
        self, positions: Offsets, *, cluster_id: str | None, topic_ids: Mapping[str, str | None]
    ) -> ProofRequest:
        """Return the same rules for these positions of this cluster."""
        return replace(self, positions=positions, cluster_id=cluster_id, topic_ids=topic_ids)

    def target_topic(self, topic: str) -> str:
        """Return what a source topic is called on the target."""
        if topic in self.rename:
            return self.rename[topic]
        return self.mirror.target_topic(topic) if self.mirror else topic
