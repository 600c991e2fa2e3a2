"""The control topic of a lineage: partition 0 holds its completions, partition n + 1 the markers of shard n.

Only one transactional id writes to each partition. So once that id has been initialised anew, no open
transaction can hide a committed record of it from ``read_committed`` readers.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

from airflow_flinkstyle.clock import CLOCK
from airflow_flinkstyle.kafka.cluster import topic_settings
from airflow_flinkstyle.kafka.settings import SETTLING, admin_client, consumer
from airflow_flinkstyle.sinks.errors import REPLAYS, ControlTopicError, ProducerFencedError
from airflow_flinkstyle.sinks.marker import Completion, Marker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka import Consumer

    from airflow_flinkstyle.kafka.reading import Record
    from airflow_flinkstyle.sinks.settings import SinkSettings

COMPLETIONS = 0
_NEWEST = 64
"""Offsets read at first: each batch adds a record and a transaction marker."""
_FETCH_WAIT_MS = 1
"""The end of a partition is told only once the broker has waited so long for more."""
_TIMEOUT_S = 20.0
_SETTLED_S = 3.0
"""In which brokers agree on a topic that was just created, or on who leads its partitions."""
_UNKNOWN = frozenset(("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC"))


def default_name(lineage: str) -> str:
    """Return the control topic of a lineage; MirrorMaker leaves out topics that end in ``.internal``."""
    return f"flinkstyle-{lineage}.internal"


def marker_partition(shard: int) -> int:
    """Return where the markers of a shard stand."""
    return shard + 1


def read_completion(settings: SinkSettings) -> Completion | None:
    """Return the newest completed batch; None if the lineage has written nothing."""
    found = _newest(settings, [COMPLETIONS]).get(settings.completion_id)
    return Completion.from_bytes(found) if found is not None else None


def read_marker(settings: SinkSettings, shard: int) -> Marker | None:
    """Return the newest batch that a shard has written; call it with the shard's producer initialised."""
    return read_markers(settings, [shard]).get(shard)


def read_markers(settings: SinkSettings, shards: Iterable[int]) -> dict[int, Marker]:
    """Return the newest marker per shard; shards that have written nothing are left out."""
    wanted = list(shards)
    found = _newest(settings, [marker_partition(shard) for shard in wanted])
    values = {shard: found.get(settings.transactional_id(shard)) for shard in wanted}
    return {shard: Marker.from_bytes(data) for shard, data in values.items() if data is not None}


def _newest(settings: SinkSettings, partitions: Iterable[int]) -> dict[str, bytes]:
    """Return the newest value by key of the given partitions."""
    found: dict[str, bytes] = {}
    with consumer(settings.cluster, "read_committed", fetch_wait_ms=_FETCH_WAIT_MS) as client:
        for number in partitions:
            low, high = _watermarks(client, settings, number)
            for start in (max(low, high - _NEWEST), low):
                records = _read(client, settings, number, start, high)
                _require_alone(settings, number, records)
                found.update(records)
                if records or start == low:
                    break
    return found


def _require_alone(settings: SinkSettings, number: int, keys: Iterable[str]) -> None:
    """Check that nobody else writes to a partition, whose records would hide this lineage's newest."""
    own = settings.completion_id if number == COMPLETIONS else settings.transactional_id(number - 1)
    if others := sorted(set(keys) - {own}):
        raise ControlTopicError(
            f"Partition {number} of {settings.control_topic} was expected to hold records of {own} only, "
            f"found some of {others[0] or 'nobody'}.",
            state_after="Nothing was written.",
            remedy="Give each lineage a control topic of its own; the default is one.",
        )


def _watermarks(client: Consumer, settings: SinkSettings, number: int) -> tuple[int, int]:
    from confluent_kafka import KafkaException, TopicPartition

    place = TopicPartition(settings.control_topic, number)
    wait = CLOCK.wait(_SETTLED_S, every_s=0.05)
    while True:
        try:
            return client.get_watermark_offsets(place, timeout=_TIMEOUT_S)
        except KafkaException as error:
            name = error.args[0].name()
            if name in SETTLING | _UNKNOWN and wait.again():
                continue
            if name in _UNKNOWN:
                raise _missing(settings, f"partition {number}") from error
            raise


def _read(client: Consumer, settings: SinkSettings, number: int, start: int, high: int) -> dict[str, bytes]:
    """Return the newest value by key between two offsets of one partition."""
    from confluent_kafka import KafkaException, TopicPartition

    found: dict[str, bytes] = {}
    if start >= high:
        return found
    client.assign([TopicPartition(settings.control_topic, number, start)])
    deadline_s = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline_s:
        message = cast("Record | None", client.poll(0.2))  # consume() would wait for a whole batch
        if message is None:
            continue
        error = message.error()
        if error is None:
            found[(message.key() or b"").decode()] = message.value() or b""
        elif error.name() != "_PARTITION_EOF":
            raise KafkaException(error)
        elif message.offset() >= high:
            return found
        else:  # the one id that writes here has begun a transaction since it was initialised
            raise ProducerFencedError(
                f"Partition {number} of {settings.control_topic} was expected to have no open "
                f"transaction, found one at offset {message.offset()}: another attempt is writing.",
                state_after=REPLAYS,
                remedy="Nothing, if the job continues; otherwise look for a second driver of it.",
            )
    raise ProducerFencedError(
        f"Partition {number} of {settings.control_topic} was expected to be read up to offset {high} within "
        f"{_TIMEOUT_S:g} s, found that it was not.",
        state_after=REPLAYS,
        remedy="Check that the brokers answer; the batch is run again.",
    )


def require_control_topic(settings: SinkSettings, *, may_create: bool) -> int:
    """Check that the control topic keeps markers and has a partition for each shard.

    Args:
        settings: The sink.
        may_create: The lineage is new, so that a missing topic cannot have lost any marker.

    Returns:
        For how many shards it has room: the most that the lineage was ever written with, at least.

    Raises:
        ControlTopicError: If it is missing and may not be created, or deletes what it holds.
    """
    wanted = settings.shards + 1
    count = _partition_count(settings)
    if count is None:
        if not may_create:
            raise _missing(settings, "topic")
        _create(settings, wanted)
        return settings.shards
    if topic_settings(settings.cluster, [settings.control_topic])[settings.control_topic].deletes:
        raise ControlTopicError(
            f"Control topic {settings.control_topic} was expected to have cleanup.policy compact only, found "
            "that it deletes: a marker that is gone would let a batch be written twice.",
            state_after="Nothing was written.",
            remedy="Set cleanup.policy=compact on it, and make sure that no marker was deleted before.",
        )
    if count < wanted:
        _grow(settings, wanted)
    return max(count, wanted) - 1


def _partition_count(settings: SinkSettings) -> int | None:
    """Return how many partitions the control topic has; None if it does not exist.

    Asking for a topic's metadata would make brokers create it that do so, and not as it has to be.
    """
    from confluent_kafka import KafkaException, TopicCollection

    with admin_client(settings.cluster) as admin:
        asked = admin.describe_topics(TopicCollection([settings.control_topic]), request_timeout=_TIMEOUT_S)
        try:
            return len(asked[settings.control_topic].result(_TIMEOUT_S).partitions)
        except KafkaException as error:
            if error.args[0].name() in _UNKNOWN:
                return None
            raise


def _create(settings: SinkSettings, partitions: int) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import NewTopic

    new = NewTopic(
        settings.control_topic, num_partitions=partitions, config={"cleanup.policy": "compact"}
    )  # the replication factor is the broker's default
    with admin_client(settings.cluster) as admin:
        try:
            admin.create_topics([new])[settings.control_topic].result(_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise
    wait = CLOCK.wait(_TIMEOUT_S, every_s=0.1)
    while (_partition_count(settings) or 0) < partitions and wait.again():
        pass


def _grow(settings: SinkSettings, partitions: int) -> None:
    from confluent_kafka.admin import NewPartitions

    with admin_client(settings.cluster) as admin:
        futures = admin.create_partitions([NewPartitions(settings.control_topic, partitions)])
        futures[settings.control_topic].result(_TIMEOUT_S)


def _missing(settings: SinkSettings, what: str) -> ControlTopicError:
    return ControlTopicError(
        f"Lineage {settings.lineage} has written batches, so control topic {settings.control_topic} was "
        f"expected to hold their markers, but {what} does not exist on {settings.cluster}.",
        state_after="Nothing was written.",
        remedy="Restore the topic. If it is lost, find out which batch the output ends with, and begin a new "
        "lineage after it (begin_lineage).",
    )
