"""Set where a MirrorMaker 2 that has not started yet begins: written where it will read its own positions.

A mirror in the other direction would copy everything back, also what the first mirror has copied. With start
positions it copies only what is new. They are the records that ``PATCH /connectors/<name>/offsets`` makes
Kafka Connect write; MirrorMaker's dedicated mode has no such request.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from airflow_flinkstyle.clock import CLOCK
from airflow_flinkstyle.kafka.cluster import describe, existing_topics
from airflow_flinkstyle.kafka.errors import MIRROR_START, name_partitions
from airflow_flinkstyle.kafka.mirror.lag import (
    POLL_S,
    CaughtUp,
    MirrorBehind,
    lag_above,
    mirrored_positions,
)
from airflow_flinkstyle.kafka.mirror.topics import read_positions
from airflow_flinkstyle.kafka.settings import admin_client, translated_errors
from airflow_flinkstyle.offsets import Offsets

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from confluent_kafka import KafkaError, Message

    from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
    from airflow_flinkstyle.kafka.settings import KafkaCluster
    from airflow_flinkstyle.types import NextOffset, TopicPartition

log = logging.getLogger(__name__)

_PARTITIONS = 25
"""Of the topic with positions; Connect's own default (``offset.storage.partitions``)."""


def set_mirror_start(target: KafkaCluster, mirror: MirrorSettings, first: Offsets) -> Offsets:
    """Write where a mirror begins, for partitions that it has no position for; others stay as they are.

    MirrorMaker must not run in this direction yet: it reads its positions when it starts.

    Args:
        target: The cluster it will copy to, which keeps its positions.
        mirror: Its settings.
        first: First offset to copy, per partition of the cluster it copies from.

    Returns:
        The partitions that were written, with that offset.

    Raises:
        FlinkstyleError: ``MIRROR_START`` if the cluster did not accept a position; the others are kept.
    """
    known: Mapping[TopicPartition, int] = {}
    if mirror.positions_topic in existing_topics(target):
        known = read_positions(target, mirror)
    else:
        _create(target, mirror.positions_topic)
    missing = Offsets({tp: offset for tp, offset in first.items() if offset > 0 and tp not in known})
    _write(target, mirror, missing)
    log.info(
        "Mirror %s->%s begins at %s", mirror.source_alias, mirror.target_alias, missing or "no new place"
    )
    return missing


def position_record(
    mirror: MirrorSettings, partition: TopicPartition, first: NextOffset
) -> tuple[bytes, bytes]:
    """Return key and value as Connect's JSON converter writes them: it finds keys by their bytes."""
    place = {"cluster": mirror.source_alias, "partition": partition[1], "topic": partition[0]}
    key = json.dumps([mirror.connector_name, place], separators=(",", ":"), ensure_ascii=False)
    value = json.dumps({"offset": first - 1}, separators=(",", ":"))
    return key.encode(), value.encode()


def _create(target: KafkaCluster, topic: str) -> None:
    from confluent_kafka.admin import NewTopic

    new = NewTopic(
        topic, num_partitions=_PARTITIONS, replication_factor=-1, config={"cleanup.policy": "compact"}
    )
    with admin_client(target) as admin:
        admin.create_topics([new], request_timeout=target.request_timeout_s)[topic].result(
            target.request_timeout_s
        )


def _write(target: KafkaCluster, mirror: MirrorSettings, first: Offsets) -> None:
    from confluent_kafka import Producer

    accepted: set[TopicPartition] = set()
    reported: list[KafkaError] = []
    settings = {
        **target.config,
        "log_level": 2,
        "acks": "all",
        "enable.idempotence": True,
        "partitioner": "murmur2_random",  # as Connect's producer: a key keeps its partition
        "message.timeout.ms": int(target.request_timeout_s * 1000),
        "error_cb": reported.append,
    }
    with translated_errors(target, reported), Producer(settings) as producer:  # its exit waits for all
        for partition, offset in first.items():
            key, value = position_record(mirror, partition, offset)

            def delivered(
                error: KafkaError | None, _: Message, partition: TopicPartition = partition
            ) -> None:
                if error is None:
                    accepted.add(partition)
                else:
                    reported.append(error)

            producer.produce(mirror.positions_topic, key=key, value=value, on_delivery=delivered)
            producer.poll(0)
    refused = first.keys() - accepted
    if refused:
        raise MIRROR_START.with_text(
            f"{target} should store in topic {mirror.positions_topic} where a mirror begins, but accepted "
            f"nothing for {name_partitions(refused)}{f' ({reported[-1].str()})' if reported else ''}.",
            state_after=f"The positions of {len(accepted)} partitions are stored; no record was copied.",
            remedy="Check that the credentials may write to the topic, then do it again.",
        )


def wait_copied(
    source: KafkaCluster,
    target: KafkaCluster,
    mirror: MirrorSettings,
    topics: Collection[str],
    *,
    timeout_s: float,
) -> CaughtUp | MirrorBehind:
    """Wait until MirrorMaker has copied what is on the source now; producers may continue.

    A partition that it has no position for counts as one it has copied nothing of.

    Raises:
        MirrorPositionMissingError: If MirrorMaker's topic with positions does not exist.
    """
    began_s, view = CLOCK.now_s, describe(source, topics)
    wait = CLOCK.wait(timeout_s, every_s=POLL_S)
    while True:
        lag = lag_above(source, mirror, view, mirrored_positions(target, mirror, view.topics))
        behind = {tp: records for tp, records in lag.items() if records}
        if not behind:
            return CaughtUp()
        if not wait.again():
            return MirrorBehind(lag=behind, waited_s=CLOCK.now_s - began_s)
