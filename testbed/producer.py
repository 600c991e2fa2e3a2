"""Writes numbered orders all the time, keeps the ledger, and obeys the producer switch.

``python -m testbed.producer SETTINGS_JSON``; SIGTERM flushes and ends it.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from testbed.ledger import MAX_NUMBER, Entry, LedgerWriter, Order

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confluent_kafka import KafkaError, Message, Producer

    from airflow_flinkstyle.jobs.migration.producers import StoreProducerSwitch

TICK_S = 0.02
SWITCH_POLL_S = 0.2
FLUSH_S = 30.0
LINGER_MS = 250
"""Each request of a producer costs brokers and mirror a fetch, and the mirror a transaction besides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """What one producer process does."""

    servers: Mapping[str, str]
    """Kafka servers of the clusters ``old`` and ``new``."""
    topic: str
    partitions: int
    ledger: str
    """Path of the ledger; ``<ledger>.events`` beside it says when it was held and released."""
    store_uri: str
    switch_key: str
    rate_per_s: float = 500.0
    customers: int = 200
    opening: Mapping[str, int] = field(default_factory=dict)
    """Partition -> orders written at first, in one transaction; it gets no more until the release to new."""
    most_on_old: int | None = None
    """Writes no more than so many to ``old`` before it is released to ``new``."""

    def to_json(self) -> str:
        """Render as the process's argument."""
        return json.dumps(asdict(self))


class OrderBook:
    """Numbers the orders: round robin over the customers, each with its own sequence from 1."""

    def __init__(self, *, customers: int, partitions: int) -> None:
        self._last = [0] * customers
        self._partitions = partitions
        self._turn = 0

    def next(self, *, only: int | None = None, without: frozenset[int] = frozenset()) -> Order:
        """Return the next order of a customer whose partition is wanted.

        Raises:
            RuntimeError: If a customer's numbers are used up (they would be taken for doubled orders).
        """
        while True:
            customer = self._turn % len(self._last)
            self._turn += 1
            partition = customer % self._partitions
            if partition not in without and only in (None, partition):
                break
        self._last[customer] += 1
        number = self._last[customer]
        if number > MAX_NUMBER:
            raise RuntimeError(f"Customer {customer} has no order numbers left after {MAX_NUMBER}")
        return Order(f"c{customer:03d}", number, 100 + (37 * number + 101 * customer) % 9900, partition)


class OrderProducer:
    """One producer: orders go to one cluster at a time, or are held."""

    def __init__(self, settings: ProducerSettings, switch: StoreProducerSwitch) -> None:
        self._settings = settings
        self._switch = switch
        self._book = OrderBook(customers=settings.customers, partitions=settings.partitions)
        self._ledger = LedgerWriter(Path(settings.ledger))
        self._events = Path(f"{settings.ledger}.events")
        self._quiet = frozenset(int(partition) for partition in settings.opening)
        self._cluster: Literal["old", "new"] | None = None
        self._producer: Producer | None = None
        self._sent = 0

    def run(self, stop: threading.Event) -> None:
        """Write until ``stop`` is set; then flush, so that the ledger is complete."""
        self._write_opening()
        self._release("old")
        next_look = 0.0
        due = 0.0
        last = time.monotonic()
        while not stop.wait(TICK_S):
            now = time.monotonic()
            if now >= next_look:
                next_look = now + SWITCH_POLL_S
                self._obey()
            due = min(due + (now - last) * self._settings.rate_per_s, self._settings.rate_per_s)
            last = now
            while self._producer is not None and due >= 1 and not self._has_enough():
                due -= 1
                self._send(self._producer, self._book.next(without=self._quiet))
            if self._producer is not None:
                self._producer.poll(0)
            self._ledger.flush()
        self._hold()
        self._ledger.close()

    def _write_opening(self) -> None:
        if not self._settings.opening:
            return
        producer = self._connect("old", **{"transactional.id": f"opening-{self._settings.topic}"})
        producer.init_transactions(FLUSH_S)
        producer.begin_transaction()
        self._cluster = "old"
        for partition, orders in self._settings.opening.items():
            for _ in range(orders):
                self._send(producer, self._book.next(only=int(partition)))
        producer.commit_transaction(FLUSH_S)
        self._ledger.flush()

    def _obey(self) -> None:
        asked = self._switch.read()
        if asked == "hold":
            self._hold()
        elif asked is not None:
            cluster: Literal["old", "new"] = "old" if asked == "release_old" else "new"
            if cluster != self._cluster:
                self._hold()
                self._release(cluster)

    def _hold(self) -> None:
        if self._producer is None:
            return
        if left := self._producer.flush(FLUSH_S):
            raise RuntimeError(f"{left} orders are still unacknowledged after {FLUSH_S} s; not holding")
        self._producer = self._cluster = None
        self._ledger.flush()
        self._note("held")

    def _release(self, cluster: Literal["old", "new"]) -> None:
        if cluster == "new":
            self._quiet = frozenset()
        self._producer = self._connect(cluster)
        self._cluster = cluster
        self._note("released")

    def _has_enough(self) -> bool:
        most = self._settings.most_on_old
        return most is not None and self._cluster == "old" and self._sent >= most

    def _note(self, event: str) -> None:
        line = {
            "event": event,
            "cluster": self._cluster,
            "at_ms": int(time.time() * 1000),
            "acknowledged": self._ledger.written,
        }
        with self._events.open("a", encoding="utf-8") as events:
            events.write(json.dumps(line) + "\n")

    def _connect(self, cluster: str, **more: str) -> Producer:
        from confluent_kafka import Producer

        options = {"bootstrap.servers": self._settings.servers[cluster], "acks": "all"}
        return Producer({**options, "linger.ms": LINGER_MS, "enable.idempotence": "true", **more})

    def _send(self, producer: Producer, order: Order) -> None:
        cluster = self._cluster or "?"
        self._sent += 1

        def delivered(error: KafkaError | None, message: Message) -> None:
            offset = message.offset() if error is None else None
            self._ledger.append(Entry(order, cluster, offset))

        producer.produce(
            self._settings.topic,
            key=order.customer,
            value=order.to_json(),
            partition=order.partition,
            on_delivery=delivered,
        )


def read_events(ledger: Path) -> Iterator[dict[str, Any]]:
    """Yield when the producer was held and released, oldest first."""
    events = Path(f"{ledger}.events")
    if events.exists():
        for line in events.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


def main() -> None:
    """Run one producer until SIGTERM."""
    from airflow_flinkstyle.jobs.migration.producers import StoreProducerSwitch
    from airflow_flinkstyle.storage.open import open_store

    settings = ProducerSettings(**json.loads(sys.argv[1]))
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    switch = StoreProducerSwitch(open_store(settings.store_uri), settings.switch_key)
    OrderProducer(settings, switch).run(stop)


if __name__ == "__main__":
    main()
