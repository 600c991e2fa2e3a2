"""What the transactional sinks of a query have written, as heartbeats and savepoints carry it on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from airflow_flinkstyle.typed_json import Check, stored
from airflow_flinkstyle.types import Text

Shards = Annotated[int, Check("a number of shards", lambda shards: shards > 0)]
BatchOrNone = Annotated[int, Check("a batch, or -1", lambda batch: batch >= -1)]


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class SinkLineage:
    """One sink's lineage: a numbering of batches of which each is written once."""

    lineage: Text
    shards: Shards
    """Transactions that share a batch."""
    control_topic: Text
    """Holds its markers and completions, on the same cluster."""
    cluster_id: Text
    """Where it was written to last; as the cluster itself says."""
    completed_batch: BatchOrNone
    """-1 before the first; ahead of the query's batch while that is being committed."""
    markers: Mapping[int, int]
    """Shard -> the newest batch that it has written; shards that have written none are left out."""


@stored
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
