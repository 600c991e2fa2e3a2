"""What a migration asks of the two Kafka clusters and of MirrorMaker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from airflow_flinkstyle.jobs.errors import MirrorBehindError
from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.fencing import Moving, steady_ends
from airflow_flinkstyle.kafka.mirror import Behind, wait_caught_up
from airflow_flinkstyle.kafka.policies import EXACT_ONLY, Policies
from airflow_flinkstyle.kafka.request import ProofRequest
from airflow_flinkstyle.rewrite.apply import apply_plan
from airflow_flinkstyle.rewrite.translate_savepoint import Clusters, plan_translation

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from airflow_flinkstyle.kafka.mirror import MirrorSettings
    from airflow_flinkstyle.kafka.settings import Isolation, KafkaCluster
    from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.savepoint.repository import SavepointRepository

Side = Literal["old", "new"]


class KafkaSide(Protocol):
    """Everything a cutover needs to know of Kafka; topics go by their names on the old cluster."""

    def who_writes(self, side: Side, topics: Collection[str], window_s: float) -> str | None:
        """Return None if nothing arrives over the window, else a sentence naming the partitions."""

    def await_mirrored(self, topics: Collection[str], timeout_s: float) -> None:
        """Wait until MirrorMaker has mirrored everything; raises ``MirrorBehindError``."""

    def plan(self, manifest: Manifest, *, preview: bool = False) -> OffsetRewritePlan:
        """Translate the savepoint's positions to the new cluster, with proof."""

    def apply(self, plan: OffsetRewritePlan, manifest: Manifest, repository: SavepointRepository) -> Manifest:
        """Write the rewritten savepoint; raises before the first write if a precondition does not hold."""

    def unread(self, manifest: Manifest) -> int:
        """Return how many offsets stand on the new cluster behind a rewritten savepoint's positions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveKafka:
    """Two real clusters with MirrorMaker 2 between them."""

    old: KafkaCluster
    new: KafkaCluster
    mirror: MirrorSettings
    rename: Mapping[str, str] = field(default_factory=dict)
    """Old topic -> new topic, beyond what MirrorMaker's policy says."""
    isolation: Isolation = "read_committed"
    """What the job itself reads."""
    allow: Policies = EXACT_ONLY
    """Which verdicts are good enough."""

    def who_writes(self, side: Side, topics: Collection[str], window_s: float) -> str | None:
        """Look at the ends of all partitions twice."""
        cluster = self.old if side == "old" else self.new
        names = topics if side == "old" else [self.target_topic(topic) for topic in topics]
        found = steady_ends(cluster, names, window_s)
        return f"{found.describe()} (cluster {cluster.name})" if isinstance(found, Moving) else None

    def await_mirrored(self, topics: Collection[str], timeout_s: float) -> None:
        """Wait for MirrorMaker's own positions to reach the ends."""
        found = wait_caught_up(self.old, self.new, self.mirror, topics, timeout_s=timeout_s)
        if isinstance(found, Behind):
            raise MirrorBehindError(
                f"MirrorMaker was expected to mirror everything within {timeout_s:g} s. {found.describe()}",
                left="Nothing was stopped; the job still reads the old cluster.",
                remedy="Check that MirrorMaker runs and is fast enough, then migrate again.",
            )

    def plan(self, manifest: Manifest, *, preview: bool = False) -> OffsetRewritePlan:
        """Prove every position."""
        return plan_translation(manifest, self._clusters(), self._rules(preview=preview))

    def apply(self, plan: OffsetRewritePlan, manifest: Manifest, repository: SavepointRepository) -> Manifest:
        """Check against the new cluster as it is now, then write."""
        live = describe(self.new, plan.target.topics)
        return apply_plan(plan, manifest, repository, live=live, allow=self.allow)

    def unread(self, manifest: Manifest) -> int:
        """Compare positions with the ends."""
        cluster_id = describe(self.new, ()).cluster_id
        offsets = [
            (topic, number, offset)
            for query in manifest.queries
            for position in query.kafka.values()
            if position.cluster_id == cluster_id
            for topic, numbers in position.offsets.items()
            for number, offset in numbers.items()
        ]
        view = describe(self.new, {topic for topic, _, _ in offsets})
        ranges = [(view.log_range((topic, number)), offset) for topic, number, offset in offsets]
        return sum(max(0, found.end - offset) for found, offset in ranges if found is not None)

    def target_topic(self, topic: str) -> str:
        """Return what a topic of the old cluster is called on the new one."""
        return self._rules().target_topic(topic)

    def _clusters(self) -> Clusters:
        return Clusters(source=self.old, target=self.new)

    def _rules(self, *, preview: bool = False) -> ProofRequest:
        return ProofRequest(
            positions={}, mirror=self.mirror, rename=self.rename, isolation=self.isolation, preview=preview
        )
