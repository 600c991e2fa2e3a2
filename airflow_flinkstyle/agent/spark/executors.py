"""Ends a driver that has no executor any more: Spark itself waits for one for ever.

Its cluster may have given the application up while the driver could not be reached, or have no room for it.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.core.errors import NOT_STARTED
from airflow_flinkstyle.agent.core.process import EXIT_NO_EXECUTORS
from airflow_flinkstyle.clock import CLOCK
from airflow_flinkstyle.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.agent.spark.process import DriverProcess
    from airflow_flinkstyle.agent.spark.untyped import PySpark
    from airflow_flinkstyle.clock import Clock

TIMEOUT = "spark.flinkstyle.executorTimeout"
DEFAULT = "10min"
"""Longer than most clusters take to add a machine."""
POLL_S = 2.0
log = logging.getLogger(__name__)


def timeout_s(context: PySpark) -> int:
    """Return how long jobs of Spark's may wait for their first or next executor; 0: for ever.

    Args:
        context: PySpark's ``SparkContext``.

    Raises:
        BadInputError: If the setting is no time as Spark writes it.
    """
    from pyspark.errors import PySparkException

    conf = context._conf  # noqa: SLF001
    try:
        return int(conf._jconf.getTimeAsSeconds(TIMEOUT, DEFAULT))  # noqa: SLF001
    except PySparkException as error:
        raise BadInputError(
            f"{TIMEOUT} was expected to be a time, found {conf.get(TIMEOUT)!r}.",
            state_after=NOT_STARTED,
            remedy="Write it as Spark's other times, such as 10min; 0 waits for ever.",
        ) from error


def patience_s() -> int | None:
    """Return how long Spark's jobs may wait for an executor, if they wait for one now; else None."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context  # noqa: SLF001
    if context is None or not context.statusTracker().getActiveJobsIds():
        return None
    spark = context._jsc.sc()  # noqa: SLF001
    if spark.isLocal() or len(spark.statusTracker().getExecutorInfos()) > 1:  # one is the driver
        return None
    return timeout_s(context) or None


class ExecutorWatch(threading.Thread):
    """Ends the process at once, as the watchdog does: no batch can end, so none is waited for."""

    def __init__(
        self,
        process: DriverProcess,
        *,
        patience_s: Callable[[], int | None] = patience_s,
        clock: Clock = CLOCK,
    ) -> None:
        super().__init__(name="flinkstyle-executors", daemon=True)
        self._process, self._patience_s, self._clock = process, patience_s, clock
        self._lacking_since_s: float | None = None

    def run(self) -> None:
        """Check until the process ends."""
        pause = threading.Event()
        while True:
            pause.wait(POLL_S)
            try:
                self.check()
            except Exception:  # a session that begins or is being stopped
                log.debug("Executors cannot be counted", exc_info=True)

    def check(self) -> None:
        """End the process if its jobs have waited for too long."""
        most_s = self._patience_s()
        if most_s is None:
            self._lacking_since_s = None
            return
        if self._lacking_since_s is None:
            self._lacking_since_s = self._clock.now_s
        waited_s = self._clock.now_s - self._lacking_since_s
        if waited_s >= most_s:
            log.error(
                "Spark's jobs have had no executor for %.0f s (%s). The driver ends; a watcher starts it "
                "again, which repeats the batch. Check the cluster's page for lost nodes, a full queue or "
                "quota, or an application that it has given up",
                waited_s,
                TIMEOUT,
            )
            self._process.halt(EXIT_NO_EXECUTORS)
