"""The ways a Kafka source can move to another cluster, chosen per source, and the plan for all sources.

Proved: its positions are translated; topics that do not fit partition by partition begin where a person
picks. New identity: it begins where a person picks. Producers first: it is read to the fenced end of its old
topics, before the target is read from its start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.errors import CLUSTER_MISMATCH
from airflow_flinkstyle.kafka.start.kinds import FromGroup, text_of
from airflow_flinkstyle.kafka.start.resolve import require_known, resolve
from airflow_flinkstyle.kafka.translation.translator import translate_positions
from airflow_flinkstyle.kafka.verdict import Exact, Refused, Verdict, offset_of
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.python_versions import assert_never
from airflow_flinkstyle.rewrite.errors import NOTHING_WRITTEN, old_cluster_needed
from airflow_flinkstyle.rewrite.plan import plan_rewrite, planned_positions, source_position
from airflow_flinkstyle.rewrite.route import read_route, sources_of
from airflow_flinkstyle.rewrite.rows import SourceStrategy, SourceVerdicts
from airflow_flinkstyle.rewrite.rules import PROVED
from airflow_flinkstyle.types import id_words, ids_differ

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from airflow_flinkstyle.kafka.cluster import ClusterView, LogRange
    from airflow_flinkstyle.kafka.start.kinds import StartRules
    from airflow_flinkstyle.kafka.translation.request import ProofRequest
    from airflow_flinkstyle.kafka.translation.translator import Translation
    from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan
    from airflow_flinkstyle.rewrite.route import ClusterPair, Route
    from airflow_flinkstyle.rewrite.rows import SourceRef
    from airflow_flinkstyle.rewrite.rules import SourceRule, StrategyRules
    from airflow_flinkstyle.savepoint.manifest import KafkaPosition, Manifest
    from airflow_flinkstyle.types import NextOffset, TopicPartition

_SHOWN = 8


def plan_migration(
    manifest: Manifest, clusters: ClusterPair, request: ProofRequest, rules: StrategyRules = PROVED
) -> OffsetRewritePlan:
    """Find every source's positions on the target, each by its strategy, and plan the rewrite.

    Args:
        manifest: The savepoint.
        clusters: From and to. Without the old one, only sources with a new identity can move: all that
            do not read the target.
        request: Mirror, renames, isolation, preview; its positions and ids are taken from the savepoint.
        rules: How each source moves.

    Raises:
        FlinkstyleError: ``CLUSTER_MISMATCH`` if no source of the savepoint reads the cluster that the source
            settings reach.
        BadInputError: If a rule names an unknown source or topic, or a position is needed and not given; or
            if there is nothing to move.
        FlinkstyleError: Whatever reading the clusters raises.
    """
    moving = _moving(manifest, clusters, rules)
    route = read_route(clusters, request, moving)
    for rule in rules.all:  # with all topics: one rule may serve several sources
        if rule.start is not None:
            require_known(rule.start, route.target, str(clusters.target))
    unread = {ref for ref in moving if _is_unread(manifest, ref)}
    verdicts = {
        ref: _by_strategy(manifest, ref, position, rules.of(ref), route)
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


def _by_strategy(
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
        raise CLUSTER_MISMATCH.error(
            what=f"Savepoint {manifest.savepoint_id}", expected=", ".join(ids) or "none", found=cluster_id
        )
    return moving


def _not_on_target(
    savepoint_id: str, known: Mapping[SourceRef, KafkaPosition], clusters: ClusterPair, rules: StrategyRules
) -> dict[SourceRef, KafkaPosition]:
    """Return every source that is not on the target yet; each needs a strategy without the old cluster."""
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


def translated(manifest: Manifest, ref: SourceRef, rule: SourceRule, route: Route) -> SourceVerdicts:
    """Prove the positions of a source whose partitions match the target's.

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
        ref, position, _fitting(_with_new_partitions(position.offsets, route), incompatible), route
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
            consequence="each unread record is read once, except where a row differs"
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


def _with_new_partitions(positions: Offsets, route: Route) -> Offsets:
    """Add partitions that were added since the last batch: Spark reads them from their beginning."""
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


def start_at_chosen(
    ref: SourceRef, position: KafkaPosition, rule: SourceRule, route: Route
) -> SourceVerdicts:
    """Give a source a new identity: its position is dropped, and the rules give another."""
    chosen = choose_positions(ref, position, position.offsets.topics, rule, route)
    return SourceVerdicts(
        verdicts={},
        chosen=chosen,
        settled=not route.request.preview,
        strategy=SourceStrategy(
            query=ref.query,
            source=ref.source,
            strategy="new_identity",
            precondition="each position lies in the target's log; nothing is proved about the old one",
            consequence=f"the old positions are dropped; begins at {describe_start(rule.start)}; "
            f"{describe_gap(position, position.offsets.topics, chosen, route)}",
        ),
    )


def choose_positions(
    ref: SourceRef, position: KafkaPosition, topics: Collection[str], rule: SourceRule, route: Route
) -> dict[TopicPartition, Verdict]:
    """Return where these topics of a source begin, by target topic and partition.

    Raises:
        BadInputError: If the rule has no start.
    """
    targets = route.targets(topics)
    if rule.start is None:
        raise BadInputError(
            f"A start position was expected for {', '.join(targets)} of source {ref}, which begin at "
            "chosen positions, found none.",
            state_after=NOTHING_WRITTEN,
            remedy="Pick one (start): earliest, latest, a timestamp, a group's offsets, or specific offsets.",
        )
    view = route.target.only(targets)
    return resolve(
        route.clusters.target,
        view.partitions,
        rule.start.about(targets),
        before=_in_same_log(position, route),
        isolation=route.request.isolation,
    )


def _in_same_log(position: KafkaPosition, route: Route) -> Offsets | None:
    """Return the positions so far if the target is the log they count in, else None."""
    same = not ids_differ(position.cluster_id, route.target.cluster_id) and all(
        topic in route.target.topics and not ids_differ(topic_id, route.target.topics[topic].topic_id)
        for topic, topic_id in position.topic_ids.items()
    )
    return position.offsets if same else None


def describe_gap(
    position: KafkaPosition,
    topics: Collection[str],
    chosen: Mapping[TopicPartition, Verdict],
    route: Route,
) -> str:
    """Return how much, at least, is read again or left out, by the offsets behind both positions."""
    ahead = sum(
        max(0, log.end - offset)
        for tp, verdict in chosen.items()
        if (offset := offset_of(verdict)) is not None and (log := route.target.log_range(tp))
    )
    following = f"{ahead} offsets follow the new positions"
    if route.source is None:
        return f"{following}; without the old cluster it is unknown which were read before, or are missing"
    unread = unread_offsets(position, topics, route.source)
    both = f"{unread} offsets are unread on the old cluster, {following}"
    if ahead > unread:
        return f"{both}: some {ahead - unread} more than are unread, so about as many are read again"
    if ahead < unread:
        return f"{both}: some {unread - ahead} fewer than are unread, so about as many are left out"
    return f"{both}: as many, which proves nothing about which"


def describe_start(start: StartRules | None) -> str:
    """Return the picked positions as text, with a warning where they are unproved."""
    if start is None:
        return "no position"
    named = {
        **start.topics,
        **{f"{topic}-{number}": one for (topic, number), one in start.partitions.items()},
    }
    texts = [text_of(start.default)] if start.default else []
    texts += [f"{name}: {text_of(one)}" for name, one in sorted(named.items())]
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    by_group = any(isinstance(one, FromGroup) for one in (start.default, *named.values()))
    unproved = "; a group's offsets are unproved, also those that a mirror translated" if by_group else ""
    return f"{', '.join(texts[:_SHOWN])}{more}{unproved}"


def unread_offsets(position: KafkaPosition, topics: Collection[str], view: ClusterView) -> int:
    """Return how many offsets of these topics stand behind a source's positions. Pure."""
    return sum(
        max(0, log.end - offset)
        for tp, offset in position.offsets.in_topics(topics).items()
        if (log := view.log_range(tp))
    )


def drained_then_chosen(
    ref: SourceRef, position: KafkaPosition, rule: SourceRule, route: Route
) -> SourceVerdicts:
    """Require that a source was read to its fenced end; then it begins with the target's first record."""
    if route.source is None or route.clusters.source is None:
        raise old_cluster_needed(ref, rule.strategy)
    topics = position.offsets.topics
    unread = {} if route.request.preview else undrained(position, route)
    if rule.start is None:
        chosen = {
            tp: from_nothing(tp, log)
            for tp in route.target.only(route.targets(topics)).partitions
            if (log := route.target.log_range(tp))
        }
        begins = "with the target's first record: every record is read once"
    else:
        chosen = choose_positions(ref, position, topics, rule, route)
        begins = f"at {describe_start(rule.start)}; {describe_gap(position, topics, chosen, route)}"
    if route.request.preview:
        remaining = unread_offsets(position, topics, route.source)
        begins += f"; {remaining} offsets of the old topics are unread now and come before that"
    return SourceVerdicts(
        verdicts=unread,
        chosen=chosen,
        settled=not route.request.preview,
        strategy=SourceStrategy(
            query=ref.query,
            source=ref.source,
            strategy="producers_first",
            precondition="the job has read the old topics to their end, no producer writes there, no "
            "mirror copies them any more (this is not checked), and the target's topics are empty unless a "
            "start was picked",
            consequence=f"the old positions, at the end, are dropped; begins {begins}",
        ),
    )


def undrained(position: KafkaPosition, route: Route) -> dict[TopicPartition, Verdict]:
    """Return a refusal for each old partition that is not read to its end, or that is still written to."""
    if route.source is None or route.clusters.source is None:
        return {}
    now = describe(route.clusters.source, position.offsets.topics)
    verdicts: dict[TopicPartition, Verdict] = {}
    offsets = position.offsets
    for tp in now.partitions | offsets.keys():
        reason = not_drained(offsets.get(tp), route.source.log_range(tp), now.log_range(tp))
        if ids_differ(position.topic_ids.get(tp[0]), now.topics[tp[0]].topic_id):
            reason = f"topic {tp[0]} was created again since the savepoint read it"
        if reason:
            end = log.end if (log := now.log_range(tp)) else None
            unread = (offsets[tp], end) if tp in offsets and end is not None and end > offsets[tp] else None
            verdicts[tp] = Refused(reason, unread)
    return verdicts


def not_drained(offset: NextOffset | None, before: LogRange | None, now: LogRange | None) -> str | None:
    """Return why a partition is not at its fenced end, or None. Pure."""
    if now is None or before is None:
        return "the old topic has no such partition"
    if offset is None:
        return None if now.end == now.start else "a partition of the old topic has never been read"
    if now.last_stable < now.end:
        return f"a transaction is open on the old topic from offset {now.last_stable} on"
    if before.end != now.end:
        return f"records arrived on the old topic meanwhile ({before.end} to {now.end})"
    if offset != now.end:
        return f"the job is at {offset} and the old topic ends at {now.end}: it is not read to its end"
    return None


def from_nothing(tp: TopicPartition, log: LogRange) -> Verdict:
    """Return where an empty target partition begins: everything that comes is new. Pure."""
    if log.start == log.end:
        return Exact(log.end)
    return Refused(
        f"the target's {tp[0]}-{tp[1]} holds {log.end - log.start} offsets already; what a mirror copied "
        "there would be read again, unless a start is chosen",
        None,
    )
