"""Signals: SIGTERM to Python or to the JVM drains the queries before anything ends."""

from __future__ import annotations

import logging
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.agent.spark.untyped import Java

HOOK_PRIORITY = 1000
"""Above Spark's own: 50 stops the SparkContext, 100 stops the executor inside a local driver."""
log = logging.getLogger(__name__)


def on_sigterm(drain: Callable[[], object]) -> None:
    """Call ``drain`` in a thread of its own when Python gets SIGTERM: a handler must not block."""
    import threading

    def handle(_number: int, _frame: object) -> None:
        threading.Thread(target=drain, name="flinkstyle-sigterm", daemon=True).start()

    signal.signal(signal.SIGTERM, handle)


class JvmShutdownHook:
    """Drains when the JVM shuts down; it gets SIGTERM first under spark-submit."""

    def __init__(self, gateway: Java, drain: Callable[[], object]) -> None:
        from pyspark.java_gateway import ensure_callback_server_started

        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        self._manager = gateway.jvm.org.apache.spark.util.ShutdownHookManager
        self._hook = self._manager.addShutdownHook(HOOK_PRIORITY, _Function0(drain))

    def remove(self) -> None:
        """Take the hook away: the driver ends by itself."""
        from py4j.protocol import Py4JError

        try:
            self._manager.removeShutdownHook(self._hook)
        except Py4JError:
            log.info("The JVM is shutting down already")


class _Function0:
    """A ``scala.Function0`` for the JVM to call."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call

    def apply(self) -> None:
        """Call it."""
        self._call()

    def __getattr__(self, name: str) -> Java:
        """Answer to Scala's specialised name too, which is no Python identifier."""
        if name == "apply$mcV$sp":
            return self.apply
        raise AttributeError(name)

    class Java:
        """What py4j asks for."""

        implements = ("scala.Function0",)
