"""Open transactions by the prefix of their ids: list them, see what they hold back, end those of the dead.

Readers with ``read_committed`` get nothing behind a partition's first open transaction. The brokers abort one
that is open longer than its time-out; before that, a producer that initialises its transactional id does.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka.audit.open_transactions import open_transactions
from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.errors import TRANSACTION_IN_USE, ClusterDeniedError
from airflow_flinkstyle.kafka.settings import translated_errors

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from airflow_flinkstyle.kafka.audit.open_transactions import OpenTransaction
    from airflow_flinkstyle.kafka.settings import KafkaCluster

log = logging.getLogger(__name__)
_INIT_TIMEOUT_S = 60.0
_DENIED = frozenset(("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPartition:
    """A partition whose readers wait for the end of a transaction."""

    topic: str
    partition: int
    last_stable: int
    """Offset that ``read_committed`` readers do not get beyond."""
    end: int
    """Offset that the next record gets."""
    by: tuple[str, ...]
    """Ids of the open transactions in it; none if the brokers' transaction log knows of none."""

    @property
    def hidden(self) -> int:
        """Offsets that are hidden: records of others, too."""
        return self.end - self.last_stable


def matching(
    transactions: Iterable[OpenTransaction], prefix: str, topics: Collection[str] = ()
) -> list[OpenTransaction]:
    """Return those with this prefix that have records in one of the topics, if any is named. Pure."""
    return [
        one
        for one in transactions
        if one.transactional_id.startswith(prefix)
        and (not topics or any(topic in topics for topic, _ in one.partitions))
    ]


def held_partitions(
    cluster: KafkaCluster, topics: Collection[str], transactions: Collection[OpenTransaction]
) -> list[HeldPartition]:
    """Return the partitions in which something is hidden behind open transactions.

    Args:
        cluster: Where they are.
        topics: Topics to inspect.
        transactions: All that are open.

    Raises:
        TopicMissingError: If one of the topics does not exist.
    """
    view = describe(cluster, topics)
    held = []
    for topic, number in sorted(view.partitions):
        span = view.topics[topic].partitions[number]
        by = tuple(one.transactional_id for one in transactions if (topic, number) in one.partitions)
        if span.last_stable < span.end:
            held.append(
                HeldPartition(
                    topic=topic, partition=number, last_stable=span.last_stable, end=span.end, by=by
                )
            )
    return held


def require_idle(transactions: Collection[OpenTransaction], now_ms: int, min_age_ms: int | None) -> None:
    """Refuse transactions that may be those of a producer at work. Pure.

    A producer that writes one long batch cannot be told from a dead one by its transaction alone, so the
    caller has to give the age that no transaction of a producer at work reaches.

    Args:
        transactions: To be aborted.
        now_ms: By this machine's clock; ages are by two clocks.
        min_age_ms: Age since the last sign of life from which on a producer counts as dead; None: the
            transaction's own time-out, after which the brokers should have aborted it.

    Raises:
        FlinkstyleError: ``TRANSACTION_IN_USE`` naming the youngest.
    """
    young = [
        one
        for one in transactions
        if age_ms(one, now_ms) < (one.timeout_ms if min_age_ms is None else min_age_ms)
    ]
    if not young:
        return
    youngest = max(young, key=lambda one: one.updated_ms)
    age_s, timeout_s = age_ms(youngest, now_ms) / 1000, youngest.timeout_ms / 1000
    wanted = "its time-out" if min_age_ms is None else f"the {min_age_ms / 1000:g} s that were asked for"
    raise TRANSACTION_IN_USE.with_text(
        f"{len(young)} of {len(transactions)} transactions may be those of a producer at work: "
        f"{youngest.transactional_id} gave its last sign of life {age_s:.0f} s ago, less than {wanted}.",
        state_after="No transaction was aborted.",
        remedy="Give the savepoint root of its job, whose records say that it has ended, or how long no "
        f"batch of yours takes (--min-age); or wait: the brokers abort it {timeout_s:.0f} s after its begin.",
    )


def age_ms(transaction: OpenTransaction, now_ms: int) -> int:
    """Return the time since a transaction last added a partition, by the broker's clock and this one's."""
    return max(0, now_ms - transaction.updated_ms)


def abort_transactions(
    cluster: KafkaCluster, transactions: Collection[OpenTransaction]
) -> list[OpenTransaction]:
    """Abort those that are still open, and fence their producers; returns them.

    A producer that writes under such an id later gets the error that it was fenced. Only ids in use are
    initialised: others would be created.

    Raises:
        ClusterDeniedError: If the credentials may not write under an id.
    """
    wanted = {(one.transactional_id, one.started_ms) for one in transactions}
    still_open = [
        one
        for one in open_transactions(cluster)
        if one.state == "Ongoing" and (one.transactional_id, one.started_ms) in wanted
    ]
    for one in still_open:
        _abort(cluster, one)
        log.info("Aborted %s", one)
    return still_open


def _abort(cluster: KafkaCluster, transaction: OpenTransaction) -> None:
    from confluent_kafka import KafkaException, Producer

    config = {
        "log_level": 2,
        **cluster.config,
        "transactional.id": transaction.transactional_id,
        "transaction.timeout.ms": str(transaction.timeout_ms),
    }
    with translated_errors(cluster, []):
        try:
            Producer(config).init_transactions(_INIT_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].name() not in _DENIED:
                raise
            raise ClusterDeniedError(
                f"Kafka cluster {cluster} denied to initialise {transaction}: {error.args[0].str()}.",
                state_after="It is open as before; those that were aborted before it stay so.",
                remedy="Allow the principal WRITE and DESCRIBE on the transactional id.",
            ) from error
