"""What a migration asks of the two Kafka clusters and of MirrorMaker."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Protocol

from airflow_flinkstyle.jobs.errors import MIRROR_BEHIND
from airflow_flinkstyle.jobs.migration.fence_phase import LiveWatch
from airflow_flinkstyle.kafka.audit.open_transactions import explain
from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.fence.fences import PassiveFence, denials
from airflow_flinkstyle.kafka.fence.fencing import Moving, steady_ends
from airflow_flinkstyle.kafka.groups import set_group_offsets
from airflow_flinkstyle.kafka.mirror.lag import MirrorBehind, wait_caught_up
from airflow_flinkstyle.kafka.policies import EXACT_ONLY, Policies
from airflow_flinkstyle.kafka.translation.request import ProofRequest
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.rewrite.apply import apply_plan
from airflow_flinkstyle.rewrite.route import ClusterPair, incompatible_topics, targets_of
from airflow_flinkstyle.rewrite.rules import PROVED, StrategyRules
from airflow_flinkstyle.rewrite.strategies import plan_migration

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from airflow_flinkstyle.jobs.migration.fence_phase import FenceWatch
    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.kafka.fence.acls import AclRule
    from airflow_flinkstyle.kafka.fence.fences import Fence
    from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
    from airflow_flinkstyle.kafka.settings import Isolation, KafkaCluster
    from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

Side = Literal["old", "new"]


class KafkaSide(Protocol):
    """All that a cutover asks of Kafka; topics go by their names on the old cluster."""

    @property
    def old_cluster_id(self) -> str | None:
        """What the sources that move read now."""

    @property
    def new_cluster_id(self) -> str | None:
        """What they read after the move."""

    def who_writes(self, topics: Collection[str], window_s: float) -> str | None:
        """Return None if the old cluster gets no records for that long, else a sentence on where it does."""

    def await_mirrored(self, sources: Mapping[str, Collection[str]], timeout_s: float) -> None:
        """Wait until MirrorMaker has mirrored everything that the sources' ways need.

        Args:
            sources: ``query/source`` -> its topics.
            timeout_s: How long to wait.

        Raises:
            JobError: ``MIRROR_BEHIND`` if something is still missing then.
        """

    def plan(self, manifest: Manifest, *, preview: bool = False) -> OffsetRewritePlan:
        """Translate the savepoint's positions to the new cluster, with proof."""

    def apply(self, plan: OffsetRewritePlan, manifest: Manifest, repository: SavepointRepository) -> Manifest:
        """Write the rewritten savepoint; raises before the first write if a precondition does not hold."""

    def unread(self, manifest: Manifest) -> int:
        """Return how many offsets the new cluster has behind a rewritten savepoint's positions."""

    def commit_for(self, group: str, plan: OffsetRewritePlan) -> str:
        """Commit the positions of what has moved for a group on the new cluster; return a summary."""

    @property
    def watch(self) -> FenceWatch:
        """Watches the old cluster, and has the fence around it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveKafka:
    """Two real clusters with MirrorMaker 2 between them."""

    old: KafkaCluster
    new: KafkaCluster
    mirror: MirrorSettings | None
    """None: nothing shows how far the target is; proofs then refuse what content alone cannot decide."""
    rename: Mapping[str, str] = field(default_factory=dict)
    """Old topic -> new topic, or several with commas, beyond what MirrorMaker's policy renames."""
    isolation: Isolation = "read_committed"
    """What the job itself reads."""
    allow: Policies = EXACT_ONLY
    """Which verdicts are accepted; ``chosen`` is accepted wherever ``strategies`` picks positions."""
    strategies: StrategyRules = PROVED
    """How each source moves."""
    fence: Fence | None = None
    """What keeps producers away from the old topics in the window; None: they are only watched."""

    @property
    def old_cluster_id(self) -> str | None:
        """Ask the old cluster."""
        return describe(self.old, ()).cluster_id

    @property
    def new_cluster_id(self) -> str | None:
        """Ask the new cluster."""
        return describe(self.new, ()).cluster_id

    @property
    def watch(self) -> FenceWatch:
        """Watches the old cluster, and has the fence around its topics."""
        return LiveWatch(cluster=self.old, fence=self.fence or PassiveFence(cluster=self.old))

    def view(self, side: Side, topics: Collection[str]) -> ClusterView:
        """Read topics of one cluster, by their names there."""
        return describe(self.old if side == "old" else self.new, topics)

    def who_writes(self, topics: Collection[str], window_s: float) -> str | None:
        """Read the ends of all partitions twice, and compare."""
        found = steady_ends(self.old, topics, window_s)
        return explain(self.old, found) if isinstance(found, Moving) else None

    def await_mirrored(self, sources: Mapping[str, Collection[str]], timeout_s: float) -> None:
        """Wait for MirrorMaker's own positions to reach the ends, where a proof will need it."""
        topics = self.to_prove(sources)
        if self.mirror is None or not topics:
            return
        found = wait_caught_up(self.old, self.new, self.mirror, topics, timeout_s=timeout_s)
        if isinstance(found, MirrorBehind):
            raise MIRROR_BEHIND.with_text(
                f"MirrorMaker was expected to mirror everything within {timeout_s:g} s. {found.describe()}",
                state_after="Nothing was stopped; the job still reads the old cluster.",
                remedy="Check that MirrorMaker runs and is fast enough, then migrate again.",
            )

    def plan(self, manifest: Manifest, *, preview: bool = False) -> OffsetRewritePlan:
        """Find every source's positions in its way."""
        return plan_migration(manifest, self._clusters(), self.request(preview=preview), self.strategies)

    def apply(self, plan: OffsetRewritePlan, manifest: Manifest, repository: SavepointRepository) -> Manifest:
        """Check against the new cluster as it is now, then write."""
        live = describe(self.new, plan.target.topics)
        allow = replace(self.allow, chosen=self.allow.chosen or self.strategies.chooses)
        return apply_plan(plan, manifest, repository, live=live, allow=allow)

    def unread(self, manifest: Manifest) -> int:
        """Compare positions with the ends."""
        positions = self._positions(manifest)
        view = describe(self.new, {topic for offsets in positions for topic in offsets.topics})
        ranges = [(view.log_range(tp), offset) for offsets in positions for tp, offset in offsets.items()]
        return sum(max(0, found.end - offset) for found, offset in ranges if found is not None)

    def commit_for(self, group: str, plan: OffsetRewritePlan) -> str:
        """Commit positions as the group's; of two sources of one topic the lower position counts.

        The job may commit for the group itself, and is further by now.
        """
        lowest = Offsets()
        for offsets in map(plan.positions, plan.sources):
            lowest |= {tp: min(offset, lowest.get(tp, offset)) for tp, offset in offsets.items()}
        return set_group_offsets(self.new, group, lowest, only_forward=True).describe()

    def _positions(self, manifest: Manifest) -> list[Offsets]:
        """Return where every source that reads the new cluster is."""
        cluster_id = self.new_cluster_id
        return [
            position.offsets
            for query in manifest.queries
            for position in query.kafka.values()
            if position.cluster_id == cluster_id
        ]

    def to_prove(self, sources: Mapping[str, Collection[str]]) -> set[str]:
        """Return the topics whose positions are to be proved, of these ``query/source`` -> topics."""
        rules = {name: rule for name in sources if (rule := self.strategies.named(name)).strategy == "proved"}
        topics = {topic for name in rules for topic in sources[name]}
        if all(rule.topology == "refuse" for rule in rules.values()):
            return topics
        old, new = self.view("old", topics), self.view("new", self.target_topics(topics))
        partitions = {topic: old.topics[topic].partitions.keys() for topic in topics}
        return topics - incompatible_topics(self.request(), partitions, new).keys()

    def target_topics(self, topics: Collection[str]) -> list[str]:
        """Return what topics of the old cluster are called on the new one, each once."""
        return sorted({target for topic in topics for target in targets_of(self.request(), topic)})

    def denials(self, topics: Collection[str]) -> list[AclRule]:
        """Return what denies somebody to write to the topics that these are on the new cluster."""
        return denials(self.new, self.target_topics(topics))

    def _clusters(self) -> ClusterPair:
        return ClusterPair(source=self.old, target=self.new)

    def request(self, *, preview: bool = False) -> ProofRequest:
        """Return what is asked of a translation."""
        return ProofRequest(mirror=self.mirror, rename=self.rename, isolation=self.isolation, preview=preview)
