"""The ways a Kafka source can move to another cluster, chosen per source, and the plan of all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, assert_never

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.errors import ClusterMismatchError
from airflow_flinkstyle.kafka.start.resolve import require_known
from airflow_flinkstyle.rewrite.anew import begin_anew
from airflow_flinkstyle.rewrite.drained import drained_then_anew
from airflow_flinkstyle.rewrite.errors import NOTHING_WRITTEN, old_cluster_needed
from airflow_flinkstyle.rewrite.plan import plan_rewrite
from airflow_flinkstyle.rewrite.route import look, sources_of
from airflow_flinkstyle.rewrite.translate_savepoint import translated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.kafka.start.kinds import StartRules
    from airflow_flinkstyle.kafka.translation.request import ProofRequest
    from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan, SourceRef, SourceVerdicts
    from airflow_flinkstyle.rewrite.route import Clusters, Route
    from airflow_flinkstyle.savepoint.manifest import KafkaPosition, Manifest

Way = Literal["proved", "new_identity", "producers_first"]
"""How a source gets its position on the target:

- ``proved``: where its unread records stand there, by comparing both logs (also under a new name).
- ``new_identity``: a position that a person picks; the old one is dropped.
- ``producers_first``: the source is read to its fenced end, then the target from its start.
"""

Topology = Literal["refuse", "repartitioned"]
"""What about topics whose partitions are not the target's one by one: refuse, or start them by a position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRule:
    """How one source moves."""

    way: Way = "proved"
    start: StartRules | None = None
    """Where to begin what begins anew: all of a ``new_identity``, the repartitioned topics of the others;
    ``producers_first`` begins at the earliest record unless this says otherwise."""
    topology: Topology = "refuse"

    @property
    def begins_anew(self) -> bool:
        """Whether partitions of the old topics need not be the target's."""
        return self.way != "proved" or self.topology == "repartitioned"

    @property
    def needs_empty_target(self) -> bool:
        """Whether what stands on the target already would be read as if it were new."""
        return self.way == "producers_first" and self.start is None


@dataclass(frozen=True, slots=True, kw_only=True)
class WayRules:
    """How each source of a savepoint moves."""

    default: SourceRule = SourceRule()
    sources: Mapping[str, SourceRule] = field(default_factory=dict)
    """By ``query/source``; sources left out follow ``default``."""

    def of(self, ref: SourceRef) -> SourceRule:
        """Return the rule for a source."""
        return self.named(str(ref))

    def named(self, source: str) -> SourceRule:
        """Return the rule for a source, by ``query/source``."""
        return self.sources.get(source, self.default)

    @property
    def all(self) -> tuple[SourceRule, ...]:
        """Every rule that may apply."""
        return (self.default, *self.sources.values())

    @property
    def drains(self) -> bool:
        """Whether a source must be read to the end of its old topics."""
        return any(rule.way == "producers_first" for rule in self.all)

    @property
    def chooses(self) -> bool:
        """Whether a person picked positions, so that ``chosen`` is what was asked for."""
        return any(rule.start is not None for rule in self.all)


PROVED = WayRules()
"""Every source by comparing both logs."""


def plan_migration(
    manifest: Manifest, clusters: Clusters, request: ProofRequest, rules: WayRules = PROVED
) -> OffsetRewritePlan:
    """Find every source's positions on the target, each in its way, and plan the rewrite.

    Args:
        manifest: The savepoint.
        clusters: From and to. Without the old one, only sources with a new identity can move: all that
            do not read the target.
        request: Mirror, renames, isolation, preview; its positions and ids are taken from the savepoint.
        rules: How each source moves.

    Raises:
        ClusterMismatchError: If no source of the savepoint reads the cluster that the source settings reach.
        BadInputError: If a rule names an unknown source or topic, or a position is needed and not given.
        FlinkstyleError: Whatever reading the clusters raises.
    """
    moving = _moving(manifest, clusters, rules)
    route = look(clusters, request, moving)
    for rule in rules.all:  # with all topics: one rule may serve several sources
        if rule.start is not None:
            require_known(rule.start, route.target, str(clusters.target))
    verdicts = {
        ref: _by_its_way(manifest, ref, position, rules.of(ref), route) for ref, position in moving.items()
    }
    rename = {
        topic: request.target_topic(topic) for position in moving.values() for topic in position.offsets
    }
    return plan_rewrite(
        manifest,
        route.target_now(),
        verdicts,
        rename,
        source_cluster_id=route.source.cluster_id if route.source else None,
    )


def _by_its_way(
    manifest: Manifest, ref: SourceRef, position: KafkaPosition, rule: SourceRule, route: Route
) -> SourceVerdicts:
    match rule.way:
        case "proved":
            return translated(manifest, ref, rule, route)
        case "new_identity":
            return begin_anew(ref, position, rule, route)
        case "producers_first":
            return drained_then_anew(ref, position, rule, route)
        case _:
            assert_never(rule.way)


def _moving(manifest: Manifest, clusters: Clusters, rules: WayRules) -> dict[SourceRef, KafkaPosition]:
    """Return the sources to move, with their positions."""
    known = sources_of(manifest)
    if unknown := sorted(rules.sources.keys() - {str(ref) for ref in known}):
        raise BadInputError(
            f"Rules for Kafka sources of savepoint {manifest.savepoint_id} were expected "
            f"({', '.join(map(str, known)) or 'it has none'}), but there are some for {', '.join(unknown)}.",
            left=NOTHING_WRITTEN,
            remedy="Name a source query/source: its name, or its position in the query.",
        )
    if clusters.source is None:
        return _not_on_target(known, clusters, rules)
    cluster_id = describe(clusters.source, ()).cluster_id
    moving = {ref: position for ref, position in known.items() if position.cluster_id == cluster_id}
    if not moving:
        ids = sorted({position.cluster_id for position in known.values()})
        raise ClusterMismatchError.between(
            f"Savepoint {manifest.savepoint_id}", expected=", ".join(ids) or "none", found=cluster_id
        )
    return moving


def _not_on_target(
    known: Mapping[SourceRef, KafkaPosition], clusters: Clusters, rules: WayRules
) -> dict[SourceRef, KafkaPosition]:
    """Return every source that is not on the target yet; each needs a way that asks no old cluster."""
    target_id = describe(clusters.target, ()).cluster_id
    moving = {ref: position for ref, position in known.items() if position.cluster_id != target_id}
    for ref in moving:
        if rules.of(ref).way != "new_identity":
            raise old_cluster_needed(ref, rules.of(ref).way)
    return moving
