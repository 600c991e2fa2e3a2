"""Prove that nobody writes to some topics any more.

A quiet moment alone proves nothing about a producer that sleeps: hold the producers first, prove it
here, and prove it again after the translation (``since``: the ends must be the same).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka.cluster import describe

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.kafka.settings import KafkaCluster
    from airflow_flinkstyle.offsets import Offsets
    from airflow_flinkstyle.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """No end moved over the window, and no transaction is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moving:
    """A producer still writes, or may still commit what it has written."""

    moved: Mapping[TopicPartition, tuple[int, int]]
    """End before and after the window, partitions that grew."""
    open_transactions: Mapping[TopicPartition, tuple[int, int]]
    """Last stable offset and end, partitions with an open transaction."""
    window_s: float | None
    """None: since an earlier proof."""

    def describe(self) -> str:
        """Return what moved in one sentence."""
        parts = []
        if self.moved:
            parts.append("records arrived on " + _listed(self.moved))
        if self.open_transactions:
            parts.append("transactions are open on " + _listed(self.open_transactions))
        when = "Since the proof" if self.window_s is None else f"Within {self.window_s:.1f} s"
        return f"{when} {' and '.join(parts)}."


def _listed(spans: Mapping[TopicPartition, tuple[int, int]]) -> str:
    return ", ".join(f"{topic}-{number} ({a} to {b})" for (topic, number), (a, b) in sorted(spans.items()))


def steady_ends(cluster: KafkaCluster, topics: Collection[str], window_s: float) -> Steady | Moving:
    """Read the ends of all partitions, wait, and read them again.

    Args:
        cluster: Where to read them.
        topics: All their partitions, new ones included.
        window_s: How long nothing may move; longer than a producer's ``linger.ms`` plus a request.
    """
    before = describe(cluster, topics).ends
    time.sleep(window_s)
    return compare_ends(before, describe(cluster, topics), window_s)


def since(cluster: KafkaCluster, ends: Offsets) -> Steady | Moving:
    """Check whether the logs still end where they ended; new partitions count as grown from 0."""
    return compare_ends(ends, describe(cluster, ends.topics), None)


def compare_ends(earlier: Offsets, after: ClusterView, window_s: float | None) -> Steady | Moving:
    """Compare earlier ends with a later view of the same topics. Pure."""
    moved = {tp: (earlier.get(tp, 0), end) for tp, end in after.ends.items() if earlier.get(tp, 0) != end}
    open_transactions = {
        tp: (log.last_stable, log.end)
        for tp in after.partitions
        if (log := after.log_range(tp)) and log.last_stable < log.end
    }
    if moved or open_transactions:
        return Moving(moved=moved, open_transactions=open_transactions, window_s=window_s)
    return Steady()
