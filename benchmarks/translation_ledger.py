"""Numbered records of every kind, and a ledger of what became of each."""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.translation_truth import Entry, Truth

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

    from airflow_flinkstyle.kafka.settings import KafkaCluster
    from airflow_flinkstyle.types import TopicPartition

NUMBER = "n"
"""Header with a record's number; the translation is told to ignore it."""
SEED = 5
RECORDS_PER_MS = 3
"""Timestamps are those of a producer of 3,000 records a second and partition."""
AGO_MS = 3_600_000


@dataclass(slots=True)
class Ledger:
    """Writes numbered records and keeps what became of each."""

    cluster: KafkaCluster
    truths: dict[TopicPartition, Truth]
    own: bool = False
    """True for the target's producers: their records are noted as the target's own."""

    def write(self, topic: str, partition: int, records: list[dict[str, Any]]) -> None:
        """Write and wait until all are acknowledged."""
        producer = self._producer()
        noted = [self._produce(producer, topic, partition, record) for record in records]
        if producer.flush(60):
            raise RuntimeError(f"{topic}-{partition}: records without an acknowledgement")
        self._note(topic, partition, noted)

    def transact(self, topic: str, partition: int, records: list[dict[str, Any]], rng: random.Random) -> None:
        """Write transactions of random length; every fourth is aborted and leaves nothing in the ledger."""
        producer = self._producer(**{"transactional.id": f"ledger-{topic}-{partition}"})
        producer.init_transactions(60)
        left = iter(records)
        for turn in itertools.count():
            batch = list(itertools.islice(left, rng.randint(1, 80)))
            if not batch:
                return
            producer.begin_transaction()
            noted = [self._produce(producer, topic, partition, record) for record in batch]
            producer.flush(60)
            if turn % 4 == 3:
                producer.abort_transaction(60)
            else:
                producer.commit_transaction(60)
                self._note(topic, partition, noted)

    def _producer(self, **more: str) -> Producer:
        from confluent_kafka import Producer

        own = {"enable.idempotence": "true", "linger.ms": "20", "log_level": "2"}
        return Producer({**self.cluster.config, **own, **more})

    def _produce(
        self, producer: Producer, topic: str, partition: int, record: dict[str, Any]
    ) -> list[tuple[int, Message]]:
        number = next(_NUMBERS)
        answer: list[tuple[int, Message]] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                answer.append((number, message))

        producer.produce(
            topic,
            partition=partition,
            headers=[(NUMBER, str(number).encode())],
            on_delivery=delivered,
            **record,
        )
        producer.poll(0)
        return answer

    def _note(self, topic: str, partition: int, noted: list[list[tuple[int, Message]]]) -> None:
        truth = self.truths[topic, partition]
        for ((number, message),) in noted:
            if self.own:
                truth.own.add(number)
            else:
                truth.source.append(entry_of(number, message))


_NUMBERS = itertools.count(1)


def entry_of(number: int, message: Any) -> Entry:  # noqa: ANN401  (a message of the producer or of the consumer)
    """Return what a delivered or consumed message says."""
    timestamp_ms = message.timestamp()[1]
    return Entry(number, message.offset(), message.key(), message.value() is None, timestamp_ms)


class Contents:
    """Keys, values and timestamps of every kind; the numbers that tell records apart come from the ledger."""

    def __init__(self) -> None:
        self.rng = random.Random(SEED)  # noqa: S311  (contents, not secrets)
        self._begin_ms = int(time.time() * 1000) - AGO_MS
        self._written = itertools.count()

    def unique(self, count: int) -> list[dict[str, Any]]:
        """Return records that no other equals."""
        return [
            self._record(f"k{self.rng.randrange(500)}", self.rng.randbytes(12).hex()) for _ in range(count)
        ]

    def equal(self, count: int) -> list[dict[str, Any]]:
        """Return one record many times."""
        return [{"key": "k", "value": "same", "timestamp": self._begin_ms}] * count

    def periodic(self, count: int) -> list[dict[str, Any]]:
        """Return seven records in turn."""
        return [{"key": "k", "value": f"p{i % 7}", "timestamp": self._begin_ms} for i in range(count)]

    def null(self, count: int) -> list[dict[str, Any]]:
        """Return records without keys; few of them differ from their neighbours."""
        values = (None, None, "x", "y", "")
        return [
            {**self._record(None, self.rng.choice(values)), "timestamp": self._begin_ms} for _ in range(count)
        ]

    def keyed(self, count: int, *, deleted: float = 0.0, prefix: str = "c") -> list[dict[str, Any]]:
        """Return versions of 200 keys, some of them deletions."""
        return [
            self._record(
                f"{prefix}{self.rng.randrange(200)}",
                None if self.rng.random() < deleted else self._value(),
            )
            for _ in range(count)
        ]

    def _value(self) -> str:
        return self.rng.randbytes(12).hex()

    def _record(self, key: str | None, value: str | None) -> dict[str, Any]:
        at_ms = self._begin_ms + next(self._written) // RECORDS_PER_MS
        return {"key": key, "value": value, "timestamp": at_ms}
