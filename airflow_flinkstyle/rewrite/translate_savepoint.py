"""Translate a source's positions with proof; topics that do not fit partition by partition begin anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.translation.translator import translate_positions
from airflow_flinkstyle.kafka.verdict import Refused, Verdict
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.rewrite.chosen_positions import choose_positions, describe_gap, describe_start
from airflow_flinkstyle.rewrite.errors import NOTHING_WRITTEN, old_cluster_needed
from airflow_flinkstyle.rewrite.plan import planned_positions, source_position
from airflow_flinkstyle.rewrite.rows import SourceStrategy, SourceVerdicts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.kafka.translation.evidence import Translation
    from airflow_flinkstyle.rewrite.route import Route
    from airflow_flinkstyle.rewrite.rows import SourceRef
    from airflow_flinkstyle.rewrite.rules import SourceRule
    from airflow_flinkstyle.savepoint.manifest import KafkaPosition, Manifest
    from airflow_flinkstyle.types import TopicPartition


def translated(manifest: Manifest, ref: SourceRef, rule: SourceRule, route: Route) -> SourceVerdicts:
    """Prove the positions of a source whose partitions stand on the target one by one.

    Raises:
        BadInputError: If the source has no offsets, or the old cluster was not given.
        FlinkstyleError: Whatever ``translate_positions`` raises.
    """
    query, position = source_position(manifest, ref)
    if not position.offsets:
        raise BadInputError(
            f"Source {ref} has no offsets in savepoint {manifest.savepoint_id}, at least one was expected.",
            state_after=NOTHING_WRITTEN,
            remedy="Let the query commit a batch that reads this source, then take a new savepoint.",
        )
    incompatible = {
        topic: why for topic, why in route.incompatible_topics.items() if topic in position.offsets.topics
    }
    refused = {} if rule.topology == "repartitioned" else _refused(position, incompatible)
    chosen = (
        choose_positions(ref, position, incompatible, rule, route) if incompatible and not refused else {}
    )
    main = _proved(
        ref, position, _fitting(_with_those_that_came(position.offsets, route), incompatible), route
    )
    planned = _proved(ref, position, _fitting(planned_positions(query, ref.source), incompatible), route)
    return SourceVerdicts(
        verdicts={**(main.verdicts if main else {}), **refused},
        chosen=chosen,
        planned=planned.verdicts if planned else {},
        evidence={tp: entry.to_json() for tp, entry in main.evidence.items()} if main else {},
        settled=main.settled if main else not route.request.preview,
        strategy=SourceStrategy(
            query=ref.query,
            source=ref.source,
            strategy="proved",
            precondition="no producer writes to the old topics, every unread record is found on the target",
            consequence="each unread record is read once, but for what a row says"
            + (
                f"; {', '.join(sorted(incompatible))}: the old positions are dropped, begins at "
                f"{describe_start(rule.start)}; {describe_gap(position, incompatible, chosen, route)}"
                if chosen
                else ""
            ),
        ),
    )


def _proved(ref: SourceRef, position: KafkaPosition, positions: Offsets, route: Route) -> Translation | None:
    if route.clusters.source is None:
        raise old_cluster_needed(ref, "proved")
    if not positions:
        return None
    return translate_positions(
        route.clusters.source,
        route.clusters.target,
        route.request.about(positions, cluster_id=position.cluster_id, topic_ids=position.topic_ids),
    )


def _with_those_that_came(positions: Offsets, route: Route) -> Offsets:
    """Add partitions that came since the last batch: Spark reads them from their beginning."""
    if route.source is None:
        return positions
    starts = route.source.only(positions.topics).starts
    return Offsets({tp: start for tp, start in starts.items() if tp not in positions}) | positions


def _fitting(positions: Offsets, incompatible: Mapping[str, str]) -> Offsets:
    return positions.in_topics(positions.topics - incompatible.keys())


def _refused(position: KafkaPosition, incompatible: Mapping[str, str]) -> dict[TopicPartition, Verdict]:
    """Refuse the partitions of topics that do not fit, saying why."""
    return {
        tp: Refused(f"{incompatible[tp[0]]}; a repartitioned topic needs a start position", None)
        for tp in position.offsets.in_topics(incompatible)
    }
