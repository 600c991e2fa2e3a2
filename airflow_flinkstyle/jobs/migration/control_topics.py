"""Whether a mirror copies the control topics of a job's transactional sinks, which no mirror may.

A control topic says which batches are in the output of its own cluster. Copied to another, it says so of an
output that does not hold them, or writes old markers behind newer ones there: batches would be left out or
written twice once the sink has moved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka.cluster import describe, existing_topics
from airflow_flinkstyle.kafka.mirror.topics import read_positions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
    from airflow_flinkstyle.kafka.settings import KafkaCluster
    from airflow_flinkstyle.protocol.sink_records import SinkLineage


def mirrored(target: KafkaCluster, mirror: MirrorSettings, sinks: Iterable[SinkLineage]) -> list[str]:
    """Return a sentence for each control topic that is copied to the target under its own name.

    MirrorMaker notes what it has copied, so a topic that the sink made there itself is not taken for a copy.
    A mirror that keeps offsets notes nothing: with it the topic must not be there while the sink is not.
    """
    if mirror.keeps_offsets:
        own = describe(target, ()).cluster_id
        sinks, copied = [one for one in sinks if one.cluster_id != own], existing_topics(target)
    else:
        copied = frozenset(topic for topic, _ in read_positions(target, mirror))
    return [
        f"{one.control_topic}, the control topic of lineage {one.lineage}, is mirrored to {target}: exclude "
        f"it (topics.exclude={one.control_topic}, beside the default exclusions) and delete the copy."
        for one in sinks
        if one.control_topic in copied and mirror.target_topic(one.control_topic) == one.control_topic
    ]
