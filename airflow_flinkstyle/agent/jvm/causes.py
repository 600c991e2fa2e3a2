"""What a query failed of, by the classes of Java's exceptions: never by their text."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_flinkstyle.agent.jvm.untyped import Java, PySpark

_PASSES: Final = frozenset({"org.apache.kafka.common.errors.RetriableException"})
"""Kafka's own word for what may succeed if it is tried again: brokers away, a leader that moves."""
_LASTS: Final = frozenset(
    {
        "org.apache.kafka.common.errors.UnknownTopicOrPartitionException",  # deleted, as far as anybody knows
        "org.apache.kafka.common.errors.UnknownTopicIdException",
    }
)
_MOST_CAUSES: Final = 50
"""Causes may form a circle."""
log = logging.getLogger(__name__)


def failure_of(query: PySpark) -> PySpark:
    """Return the exception that ended a query, if one did, with Java's behind it.

    Spark keeps that of what it raises, and not of what it is asked for.
    """
    error = query.exception()
    if error is not None and getattr(error, "_origin", error) is None:
        error._origin = query._jsq.exception().get()  # noqa: SLF001
    return error


def passes(error: BaseException) -> bool:
    """Return whether what a query, or the script, failed of may pass by itself.

    Args:
        error: What Python caught; Spark's errors lead to Java's.
    """
    try:
        kinds = [set(_classes(cause)) for cause in _causes(error)]
    except Exception:  # the JVM may be gone: then nobody knows
        log.warning("The causes of %s could not be looked at", type(error).__name__, exc_info=True)
        return False
    return any(kind & _PASSES for kind in kinds) and not any(kind & _LASTS for kind in kinds)


def _causes(error: BaseException) -> Iterator[Java]:
    """Yield Java's exceptions behind one of Python's, the outermost first."""
    seen = 0
    python: BaseException | None = error
    while python is not None and seen < _MOST_CAUSES:
        # Spark's errors keep Java's, and py4j's has it, too.
        java = getattr(python, "_origin", None) or getattr(python, "java_exception", None)
        while java is not None and seen < _MOST_CAUSES:
            yield java
            java, seen = java.getCause(), seen + 1
        python, seen = getattr(python, "_cause", None) or python.__cause__, seen + 1


def _classes(java: Java) -> Iterator[str]:
    """Yield the names of an object's class and those above it."""
    kind = java.getClass()
    while kind is not None:
        yield kind.getName()
        kind = kind.getSuperclass()
