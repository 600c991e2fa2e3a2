"""Listeners of queries that Scala or a setting has registered: they do not hear that a query is only held.

Those of Python are told apart event by event (``script.listeners``); these run in the JVM, where nothing
stands between Spark and them. One that ends Spark when a query terminates would take the job down with a
savepoint, and with a stop that waits for other queries.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_flinkstyle.agent.spark.untyped import Java, PySpark

_DRAIN_MS = 10_000
"""How long events that are under way may take until all listeners have heard them."""
_SPARKS_OWN = "org.apache.spark."
"""Spark's page of queries, which must know of each run, and what stands for Python's listeners."""
log = logging.getLogger(__name__)


@contextmanager
def listeners_away(spark: PySpark) -> Iterator[None]:
    """Take the listeners of a session away meanwhile; afterwards they hear what happens from then on."""
    away: list[Java] = []
    manager = spark.streams._jsqm  # noqa: SLF001
    try:
        for listener in manager.listListeners():
            if not listener.getClass().getName().startswith(_SPARKS_OWN):
                manager.removeListener(listener)
                away.append(listener)
        yield
    finally:
        if away:
            _drain(spark)
        for listener in away:
            manager.addListener(listener)


def _drain(spark: PySpark) -> None:
    """Wait until events that were sent before have been heard; Spark tells of an end some time after it."""
    try:
        spark._jsc.sc().listenerBus().waitUntilEmpty(_DRAIN_MS)  # noqa: SLF001
    except Exception as error:  # noqa: BLE001  # py4j's; what a listener hears too much ends no savepoint
        log.warning("A listener of queries may hear that they were held: %s", error)
