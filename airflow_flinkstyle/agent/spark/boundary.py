"""Set Spark's stop flag where a query stops between two batches, and in none.

The engine looks at the flag before and after each batch, and once within it, between the batch's plan and its
run. There it interrupts its own thread while the batch's tasks run on: what they write into a sink that
promises each row at least once is written again when the batch is completed. So the flag is set only where
the engine does not come by that place again. It cannot plan or commit a batch while somebody else holds its
lock on the query's progress: this holds it still for that moment.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_flinkstyle.spark_versions import engine_states

if TYPE_CHECKING:
    from airflow_flinkstyle.agent.spark.untyped import Java

_IN_BATCH, _PLANS, _RUNS = ".executeOneBatch(", ".constructNextBatch(", ".runBatch("
_SLEEPS = ".waitTillTime("
_LOCKED_OUT = ("ReentrantLock.lock(", ".withProgressLocked(")
"""Methods by which the stack of the engine's thread tells where it is."""
_PATIENCE_MS = 50
log = logging.getLogger(__name__)


class EngineFlag:
    """The stop flag of one run of a query; for one thread, which may hold Spark's lock between two calls."""

    def __init__(self, jvm: Java, execution: Java) -> None:
        """Know the run; nothing is set.

        Args:
            jvm: The driver's.
            execution: Spark's ``StreamExecution``.
        """
        self._jvm, self._state = jvm, execution.state()
        self._thread, self._lock = execution.queryExecutionThread(), execution.awaitProgressLock()
        self._active, self._terminated = engine_states(jvm, self._state.get())
        self._holds = False

    def try_set(self) -> bool:
        """Set the flag if the engine is where it may be; returns whether it is set, and the lock free."""
        if not _keeps_threads(self._jvm):
            log.warning("PYSPARK_PIN_THREAD is off: a batch that is about to run may be interrupted")
            self._state.set(self._terminated)
            return True
        if not self._holds:
            self._take_lock()
        if not self._holds:
            return False  # it plans a batch, or commits one
        where = self._stack()
        if _IN_BATCH not in where and self._set_between():
            self.let_go()
            return True
        if not _is_locked_out(where):
            return False  # it has yet to come to the lock
        if _PLANS not in where:
            self._state.set(self._terminated)
            self.let_go()
            return True
        self.let_go()
        self._take_lock()  # behind the engine, before it comes by again: it may find nothing to do
        return False

    def sleeps(self) -> bool:
        """Return whether the engine waits for its next trigger: with the flag set it begins no batch then."""
        return _SLEEPS in self._stack()

    def _set_between(self) -> bool:
        """Set the flag where no batch was begun; take it back if one is begun in that very moment."""
        self._state.set(self._terminated)
        while _IN_BATCH in (where := self._stack()):
            locked_out = _is_locked_out(where)
            if _RUNS in where or (locked_out and _PLANS in where):
                if not self._thread.isInterrupted():  # else the script stops it as well
                    self._state.set(self._active)
                return False
            if locked_out:
                break
        return True

    def _take_lock(self) -> None:
        unit = self._jvm.java.util.concurrent.TimeUnit.MILLISECONDS
        self._holds = bool(self._lock.tryLock(_PATIENCE_MS, unit))  # without a time it would not queue up

    def let_go(self) -> None:
        """Give the lock back if it is held."""
        if self._holds:
            self._lock.unlock()
            self._holds = False

    def _stack(self) -> str:
        where = self._jvm.java.lang.Throwable()  # py4j prints no arrays
        where.setStackTrace(self._thread.getStackTrace())
        return str(self._jvm.py4j.Protocol.getThrowableAsString(where))


def _is_locked_out(stack: str) -> bool:
    """Return whether the engine waits for the lock that is held here."""
    return all(method in stack for method in _LOCKED_OUT)


def _keeps_threads(jvm: Java) -> bool:
    """Return whether a thread of Python is one of the JVM, as PySpark does: a thread holds a lock."""
    return type(jvm._gateway_client).__name__ == "JavaClient"  # noqa: SLF001 - it was "GatewayClient"
