"""Transactions that brokers have forgotten to end in their partitions.

A coordinator that has promised a commit, or an abort, has its marker written into each partition of the
transaction. Brokers of Kafka 4.3 and 4.4 take a partition without a leader for a deleted one and leave it
out: after all replicas of a partition have failed, the coordinator calls such a transaction complete, but in
that partition it stays open. Its records share the fate of whatever the same id writes there next: a commit
that was promised is lost if that is aborted, an aborted attempt appears as well if that is committed.

So each transaction of a shard begins with a record in the shard's partition of the control topic. Once the
shard's id is initialised, the coordinator has nothing open under it: records that readers still do not get
are left open, and so may be the shard's records in the output, in some partitions or in all. Their batch is
not complete, since it is completed only when all of its markers can be read. So what is open of them is
aborted; what can be read is left out when the batch is written again.
"""

from __future__ import annotations

import logging
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.clock import CLOCK
from airflow_flinkstyle.kafka.cluster import describe, log_ends
from airflow_flinkstyle.kafka.errors import TopicMissingError
from airflow_flinkstyle.kafka.fingerprints import fingerprint
from airflow_flinkstyle.kafka.reading import ReadRange, scan
from airflow_flinkstyle.sinks.control_reading import read_shard
from airflow_flinkstyle.sinks.control_topic import marker_partition
from airflow_flinkstyle.sinks.errors import TransactionLeftOpenError
from airflow_flinkstyle.sinks.marker import NOTHING_YET, Marker
from airflow_flinkstyle.sinks.producer import open_producer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from confluent_kafka import Producer

    from airflow_flinkstyle.kafka.reading import Record
    from airflow_flinkstyle.sinks.settings import SinkSettings
    from airflow_flinkstyle.types import TopicPartition

log = logging.getLogger(__name__)
_THREADS = 8
_TIMEOUT_S = 60.0


def end_open(settings: SinkSettings, shards: Iterable[int]) -> dict[int, Marker]:
    """Abort what is open under the ids of shards: what attempts have left, and what brokers have.

    Args:
        settings: The sink.
        shards: Whose.

    Returns:
        The newest marker per shard. Of those that are ``unsure`` brokers had left something open.

    Raises:
        TransactionLeftOpenError: If they had, and the topic that was written to is not known.
    """

    def end(shard: int) -> tuple[int, Marker | None]:
        with open_producer(settings, settings.transactional_id(shard)) as producer:
            found = read_shard(settings, shard)
            if not found.left_open and not (found.marker and found.marker.unsure):
                return shard, found.marker
            return shard, _abort(settings, producer, shard, replace(found.marker or NOTHING_YET, unsure=True))

    with ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="end") as pool:
        return {shard: marker for shard, marker in pool.map(end, shards) if marker is not None}


def _abort(settings: SinkSettings, producer: Producer, shard: int, noted: Marker) -> Marker:
    if settings.topic is None:
        raise TransactionLeftOpenError.of(settings.control_topic, [shard])
    log.warning(
        "Brokers have left a transaction of shard %d of lineage %s open: it is ended, and what of it cannot "
        "be read is written again",
        shard,
        settings.lineage,
    )
    own_id = settings.transactional_id(shard)
    # First the note: this commit is one of what is left open in the control topic, too, and hides it.
    producer.begin_transaction()
    producer.produce(settings.control_topic, noted.to_bytes(), own_id, partition=marker_partition(shard))
    producer.commit_transaction()
    producer.begin_transaction()
    for number in producer.list_topics(settings.topic, _TIMEOUT_S).topics[settings.topic].partitions:
        producer.produce(settings.topic, None, own_id, partition=number)
    producer.flush()
    producer.abort_transaction()
    return noted


def output_ends(settings: SinkSettings) -> dict[int, int]:
    """Return where the output ends, by partition; nothing if it is not known, or not there yet."""
    try:
        return dict(log_ends(settings.cluster, settings.topic)) if settings.topic else {}
    except TopicMissingError:
        return {}


def readable_since(settings: SinkSettings, since: Mapping[int, int]) -> dict[int, int]:
    """Return what the output holds behind some offsets: how often each fingerprint.

    Args:
        settings: The sink, of which no transaction is open.
        since: Where to begin, by partition; those left out are read from their begin.

    Raises:
        TransactionLeftOpenError: If a transaction of somebody else does not end.
    """
    if settings.topic is None:
        return {}
    now, wait = output_ends(settings), CLOCK.wait(_TIMEOUT_S, every_s=0.05)
    while True:
        view = describe(settings.cluster, [settings.topic])
        spans = {tp: span for tp in view.partitions if (span := view.log_range(tp))}
        if all(span.last_stable >= now.get(tp[1], 0) for tp, span in spans.items()):
            break
        if not wait.again():
            raise TransactionLeftOpenError.of_others(settings.topic)
    found: Counter[int] = Counter()

    def add(_: TopicPartition, record: Record) -> None:
        found[fingerprint(record.key(), record.value(), record.headers() or (), None)] += 1

    ranges = {
        tp: ReadRange(low=max(span.start, since.get(tp[1], 0)), high=now.get(tp[1], 0))
        for tp, span in spans.items()
    }
    scan(settings.cluster, ranges, add, "read_committed")
    return dict(found)
