"""A producer that nobody knows of: it sleeps, obeys no switch, and keeps a ledger of its own."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from testbed.ledger import Entry, LedgerWriter, Order

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka import KafkaError, Message

CUSTOMER = "late"
PARTITION = 3


class LateProducer:
    """Connected from the start, so that a write needs no more than a moment."""

    def __init__(self, bootstrap: str, topic: str, ledger: Path) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": "0", "log_level": "0"})
        self._topic, self._ledger = topic, ledger
        self._last = 0

    def write(self, orders: int) -> list[int]:
        """Write so many orders and return their offsets; those that the broker refused have none."""
        from confluent_kafka import KafkaException

        offsets: list[int] = []
        ledger = LedgerWriter(self._ledger)

        def send(order: Order) -> None:
            def delivered(error: KafkaError | None, message: Message) -> None:
                if error is None:
                    ledger.append(Entry(order, "old", message.offset()))
                    offsets.append(message.offset() or 0)

            value, place = order.to_json(), order.partition
            with contextlib.suppress(KafkaException):  # it has learnt that it may not
                self._producer.produce(
                    self._topic, key=CUSTOMER, value=value, partition=place, on_delivery=delivered
                )

        for number in range(self._last + 1, self._last + orders + 1):
            send(Order(CUSTOMER, number, 100 + number, PARTITION))
        self._last += orders
        self._producer.flush(30)
        ledger.close()
        return sorted(offsets)
