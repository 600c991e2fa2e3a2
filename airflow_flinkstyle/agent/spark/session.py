"""PySpark's session, as the agent's core asks it (``core.spark.Spark``)."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.spark.executors import timeout_s
from airflow_flinkstyle.agent.spark.groups import JvmGroup
from airflow_flinkstyle.agent.spark.hadoop_store import HadoopStore, needs_hadoop
from airflow_flinkstyle.agent.spark.kafka import describe_source, positions_at
from airflow_flinkstyle.agent.spark.signals import JvmShutdownHook
from airflow_flinkstyle.agent.spark.stand_in import StandIn, stand_in_of
from airflow_flinkstyle.agent.spark.tables import DeltaSinkTable, IcebergSinkTable
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.spark_versions import as_dict
from airflow_flinkstyle.storage.open import open_as_hadoop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from typing_extensions import Self

    from airflow_flinkstyle.agent.core.spark import Handle, RunsToCompare, StreamingSource
    from airflow_flinkstyle.agent.spark.untyped import Java, PySpark
    from airflow_flinkstyle.checkpoint.table_position import TableFormat
    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.offsets import Offsets
    from airflow_flinkstyle.protocol.comparison_records import ComparedQuery
    from airflow_flinkstyle.savepoint.compat import StateChanges
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from airflow_flinkstyle.storage.base import ObjectStore


class PySparkSession:
    """One of PySpark's sessions; there is one such object for each."""

    def __init__(self, spark: PySpark) -> None:
        self.spark, self._context = spark, spark.sparkContext
        self.jvm, self.version = self._context._jvm, spark.version  # noqa: SLF001

    @staticmethod
    def of(spark: PySpark) -> PySparkSession:
        """Return the object of a session."""
        found = spark.__dict__.setdefault("_flinkstyle", None) or PySparkSession(spark)
        spark.__dict__["_flinkstyle"] = found
        assert isinstance(found, PySparkSession)  # noqa: S101  # for mypy
        return found

    @property
    def application_id(self) -> str:
        """As the cluster knows it."""
        return str(self._context.applicationId)

    @property
    def ui_url(self) -> str | None:
        """None with ``spark.ui.enabled=false``."""
        url: str | None = self._context.uiWebUrl
        return url

    @property
    def default_format(self) -> str:
        """Of a sink, where the script names none."""
        return str(self.spark.conf.get("spark.sql.sources.default"))

    # --- settings

    def setting(self, name: str, default: str = "") -> str:
        """Return a setting of the session."""
        return str(self.spark.conf.get(name, default))

    def given(self, names: Iterable[str]) -> dict[str, str]:
        """Return those settings that are set in the session, without Spark's defaults."""
        confs = self.spark._jsparkSession.sessionState().conf()  # noqa: SLF001
        return {name: confs.getConfString(name) for name in names if confs.contains(name)}

    def start_settings(self) -> SessionSettings:
        """Return what the calling thread would start a query with."""
        return SessionSettings.now(self.spark)

    def require_executor_timeout(self) -> None:
        """Refuse an ``executorTimeout`` that is no time; raises ``BadInputError``."""
        timeout_s(self._context)

    # --- places

    def open(self, location: str) -> ObjectStore:
        """Open a checkpoint, or a place beside it, as executors reach it."""
        return HadoopStore(self.spark, location) if needs_hadoop(location) else open_as_hadoop(location)

    def needs_hadoop(self, location: str) -> bool:
        """Return whether only Hadoop's client can open a place."""
        return needs_hadoop(location)

    def open_by_hadoop(self, location: str) -> HadoopStore:
        """Open what the script names, as Spark does; raises ``BadInputError`` without such a client."""
        return HadoopStore(self.spark, location)

    def clear(self, location: str, *, but: str) -> None:
        """Remove all that is below a location but for one file; none is no error."""
        self._cleared(location, but)

    def remove(self, location: str, *, last: str) -> None:
        """Remove a location with all that is below it, one file last; none is no error."""
        files, path = self._cleared(location, last)
        files.delete(path, True)

    def _cleared(self, location: str, but: str) -> tuple[Java, Java]:
        """Remove all but one file; returns Spark's file system, and the location there."""
        path = self._path(location)
        files = path.getFileSystem(self._context._jsc.hadoopConfiguration())  # noqa: SLF001
        for entry in files.listStatus(path) if files.exists(path) else ():
            if entry.getPath().getName() != but:
                files.delete(entry.getPath(), True)
        return files, path

    def spelled(self, location: str) -> str:
        """Return a location as Spark 2.4 wrote it into a path."""
        return str(self._path(location).toUri().toString())

    def whole(self, location: str) -> str | None:
        """Return a location completed without reading its store; None if only the store could complete it."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import IllegalArgumentException

        conf = self._context._jsc.hadoopConfiguration()  # noqa: SLF001
        try:
            path = self._path(location)
            default = self.jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri(conf)
            if path.toUri().getScheme() is not None:  # the default's server is no part of it
                return str(path.toString())
            if not path.isAbsolute() and default.getScheme() != "file":
                return None
            working = self._path(self.jvm.java.lang.System.getProperty("user.dir"))
            return str(path.makeQualified(default, working).toString())
        except (Py4JJavaError, IllegalArgumentException):  # no path to Hadoop; plain Spark would refuse it
            return None

    def table(self, name: str) -> tuple[str | None, str | None] | None:
        """Return the provider and the place of a table; None if there is none."""
        if not self.spark.catalog.tableExists(name):
            return None
        described = self.spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
        rows = {row.col_name: row.data_type for row in described}
        return rows.get("Provider"), rows.get("Location")

    def sink_table(
        self, kind: TableFormat, name: str | None, path: str | None
    ) -> DeltaSinkTable | IcebergSinkTable:
        """Open a table with versions, by its name in a catalog or by its path."""
        place = (path or name) if kind == "delta" else (name or path)
        if place is None:
            raise BadInputError(
                f"A table of {kind} was expected to have a name or a path, found neither.",
                state_after="It was not read.",
                remedy="Let the script write to a table that exists, by toTable() or a path.",
            )
        return DeltaSinkTable(self.spark, place) if kind == "delta" else IcebergSinkTable(self.spark, place)

    def _path(self, location: str) -> Java:
        return self.jvm.org.apache.hadoop.fs.Path(location)

    # --- Kafka

    def describe(self, source: StreamingSource) -> ClusterView:
        """Describe the Kafka cluster of a source, as Spark reaches it; raises ``KafkaError``."""
        return describe_source(self.jvm, source)

    def positions_at(self, source: StreamingSource, at_ms: int) -> Offsets:
        """Return the first record of each partition that is of a time or later; the log's end without one."""
        return positions_at(self.jvm, source, at_ms)

    def group(self, source: StreamingSource, name: str) -> JvmGroup:
        """Return a consumer group on the cluster of a source."""
        return JvmGroup(self.jvm, source, name)

    # --- queries

    def active(self) -> list[tuple[str, str | None]]:
        """Return ids and names of all queries that run, those started past the agent too."""
        active = self.spark._jsparkSession.sharedState().activeStreamingQueries()  # noqa: SLF001
        return [(one.id().toString(), one.name()) for one in list(active.values())]

    def without_listeners(self) -> AbstractContextManager[None]:
        """Take the JVM's listeners of the session's queries away for a while."""
        return listeners_away(self.spark)

    def has_seen_an_end(self) -> bool:
        """Return whether a query of the session has ended: then ``awaitAnyTermination`` returns at once."""
        try:
            return bool(self.spark.streams._jsqm.awaitAnyTermination(1))  # noqa: SLF001
        except Exception:  # noqa: BLE001  # how a query ended that failed
            return True

    def forget_ends(self) -> None:
        """Let ``awaitAnyTermination`` wait for the next end."""
        self.spark.streams._jsqm.resetTerminated()  # noqa: SLF001

    def stand_in(self, name: str, query_id: str | None, begun: Callable[[], None]) -> Handle:
        """Return a handle for a query whose start is put off; ``begun`` waits for that start."""
        from pyspark.sql.streaming.query import StreamingQuery

        known = self.jvm.java.util.UUID.fromString(query_id) if query_id is not None else None
        handle: Handle = None

        def run() -> Java:
            begun()
            return handle._jsq  # noqa: SLF001

        handle = StreamingQuery(StandIn(name, known, run))
        return handle

    def asked_of(self, handle: Handle) -> str:
        """Return what the script asked first of a query that is put off; empty if it can wait."""
        stand_in = stand_in_of(handle)
        return stand_in.asked if stand_in is not None else ""

    def raised(self, error: Exception) -> bool:
        """Return whether an error is one of Spark's."""
        from pyspark.errors import PySparkException

        return isinstance(error, PySparkException)

    # --- its process

    def on_shutdown(self, call: Callable[[], object]) -> JvmShutdownHook:
        """Call this when Spark's process gets a signal to end."""
        return JvmShutdownHook(self._context._gateway, call)  # noqa: SLF001

    # --- a savepoint's state, moved by this session

    def in_rocksdb(self, repository: SavepointRepository, manifest: Manifest, location: str) -> Manifest:
        """Return a savepoint with its state in RocksDB; raises ``STATE_TRANSFORM``."""
        from airflow_flinkstyle.state.transform import in_rocksdb

        return in_rocksdb(self.spark, repository, manifest, location, self.open)

    def state_changed(
        self, repository: SavepointRepository, manifest: Manifest, asked: StateChanges, location: str
    ) -> Manifest:
        """Return a savepoint with its state changed as an upgrade has asked; raises ``STATE_TRANSFORM``."""
        from airflow_flinkstyle.state.asked import with_asked_changes

        return with_asked_changes(self.spark, repository, manifest, asked, location, self.open)

    def repartitioned(
        self, repository: SavepointRepository, manifest: Manifest, partitions: int, location: str
    ) -> tuple[Manifest, int]:
        """Return a savepoint with another number of partitions, and how many keys it has."""
        from airflow_flinkstyle.state.repartition import repartition

        done = repartition(self.spark, repository, manifest, partitions, location, self.open)
        return done.savepoint, done.keys

    # --- a comparison of what two versions have computed

    def compare(self, runs: RunsToCompare) -> ComparedQuery:
        """Compare rows and state of two runs of a query, with Spark's own settings and not the script's."""
        from airflow_flinkstyle.agent.spark.compare.states import compare

        return compare(self.spark.newSession(), runs)


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What a start depends on beside its query: the session's settings, the thread's local properties."""

    _session: Java
    """Spark's ``SessionState``."""
    _context: Java
    """Spark's own ``SparkContext``."""
    _settings: Java
    """A map of Scala, which does not change."""
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


_DRAIN_MS = 10_000
"""How long events that are under way may take to reach all listeners."""
_SPARKS_OWN = "org.apache.spark."
"""Spark's page of queries, which must know of each run, and Spark's wrapper of Python's listeners."""
log = logging.getLogger(__name__)


@contextmanager
def listeners_away(spark: PySpark) -> Iterator[None]:
    """Take the listeners of a session away for a while; afterwards they get events again.

    Those that Scala or a setting has registered: the agent cannot filter their events in the JVM, as it does
    for Python's listeners (``wrapping``). One that ends Spark when a query terminates would end the job at a
    savepoint, and at a stop that waits for other queries.
    """
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
    """Wait until earlier events have reached the listeners; Spark sends an end some time after it."""
    try:
        spark._jsc.sc().listenerBus().waitUntilEmpty(_DRAIN_MS)  # noqa: SLF001
    except Exception as error:  # noqa: BLE001  # py4j's; an event too many ends no savepoint
        log.warning("A listener of queries may get the events of a hold: %s", error)
