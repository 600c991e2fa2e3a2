"""The topics of a cluster of the test bed: made, changed, looked at, by whoever can reach it."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka.admin import AdminClient

_CALL_TIMEOUT_S = 30


class Reached:
    """A cluster that answers at ``bootstrap``."""

    copies = 1
    """Of each partition of a topic that is made here."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._admin: AdminClient | None = None

    @property
    def bootstrap(self) -> str:
        """``host:port`` for clients, of each broker."""
        raise NotImplementedError

    @property
    def cluster_id(self) -> str:
        """The cluster's id, as its brokers tell it."""
        return str(self.admin().describe_cluster().result(_CALL_TIMEOUT_S).cluster_id)

    def admin(self) -> AdminClient:
        """Return an admin client; one that is not kept referenced would fail its calls."""
        if self._admin is None:
            from confluent_kafka.admin import AdminClient

            # Silent while the broker is down: tests take it down on purpose.
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self._admin

    def create_topic(self, topic: str, *, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Create a topic and wait until the broker knows it."""
        from confluent_kafka.admin import NewTopic

        new = NewTopic(
            topic, num_partitions=partitions, replication_factor=self.copies, config=dict(config or {})
        )
        self.admin().create_topics([new])[topic].result(_CALL_TIMEOUT_S)
        self.wait_for_topic(topic)

    def alter_topic(self, topic: str, config: Mapping[str, str]) -> None:
        """Set some of a topic's settings; the others stay."""
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in config.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        for future in self.admin().incremental_alter_configs([resource]).values():
            future.result(_CALL_TIMEOUT_S)

    def wait_for_topic(self, topic: str, *, timeout_s: float = 60) -> int:
        """Wait until the topic can be read, e.g. because it was mirrored; return its partition count."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import OffsetSpec

        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            # A broker lists a new topic a moment before it leads it; one that was killed comes back.
            with suppress(KafkaException):
                found = self.admin().list_topics(timeout=_CALL_TIMEOUT_S).topics.get(topic)
                if found is not None and found.partitions:
                    self._offsets(topic, len(found.partitions), OffsetSpec.latest())
                    return len(found.partitions)
            time.sleep(0.2)
        raise TimeoutError(f"Topic {topic} was expected on broker {self.name} within {timeout_s} s.")

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """Delete the records of each partition below the given offset."""
        from confluent_kafka import TopicPartition

        cuts = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
        for future in self.admin().delete_records(cuts).values():
            future.result(_CALL_TIMEOUT_S)

    def log_range(self, topic: str) -> dict[int, tuple[int, int]]:
        """Return per partition the earliest offset and the end offset."""
        from confluent_kafka.admin import OffsetSpec

        partitions = self.wait_for_topic(topic)
        earliest = self._offsets(topic, partitions, OffsetSpec.earliest())
        latest = self._offsets(topic, partitions, OffsetSpec.latest())
        return {partition: (earliest[partition], latest[partition]) for partition in sorted(earliest)}

    def _offsets(self, topic: str, partitions: int, spec: Any) -> dict[int, int]:  # noqa: ANN401  # no public base
        from confluent_kafka import TopicPartition

        asked = {TopicPartition(topic, number): spec for number in range(partitions)}
        answers = self.admin().list_offsets(asked, request_timeout=_CALL_TIMEOUT_S)
        found = {cut.partition: answer.result(_CALL_TIMEOUT_S) for cut, answer in answers.items()}
        return {partition: int(answer.offset) for partition, answer in found.items()}
