"""Tell whether a topic holds each id once, for ``read_committed`` readers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka.audit.id_counts import Numbers, TopicVerdict, compare
from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.reading import ReadRange, count_records, scan

if TYPE_CHECKING:
    from airflow_flinkstyle.kafka.audit.id_counts import OnId
    from airflow_flinkstyle.kafka.audit.record_ids import Ident
    from airflow_flinkstyle.kafka.cluster import LogRange
    from airflow_flinkstyle.kafka.reading import KafkaMessage
    from airflow_flinkstyle.kafka.settings import Isolation, KafkaCluster
    from airflow_flinkstyle.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicIds:
    """The ids of another topic's records, as what is expected."""

    cluster: KafkaCluster
    topic: str
    ident: Ident
    isolation: Isolation = "read_committed"
    """What the job reads it with."""


def verify_topic(
    cluster: KafkaCluster, topic: str, expected: range | TopicIds, ident: Ident, *, count_hidden: bool = False
) -> TopicVerdict:
    """Read a topic as ``read_committed`` readers do, and compare its ids with those that it should hold.

    Both topics are read from the oldest record that exists to where a reader could get at the start: the last
    stable offset, or the end of one that is read uncommitted.

    Args:
        cluster: Where the topic is.
        topic: What is verified.
        expected: Numbers, as decimal text, or the ids of another topic, however often it has each.
        ident: What tells the records apart.
        count_hidden: Read the topic once more to count the records of aborted transactions.

    Raises:
        TopicMissingError: If there is no such topic.
        FlinkstyleError: ``READ_STALLED`` if the brokers do not answer any more.
    """
    # The end of the expected ids is read first: one that is missing could have been written by then.
    wanted = Numbers(expected) if isinstance(expected, range) else _Log(expected)
    found = _Log(TopicIds(cluster=cluster, topic=topic, ident=ident))
    verdict = compare(found, wanted)
    return replace(verdict, hidden=found.aborted(verdict.read)) if count_hidden else verdict


def readable(span: LogRange, isolation: Isolation) -> ReadRange:
    """Return what readers get of a partition."""
    return ReadRange(low=span.start, high=span.last_stable if isolation == "read_committed" else span.end)


class _Log:
    """The ids of a topic, up to where it ended when this was made."""

    def __init__(self, ids: TopicIds) -> None:
        self._ids = ids
        self.topic = ids.topic
        view = describe(ids.cluster, [ids.topic])
        spans = {tp: span for tp in view.partitions if (span := view.log_range(tp))}
        self._ranges = {tp: readable(span, ids.isolation) for tp, span in spans.items()}
        self.held_back = sum(span.end - self._ranges[tp].high for tp, span in spans.items())
        self.deleted = sum(span.start for span in spans.values())

    def each(self, on_id: OnId) -> None:
        """Hand out every id with its place; None of a record that has none."""

        def take(tp: TopicPartition, record: KafkaMessage) -> None:
            on_id(self._ids.ident(record), (tp[1], record.offset()))

        scan(self._ids.cluster, self._ranges, take, self._ids.isolation)

    def aborted(self, committed: int) -> int:
        """Return how many more records a ``read_uncommitted`` reader sees than these."""
        counts = count_records(self._ids.cluster, self._ranges, "read_uncommitted")
        return sum(counts.values()) - committed
