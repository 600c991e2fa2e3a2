"""The control topic of a lineage: partition 0 holds its completions, partition n + 1 the markers of shard n.

Only one transactional id writes to each partition. So once that id has been initialised again, no open
transaction can hide a committed record of it from ``read_committed`` readers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.clock import CLOCK
from airflow_flinkstyle.kafka.cluster import topic_settings
from airflow_flinkstyle.kafka.settings import admin_client
from airflow_flinkstyle.sinks.errors import CONTROL_TOPIC

if TYPE_CHECKING:
    from airflow_flinkstyle.errors import FlinkstyleError
    from airflow_flinkstyle.sinks.settings import SinkSettings

COMPLETIONS = 0
_TIMEOUT_S = 20.0
UNKNOWN = frozenset(("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC"))
"""What brokers and client answer of a topic or partition that is not there."""


def default_name(lineage: str) -> str:
    """Return the control topic of a lineage; MirrorMaker leaves out topics that end in ``.internal``."""
    return f"flinkstyle-{lineage}.internal"


def marker_partition(shard: int) -> int:
    """Return the partition of a shard's markers."""
    return shard + 1


def require_control_topic(settings: SinkSettings, *, may_create: bool) -> int:
    """Check that the control topic keeps markers and has a partition for each shard.

    Args:
        settings: The sink.
        may_create: The lineage is new, so that a missing topic cannot have lost any marker.

    Returns:
        For how many shards it has room: the most that the lineage was ever written with, at least.

    Raises:
        FlinkstyleError: ``CONTROL_TOPIC`` if it is missing and may not be created, or deletes what it
            holds.
    """
    wanted = settings.shards + 1
    count = _partition_count(settings)
    if count is None:
        if not may_create:
            raise missing(settings, "topic")
        _create(settings, wanted)
        return settings.shards
    if topic_settings(settings.cluster, [settings.control_topic])[settings.control_topic].deletes:
        raise CONTROL_TOPIC.with_text(
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

    A request for its metadata would make some brokers create it, and not as it has to be.
    """
    from confluent_kafka import KafkaException, TopicCollection

    with admin_client(settings.cluster) as admin:
        asked = admin.describe_topics(TopicCollection([settings.control_topic]), request_timeout=_TIMEOUT_S)
        try:
            return len(asked[settings.control_topic].result(_TIMEOUT_S).partitions)
        except KafkaException as error:
            if error.args[0].name() in UNKNOWN:
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


def missing(settings: SinkSettings, what: str) -> FlinkstyleError:
    """Return the error for a control topic, or a part of it, that should be there."""
    return CONTROL_TOPIC.with_text(
        f"Lineage {settings.lineage} has written batches, so control topic {settings.control_topic} was "
        f"expected to hold their markers, but {what} does not exist on {settings.cluster}.",
        state_after="Nothing was written.",
        remedy="Restore the topic. If it is lost, find out which batch the output ends with, and begin a new "
        "lineage after it (begin_lineage).",
    )
