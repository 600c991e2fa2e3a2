"""The ways a Kafka source can move to another cluster, chosen per source, and the plan of all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.errors import ClusterMismatchError
from airflow_flinkstyle.kafka.start.resolve import require_known
from airflow_flinkstyle.python_versions import assert_never
from airflow_flinkstyle.rewrite.chosen_positions import start_at_chosen
from airflow_flinkstyle.rewrite.drained import drained_then_chosen
from airflow_flinkstyle.rewrite.errors import NOTHING_WRITTEN, old_cluster_needed
from airflow_flinkstyle.rewrite.plan import plan_rewrite, planned_positions, source_position
from airflow_flinkstyle.rewrite.route import look, sources_of
from airflow_flinkstyle.rewrite.rules import PROVED
from airflow_flinkstyle.rewrite.translate_savepoint import translated
from airflow_flinkstyle.types import id_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.kafka.translation.request import ProofRequest
    from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan
    from airflow_flinkstyle.rewrite.route import ClusterPair, Route
    from airflow_flinkstyle.rewrite.rows import SourceRef, SourceVerdicts
    from airflow_flinkstyle.rewrite.rules import SourceRule, StrategyRules
    from airflow_flinkstyle.savepoint.manifest import KafkaPosition, Manifest


def plan_migration(
    manifest: Manifest, clusters: ClusterPair, request: ProofRequest, rules: StrategyRules = PROVED
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
        BadInputError: If a rule names an unknown source or topic, or a position is needed and not given; or
            if there is nothing to move.
        FlinkstyleError: Whatever reading the clusters raises.
    """
    moving = _moving(manifest, clusters, rules)
    route = look(clusters, request, moving)
    for rule in rules.all:  # with all topics: one rule may serve several sources
        if rule.start is not None:
            require_known(rule.start, route.target, str(clusters.target))
    unread = {ref for ref in moving if _is_unread(manifest, ref)}
    verdicts = {
        ref: _by_its_way(manifest, ref, position, rules.of(ref), route)
        for ref, position in moving.items()
        if ref not in unread
    }
    rename = {topic: request.target_topic(topic) for one in moving.values() for topic in one.offsets.topics}
    return plan_rewrite(
        manifest,
        route.target_now(),
        verdicts,
        rename,
        source_cluster_id=route.source.cluster_id if route.source else None,
        unread=unread,
    )


def _is_unread(manifest: Manifest, ref: SourceRef) -> bool:
    """Return whether a source has no position to find, as with a pattern that no topic matches."""
    query, position = source_position(manifest, ref)
    return not position.offsets and not planned_positions(query, ref.source)


def _by_its_way(
    manifest: Manifest, ref: SourceRef, position: KafkaPosition, rule: SourceRule, route: Route
) -> SourceVerdicts:
    match rule.strategy:
        case "proved":
            return translated(manifest, ref, rule, route)
        case "new_identity":
            return start_at_chosen(ref, position, rule, route)
        case "producers_first":
            return drained_then_chosen(ref, position, rule, route)
        case _:
            assert_never(rule.strategy)


def _moving(
    manifest: Manifest, clusters: ClusterPair, rules: StrategyRules
) -> dict[SourceRef, KafkaPosition]:
    """Return the sources to move, with their positions."""
    known = sources_of(manifest)
    if unknown := sorted(rules.sources.keys() - {str(ref) for ref in known}):
        raise BadInputError(
            f"Rules for Kafka sources of savepoint {manifest.savepoint_id} were expected "
            f"({', '.join(map(str, known)) or 'it has none'}), but there are some for {', '.join(unknown)}.",
            state_after=NOTHING_WRITTEN,
            remedy="Name a source query/source: its name, or its position in the query.",
        )
    if clusters.source is None:
        return _not_on_target(manifest.savepoint_id, known, clusters, rules)
    cluster_id = describe(clusters.source, ()).cluster_id
    moving = {ref: position for ref, position in known.items() if position.cluster_id == cluster_id}
    if not moving:
        ids = sorted({id_words(position.cluster_id) for position in known.values()})
        raise ClusterMismatchError.between(
            f"Savepoint {manifest.savepoint_id}", expected=", ".join(ids) or "none", found=cluster_id
        )
    return moving


def _not_on_target(
    savepoint_id: str, known: Mapping[SourceRef, KafkaPosition], clusters: ClusterPair, rules: StrategyRules
) -> dict[SourceRef, KafkaPosition]:
    """Return every source that is not on the target yet; each needs a way that asks no old cluster."""
    target_id = describe(clusters.target, ()).cluster_id
    moving = {ref: position for ref, position in known.items() if position.cluster_id != target_id}
    if not moving:
        found = f"that all read cluster {id_words(target_id)} already" if known else "no Kafka source at all"
        raise BadInputError(
            f"Savepoint {savepoint_id} was expected to have a Kafka source to move, found {found}.",
            state_after=NOTHING_WRITTEN,
            remedy="Start the job from it as it is; or name the savepoint, or the target, that is meant.",
        )
    for ref in moving:
        if rules.of(ref).strategy != "new_identity":
            raise old_cluster_needed(ref, rules.of(ref).strategy)
    return moving
