"""The settings of a session at one moment, and how a later start is given them."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.spark_versions import as_dict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self

    from airflow_flinkstyle.agent.spark.untyped import Java, PySpark


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What a start depends on beside its query: the session's settings, the thread's local properties."""

    _session: Java
    """Spark's ``SessionState``."""
    _context: Java
    """Spark's own ``SparkContext``."""
    _settings: Java
    """A map of Scala, which nobody changes."""
    _properties: Java

    @classmethod
    def now(cls, spark: PySpark) -> Self:
        """Return what the calling thread would start a query with."""
        session, context = spark._jsparkSession.sessionState(), spark.sparkContext._jsc.sc()  # noqa: SLF001
        return cls(session, context, session.conf().getAllConfs(), context.getLocalProperties().clone())

    @contextmanager
    def again(self) -> Iterator[None]:
        """Give them to the session and to the calling thread for a while."""
        self._context.setLocalProperties(self._properties.clone())
        current = self._session.conf().getAllConfs()
        if current.equals(self._settings):  # as nearly always: a script seldom changes them in between
            yield
            return
        self._change(current, self._settings)
        try:
            yield
        finally:
            self._change(self._settings, current)

    def _change(self, before: Java, after: Java) -> None:
        conf, old, new = self._session.conf(), as_dict(before), as_dict(after)
        for name in old.keys() - new.keys():
            conf.unsetConf(name)
        for name, value in new.items():
            if old.get(name) != value:
                conf.setConfString(name, value)
