"""The job under a supervisor: there is always something to read, and a driver that has ended starts again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from testbed import paths
from testbed.chaos_processes import Driver
from testbed.drivers import SPARK_PYTHON, spark_conf, spark_env

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from confluent_kafka import Producer

    from testbed.chaos_plan import Plan, StagePlan
    from testbed.chaos_trace import Trace
    from testbed.kafka import Broker

SHARDS = 4
"""Two for each of two tasks."""
ROWS = 200
"""Per batch."""
_LEAD = 10
"""Batches that wait to be read."""
_DELAY_S = 4 * ROWS
"""Of the watermark: partitions are read side by side, never so far apart."""
_REPEAT_EVERY, _REPEAT_BEHIND = 7, 20
_FIRST_WRITTEN: Mapping[Plan, int] = {"stateless": 0, "stateful": 7}
"""The first batch of which one can be sure that it writes: before it the watermark closes no window."""
PAUSE_S = {"data": 0.006, "pre-commit": 0.004, "marker": 0.006}
"""Phases that take microseconds with few rows or none are made longer, so that a kill can hit them."""
_FEED_S = 1.0
_FUTILE = 20
"""Drivers in a row that end by themselves without a batch: the job cannot go on."""
_CONF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.ui.showConsoleProgress": "false",
    "spark.task.maxFailures": "1000",
    "spark.stage.maxConsecutiveAttempts": "1000",
    # A frozen executor is given up after seconds, not after two minutes.
    "spark.executor.heartbeatInterval": "1s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "5s",
    "spark.network.timeoutInterval": "1s",
}


class Numbers:
    """The source: numbers from 0 on, as many as the job needs to stay busy."""

    def __init__(self, broker: Broker, topic: str, *, repeats: bool) -> None:
        self.count = 0
        self._broker, self._topic, self._repeats = broker, topic, repeats
        self._producer: Producer | None = None

    def feed(self, until: int) -> None:
        """Write the numbers below ``until`` that were not written before."""
        for number in range(self.count, until):
            self._send(number)
            if self._repeats and number % _REPEAT_EVERY == 0 and number > _REPEAT_BEHIND:
                self._send(number - _REPEAT_BEHIND)
        if until > self.count:
            self.count = until
        if self._producer is not None:  # a broker that is killed just now is started again by who waits here
            self._producer.flush(_FEED_S)

    def close_windows(self) -> None:
        """Let a number from far ahead close every window; its own is never closed."""
        self._send(self.count + 100 * _DELAY_S)
        self._flush()

    def _send(self, number: int) -> None:
        from confluent_kafka import Producer

        if self._producer is None:
            options = {"enable.idempotence": True, "linger.ms": 5, "log_level": 0}
            self._producer = Producer({"bootstrap.servers": self._broker.bootstrap, **options})
        self._producer.produce(self._topic, str(number), partition=number % 2)

    def _flush(self) -> None:
        if self._producer is not None and self._producer.flush(60):
            raise RuntimeError("the source was expected to take every number, the broker does not answer")


class SupervisedJob:
    """A job, and what keeps it going."""

    def __init__(self, folder: Path, broker: Broker, stage: StagePlan, trace: Trace, master: str) -> None:
        name, plan = folder.name, stage.plan
        self.target = f"{name}-out"
        self.relaunched, self.writes_from = 0, _FIRST_WRITTEN[plan]
        self.timeout_s = stage.transaction_timeout_ms / 1000
        """How long a transaction may take."""
        self._folder, self._trace, self._futile = folder, trace, 0
        for topic in (f"{name}-in", self.target):
            broker.create_topic(topic, partitions=2)
        self.numbers = Numbers(broker, f"{name}-in", repeats=plan == "stateful")
        self._args = {
            "bootstrap": broker.bootstrap,
            "source": f"{name}-in",
            "target": self.target,
            "rows": ROWS,
            "shards": SHARDS,
            "plan": plan,
            "transaction_timeout_ms": stage.transaction_timeout_ms,
            "small_batch_rows": ROWS if stage.small else 0,
            "delay_s": _DELAY_S,
            "checkpoint": str(folder / "checkpoint"),
            "pipe": str(trace.pipe),
            "pause_s": PAUSE_S,
            "conf": {**spark_conf(), **_CONF, "spark.master": master, **_cluster_conf(master)},
        }
        self.driver = self._launch(1)

    def tend(self, *, feed: bool = True) -> None:
        """Start a driver that has ended again, and see to it that there are numbers to read.

        Raises:
            RuntimeError: If one driver after another ends without a batch.
        """
        if not self.driver.is_running:
            self.relaunched += 1
            self._futile = 0 if self._has_worked() else self._futile + 1
            if self._futile >= _FUTILE:
                raise RuntimeError(f"the job cannot go on: {self.driver.last_words()}")
            self.start_next()
        if feed:
            self.numbers.feed((self._trace.newest_batch + _LEAD) * ROWS)

    def start_next(self) -> None:
        """Start the next incarnation."""
        self.driver = self._launch(self.driver.incarnation + 1)

    def _launch(self, incarnation: int) -> Driver:
        args = json.dumps({**self._args, "incarnation": incarnation})
        # Its own folder first would let `import kafka` find the test bed's.
        command = [str(SPARK_PYTHON), "-P", str(paths.ROOT / "testbed" / "chaos_job.py"), args]
        return Driver(incarnation, command, spark_env(), self._folder / f"driver-{incarnation}.log")

    def _has_worked(self) -> bool:
        return any(sight.incarnation == self.driver.incarnation for sight in self._trace.sights)


def _cluster_conf(master: str) -> dict[str, str]:
    if not master.startswith("spark://"):
        return {}
    return {
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
    }
