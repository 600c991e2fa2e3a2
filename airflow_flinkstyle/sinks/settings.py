"""What a sink writes, where, and under which lineage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from airflow_flinkstyle.errors import BadInputError

if TYPE_CHECKING:
    from airflow_flinkstyle.kafka.settings import KafkaCluster

SMALL_BATCH_SHARD = 0
"""Whose transactional id the driver writes small batches under, all shards in one transaction."""

Phase = Literal["init", "begin", "data", "pre-commit", "marker", "commit", "done", "skip", "abort"]
"""Of one shard of one batch, in this order; ``pre-commit`` is the flush, ``skip`` a replay of a written one.

``done`` is no work: the broker has answered that the transaction is committed.
"""

OnPhase = Callable[[int, int, Phase], None]
"""Called with batch, shard and phase when the phase begins; in a worker by several threads at once."""

_MOST_SHARDS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """Everything a worker needs to write one shard; travels to the executors with the plan."""

    cluster: KafkaCluster
    """Where records go."""
    topic: str | None
    """For records without a ``topic`` column."""
    lineage: str
    """Names the batch numbering whose batches are written once; also begins every transactional id."""
    shards: int
    """Transactions that share a batch, fixed for a lineage."""
    control_topic: str
    """Compacted; partition 0 holds completions, partition n + 1 the markers of shard n."""
    run: str
    """The run of the query that claims the shards; another one writes nothing."""
    transaction_timeout_ms: int = 300_000
    """How long one task's shards of a batch may take; the broker's limit is 900,000 by default."""
    producer_pool_size: int = 5
    """Shards that one task writes at the same time, at most."""
    topics_vary: bool = False
    """Rows name their topics."""
    on_phase: OnPhase | None = field(default=None, repr=False)
    """For metrics and tests; called in the worker."""

    def __post_init__(self) -> None:
        if not self.lineage or not 1 <= self.shards <= _MOST_SHARDS or self.producer_pool_size < 1:
            raise BadInputError(
                f"A sink needs a lineage, 1 to {_MOST_SHARDS} shards and a producer_pool_size of 1 or more, "
                f"found lineage {self.lineage!r}, {self.shards} shards and {self.producer_pool_size}.",
                state_after="Nothing was written.",
                remedy="Correct the arguments of TransactionalKafkaSink.",
            )

    def transactional_id(self, shard: int) -> str:
        """Return the id by which the broker knows a shard's transactions."""
        return f"{self.lineage}-{shard}"

    @property
    def only_topic(self) -> str | None:
        """The topic that all records go to; None if it is not known."""
        return None if self.topics_vary else self.topic

    @property
    def completion_id(self) -> str:
        """The id of the transaction that completes a batch; also the key of its record."""
        return f"{self.lineage}-complete"

    def report_phase(self, batch_id: int, shard: int, phase: Phase) -> None:
        """Report the begin of a phase."""
        if self.on_phase is not None:
            self.on_phase(batch_id, shard, phase)
