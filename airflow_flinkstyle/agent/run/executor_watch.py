"""Ends a run that no executor works for any more: Spark itself waits for one for ever.

Its cluster may have given the application up while the driver could not be reached, or has no room for it.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.errors import NOT_STARTED, NoExecutorsError
from airflow_flinkstyle.agent.run.reasons import Failure
from airflow_flinkstyle.clock import CLOCK
from airflow_flinkstyle.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.agent.jvm.untyped import PySpark
    from airflow_flinkstyle.agent.run.reasons import Ending
    from airflow_flinkstyle.clock import Clock

TIMEOUT = "spark.flinkstyle.executorTimeout"
DEFAULT = "10min"
"""Longer than most clusters take to add a machine."""
LOOK_S = 2.0
log = logging.getLogger(__name__)


def timeout_of(spark: PySpark) -> int:
    """Return the seconds that a job of Spark's may wait for its first or next executor; 0: for ever.

    Raises:
        BadInputError: If the setting is no time as Spark writes it.
    """
    from pyspark.errors import PySparkException

    given = spark.conf.get(TIMEOUT, DEFAULT)
    try:
        return int(spark._jvm.org.apache.spark.network.util.JavaUtils.timeStringAsSec(given))  # noqa: SLF001
    except PySparkException as error:
        raise BadInputError(
            f"{TIMEOUT} was expected to be a time, found {given!r}.",
            state_after=NOT_STARTED,
            remedy="Write it as Spark's other times, such as 10min; 0 waits for ever.",
        ) from error


class ExecutorWatch(threading.Thread):
    """Looks whether jobs of Spark's run and nobody is there to run them."""

    def __init__(
        self, end: Callable[[Ending], None], ended: threading.Event, *, clock: Clock = CLOCK
    ) -> None:
        """Describe it.

        Args:
            end: Begins the end of the run, and returns.
            ended: Set once it has ended.
            clock: What it waits by.
        """
        super().__init__(name="flinkstyle-executors", daemon=True)
        self._end, self._ended, self._clock = end, ended, clock
        self._context: PySpark = None
        self._timeout_s = 0
        self._lacking_since_s: float | None = None

    def begin(self, spark: PySpark) -> None:
        """Start watching, if the driver is not its own executor."""
        self._context, self._timeout_s = spark.sparkContext, timeout_of(spark)
        if self._timeout_s > 0 and not self._spark_context().isLocal():
            self.start()

    def run(self) -> None:
        """Look until the run has ended."""
        while not self._ended.wait(LOOK_S):
            try:
                self.look()
            except Exception:  # a session that is being stopped, a JVM that ends
                log.debug("Executors cannot be counted", exc_info=True)

    def look(self) -> None:
        """End the run if its jobs have waited too long, and cancel them: its end waits for batches."""
        if not self._jobs_lack_executors():
            self._lacking_since_s = None
            return
        if self._lacking_since_s is None:
            self._lacking_since_s = self._clock.now_s
        waited_s = self._clock.now_s - self._lacking_since_s
        if waited_s >= self._timeout_s:
            self._lacking_since_s = None
            self._end(Failure.of(NoExecutorsError.after(waited_s, TIMEOUT)))
            self._context.cancelAllJobs()

    def _jobs_lack_executors(self) -> bool:
        stores = self._spark_context().getExecutorMemoryStatus().size()
        return stores <= 1 and bool(self._context.statusTracker().getActiveJobsIds())  # one is the driver's

    def _spark_context(self) -> PySpark:
        return self._context._jsc.sc()  # noqa: SLF001
