"""What the transactional sinks of a query have written, as heartbeats and savepoints carry it on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkLineage:
    """One sink's lineage: a numbering of batches of which each is written once."""

    lineage: str
    shards: int
    """Transactions that share a batch."""
    control_topic: str
    """Holds its markers and completions, on the same cluster."""
    cluster_id: str
    """Where it was written to last; as the cluster itself says."""
    completed_batch: int
    """-1 before the first; ahead of the query's batch while that is being committed."""
    markers: Mapping[int, int]
    """Shard -> the newest batch that it has written; shards that have written none are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sinks:
    """All transactional sinks of one query; without any, its sinks are others."""

    lineages: tuple[SinkLineage, ...] = ()
    """By name."""
    begins: str = ""
    """Suffix of new lineages that a rewind chose, and that no batch has begun yet; empty: none."""
    under_way: bool = False
    """The batch behind the query's last one was planned by a run that died: a part of it may stand in the
    output. True until a sink has looked there."""


def left_by(sinks: Sinks | None, *, planned: bool) -> Sinks | None:
    """Return what is known of sinks behind a batch, if another one was planned then or not."""
    return replace(sinks, under_way=True) if sinks is not None and planned else sinks


def sinks_from_json(value: Mapping[str, Any] | None) -> Sinks | None:
    """Turn what JSON made of it back; None stays None: nobody knows."""
    if value is None:
        return None
    lineages = [
        SinkLineage(**{**one, "markers": {int(shard): batch for shard, batch in one["markers"].items()}})
        for one in value["lineages"]
    ]
    return Sinks(**{**value, "lineages": tuple(lineages)})
