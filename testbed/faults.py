"""What befalls a job at random moments: bad minutes of its store, a driver that dies or freezes, a broker."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Self

from airflow_flinkstyle.protocol.process import process_started

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from airflow_flinkstyle.protocol.board import JobBoard
    from testbed.bad_s3 import Weather
    from testbed.kafka import Broker

log = logging.getLogger(__name__)
_PAUSE_S = (5.0, 25.0)
"""Between the end of a fault and the next one."""
_AT_REST = 2
"""Drivers that are struck before the job has committed a batch again: on a slow machine it would never."""
_LONGEST_STORE_S, _LONGEST_FREEZE_S, _LONGEST_BROKER_S = 20.0, 25.0, 8.0


class Faults(threading.Thread):
    """Strikes inside ``with``, one fault at a time, and undoes the last one at its end."""

    def __init__(
        self, board: JobBoard, weather: Weather, brokers: Sequence[Broker], moments: random.Random
    ) -> None:
        """Prepare.

        Args:
            board: The job's records, by a way to the store that has no faults.
            weather: Of the way that driver and callers use.
            brokers: Which may die.
            moments: Decides what happens, and when.
        """
        super().__init__(name="faults", daemon=True)
        self.count: Counter[str] = Counter()
        """Faults by kind."""
        self._board, self._weather, self._brokers, self._random = board, weather, brokers, moments
        self._over = threading.Event()
        self._seen_at: object = None
        """Generation and batches of the job when a driver was struck last."""
        self._at_rest = 0
        self._kinds: dict[str, Callable[[], bool]] = {
            "bad minute of the store": self._bad_minute,
            "driver killed": self._kill_driver,
            "driver frozen and thawed": self._freeze_driver,
            "broker killed": self._kill_broker,
        }

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        """Strike until it is over."""
        while not self._over.wait(self._random.uniform(*_PAUSE_S)):
            kind = self._random.choice(list(self._kinds))
            if self._kinds[kind]():
                self.count[kind] += 1
                log.info("Fault %d: %s", self.count.total(), kind)

    def _bad_minute(self) -> bool:
        self._weather.let_loose()
        self._over.wait(self._random.uniform(1, _LONGEST_STORE_S))
        self._weather.clear_up()
        return True

    def _kill_driver(self) -> bool:
        return bool(self._send(signal.SIGKILL, self._driver()))

    def _freeze_driver(self) -> bool:
        """Freeze JVM and Python, as a host that sleeps; what wakes after its lease must end itself."""
        frozen = self._send(signal.SIGSTOP, self._driver())
        if frozen:
            self._over.wait(self._random.uniform(1, _LONGEST_FREEZE_S))
            self._send(signal.SIGCONT, frozen)
        return bool(frozen)

    def _driver(self) -> tuple[int, ...]:
        """Return the processes of the driver that runs the job; none if there is none to be struck."""
        current = self._board.current()
        if current is None:
            return ()
        beat = self._board.heartbeat(current.value.generation)
        at = current.value.generation, beat.value.batches() if beat else {}
        self._at_rest = self._at_rest + 1 if at == self._seen_at else 1
        self._seen_at = at
        if self._at_rest > _AT_REST:
            return ()
        record = self._board.incarnation(current.value.generation, current.value.incarnation)
        if record is None or process_started(record.jvm_pid) != record.pid_started:
            return ()
        return (record.jvm_pid, record.pid)

    @staticmethod
    def _send(number: int, pids: tuple[int, ...]) -> tuple[int, ...]:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return pids

    def _kill_broker(self) -> bool:
        broker = self._random.choice(self._brokers)
        broker.kill()
        time.sleep(self._random.uniform(0, _LONGEST_BROKER_S))
        broker.start()
        return True
