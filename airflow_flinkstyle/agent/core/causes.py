"""Whether a failure may pass: by the classes of Java's exceptions; by text only for Python's errors."""

from __future__ import annotations

import logging
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

Java = Any
"""One of Java's exceptions, through py4j."""
_SCRIPT: Final = "it is an error of the script's own code, which would run again as it is"
_PLAN: Final = "Spark does not accept the query; the same query would be tried again"
_SETTING: Final = "a setting is wrong until somebody changes it"
_RIGHTS: Final = "a right or a login is missing until somebody grants or corrects it"
_RECORD: Final = "the same record would be met again"
_GONE: Final = "what was deleted does not come back by itself"
_KAFKA: Final = "org.apache.kafka.common"
FINAL_CLASSES: Final = MappingProxyType(
    {
        f"{_KAFKA}.errors.UnknownTopicOrPartitionException": _GONE,
        f"{_KAFKA}.errors.UnknownTopicIdException": _GONE,
        f"{_KAFKA}.errors.OffsetOutOfRangeException": _GONE,
        "org.apache.spark.sql.kafka010.KafkaIllegalStateException": _GONE,
        f"{_KAFKA}.errors.AuthorizationException": _RIGHTS,
        f"{_KAFKA}.errors.AuthenticationException": _RIGHTS,
        "org.apache.hadoop.security.AccessControlException": _RIGHTS,
        "java.nio.file.AccessDeniedException": _RIGHTS,
        f"{_KAFKA}.errors.RecordTooLargeException": _RECORD,
        f"{_KAFKA}.errors.InvalidTopicException": _SETTING,
        f"{_KAFKA}.errors.InvalidConfigurationException": _SETTING,
        f"{_KAFKA}.errors.UnsupportedVersionException": _SETTING,
        f"{_KAFKA}.config.ConfigException": _SETTING,
        "java.lang.IllegalArgumentException": _SETTING,
        "java.lang.ClassNotFoundException": _SETTING,
        "java.lang.LinkageError": _SETTING,
        "org.apache.spark.sql.AnalysisException": _PLAN,
        "java.lang.UnsupportedOperationException": _PLAN,
        "org.apache.spark.SparkArithmeticException": _RECORD,
        "org.apache.spark.SparkDateTimeException": _RECORD,
        "org.apache.spark.SparkNumberFormatException": _RECORD,
    }
)
"""Java's exceptions, and their subclasses, for which trying again cannot help -> why.

Every other one is taken for one that passes: a store, a name server or an executor that is away has many.
"""
_NOT_WITH_IO: Final = frozenset({_SETTING, _PLAN})
"""Reasons that do not count if an error of a network or a file caused them: while no name server knows the
name of a server, Hadoop raises an illegal argument."""
_IO: Final = frozenset(
    {
        "java.io.IOException",
        "java.nio.channels.UnresolvedAddressException",
        "java.util.concurrent.TimeoutException",
        f"{_KAFKA}.errors.RetriableException",
    }
)
FINAL_TYPES: Final = (
    *(SyntaxError, NameError, ImportError, AttributeError, TypeError, AssertionError, NotImplementedError),
    *(ValueError, KeyError, IndexError, ArithmeticError, ZeroDivisionError, OverflowError, RecursionError),
    *(IndentationError, UnboundLocalError, ModuleNotFoundError, UnicodeDecodeError, UnicodeEncodeError),
)
"""The same for Python, without subclasses: that of a library may mean that its server is away.

So may one that was raised while another was handled: PySpark 4.2 raises ``UnboundLocalError`` if a connection
to its JVM times out, since it closes in ``finally`` what it has not opened.
"""
_NAMES: Final = frozenset(kind.__name__ for kind in FINAL_TYPES)
_PYTHON: Final = frozenset({"org.apache.spark.api.python.PythonException", "py4j.Py4JException"})
"""Java's exceptions for an error that a function of the script raised: they hold Python's traceback."""
_RAISED: Final = re.compile(r"^[ \t].*\n([\w.]+)(?::.*)?$", re.MULTILINE)
"""The line after the frames of each error of a traceback, which names the type."""
_MOST_CAUSES: Final = 50
"""Causes may form a circle."""
log = logging.getLogger(__name__)


def passes(error: BaseException) -> bool:
    """Return whether the error that ended a query, or the script, may pass: all but those known to last.

    Args:
        error: As Python caught it; Spark's errors lead to Java's.
    """
    return why_final(error) is None


def why_final(error: BaseException) -> str | None:
    """Return why trying again cannot help; None if it may."""
    try:
        causes = [(set(_classes(java)), java) for java in _causes(error)]
        if not causes:
            return _SCRIPT if all(type(one) in FINAL_TYPES for one in _handled(error)) else None
        whys = [_why_final(kinds, java) for kinds, java in causes]
        is_io = [bool(kinds & _IO) for kinds, _ in causes]
        return next(
            (why for n, why in enumerate(whys) if why and not (why in _NOT_WITH_IO and any(is_io[n:]))), None
        )
    except Exception:  # the JVM may be gone; the next driver has another
        log.warning("The causes of %s could not be read", type(error).__name__, exc_info=True)
        return None


def _why_final(kinds: set[str], java: Java) -> str | None:
    if kinds & _PYTHON:
        raised = _RAISED.findall(str(java.getMessage()))
        return _SCRIPT if raised and all(name in _NAMES for name in raised) else None
    return next((why for name, why in FINAL_CLASSES.items() if name in kinds), None)


def _handled(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those that its traceback shows above it."""
    seen: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in seen:
        yield one
        seen.append(one)
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)


def _causes(error: BaseException) -> Iterator[Java]:
    """Yield Java's exceptions that caused one of Python's, the outermost first."""
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
