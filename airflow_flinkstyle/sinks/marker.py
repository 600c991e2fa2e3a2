"""What is in the control topic: a marker per shard, and a completion per lineage.

A marker is part of the shard's transaction: that it can be read is the proof that the batch's records can.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from airflow_flinkstyle.protocol.record import Record

WRAP = 1 << 64
"""Digests are sums modulo this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker(Record):
    """The newest batch that a shard has written; key: the shard's transactional id."""

    what: ClassVar[str] = "marker of a shard"

    batch_id: int
    records: int
    digest: int
    """Sum of the records' 64-bit hashes, modulo ``WRAP``: their order may differ in a replay."""
    plan: str
    """The number of shards that the batch was written with, and a hash of the records' columns and topic."""
    run: str
    """The run that may write the shard."""

    @property
    def shards(self) -> int:
        """With how many shards the batch was written."""
        return int(self.plan.partition("-")[0])

    def same_columns(self, plan: str) -> bool:
        """Return whether a plan has the same columns and topic; the number of shards may be another."""
        return self.plan.partition("-")[2] == plan.partition("-")[2]


NOTHING_YET = Marker(batch_id=-1, records=0, digest=0, plan="0-", run="")
"""Of a shard that has written no batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion(Record):
    """The newest batch of which all shards have committed; key: ``<lineage>-complete``."""

    what: ClassVar[str] = "completion record"

    batch_id: int
    """-1 for a lineage that has written nothing yet."""
    records: int
    shards: int
    """With how many shards the lineage writes."""
    query_id: str
    """The query whose batches are numbered so; a copy of its checkpoint has it too."""
    ends: Mapping[int, int] | None = None
    """Where the sink's topic ended then, by partition: later batches are behind it. -1: a partition did not
    answer; None: none did, or records name their topics."""
    unsure: bool = False
    """Brokers have left transactions open since: a part of the next batch may be in the output."""
