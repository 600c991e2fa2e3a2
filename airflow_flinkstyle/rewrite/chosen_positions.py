"""Sources, or topics of them, that begin at chosen positions on the target: those that a person picks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.start.kinds import FromGroup, text_of
from airflow_flinkstyle.kafka.start.resolve import resolve
from airflow_flinkstyle.kafka.verdict import Verdict, offset_of
from airflow_flinkstyle.rewrite.errors import NOTHING_WRITTEN
from airflow_flinkstyle.rewrite.rows import SourceStrategy, SourceVerdicts
from airflow_flinkstyle.types import ids_differ

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.kafka.start.kinds import StartRules
    from airflow_flinkstyle.offsets import Offsets
    from airflow_flinkstyle.rewrite.route import Route
    from airflow_flinkstyle.rewrite.rows import SourceRef
    from airflow_flinkstyle.rewrite.rules import SourceRule
    from airflow_flinkstyle.savepoint.manifest import KafkaPosition
    from airflow_flinkstyle.types import TopicPartition

_SHOWN = 8


def start_at_chosen(
    ref: SourceRef, position: KafkaPosition, rule: SourceRule, route: Route
) -> SourceVerdicts:
    """Give a source a new identity: its position is dropped and taken by the rules."""
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
        BadInputError: If the rule does not say where.
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
    """Say what is at least read again or left out, from what is behind the old and new positions."""
    ahead = sum(
        max(0, log.end - offset)
        for tp, verdict in chosen.items()
        if (offset := offset_of(verdict)) is not None and (log := route.target.log_range(tp))
    )
    stand = f"{ahead} offsets follow the new positions"
    if route.source is None:
        return f"{stand}; without the old cluster it is unknown which were read before, or are missing"
    unread = unread_offsets(position, topics, route.source)
    both = f"{unread} offsets are unread on the old cluster, {stand}"
    if ahead > unread:
        return f"{both}: some {ahead - unread} more than are unread, so about as many are read again"
    if ahead < unread:
        return f"{both}: some {unread - ahead} fewer than are unread, so about as many are left out"
    return f"{both}: as many, which proves nothing about which"


def describe_start(start: StartRules | None) -> str:
    """Return the picked positions in words, and what speaks for them."""
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
