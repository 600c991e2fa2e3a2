"""A consumer group as the JVM's own client commits for it, with the very options of the source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.spark.kafka import client_options, end_offsets, root_cause, says_unreachable
from airflow_flinkstyle.kafka.errors import GROUP_COMMIT, GROUP_IN_USE, ClusterUnreachableError

if TYPE_CHECKING:
    from airflow_flinkstyle.agent.core.spark import StreamingSource
    from airflow_flinkstyle.agent.spark.untyped import Java
    from airflow_flinkstyle.errors import FlinkstyleError
    from airflow_flinkstyle.offsets import Offsets

TIMEOUT_S = 10
"""Longest wait for one answer; the client searches for the group's coordinator again meanwhile."""
_STATE_AFTER = "The group's offsets may be older than the job's progress; the job runs and never reads them."
_HAS_MEMBERS = frozenset(
    ("UnknownMemberIdException", "RebalanceInProgressException", "StaleMemberEpochException")
)


class JvmGroup:
    """The group of one source, and one client for it."""

    def __init__(self, jvm: Java, source: StreamingSource, group: str) -> None:
        self.name, self.servers = group, source.option("kafka.bootstrap.servers") or "?"
        self._jvm, self._source = jvm, source
        self._client: Java = None

    def __str__(self) -> str:
        """Return group and cluster for messages."""
        return f"group {self.name} on {self.servers}"

    def commit(self, offsets: Offsets) -> None:
        """Commit these offsets without joining the group, and wait for the answer.

        Raises:
            FlinkstyleError: ``GROUP_IN_USE`` if the group has members.
            ClusterUnreachableError: If no broker answers in time.
            FlinkstyleError: ``GROUP_COMMIT`` if the cluster refuses some of the offsets, or all.
        """
        from py4j.protocol import Py4JJavaError

        try:
            wanted = self._jvm.java.util.HashMap()
            # Taken out of the loop: py4j asks the JVM for every part of a class's name.
            partition = self._jvm.org.apache.kafka.common.TopicPartition
            position = self._jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata
            for (topic, number), offset in offsets.items():
                wanted.put(partition(topic, number), position(offset))
            answer = self._admin().alterConsumerGroupOffsets(self.name, wanted).all()
            answer.get(TIMEOUT_S + 1, self._jvm.java.util.concurrent.TimeUnit.SECONDS)
        except Py4JJavaError as error:
            raise self._refused(error) from error

    def lag(self, offsets: Offsets) -> dict[str, int]:
        """Return how many offsets lie between these and the logs' ends, by topic."""
        ends = end_offsets(self._jvm, self._admin(), offsets)
        return {
            topic: sum(max(0, ends[topic, number] - offset) for number, offset in numbers.items())
            for topic, numbers in offsets.by_topic.items()
        }

    def close(self) -> None:
        """Give back the client; waits for nothing."""
        if self._client is not None:
            self._client.close(self._jvm.java.time.Duration.ZERO)

    def _admin(self) -> Java:
        if self._client is None:
            options = client_options(self._jvm, self._source, timeout_s=TIMEOUT_S)
            self._client = self._jvm.org.apache.kafka.clients.admin.AdminClient.create(options)
        return self._client

    def _refused(self, error: Java) -> FlinkstyleError:
        name, text = root_cause(error)
        if name in _HAS_MEMBERS:
            return GROUP_IN_USE.with_text(
                f"Offsets should be committed for {self}, but it has members, who commit for it.",
                state_after=_STATE_AFTER,
                remedy="Stop its members, or give the source a group of its own (kafka.group.id).",
            )
        if says_unreachable(name, text):
            return ClusterUnreachableError(
                f"Offsets should be committed for {self}, but no broker answered within {TIMEOUT_S} s: "
                f"{name}: {text}",
                state_after=_STATE_AFTER,
                remedy="Nothing is to be done if the brokers come back: the next batch commits again.",
            )
        return GROUP_COMMIT.with_text(
            f"Offsets should be committed for {self}, but not all were: {name}: {text}",
            state_after=_STATE_AFTER,
            remedy="Allow the source's login to read the group and the topics (ACL operation READ).",
        )
