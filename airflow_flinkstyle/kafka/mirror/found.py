"""How MirrorMaker 2 is set up, read from its internal topics, so that no person has to be asked.

In dedicated mode, and by Connect's defaults: the cluster it copies to has ``mm2-offsets.<source>.internal``
and ``<source>.checkpoints.internal``; the one it copies from has ``mm2-offset-syncs.<target>.internal``.
Dedicated mode makes ``mm2-offsets`` for the way back too, with only heartbeats: alone it proves nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from airflow_flinkstyle.kafka.cluster import existing_topics
from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
from airflow_flinkstyle.kafka.mirror.topics import read_positions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from airflow_flinkstyle.kafka.settings import KafkaCluster

_POSITIONS: Final = re.compile(r"mm2-offsets\.(.+)\.internal")
_CHECKPOINTS: Final = re.compile(r"(.+)\.checkpoints\.internal")
_SYNCS: Final = re.compile(r"mm2-offset-syncs\.(.+)\.internal")
UNNAMED: Final = "(unnamed)"
"""Replaces in messages the alias of a cluster to move to, if no topic names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMirror:
    """How a mirror is set up, as far as its topics show."""

    source_aliases: tuple[str, ...]
    """What the cluster to leave may be called; one, unless several mirrors copy the job's topics."""
    target_aliases: tuple[str, ...]
    """What the cluster to move to may be called."""
    replication_policy: Literal["identity", "default"]


def find_mirror(
    source: KafkaCluster, target: KafkaCluster, topics: Collection[str], *, offsets_topic: str = ""
) -> FoundMirror:
    """Look for the mirrors that copy topics of one cluster to another.

    Args:
        source: The cluster to leave.
        target: The cluster to move to.
        topics: What the job reads on ``source``.
        offsets_topic: Where Connect keeps positions, if not where dedicated mode does.
    """
    on_target = existing_topics(target)
    checkpointed = aliases(_CHECKPOINTS, on_target)
    named = sorted({*checkpointed, *aliases(_POSITIONS, on_target)})
    copying = [alias for alias in named if _copies(target, alias, topics, offsets_topic)]
    from_source = copying or list(checkpointed)
    return FoundMirror(
        source_aliases=tuple(from_source),
        target_aliases=aliases(_SYNCS, existing_topics(source)),
        replication_policy=policy_of(topics, on_target, from_source),
    )


def aliases(pattern: re.Pattern[str], topics: Iterable[str]) -> tuple[str, ...]:
    """Return the aliases in the names of internal topics. Pure."""
    return tuple(sorted({match[1] for match in map(pattern.fullmatch, topics) if match}))


def policy_of(
    topics: Collection[str], on_target: Collection[str], source_aliases: Iterable[str]
) -> Literal["identity", "default"]:
    """Return how the copies are named: as the topics, or with the alias before. Pure."""
    prefixed = any(f"{alias}.{topic}" in on_target for alias in source_aliases for topic in topics)
    return "default" if prefixed and not any(topic in on_target for topic in topics) else "identity"


def _copies(target: KafkaCluster, alias: str, topics: Collection[str], offsets_topic: str) -> bool:
    """Return whether a mirror has noted a position of one of the topics."""
    from airflow_flinkstyle.kafka.errors import MirrorPositionMissingError

    settings = MirrorSettings(source_alias=alias, target_alias=UNNAMED, offsets_topic=offsets_topic)
    try:
        return any(topic in topics for topic, _ in read_positions(target, settings))
    except MirrorPositionMissingError:  # only its checkpoints are there
        return False
