"""Transactions that brokers have forgotten to end in their partitions.

A coordinator that has promised a commit, or an abort, has its marker written into each partition of the
transaction. Brokers of Kafka 4.3 and 4.4 take a partition without a leader for a deleted one and leave it
out: after all replicas of a partition have failed, the coordinator calls such a transaction complete, but in
that partition it stays open. Its records share the fate of whatever the same id writes there next: a commit
that was promised is lost if that is aborted, an aborted attempt appears as well if that is committed.

So each transaction of a shard begins with a record in the shard's partition of the control topic. Once the
shard's id is initialised, the coordinator has nothing open under it: records that readers still do not get
are left open, and so may be the shard's records in the output, in some partitions or in all. Their batch is
not complete, since it is completed only when all of its markers can be read. That is noted with the newest
completion before anything else is written, since the next transaction of a shard's id would remove the
evidence. Then what is open is aborted; what can be read is left out when the batch is written again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_flinkstyle.clock import CLOCK
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.kafka.cluster import describe, log_ends
from airflow_flinkstyle.kafka.errors import TopicMissingError
from airflow_flinkstyle.kafka.reading import ReadRange, scan
from airflow_flinkstyle.sinks.control_reading import read_shards
from airflow_flinkstyle.sinks.errors import OUTPUT_UNKNOWN, TransactionLeftOpenError
from airflow_flinkstyle.sinks.marker import NOTHING_YET
from airflow_flinkstyle.sinks.producer import each_shard, send_marker
from airflow_flinkstyle.sinks.readable_records import ReadableRecords
from airflow_flinkstyle.sinks.settings import SMALL_BATCH_SHARD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confluent_kafka import Producer

    from airflow_flinkstyle.kafka.reading import KafkaMessage
    from airflow_flinkstyle.sinks.settings import SinkSettings
    from airflow_flinkstyle.types import TopicPartition

log = logging.getLogger(__name__)
_TIMEOUT_S = 60.0


def output_ends(settings: SinkSettings) -> dict[int, int] | None:
    """Return where the output ends, by partition; None if it is not known."""
    if settings.only_topic is None:
        return None
    try:
        return log_ends(settings.cluster, settings.only_topic)
    except TopicMissingError:
        return {}
    except FlinkstyleError as error:
        if not error.retryable:
            raise
        return None


def abort_left_open(settings: SinkSettings, shards: Sequence[int]) -> None:
    """Abort what brokers have left open under the ids of shards, in every partition that may hold some.

    Raises:
        FlinkstyleError: ``OUTPUT_UNKNOWN`` if the topic that was written to is not known.
    """
    topic = settings.only_topic
    if topic is None:
        raise OUTPUT_UNKNOWN.error(lineage=settings.lineage, why="its rows name their topics")
    log.warning("Brokers have left transactions of lineage %s open: they are aborted", settings.lineage)

    def abort(shard: int, producer: Producer) -> None:
        # Under shard 0's id the driver writes the markers of all shards of a small batch.
        written = read_shards(settings, shards if shard == SMALL_BATCH_SHARD else [shard])
        producer.begin_transaction()
        # If this is left open too, and committed later, it is still true.
        for number, found in written.items():
            send_marker(settings, producer, number, found.marker or NOTHING_YET)
        for number in producer.list_topics(topic, _TIMEOUT_S).topics[topic].partitions:
            producer.produce(topic, None, settings.transactional_id(shard), partition=number)
        producer.flush()
        producer.abort_transaction()

    each_shard(settings, shards, abort)


def readable_since(settings: SinkSettings, since: Mapping[int, int] | None) -> ReadableRecords:
    """Return what readers of the output get behind some offsets.

    Args:
        settings: The sink, of which no transaction is open.
        since: Where to begin, by partition; those left out are new.

    Raises:
        FlinkstyleError: ``OUTPUT_UNKNOWN`` if that is not known, or the brokers do not tell where it ends.
        TransactionLeftOpenError: If a transaction of another producer does not end.
    """
    topic, found = settings.only_topic, ReadableRecords()
    if topic is None or since is None or -1 in since.values():
        raise OUTPUT_UNKNOWN.error(
            lineage=settings.lineage, why="it is not known where the output ended before the batch"
        )
    now, wait = _ends_now(settings), CLOCK.wait(_TIMEOUT_S, every_s=0.05)
    if not now:
        return found
    while True:
        view = describe(settings.cluster, [topic])
        spans = {tp: span for tp in view.partitions if (span := view.log_range(tp))}
        if all(span.last_stable >= now.get(tp[1], 0) for tp, span in spans.items()):
            break
        if not wait.again():
            raise TransactionLeftOpenError.of_others(topic)

    def add(tp: TopicPartition, record: KafkaMessage) -> None:
        found.add(tp[1], record.key(), record.value(), record.headers())

    ranges = {
        tp: ReadRange(low=max(span.start, since.get(tp[1], 0)), high=now.get(tp[1], 0))
        for tp, span in spans.items()
    }
    scan(settings.cluster, ranges, add, "read_committed")
    log.warning("%d records of lineage %s may be left out: readers get them", len(found), settings.lineage)
    return found


def _ends_now(settings: SinkSettings) -> dict[int, int]:
    """Return where every partition of the output ends; nothing if it does not exist.

    Of a partition that has no leader for a moment nothing is known: to take it for empty would write its
    records again.
    """
    wait = CLOCK.wait(_TIMEOUT_S, every_s=0.2)
    while True:
        ends = output_ends(settings)
        if ends is not None and -1 not in ends.values():
            return ends
        if not wait.again():
            error = OUTPUT_UNKNOWN.error(lineage=settings.lineage, why="brokers do not tell where it ends")
            error.retryable = True
            raise error
