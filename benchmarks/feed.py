"""Numbers written to a Kafka topic at an even pace; a migration holds and releases who writes them."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Self

from airflow_flinkstyle.jobs.errors import StaleTokenError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.migration.producers import Position
    from testbed.kafka import Broker

_TICK_S = 0.02
_FLUSH_S = 60.0


class Feed:
    """Writes 0, 1, 2, ... to a topic; fulfils a migration's ``ProducerSwitch``."""

    def __init__(self, brokers: Mapping[Position, Broker], topic: str) -> None:
        """Args: ``brokers``: where to write in each position, ``release_old`` at first."""
        self._brokers, self._topic = brokers, topic
        self._position: Position = "release_old"
        self._token, self._next = -1, 0
        self._lock, self._ends = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self._producers: dict[str, Any] = {}

    def fill(self, count: int) -> None:
        """Write so many numbers as fast as can be."""
        with self._lock:
            self._write(count)
            self._producer().flush(_FLUSH_S)

    def start(self, rows_per_s: int) -> Self:
        """Go on at an even pace."""
        self._thread = threading.Thread(target=self._run, args=(rows_per_s,), daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """End."""
        self._ends.set()
        if self._thread is not None:
            self._thread.join()

    def apply(self, position: Position, token: int) -> None:
        """Obey at once: nothing is on its way afterwards."""
        with self._lock:
            if token < self._token:
                raise StaleTokenError(f"Token {token} is older than {self._token}.", "", "")
            self._token = token
            if self._position != "hold":
                self._producer().flush(_FLUSH_S)
            self._position = position

    def read(self) -> Position | None:
        """Return the position."""
        return self._position

    def _run(self, rows_per_s: int) -> None:
        begun_s, written = time.monotonic(), 0
        while not self._ends.wait(_TICK_S):
            due = int((time.monotonic() - begun_s) * rows_per_s) - written
            with self._lock:
                if self._position != "hold":
                    self._write(due)
            written += due  # while it is held, nothing is made up for later

    def _write(self, count: int) -> None:
        producer = self._producer()
        for number in range(self._next, self._next + count):
            while True:
                try:
                    producer.produce(self._topic, value=str(number).encode())
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.poll(0)
        self._next += count

    def _producer(self) -> Any:  # noqa: ANN401  (the client's)
        from confluent_kafka import Producer

        servers = self._brokers[self._position].bootstrap
        if servers not in self._producers:
            config = {"bootstrap.servers": servers, "linger.ms": "5"}
            self._producers[servers] = Producer(config)
        return self._producers[servers]
